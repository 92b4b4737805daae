//! Persistent values as bytes: copying and comparing lines, with padding that may be uninitialised.
//!
//! Invariant: every copy made here may be read as bytes. The copy is of `MaybeUninit`, and before anything reads it
//! [`settle`] makes the compiler treat uninitialised bytes as initialised.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;

/// Bytes of a line: the unit of saving, of comparing and of the log.
pub(crate) const LINE: usize = 64;

/// A copy of a line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([MaybeUninit<u8>; LINE]);

impl Line {
    /// Appends a copy of the line at `from`.
    ///
    /// # Safety
    /// 64 bytes are readable at `from`, and nothing writes to them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn push(from: *const u8, to: &mut Vec<Line>) {
        to.reserve(1);
        let end = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise; space for a line was reserved, and any bytes are a valid line. Uninitialised
        // bytes are settled.
        unsafe {
            ptr::copy_nonoverlapping(from, end, LINE);
            settle(end);
            to.set_len(to.len() + 1);
        }
    }

    /// Copies the line to `to`.
    ///
    /// # Safety
    /// 64 bytes are writable at `to`, and no reference to them is in use.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(self.0.as_ptr(), to.cast(), LINE) };
    }

    /// Compares with the bytes at `at`. Under Miri, where bytes may be uninitialised, always false.
    ///
    /// # Safety
    /// 64 bytes are readable at `at` and [settled](settle); nothing writes to them meanwhile. It is the start of a
    /// line.
    #[inline(always)]
    pub(crate) unsafe fn is_at(&self, at: *const u8) -> bool {
        if cfg!(miri) {
            return false;
        }
        // SAFETY: both are settled, `self` when it was copied, and aligned; any bytes are numbers.
        let (saved, now) = unsafe { (&*ptr::from_ref(self).cast::<[u64; 8]>(), &*at.cast::<[u64; 8]>()) };
        // Compiles to vector instructions in every build; comparing the arrays would be a call.
        let mut differs = 0;
        let mut word = 0;
        while word < saved.len() {
            differs |= saved[word] ^ now[word];
            word += 1;
        }
        differs == 0
    }
}

/// Makes uninitialised bytes behind `bytes` ordinary bytes. Costs no instruction: as far as the compiler can tell, the
/// empty asm block writes them, and everything else reachable through that pointer.
#[inline(always)]
pub(crate) fn settle(bytes: *mut u8) {
    // Miri does not support assembly, and reports each read of such a byte.
    #[cfg(not(miri))]
    // SAFETY: no instruction is executed; the caller owns the bytes and might write to them as well.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) bytes, options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = bytes;
}

/// Appends `len` bytes at `from` to `to`.
///
/// # Safety
/// They are readable, and nothing writes to them meanwhile.
pub(crate) unsafe fn append(to: &mut Vec<u8>, from: *const u8, len: usize) {
    to.reserve(len);
    let end = to.spare_capacity_mut();
    // SAFETY: the caller's promise; `len` bytes were reserved; uninitialised bytes are settled before the new length
    // includes them.
    unsafe {
        ptr::copy_nonoverlapping(from.cast(), end.as_mut_ptr(), len);
        settle(end.as_mut_ptr().cast());
        to.set_len(to.len() + len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Padded(u8, u32, [u64; 7]);

    #[test]
    fn lines_with_padding_are_copied_and_put_back() {
        let mut value = Padded(1, 2, [3; 7]);
        let at: *mut Padded = &raw mut value;
        // SAFETY: the value is 64 bytes, and this thread's.
        unsafe {
            let mut lines = Vec::new();
            Line::push(at.cast(), &mut lines);
            let saved = lines[0];
            settle(at.cast());
            assert_eq!(saved.is_at(at.cast()), !cfg!(miri));
            (*at).1 = 9;
            (*at).2[6] = 4;
            settle(at.cast());
            assert!(!saved.is_at(at.cast()));
            saved.write(at.cast());
            assert_eq!(((*at).0, (*at).1, (*at).2), (1, 2, [3; 7]));
        }
    }

    #[test]
    fn bytes_are_appended() {
        let mut bytes = vec![1];
        // SAFETY: three bytes of a literal.
        unsafe { append(&mut bytes, b"234".as_ptr(), 3) };
        assert_eq!(bytes, b"\x01234");
    }
}
