//! Mappings of the program in its heap: each is a block, of which parts may be unmapped. The block is freed with its
//! last page. One machine keeps them: machine 0, or each its own where each has a heap of its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossamer::NoRef;

use crate::{heap, side, table};

/// A block that is a mapping.
struct Mapping {
    end: usize,
    /// Bytes that are mapped.
    left: usize,
}

#[derive(Default)]
struct Mappings {
    /// Blocks, by their start.
    blocks: BTreeMap<usize, Mapping>,
    /// Unmapped pieces of these blocks, by their start: their end.
    holes: BTreeMap<usize, usize>,
}

static MAPPINGS: Mutex<Mappings> = Mutex::new(Mappings { blocks: BTreeMap::new(), holes: BTreeMap::new() });

fn mappings() -> MutexGuard<'static, Mappings> {
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mappings {
    fn add(&mut self, block: usize, bytes: usize) {
        self.blocks.insert(block, Mapping { end: block + bytes, left: bytes });
    }

    /// Returns the parts of blocks in a range: block, and part.
    fn parts(&self, range: &Range<usize>) -> Vec<(usize, Range<usize>)> {
        let blocks = self.blocks.range(..range.end).rev().take_while(|(_, mapping)| mapping.end > range.start);
        blocks.map(|(block, mapping)| (*block, (*block).max(range.start)..mapping.end.min(range.end))).collect()
    }

    /// Takes the holes out of a range; returns their bytes in it. Those that reach beyond it are cut.
    fn fill(&mut self, range: &Range<usize>) -> usize {
        let holes = self.holes.range(..range.end).rev().take_while(|(_, end)| **end > range.start);
        let holes: Vec<_> = holes.map(|(start, end)| (*start, *end)).collect();
        let mut bytes = 0;
        for (start, end) in holes {
            self.holes.remove(&start);
            if start < range.start {
                self.holes.insert(start, range.start);
            }
            if end > range.end {
                self.holes.insert(range.end, end);
            }
            bytes += end.min(range.end) - start.max(range.start);
        }
        bytes
    }

    /// Maps again what was unmapped there.
    fn restore(&mut self, range: &Range<usize>) {
        for (block, part) in self.parts(range) {
            let filled = self.fill(&part);
            if let Some(mapping) = self.blocks.get_mut(&block) {
                mapping.left += filled;
            }
        }
    }

    /// Unmaps what is mapped there; returns a block of which nothing is left, if there is one: the call is then
    /// repeated.
    fn remove(&mut self, range: &Range<usize>) -> Option<usize> {
        for (block, part) in self.parts(range) {
            let had = part.len() - self.fill(&part);
            self.holes.insert(part.start, part.end);
            let mapping = self.blocks.get_mut(&block)?;
            mapping.left -= had;
            if mapping.left == 0 {
                let whole = block..mapping.end;
                self.blocks.remove(&block);
                self.fill(&whole);
                return Some(block);
            }
        }
        None
    }
}

/// Calls `f` on the machine that keeps the mappings of the calling thread's heap: before `main`, this one.
fn at_keeper<R: NoRef + Send + 'static>(f: impl FnOnce() -> R + NoRef + Send + 'static) -> R {
    match (table::has_begun(), table::is_explicit()) {
        (false, _) => f(),
        (true, true) => side::at(side::own_machine(), f),
        (true, false) => side::at(0, f),
    }
}

/// On a machine other than 0, as the program begins: forgets the mappings of its own constructors.
pub(crate) fn forget() {
    *mappings() = Mappings::default();
}

/// Notes a block as a mapping. From a thread of the program, as all functions here.
pub(crate) fn add(block: usize, bytes: usize) {
    at_keeper(move || mappings().add(block, bytes));
}

/// Notes that pages of mappings are mapped again, which may have been unmapped.
pub(crate) fn restore(start: usize, end: usize) {
    at_keeper(move || mappings().restore(&(start..end)));
}

/// Unmaps these pages. Blocks of which nothing is left are freed for the calling thread's machine.
pub(crate) fn remove(start: usize, end: usize) {
    while let Some(block) = at_keeper(move || mappings().remove(&(start..end))) {
        heap::free(block);
    }
}

#[cfg(test)]
mod tests {
    use super::Mappings;

    #[test]
    fn a_block_goes_with_its_last_page() {
        let mut mappings = Mappings::default();
        mappings.add(0x10000, 0x8000);
        mappings.add(0x20000, 0x4000);
        assert_eq!(mappings.remove(&(0x10000..0x12000)), None);
        assert_eq!(mappings.remove(&(0x14000..0x16000)), None);
        assert_eq!(mappings.remove(&(0x14000..0x16000)), None, "a second time");
        mappings.restore(&(0x13000..0x15000));
        assert_eq!(mappings.blocks[&0x10000].left, 0x5000);
        assert_eq!(mappings.remove(&(0x15000..0x18000)), None);
        assert_eq!(mappings.remove(&(0x12000..0x14000)), None, "a page that was restored is left");
        assert_eq!(mappings.remove(&(0x9000..0x22000)), Some(0x10000));
        assert_eq!(mappings.remove(&(0x9000..0x22000)), None);
        assert_eq!(mappings.remove(&(0..usize::MAX)), Some(0x20000));
        assert_eq!(mappings.remove(&(0..usize::MAX)), None);
        assert!(mappings.blocks.is_empty() && mappings.holes.is_empty());
    }
}
