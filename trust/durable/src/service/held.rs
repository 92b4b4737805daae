//! Results of one pool that a client's thread holds until their group is durable, in the order of calls. Nothing here
//! knows of threads, pools or messages.
//!
//! Invariants:
//! - An entry is returned once, in the order of calls, when its group is durable or the pool has ended: at once if
//!   that is known and nothing waits before it, otherwise by [`pop`](Held::pop).
//! - [record-stays] While a call is in flight or an entry waits the record is not [quiet](Held::is_quiet), so
//!   notifications of the pool are received meanwhile.
//!
//! Checked by loom, together with `waiting.rs`: `model.rs`.

use std::collections::VecDeque;

use crate::error::Error;

/// Notification of a pool.
#[derive(Clone, Copy)]
pub(crate) enum Notification {
    Durable(u64),
    Gone,
}

/// Final state of a result.
pub(crate) type Verdict = Result<(), Why>;

/// Reason why a result will not be durable.
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

/// Successive results of one group with equal entries.
struct Run<W> {
    mark: u64,
    entry: W,
    count: usize,
}

/// Queue of held results. The caller that takes an entry `W` from here calls it with its verdict.
pub(super) struct Held<W> {
    durable: u64,
    end: Option<Why>,
    queue: VecDeque<Run<W>>,
    /// Results in the queue.
    len: usize,
    /// Calls in flight.
    calls: usize,
}

/// Returns the verdict for a group. A durable group stays durable, also after a loss.
fn verdict(mark: u64, durable: u64, end: Option<&Why>) -> Verdict {
    match end {
        Some(why) if mark > durable => Err(why.clone()),
        _ => Ok(()),
    }
}

impl<W: Clone> Held<W> {
    pub(super) fn new() -> Self {
        Held { durable: 0, end: None, queue: VecDeque::new(), len: 0, calls: 0 }
    }

    /// Counts a new call.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.calls += 1;
    }

    /// Counts a call as ended: its result is delivered, or held here.
    #[inline]
    pub(super) fn finish(&mut self) {
        self.calls -= 1;
    }

    /// Is nothing awaited any more?
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.calls == 0 && self.queue.is_empty()
    }

    /// Has the pool ended?
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the verdict of a result of this group, if it is known and nothing waits before it.
    #[inline]
    pub(super) fn verdict(&self, mark: u64) -> Option<Verdict> {
        // To keep the order of calls a result queues behind waiting ones, even if its group is durable.
        let is_known = self.queue.is_empty() && self.is_decided(mark);
        is_known.then(|| verdict(mark, self.durable, self.end.as_ref()))
    }

    /// Queues a result that has no verdict yet. Its entry is made if it is not equal to the one before.
    #[inline]
    pub(super) fn push(&mut self, mark: u64, is_equal: impl FnOnce(&W) -> bool, entry: impl FnOnce() -> W) {
        self.len += 1;
        match self.queue.back_mut() {
            Some(last) if mark <= last.mark && is_equal(&last.entry) => last.count += 1,
            last => {
                let mark = last.map_or(mark, |last| last.mark.max(mark));
                self.queue.push_back(Run { mark, entry: entry(), count: 1 });
            }
        }
    }

    /// Applies a notification of the pool.
    pub(super) fn receive(&mut self, notification: Notification) {
        match notification {
            Notification::Durable(group) => self.durable = self.durable.max(group),
            Notification::Gone => self.end = Some(Why::Gone),
        }
    }

    /// Applies the notification that the disk failed after group `durable`.
    pub(super) fn receive_lost(&mut self, durable: u64, cause: String) {
        self.durable = self.durable.max(durable);
        self.end = Some(Why::Lost(cause));
    }

    /// Removes the first result, and returns its entry.
    pub(super) fn take_first(&mut self) -> Option<W> {
        let first = self.queue.front_mut()?;
        self.len -= 1;
        if first.count > 1 {
            first.count -= 1;
            return Some(first.entry.clone());
        }
        self.queue.pop_front().map(|last| last.entry)
    }

    #[inline]
    fn is_decided(&self, mark: u64) -> bool {
        mark <= self.durable || self.end.is_some()
    }

    /// Does the first entry have a verdict?
    pub(super) fn is_ready(&self) -> bool {
        self.queue.front().is_some_and(|first| self.is_decided(first.mark))
    }

    /// Removes the first entry with its verdict, if it has one.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(W, Verdict)> {
        let mark = self.queue.front()?.mark;
        if !self.is_decided(mark) {
            return None;
        }
        self.take_first().map(|entry| (entry, verdict(mark, self.durable, self.end.as_ref())))
    }
}
