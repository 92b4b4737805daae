//! Queues of a part: calls that wait for a chunk, and requests to homes for them.

use std::collections::VecDeque;
use std::ops::Range;

use trust::link::without_waiting;

use super::{Job, Lent, Part};
use crate::directory::{Right, Who};
use crate::frame::Frame;
use crate::operator::Op;
use crate::post;

/// Queue of jobs for a chunk.
#[derive(Default)]
pub(super) struct Line {
    /// The right that was requested and not yet granted.
    pub(super) asked: Option<Right<Op>>,
    pub(super) waiting: VecDeque<(Right<Op>, Job)>,
}

impl Part {
    /// Runs a job as soon as the right is at this place: at once, or with the grant. Never waits.
    pub(crate) fn access(&self, chunk: u32, right: Right<Op>, job: Job) {
        let is_busy = self.frame(chunk).is_some_and(Frame::is_busy);
        without_waiting(|| match if is_busy { None } else { self.ready("access", chunk, right) } {
            Some(frame) => self.work(frame, |part, frame| job(part, Lent::Frame(frame))),
            None => self.stand_in_line(chunk, right, Some(job)),
        });
    }

    /// Requests a chunk that will be read soon, by this right.
    pub(crate) fn fetch(&self, chunk: u32, wanted: Right<Op>) {
        let is_here = self
            .frame(chunk)
            .is_some_and(|frame| frame.is_busy() || frame.right().is_some_and(|right| right.covers(wanted)));
        if !is_here && !self.lines.borrow().contains_key(&chunk) {
            without_waiting(|| self.stand_in_line(chunk, wanted, None));
        }
    }

    /// Requests the chunks of a range, as many as fit into the cache.
    pub(crate) fn fetch_all(&self, range: Range<usize>) {
        let under_way = self.lines.borrow().len();
        let room = self.cache.frames_max.saturating_sub(self.cache.used() + under_way);
        self.shape.pieces(range).take(room).for_each(|(chunk, _)| self.fetch(chunk, Right::Read));
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

    /// Requests a right from the home.
    fn ask(&self, chunk: u32, right: Right<Op>) {
        let home = self.shape.home(chunk);
        if home == self.own {
            return self.keep(chunk, |entry, steps| entry.want(Who::Home, right, steps));
        }
        self.make_room();
        // Others may change the chunk before the grant comes [stops-first].
        self.leave_near(chunk);
        if right != Right::Write
            && let Some(frame) = self.frame(chunk)
            && frame.right() == Some(Right::Read)
        {
            frame.set_right(None);
            self.enter(frame);
        }
        match right.plain() {
            Ok(right) => post::want(self, chunk, right),
            Err(op) => (op.0.send_want)(self, chunk),
        }
    }

    /// Called after a read miss: if the misses are sequential, requests the next chunks.
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

    /// Runs the queued jobs that this right allows, then requests the right for the first one that it does not.
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
            if let Some(near) = self.near(chunk) {
                job(self, near);
                continue;
            }
            let frame = self.frame(chunk).unwrap_or_else(|| unreachable!("a right to it is here"));
            self.work(self.frame_for(wanted, frame), |part, frame| job(part, Lent::Frame(frame)));
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
