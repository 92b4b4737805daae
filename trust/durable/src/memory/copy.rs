//! Bytes of persistent values as bytes: copying and comparing lines, whose padding nobody has written.
//!
//! Invariant: what is copied out of here may be looked at as bytes. A copy is of `MaybeUninit`, and before it is shown
//! [`settle`] has the compiler take what was left open for written.

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
    /// 64 bytes may be read there, and nobody writes them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn push(from: *const u8, to: &mut Vec<Line>) {
        to.reserve(1);
        let end = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise; room for a line was reserved, and any bytes are one. What was left open is
        // settled.
        unsafe {
            ptr::copy_nonoverlapping(from, end, LINE);
            settle(end);
            to.set_len(to.len() + 1);
        }
    }

    /// Puts it back.
    ///
    /// # Safety
    /// 64 bytes may be written at `to`, and no reference to them is in use.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(self.0.as_ptr(), to.cast(), LINE) };
    }

    /// Are these the bytes at `at`? Where that cannot be known (under Miri, whose bytes may be unwritten), no.
    ///
    /// # Safety
    /// 64 bytes may be read there, which are [settled](settle); nobody writes them meanwhile. It is a line's start.
    #[inline(always)]
    pub(crate) unsafe fn is_at(&self, at: *const u8) -> bool {
        if cfg!(miri) {
            return false;
        }
        // SAFETY: both are settled, `self` when it was copied, and aligned; any bytes are numbers.
        let (saved, now) = unsafe { (&*ptr::from_ref(self).cast::<[u64; 8]>(), &*at.cast::<[u64; 8]>()) };
        // In vectors, where the comparison of arrays is a call.
        saved.iter().zip(now).fold(0, |differs, (saved, now)| differs | (saved ^ now)) == 0
    }
}

/// From here on the bytes behind `bytes` that nobody wrote are bytes like any other. Costs no instruction: as far as
/// the compiler may conclude, the empty block writes them, and all else that may be reached by that pointer.
#[inline(always)]
pub(crate) fn settle(bytes: *mut u8) {
    // Miri knows no assembly, and finds each read of such a byte.
    #[cfg(not(miri))]
    // SAFETY: nothing is executed; the caller owns the bytes and might write them as well.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) bytes, options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = bytes;
}

/// Appends `len` bytes at `from` to `to`.
///
/// # Safety
/// They may be read, and nobody writes them meanwhile.
pub(crate) unsafe fn append(to: &mut Vec<u8>, from: *const u8, len: usize) {
    to.reserve(len);
    let end = to.spare_capacity_mut();
    // SAFETY: the caller's promise; so much room was reserved; what was left open is settled before the length says
    // that it is there.
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
