//! A part's lines: calls that wait for a chunk, and what is asked of homes for them.

use std::collections::VecDeque;
use std::ops::Range;

use trust::link::without_waiting;

use super::{Job, Part};
use crate::frame::Frame;
use crate::keeper::{Right, Who};
use crate::operator::Op;
use crate::post;

/// Those that wait for a chunk.
#[derive(Default)]
pub(super) struct Line {
    /// The right that was asked for and is not here yet.
    pub(super) asked: Option<Right<Op>>,
    pub(super) waiting: VecDeque<(Right<Op>, Job)>,
}

impl Part {
    /// Has a job done as soon as the right is here: at once, or with the grant. Never waits.
    pub(crate) fn access(&self, chunk: u32, right: Right<Op>, job: Job) {
        let is_busy = self.frame(chunk).is_some_and(Frame::is_busy);
        without_waiting(|| match if is_busy { None } else { self.ready("access", chunk, right) } {
            Some(frame) => self.work(frame, job),
            None => self.stand_in_line(chunk, right, Some(job)),
        });
    }

    /// Asks for a chunk that will be read soon.
    pub(crate) fn fetch(&self, chunk: u32) {
        let is_here = self
            .frame(chunk)
            .is_some_and(|frame| frame.is_busy() || frame.right().is_some_and(|right| right.covers(Right::Read)));
        if !is_here && !self.lines.borrow().contains_key(&chunk) {
            without_waiting(|| self.stand_in_line(chunk, Right::Read, None));
        }
    }

    /// Asks for the chunks of a range, as many as the cache has room for.
    pub(crate) fn fetch_all(&self, range: Range<usize>) {
        let under_way = self.lines.borrow().len();
        let room = self.cache.frames_max.saturating_sub(self.cache.used() + under_way);
        self.shape.pieces(range).take(room).for_each(|(chunk, _)| self.fetch(chunk));
    }

    fn stand_in_line(&self, chunk: u32, right: Right<Op>, job: Option<Job>) {
        if self.is_poisoned.get() {
            return;
        }
        let is_first = {
            let mut lines = self.lines.borrow_mut();
            let line = lines.entry(chunk).or_default();
            line.waiting.extend(job.map(|job| (right, job)));
            let is_first = line.asked.is_none();
            line.asked.get_or_insert(right);
            is_first
        };
        if is_first {
            self.counters.count(|stats| stats.misses += 1);
            self.ask(chunk, right);
        }
    }

    /// Asks the home for a right.
    fn ask(&self, chunk: u32, right: Right<Op>) {
        let home = self.shape.home(chunk);
        if home == self.own {
            return self.keep(chunk, |keeper, steps| keeper.want(Who::Home, right, steps));
        }
        self.make_room();
        match right {
            Right::Read => post::want_to_read(self, chunk),
            Right::Write => post::want_to_write(self, chunk),
            Right::Combine(op) => {
                // Others may combine before the grant comes, so who combines reads no more (K4).
                if let Some(frame) = self.frame(chunk)
                    && frame.right() == Some(Right::Read)
                {
                    frame.set_right(None);
                    self.enter(frame);
                }
                (op.0.send_want)(self, chunk);
            }
        }
    }

    /// After a miss in reading: if it is one more in order, asks for the chunks behind.
    pub(crate) fn read_ahead(&self, chunk: u32) {
        let depth = self.settings.prefetch;
        let (chunk, next) = (chunk as usize, self.next_in_order.get());
        let mut ahead = chunk + 1;
        if chunk <= next && next <= chunk + depth {
            let elements = |chunk: usize| (chunk << self.shape.shift).min(self.shape.elements);
            self.fetch_all(elements(ahead)..elements(ahead + depth));
            ahead += depth;
        }
        self.next_in_order.set(ahead);
    }

    /// Does what stands in line and is allowed by this right, then asks for what it does not allow.
    pub(super) fn serve_line(&self, chunk: u32, right: Right<Op>) {
        if let Some(frame) = self.frame(chunk)
            && frame.is_busy()
        {
            return self.late.borrow_mut().push((chunk, right));
        }
        loop {
            let next = {
                let mut lines = self.lines.borrow_mut();
                let Some(line) = lines.get_mut(&chunk) else { return };
                let at = line.waiting.iter().position(|(wanted, _)| right.covers(*wanted));
                at.and_then(|at| line.waiting.remove(at))
            };
            let Some((wanted, job)) = next else { break };
            let frame = self.frame(chunk).unwrap_or_else(|| unreachable!("a right to it is here"));
            let frame = if wanted == Right::Read { frame } else { self.without_views(frame) };
            self.work(frame, job);
        }
        let next = {
            let mut lines = self.lines.borrow_mut();
            let next = lines.get_mut(&chunk).and_then(|line| {
                line.asked = line.waiting.front().map(|(right, _)| *right);
                line.asked
            });
            if next.is_none() {
                lines.remove(&chunk);
            }
            next
        };
        if let Some(right) = next {
            self.ask(chunk, right);
        }
    }
}
