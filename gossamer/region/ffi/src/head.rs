//! Descriptions of blocks of the heap: the head before each, and words for freed ones.

use crate::runs::UNIT_BYTES;
use crate::size_class::{ALIGN, SMALL_CLASSES, bytes_of};

/// Header before each block.
#[repr(C)]
pub(crate) struct Head {
    /// The class in the lowest byte, and above it the machine of the span; for large blocks [`LARGE`], and above it the
    /// length in units.
    pub(crate) kind: u32,
    /// Offset of the block from the start of its allocation.
    pub(crate) offset: u32,
    pub(crate) magic: u64,
}

pub(crate) const USED: u64 = 0x6775_7365_6420_6f66;
pub(crate) const FREED: u64 = 0x6672_6565_6420_6f66;
/// Class of large blocks.
pub(crate) const LARGE: u32 = 0xff;
/// Most units of a large block.
pub(crate) const UNITS_MAX: usize = (1 << 24) - 1;

const _: () = assert!(SMALL_CLASSES < LARGE as usize);

impl Head {
    pub(crate) fn kind_of_small(class: usize, machine: u16) -> u32 {
        class as u32 | u32::from(machine) << 8
    }

    /// Returns the head of a small block that begins behind it.
    #[inline(always)]
    pub(crate) fn small(kind: u32) -> Head {
        Head { kind, offset: size_of::<Head>() as u32, magic: USED }
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> usize {
        (self.kind & 0xff) as usize
    }

    /// Returns the machine of a small block's span.
    pub(crate) fn machine(&self) -> u16 {
        (self.kind >> 8) as u16
    }

    /// Returns the bytes of the allocation.
    pub(crate) fn bytes(&self) -> usize {
        match self.kind & 0xff {
            LARGE => (self.kind >> 8) as usize * UNIT_BYTES,
            class => bytes_of(class as usize),
        }
    }
}

/// A free small block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: usize,
    pub(crate) class: u16,
    /// The machine that it goes to.
    pub(crate) machine: u16,
}

impl Block {
    pub(crate) fn new(class: usize, start: usize) -> Block {
        Block { start, class: class as u16, machine: 0 }
    }

    /// Returns the same block, of that machine.
    pub(crate) fn of(self, machine: u16) -> Block {
        Block { machine, ..self }
    }

    /// Returns start and class in a word.
    pub(crate) fn to_word(self) -> u64 {
        self.start as u64 | u64::from(self.class) << ADDRESS_BITS
    }

    /// Returns the block of a word.
    pub(crate) fn of_word(word: u64) -> Block {
        Block::new((word >> ADDRESS_BITS) as usize, (word & ((1 << ADDRESS_BITS) - 1)) as usize)
    }
}

/// Bits of an address of the program.
const ADDRESS_BITS: u32 = 48;

const _: () = assert!(size_of::<Head>() == ALIGN);
