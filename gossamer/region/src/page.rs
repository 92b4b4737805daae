//! Pages of a region by number, and runs of pages, which travel together.

use std::ops::Range;

use zerocopy::FromZeros;

/// Bytes of a page: the least that one fault brings.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Pages of a block. A block has one home, and a run lies in one block.
pub(crate) const BLOCK_PAGES: u32 = 64;

/// Returns a table for this many pages, all zero. It takes memory where it is touched.
pub(crate) fn zeroed<T: FromZeros + Clone + Default>(pages: usize) -> Vec<T> {
    T::new_vec_zeroed(pages).unwrap_or_else(|_| vec![T::default(); pages])
}

/// Consecutive pages of a region, in one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Run {
    pub(crate) fn one(page: u32) -> Run {
        Run { first: page, count: 1 }
    }

    pub(crate) fn pages(self) -> Range<u32> {
        self.first..self.first + self.count
    }

    /// Returns its range of bytes in the region.
    pub(crate) fn bytes(self) -> Range<usize> {
        self.first as usize * PAGE_BYTES..(self.first + self.count) as usize * PAGE_BYTES
    }

    /// Returns the end of the block that contains `page`.
    pub(crate) fn block_end(page: u32) -> u32 {
        page - page % BLOCK_PAGES + BLOCK_PAGES
    }
}

/// Placement of the homes of a region's pages: the machines that know the holders of each page.
///
/// ```
/// use gossamer_region::{Homes, Region};
/// gossamer_region::main(|| assert!(Region::with_homes(1 << 20, Homes::At(0)).is_ok()), 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Homes {
    /// Homes in blocks of 64 pages over all machines.
    #[default]
    Spread,
    /// All at one machine, as the central server of STRETCH.
    At(u16),
}

impl Homes {
    /// Returns the home of a page among this many machines.
    pub(crate) fn of(self, page: u32, machines: u16) -> u16 {
        match self {
            Homes::Spread => (page / BLOCK_PAGES % u32::from(machines)) as u16,
            Homes::At(machine) => machine,
        }
    }

    /// Returns the index of a page in the table of its home.
    pub(crate) fn index(self, page: u32, machines: u16) -> usize {
        match self {
            Homes::Spread => (page / BLOCK_PAGES / u32::from(machines) * BLOCK_PAGES + page % BLOCK_PAGES) as usize,
            Homes::At(_) => page as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_in_blocks_over_all_machines() {
        for machines in 1..=5 {
            let mut seen: Vec<Vec<bool>> = vec![vec![]; usize::from(machines)];
            for page in 0..64 * 20 {
                let (home, index) = (Homes::Spread.of(page, machines), Homes::Spread.index(page, machines));
                assert_eq!(home, Homes::Spread.of(page - page % 64, machines), "a block has one home");
                let seen = &mut seen[usize::from(home)];
                seen.resize(seen.len().max(index + 1), false);
                assert!(!std::mem::replace(&mut seen[index], true), "two pages have one place");
            }
            assert!(seen.iter().flatten().all(|seen| *seen), "no place is left empty");
        }
        assert_eq!((Homes::At(3).of(77, 4), Homes::At(3).index(77, 4)), (3, 77));
    }
}
