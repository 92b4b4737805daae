//! Spans of small blocks: each is a unit of the heap, divided into blocks of one size. A span whose blocks are all free
//! goes back as a run.

use std::collections::BTreeSet;

use crate::runs::UNIT_BYTES;
use crate::size_class::{SMALL_CLASSES, bytes_of};

/// One span.
struct Span {
    class: u8,
    /// Blocks from this one on were never given.
    fresh: u16,
    /// Blocks that were freed.
    free: Vec<u16>,
}

impl Span {
    fn blocks(&self) -> u16 {
        (UNIT_BYTES / bytes_of(self.class.into())) as u16
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty() || self.fresh < self.blocks()
    }

    fn is_empty(&self) -> bool {
        self.free.len() == usize::from(self.fresh)
    }

    fn take(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let is_there = self.fresh < self.blocks();
            is_there.then(|| {
                self.fresh += 1;
                self.fresh - 1
            })
        })
    }
}

/// Spans of one machine.
pub(crate) struct Spans {
    /// By their unit's number, counted from the heap's start.
    spans: Vec<Option<Span>>,
    /// Spans with free blocks of each class. The first are taken first, so that the last become empty.
    with_room: [BTreeSet<usize>; SMALL_CLASSES],
}

impl Spans {
    pub(crate) const fn new() -> Spans {
        Spans { spans: vec![], with_room: [const { BTreeSet::new() }; SMALL_CLASSES] }
    }

    /// Adds a span of blocks of this class.
    pub(crate) fn add(&mut self, class: usize, unit: usize) {
        if self.spans.len() <= unit {
            self.spans.resize_with(unit + 1, || None);
        }
        self.spans[unit] = Some(Span { class: class as u8, fresh: 0, free: vec![] });
        self.with_room[class].insert(unit);
    }

    /// Takes free blocks of a class; returns how many there were. `heap` is the heap's start.
    pub(crate) fn take(&mut self, class: usize, heap: usize, blocks: &mut [usize]) -> usize {
        let mut taken = 0;
        while taken < blocks.len()
            && let Some(unit) = self.with_room[class].first().copied()
        {
            let span = self.spans[unit].as_mut();
            match span.and_then(Span::take) {
                Some(place) => {
                    blocks[taken] = heap + unit * UNIT_BYTES + usize::from(place) * bytes_of(class);
                    taken += 1;
                }
                None => _ = self.with_room[class].pop_first(),
            }
        }
        taken
    }

    /// Frees a block at this offset from the heap's start; returns the unit of a span that is now empty and no longer
    /// one. An error: there is no such block.
    pub(crate) fn free(&mut self, class: usize, offset: usize) -> Result<Option<usize>, ()> {
        let (unit, within) = (offset / UNIT_BYTES, offset % UNIT_BYTES);
        let span = self.spans.get_mut(unit).and_then(Option::as_mut).ok_or(())?;
        let place = within / bytes_of(class);
        let is_there = usize::from(span.class) == class
            && within.is_multiple_of(bytes_of(class))
            && place < usize::from(span.fresh)
            && !span.is_empty();
        if !is_there {
            return Err(());
        }
        let had_room = span.has_room();
        span.free.push(place as u16);
        if !had_room {
            self.with_room[class].insert(unit);
        }
        // Another one has room: threads that take and free one block do not make and unmake a span each time.
        if span.is_empty() && self.with_room[class].len() > 1 {
            self.with_room[class].remove(&unit);
            self.spans[unit] = None;
            return Ok(Some(unit));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size_class::class_of;

    const HEAP: usize = 1 << 40;

    #[test]
    fn empty_spans_go_back_but_for_the_last() {
        let class = class_of(1024);
        let mut spans = Spans::new();
        let mut blocks = [0; 200];
        assert_eq!(spans.take(class, HEAP, &mut blocks), 0);
        [3, 1].into_iter().for_each(|unit| spans.add(class, unit));
        assert_eq!(spans.take(class, HEAP, &mut blocks), 128);
        let distinct: BTreeSet<usize> = blocks[..128].iter().copied().collect();
        assert_eq!(distinct.len(), 128);
        assert!(distinct.iter().all(|block| [1, 3].contains(&((block - HEAP) / UNIT_BYTES)) && block % 1024 == 0));
        let emptied: Vec<usize> =
            distinct.iter().filter_map(|block| spans.free(class, block - HEAP).unwrap()).collect();
        assert_eq!(emptied.len(), 1, "the last one stays");
        assert_eq!(spans.take(class, HEAP, &mut blocks), 64);
    }

    #[test]
    fn blocks_that_do_not_exist_are_refused() {
        let class = class_of(64);
        let mut spans = Spans::new();
        spans.add(class, 0);
        assert_eq!(spans.free(class, 0), Err(()), "it was never taken");
        assert_eq!(spans.take(class, 0, &mut [0; 3]), 3);
        assert_eq!(spans.free(class, 32), Err(()), "it is no block's start");
        assert_eq!(spans.free(class + 1, 0), Err(()), "its class is another one");
        assert_eq!(spans.free(class, UNIT_BYTES), Err(()), "there is no span");
        for offset in [0, 64, 128] {
            assert_eq!(spans.free(class, offset), Ok(None));
        }
        assert_eq!(spans.free(class, 64), Err(()), "all are free");
    }
}
