//! What a client's thread holds of one pool: results that wait for their group, in the order of calls. Nothing here
//! knows of threads, pools or messages.
//!
//! Invariants:
//! - K1: an entry is given back once, in the order of calls, when its group is durable or the pool has ended: at once
//!   if that is known and nothing waits before it, else by [`pop`](Held::pop).
//! - K2: while a call is under way or an entry waits the record is not [quiet](Held::is_quiet), so what the pool says
//!   meanwhile is heard.
//!
//! Checked by loom, together with `waiting.rs`: `model.rs`.

use std::collections::VecDeque;

use crate::error::Error;

/// What a pool says.
#[derive(Clone, Copy)]
pub(crate) enum News {
    Durable(u64),
    Gone,
}

/// What becomes of a result.
pub(crate) type Verdict = Result<(), Why>;

/// Why a result will not be durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Lost(String),
    Gone,
}

impl From<Why> for Error {
    fn from(why: Why) -> Error {
        match why {
            Why::Lost(cause) => Error::Lost { cause },
            Why::Gone => Error::Gone,
        }
    }
}

/// See the file's documentation. `W` is called with its verdict, by whoever gets it from here.
pub(super) struct Held<W> {
    durable: u64,
    end: Option<Why>,
    queue: VecDeque<(u64, W)>,
    /// Calls that are under way.
    calls: usize,
}

/// Of an entry of this group. What is durable is, whatever came later.
fn verdict(mark: u64, durable: u64, end: Option<&Why>) -> Verdict {
    match end {
        Some(why) if mark > durable => Err(why.clone()),
        _ => Ok(()),
    }
}

impl<W> Held<W> {
    pub(super) fn new() -> Self {
        Held { durable: 0, end: None, queue: VecDeque::new(), calls: 0 }
    }

    /// A call begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.calls += 1;
    }

    /// A call has ended: it is told, or held here.
    #[inline]
    pub(super) fn finish(&mut self) {
        self.calls -= 1;
    }

    /// Nothing is awaited any more.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.calls == 0 && self.queue.is_empty()
    }

    /// The pool has said its last word.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The verdict of a result of this group, if it is known and nothing waits before it.
    #[inline]
    pub(super) fn verdict(&self, mark: u64) -> Option<Verdict> {
        // Behind what waits, whatever its group: in the order of calls.
        let is_known = self.queue.is_empty() && self.is_decided(mark);
        is_known.then(|| verdict(mark, self.durable, self.end.as_ref()))
    }

    /// Keeps an entry whose verdict is not known.
    #[inline]
    pub(super) fn push(&mut self, mark: u64, entry: W) {
        let mark = self.queue.back().map_or(mark, |&(last, _)| last.max(mark));
        self.queue.push_back((mark, entry));
    }

    /// Hears what the pool says.
    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Durable(group) => self.durable = self.durable.max(group),
            News::Gone => self.end = Some(Why::Gone),
        }
    }

    /// Hears that the disk failed, after this group.
    pub(super) fn hear_lost(&mut self, durable: u64, cause: String) {
        self.durable = self.durable.max(durable);
        self.end = Some(Why::Lost(cause));
    }

    /// The first entry, which nobody will be told of.
    pub(super) fn abandon(&mut self) -> Option<W> {
        self.queue.pop_front().map(|(_, entry)| entry)
    }

    #[inline]
    fn is_decided(&self, mark: u64) -> bool {
        mark <= self.durable || self.end.is_some()
    }

    /// Is there an entry whose verdict is known?
    pub(super) fn is_ready(&self) -> bool {
        self.queue.front().is_some_and(|&(mark, _)| self.is_decided(mark))
    }

    /// The first entry and its verdict, if that is known.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(W, Verdict)> {
        if !self.is_ready() {
            return None;
        }
        let (mark, entry) = self.queue.pop_front()?;
        Some((entry, verdict(mark, self.durable, self.end.as_ref())))
    }
}
