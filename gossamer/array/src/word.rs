//! Elements of 1, 2, 4 or 8 bytes: the workers of a machine may use these in place, in the memory of their home
//! ([`Right::InPlace`](crate::directory::Right::InPlace)), several at a time.
//!
//! Loads and stores of such elements are relaxed atomics, the instructions of plain ones. Everything that touches a
//! whole chunk has it to itself, or only beside readers; a message lies between both ways of use.

#![allow(unsafe_code)]

use std::mem::transmute_copy;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::element::Element;

/// Are elements of this size used in place?
pub(crate) const fn is_word(bytes: usize) -> bool {
    matches!(bytes, 1 | 2 | 4 | 8)
}

/// Returns an element.
///
/// # Safety
/// It lies there, at a multiple of its size, and is written meanwhile by [`store`] at most; not even by that if its
/// size is none of a word.
#[inline(always)]
pub(crate) unsafe fn load<T: Element>(at: *mut T) -> T {
    // Relaxed: a message, with an order of its own, lies between writes and reads that have one.
    // SAFETY: the caller's promise; the word has the size of a `T`, and any bytes are one.
    unsafe {
        match size_of::<T>() {
            1 => transmute_copy(&AtomicU8::from_ptr(at.cast()).load(Ordering::Relaxed)),
            2 => transmute_copy(&AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed)),
            4 => transmute_copy(&AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed)),
            8 => transmute_copy(&AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed)),
            _ => at.read(),
        }
    }
}

/// Sets an element.
///
/// # Safety
/// It lies there, at a multiple of its size, and others use it meanwhile by [`load`] and [`store`] at most; not even so
/// if its size is none of a word.
#[inline(always)]
pub(crate) unsafe fn store<T: Element>(at: *mut T, value: T) {
    // Relaxed: as in `load`.
    // SAFETY: the caller's promise; a `T` has no padding, as it is `IntoBytes`, and the size of the word.
    unsafe {
        match size_of::<T>() {
            1 => AtomicU8::from_ptr(at.cast()).store(transmute_copy(&value), Ordering::Relaxed),
            2 => AtomicU16::from_ptr(at.cast()).store(transmute_copy(&value), Ordering::Relaxed),
            4 => AtomicU32::from_ptr(at.cast()).store(transmute_copy(&value), Ordering::Relaxed),
            8 => AtomicU64::from_ptr(at.cast()).store(transmute_copy(&value), Ordering::Relaxed),
            _ => at.write(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps<T: Element + PartialEq + std::fmt::Debug>(values: [T; 2]) {
        let mut place = [values[0]; 3];
        let at = place.as_mut_ptr().wrapping_add(1);
        // SAFETY: an element of the array, which nothing else uses.
        unsafe {
            assert_eq!(load(at), values[0]);
            store(at, values[1]);
            assert_eq!(load(at), values[1]);
        }
        assert_eq!(place, [values[0], values[1], values[0]]);
    }

    #[test]
    fn elements_of_any_size_are_kept() {
        keeps([1u8, 0xfe]);
        keeps([1i16, -2]);
        keeps([1.5f32, -0.25]);
        keeps([u64::MAX, 7]);
        keeps([[1u8, 2, 3], [4, 5, 6]]);
        keeps([[1u64, 2], [3, 4]]);
        assert!(is_word(size_of::<f64>()) && !is_word(size_of::<[u8; 3]>()) && !is_word(16));
    }
}
