//! The name of an object: its address and its version. Each write renames the object, so that copies of earlier
//! versions are not found any more.

use std::fmt;
use std::num::NonZeroU64;

/// Objects lie at multiples of this.
pub(crate) const GRAIN: usize = 16;
const OFFSET_BITS: u32 = 44;
/// Bytes that a partition can have.
pub(crate) const PARTITION_BYTES_MAX: usize = GRAIN << OFFSET_BITS;
/// Numbers of places: they have 20 bits. The last one is no place ([`At::NOWHERE`]).
pub(crate) const PLACES_MAX: usize = 1 << 20;

/// Place of an object: the number of its place in the rack, and the offset in that place's partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct At(u64);

impl At {
    /// Place of the object of an owner that was lent and has not come back: no program has so many places.
    pub(crate) const NOWHERE: At = At(u64::MAX);

    #[inline(always)]
    pub(crate) fn new(place: u32, offset: usize) -> At {
        debug_assert!((place as usize) < PLACES_MAX && offset.is_multiple_of(GRAIN) && offset < PARTITION_BYTES_MAX);
        At(u64::from(place) << OFFSET_BITS | (offset / GRAIN) as u64)
    }

    /// Its place's number.
    #[inline(always)]
    pub(crate) fn place(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    /// Returns the offset in bytes, in the partition of its place.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * GRAIN
    }

    /// It as a word of the heap.
    #[inline(always)]
    pub(crate) fn to_word(self) -> u64 {
        self.0
    }

    /// The place of which this is the word.
    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> At {
        At(word)
    }

    /// The offset in bytes, with the rest of the place's number above it.
    #[inline(always)]
    pub(crate) fn shifted(self) -> usize {
        (self.0 << GRAIN.trailing_zeros()) as usize
    }
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {} + {:#x}", self.place(), self.offset())
    }
}

/// A whole name: two words in this order, by which `replicas/leaving.rs` finds names in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Name {
    pub(crate) at: At,
    pub(crate) version: Version,
}

/// It rises by one with each write; never 0, so that an `Option` of an owner costs nothing.
pub(crate) type Version = NonZeroU64;

impl Name {
    /// The name after a write.
    #[inline(always)]
    pub(crate) fn renamed(self) -> Name {
        Name { version: self.version.saturating_add(1), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_back_what_they_were_made_of() {
        for (place, offset) in [(0, 0), (1, 16), (PLACES_MAX as u32 - 2, PARTITION_BYTES_MAX - 16)] {
            let at = At::new(place, offset);
            assert_eq!((at.place(), at.offset()), (place, offset));
            assert_eq!(at.shifted() - At::new(place, 0).shifted(), offset);
            assert_ne!(at, At::NOWHERE);
        }
        assert_eq!(At::NOWHERE.place() as usize, PLACES_MAX - 1);
    }
}
