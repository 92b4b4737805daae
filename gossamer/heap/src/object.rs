//! The kinds of objects: sized ones, slices, strings.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr;

use gossamer::{Frozen, NoRef};

/// Types that an owner can own: sized types, slices, and `str`. There is nothing to implement.
///
/// # Safety
/// `layout` is that of a value at `at`, and no value of a sized type is longer than its layout.
pub unsafe trait Object: 'static {
    /// Beside its address: nothing, or how many there are.
    type Meta: Copy + Send + Sync + NoRef + Frozen + 'static;
    /// Has it a destructor?
    #[doc(hidden)]
    const DROPS: bool;
    #[doc(hidden)]
    fn layout(meta: Self::Meta) -> Layout;
    #[doc(hidden)]
    fn at(address: *mut u8, meta: Self::Meta) -> *mut Self;
    #[doc(hidden)]
    fn to_word(meta: Self::Meta) -> usize;
    #[doc(hidden)]
    fn from_word(word: usize) -> Self::Meta;
}

/// No object needs more.
pub(crate) const ALIGN_MAX: usize = 4096;

/// Returns the layout of a slice, for its allocation.
pub(crate) fn slice_layout<T>(len: usize) -> Layout {
    const { assert!(align_of::<T>() <= ALIGN_MAX, "objects of the heap may be aligned to 4096 bytes at most") };
    // One that is longer than memory has no room either, which is reported where it is asked for.
    let longest = || Layout::from_size_align(isize::MAX as usize / ALIGN_MAX * ALIGN_MAX, align_of::<T>());
    Layout::array::<T>(len)
        .or_else(|_| longest())
        .unwrap_or_else(|_| unreachable!("it is a layout for all alignments up to that"))
}

// SAFETY: as the trait says.
unsafe impl<T: 'static> Object for T {
    type Meta = ();
    const DROPS: bool = std::mem::needs_drop::<T>();

    #[inline(always)]
    fn layout((): ()) -> Layout {
        const { assert!(align_of::<T>() <= ALIGN_MAX, "objects of the heap may be aligned to 4096 bytes at most") };
        Layout::new::<T>()
    }

    #[inline(always)]
    fn at(address: *mut u8, (): ()) -> *mut T {
        address.cast()
    }

    fn to_word((): ()) -> usize {
        0
    }

    fn from_word(_: usize) {}
}

// SAFETY: as the trait says.
unsafe impl<T: 'static> Object for [T] {
    type Meta = usize;
    const DROPS: bool = std::mem::needs_drop::<T>();

    #[inline]
    fn layout(len: usize) -> Layout {
        slice_layout::<T>(len)
    }

    #[inline(always)]
    fn at(address: *mut u8, len: usize) -> *mut [T] {
        ptr::slice_from_raw_parts_mut(address.cast(), len)
    }

    fn to_word(len: usize) -> usize {
        len
    }

    fn from_word(len: usize) -> usize {
        len
    }
}

// SAFETY: as the trait says.
unsafe impl Object for str {
    type Meta = usize;
    const DROPS: bool = false;

    #[inline]
    fn layout(len: usize) -> Layout {
        slice_layout::<u8>(len)
    }

    #[inline(always)]
    fn at(address: *mut u8, len: usize) -> *mut str {
        ptr::slice_from_raw_parts_mut(address, len) as *mut str
    }

    fn to_word(len: usize) -> usize {
        len
    }

    fn from_word(len: usize) -> usize {
        len
    }
}
