//! Hints to the memory system: lines that this core will soon read or write. No other effect.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Bytes of a cache line, or a whole fraction of it.
pub(crate) const LINE_BYTES: usize = 64;

/// Prefetches lines for writing, from this address on.
#[inline(always)]
pub(crate) fn will_write(from: *const u8, lines: usize) {
    (0..lines).for_each(|line| write_line(from.wrapping_add(line * LINE_BYTES)));
}

/// Prefetches lines for reading, from this address on.
#[inline(always)]
pub(crate) fn will_read(from: *const u8, lines: usize) {
    (0..lines).for_each(|line| read_line(from.wrapping_add(line * LINE_BYTES)));
}

#[inline(always)]
fn write_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is a hint: it has no effect on registers, flags or memory, and never faults.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[inline(always)]
fn read_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `write_line`.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Prefetches the target of the low 48 bits of this word, if they are an address, for reading and writing.
#[inline(always)]
pub(crate) fn will_follow(word: MaybeUninit<u64>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is a hint, as in `write_line`; nothing depends on the word, which need not be
    // initialised.
    unsafe {
        std::arch::asm!("shl {0}, 16", "shr {0}, 16", "prefetcht0 \
                                                       [{0}]", inout(reg) word => _, options(nostack, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = word;
}
