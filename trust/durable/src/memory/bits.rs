//! Two bits a line: touched in this transaction, changed in this group. The bits of 16 KiB of lines share a cache line.

#![allow(unsafe_code)]

use std::io;

use super::region::Region;

const LINES_A_WORD: usize = 32;

/// The bits of all lines of a pool.
pub(crate) struct Bits {
    words: Region,
}

/// One of the two bits.
#[derive(Clone, Copy)]
pub(crate) enum Bit {
    Touched = 0,
    Changed = 1,
}

impl Bits {
    /// Reserves the bits of `lines` lines; none is accessible yet.
    pub(crate) fn of(lines: usize) -> io::Result<Bits> {
        Ok(Bits { words: Region::reserve(lines.div_ceil(LINES_A_WORD) * 8)? })
    }

    /// Makes the bits of the first `lines` lines accessible.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn grow(&self, lines: usize) -> io::Result<()> {
        self.words.grow(lines.div_ceil(LINES_A_WORD) * 8)
    }

    #[inline(always)]
    fn word(&self, line: usize) -> *mut u64 {
        let at = line / LINES_A_WORD * 8;
        debug_assert!(at < self.words.accessible());
        // SAFETY: `grow` made the words accessible for all lines that the pool has made accessible.
        unsafe { self.words.base().add(at).cast() }
    }

    #[inline(always)]
    fn mask(line: usize, bit: Bit) -> u64 {
        1 << (line % LINES_A_WORD * 2 + bit as usize)
    }

    #[inline(always)]
    pub(crate) fn has(&self, line: usize, bit: Bit) -> bool {
        // SAFETY: `word` is in range; only the trustee's thread accesses the bits.
        unsafe { *self.word(line) & Self::mask(line, bit) != 0 }
    }

    /// Sets the bit; returns whether it was clear.
    #[inline(always)]
    pub(crate) fn set(&self, line: usize, bit: Bit) -> bool {
        let word = self.word(line);
        // SAFETY: as in `has`.
        unsafe {
            let before = *word;
            *word = before | Self::mask(line, bit);
            before & Self::mask(line, bit) == 0
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&self, line: usize, bit: Bit) {
        // SAFETY: as in `has`.
        unsafe { *self.word(line) &= !Self::mask(line, bit) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_neighbours_are_apart() {
        let bits = Bits::of(100).expect("room");
        assert!(bits.grow(100).is_ok() && bits.grow(1 << 20).is_err());
        assert!(bits.set(31, Bit::Touched) && !bits.set(31, Bit::Touched));
        assert!(bits.set(31, Bit::Changed) && bits.set(32, Bit::Touched) && bits.set(99, Bit::Changed));
        bits.clear(31, Bit::Touched);
        let set = |bit| (0..100).filter(|&line| bits.has(line, bit)).collect::<Vec<_>>();
        assert_eq!((set(Bit::Touched), set(Bit::Changed)), (vec![32], vec![31, 99]));
    }
}
