//! A part as the home of its chunks: their directory entries, and the actions after a change of one.
//!
//! Each message changes one directory entry (`directory.rs`), and the resulting steps are executed in order. A step
//! that causes more steps only appends them to the list, so that no recall overtakes a grant. Handlers validate
//! messages of peers before they act on them.

use std::cell::Cell;

use super::Part;
use crate::directory::{Entry, Right, Step, Who};
use crate::operator::Op;
use crate::post;

/// Data that comes back with a right.
pub(crate) enum Content<'a> {
    Nothing,
    Written(&'a [u8]),
    Combined(Op, &'a [u8]),
}

/// Data that comes with a grant.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    /// The place has the elements, or does not need them.
    None,
    Bytes(&'a [u8]),
    /// Their offset in the share of the home's machine. They do not change until the right is given back.
    At(usize),
}

impl Part {
    /// Changes the directory entry of an own chunk, and executes the resulting steps.
    pub(super) fn keep(&self, chunk: u32, change: impl FnOnce(&mut Entry<Op>, &mut Vec<Step<Op>>)) {
        let mut steps = self.fresh.take();
        let mut entries = self.entries.borrow_mut();
        let entry = entries.entry(chunk).or_insert_with(Entry::new);
        change(entry, &mut steps);
        let right = entry.right_of_home();
        if entry.is_at_rest() {
            entries.remove(&chunk);
        }
        drop(entries);
        self.steps.borrow_mut().extend(steps.drain(..).map(|step| (chunk, step)));
        self.fresh.set(steps);
        if let Some(frame) = self.frame(chunk) {
            let frame = if right == Some(Right::InPlace) { self.without_views(frame) } else { frame };
            frame.set_right(right);
            self.enter(frame);
        }
        // In order: a step that causes more steps only appends them here.
        if self.is_stepping.replace(true) {
            return;
        }
        struct Rest<'a>(&'a Cell<bool>);
        impl Drop for Rest<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let _rest = Rest(&self.is_stepping);
        while let Some((chunk, step)) = { self.steps.borrow_mut().pop_front() } {
            self.take(chunk, step);
        }
    }

    fn take(&self, chunk: u32, step: Step<Op>) {
        match step {
            Step::Grant { to: Who::Home, right, .. } => self.serve_line(chunk, right),
            Step::Grant { to: Who::Place(place), right: Right::InPlace, .. } => {
                let frame = self.frame(chunk).unwrap_or_else(|| unreachable!("an own chunk has a frame"));
                post::grant_near(self, place as usize, chunk, frame.elements().expose_provenance());
            }
            Step::Grant { to: Who::Place(place), right, with_data } => {
                let frame = self.frame(chunk).unwrap_or_else(|| unreachable!("an own chunk has a frame"));
                let place = place as usize;
                let elements = match self.home.in_share(frame).filter(|_| self.copies[place].get()) {
                    _ if !with_data => Elements::None,
                    Some(at) => {
                        self.counters.count(|stats| stats.bytes += self.bytes_of(chunk) as u64);
                        Elements::At(at)
                    }
                    // SAFETY: nothing else runs meanwhile [part-one-thread].
                    None => Elements::Bytes(unsafe { self.elements(frame) }),
                };
                post::grant(self, place, chunk, right, elements);
            }
            Step::Recall { from, number, keeps_reading } => {
                self.counters.count(|stats| stats.recalls += 1);
                post::recall(self, from as usize, chunk, number, keeps_reading);
            }
        }
    }

    /// Handles another place's request for a right to an own chunk. With `copies` that place maps the share of this
    /// machine.
    pub(crate) fn wanted(&self, chunk: u32, by: usize, right: Right<Op>, copies: bool) {
        self.check_own(chunk, by);
        let is_in_place = matches!(right, Right::InPlace | Right::Glance);
        assert!(
            !is_in_place || self.is_of_process(by),
            "place {by} wants chunk {chunk} in place, and has no such memory"
        );
        if copies {
            self.copies[by].set(true);
        }
        self.keep(chunk, |entry, steps| entry.want(Who::Place(by as u32), right, steps));
    }

    /// Handles a right to an own chunk that another place gives back.
    pub(crate) fn came_back(&self, chunk: u32, from: usize, number: u64, reads: bool, content: Content<'_>) {
        self.check_own(chunk, from);
        let frame = self.frame(chunk).unwrap_or_else(|| unreachable!("an own chunk has a frame"));
        let frame = if matches!(content, Content::Nothing) { frame } else { self.without_views(frame) };
        match content {
            Content::Nothing => {}
            Content::Written(bytes) => {
                self.check_bytes(chunk, bytes);
                // SAFETY: the chunk has as many bytes, and nothing reads them now [part-one-thread],
                // [pinned-unchanged].
                unsafe { frame.elements().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
            }
            Content::Combined(op, bytes) => {
                self.check_bytes(chunk, bytes);
                self.counters.count(|stats| stats.merges += 1);
                // SAFETY: the chunk has as many bytes; the operator's code finds the frame busy.
                let merge = || unsafe { (op.0.merge)(frame.elements(), bytes) };
                self.work(frame, |part, _| post::guarded(part, "an operator", merge));
            }
        }
        self.keep(chunk, |entry, steps| {
            let known = entry.back(from as u32, number, reads, steps);
            assert!(known.is_ok(), "place {from} gave back a right to chunk {chunk} that it had not");
        });
    }

    /// Is this a chunk of this place, with `count` elements from `first` on?
    pub(crate) fn holds(&self, chunk: u32, first: usize, count: usize) -> bool {
        (chunk as usize) < self.shape.chunks()
            && self.shape.home(chunk) == self.own
            && first.saturating_add(count) <= self.shape.elements_of(chunk).len()
    }

    fn check_own(&self, chunk: u32, place: usize) {
        assert!(
            self.holds(chunk, 0, 0) && place < self.places.len(),
            "a message of place {place} for chunk {chunk}, which is not here"
        );
    }

    pub(super) fn check_bytes(&self, chunk: u32, bytes: &[u8]) {
        assert!(bytes.len() == self.bytes_of(chunk), "{} bytes came for chunk {chunk}", bytes.len());
    }
}
