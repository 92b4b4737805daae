//! A part as the holder of other places' chunks: grants, recalls, and eviction.

use super::{Elements, Part};
use crate::directory::Right;
use crate::frame::Frame;
use crate::operator::Op;
use crate::post;

impl Part {
    /// Handles a grant from the home.
    pub(crate) fn granted(&self, chunk: u32, right: Right<Op>, elements: Elements<'_>) {
        if self.is_poisoned.get() {
            return; // nobody waits for it, and its home may be gone
        }
        assert!((chunk as usize) < self.shape.chunks(), "a grant of chunk {chunk}, which there is not");
        self.counters.count(|stats| stats.grants += 1);
        let here = self.frame(chunk);
        let has_none = matches!(elements, Elements::None);
        let is_whole = !has_none
            || matches!(right, Right::Combine(_))
            || here.is_some_and(|here| here.right() == Some(Right::Read));
        assert!(is_whole, "a grant of chunk {chunk} came without its elements");
        let frame = match here {
            Some(frame) if has_none && right == Right::Write => frame,
            Some(frame) => self.without_views(frame),
            None => {
                let frame = self.cache.take(chunk, false);
                let mut cached = self.cached.borrow_mut();
                frame.set_position(cached.len());
                cached.push(frame);
                frame
            }
        };
        match elements {
            Elements::None => {}
            Elements::Bytes(data) => {
                self.check_bytes(chunk, data);
                // SAFETY: the chunk has as many bytes, and nothing reads them now [part-one-thread],
                // [pinned-unchanged].
                unsafe { frame.elements().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            }
            Elements::At(offset) => self.copy_from_home(frame, offset),
        }
        if let Right::Combine(op) = right {
            // SAFETY: a chunk has as many elements.
            unsafe { (op.0.clear)(frame.elements(), self.shape.chunk()) };
        }
        frame.set_right(Some(right));
        self.enter(frame);
        self.serve_line(chunk, right);
    }

    /// Copies the elements of a chunk from its home, through the share of its machine.
    fn copy_from_home(&self, frame: Frame, offset: usize) {
        let chunk = frame.chunk();
        self.counters.count(|stats| stats.copied += 1);
        // SAFETY: [frame-one-thread] a frame has a chunk's bytes, and nothing reads them now [part-one-thread],
        // [pinned-unchanged].
        let into = unsafe { std::slice::from_raw_parts_mut(frame.elements(), self.bytes_of(chunk)) };
        let share = self.share_of(self.shape.home(chunk));
        let read = share.as_ref().map(|share| share.read(offset, into));
        let waits = || self.lines.borrow().get(&chunk).is_some_and(|line| !line.waiting.is_empty());
        // Without waiters the array may already be dropped at home, with its memory (`room.rs`).
        assert!(matches!(read, Some(Ok(()))) || !waits(), "a grant of chunk {chunk}, which lies nowhere: {read:?}");
    }

    /// Handles a recall from the home.
    pub(crate) fn recalled(&self, chunk: u32, number: u64, keeps_reading: bool) {
        self.leave_near(chunk);
        let frame = self.frame(chunk).filter(|frame| !frame.is_home());
        let Some(frame) = frame else {
            // It was used in place; or dropped, and the notification reaches the home before this answer.
            return post::back(self, chunk, number, false, None);
        };
        let keeps_reading = keeps_reading && frame.right() == Some(Right::Write);
        if keeps_reading {
            self.send_back(frame, number, true);
            frame.set_right(Some(Right::Read));
            self.enter(frame);
        } else {
            self.drop_chunk(frame, number);
        }
    }

    fn send_back(&self, frame: Frame, number: u64, reads: bool) {
        let chunk = frame.chunk();
        // SAFETY: nothing else runs meanwhile [part-one-thread].
        let elements = unsafe { self.elements(frame) };
        match frame.right() {
            Some(Right::Write) => post::back(self, chunk, number, reads, Some(elements)),
            Some(Right::Combine(op)) => (op.0.send_back)(self, chunk, number, elements),
            Some(Right::Read | Right::Glance | Right::InPlace) | None => post::back(self, chunk, number, false, None),
        }
    }

    /// Drops a chunk of another place and notifies its home.
    fn drop_chunk(&self, frame: Frame, number: u64) {
        self.send_back(frame, number, false);
        self.forget(frame);
    }

    /// Takes a frame out of use.
    pub(super) fn forget(&self, frame: Frame) {
        self.word(frame.chunk() as usize).set(0);
        {
            let mut cached = self.cached.borrow_mut();
            cached.swap_remove(frame.position());
            if let Some(moved) = cached.get(frame.position()) {
                moved.set_position(frame.position());
            }
        }
        if frame.is_pinned() {
            frame.make_orphan();
        } else {
            self.cache.give_back(frame);
        }
    }

    /// If the cache is nearly full, evicts chunks until enough frames are free again (DArray 4.2, fig. 7). Skips chunks
    /// that are being changed, awaited, or viewed; if all are, the cache grows beyond its limit.
    pub(super) fn make_room(&self) {
        let limit = self.cache.frames_max;
        let under_way = self.lines.borrow().len();
        let kept = |free: f64| (limit as f64 * (1.0 - free)) as usize;
        if self.cache.used() + under_way <= kept(self.settings.watermarks.0) {
            return;
        }
        let mut looks = self.cached.borrow().len();
        while looks > 0 && self.cache.used() + under_way > kept(self.settings.watermarks.1) {
            looks -= 1;
            let at = self.hand.get();
            let Some(frame) = self.cached.borrow().get(at).copied() else {
                self.hand.set(0);
                continue;
            };
            if frame.is_busy() || frame.is_pinned() || self.lines.borrow().contains_key(&frame.chunk()) {
                self.hand.set(at + 1);
                continue;
            }
            self.counters.count(|stats| stats.evictions += 1);
            self.drop_chunk(frame, 0);
            // The last frame has taken its place: it is the newest.
            self.hand.set(at + 1);
        }
    }
}
