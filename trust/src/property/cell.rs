//! A property in memory: an 8-byte header, then the value, or a box of it where it is large. Its place and its type are
//! in `slab.rs`; the count of its trusts in `reclaim.rs`.
//!
//! A property is touched by its trustee's thread alone, from the moment its trust is first used there. The thread that
//! entrusts it to another trustee writes it before, and hands it over with the request or the trust (whichever reaches
//! the trustee first carries the writes along).

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;

use super::header::{Header, PropertyType};
use super::slab::{self, PropertySlab, SLOT_BYTES_MAX};

/// A property of type `T`, or of type `Box<T>` where [`IS_BOXED`](Property::IS_BOXED).
#[repr(C, align(8))]
pub(crate) struct Property<T> {
    header: Header,
    value: UnsafeCell<T>,
}

impl<T: 'static> Property<T> {
    const KIND: &'static PropertyType = &PropertyType { drop: Self::drop, slot: Self::SLOT, value: TypeId::of::<T>() };
    /// A power of two up to a cache line: then a property lies in one line.
    const SLOT: Layout = {
        let (size, align) = if Self::IS_BOXED { (16, 8) } else { (size_of::<Self>(), align_of::<Self>()) };
        match Layout::from_size_align(if size <= 64 { size.next_power_of_two() } else { size }, align) {
            Ok(slot) => slot,
            Err(_) => panic!("slot layout"),
        }
    };

    /// Makes a new property with one trust, in this slab.
    pub(crate) fn allocate(slab: &Arc<PropertySlab>, value: T) -> *mut Header {
        let property = slab.allocate(Self::KIND);
        // SAFETY: the room is for this type (`SLOT`), and ours.
        unsafe { Self::write(property, value) };
        property
    }

    /// Makes properties with one trust each, beside each other in this slab. Returns their places, for
    /// [`nth`](Self::nth).
    pub(crate) fn allocate_run(slab: &Arc<PropertySlab>, values: Vec<T>) -> Box<[*mut u8]> {
        let run = slab.allocate_run(Self::KIND, values.len());
        for (number, value) in values.into_iter().enumerate() {
            // SAFETY: as in `allocate`.
            unsafe { Self::write(Self::nth(&run, number), value) };
        }
        run
    }

    /// Returns the places of as many properties that are not there.
    pub(crate) fn no_run(count: usize) -> Box<[*mut u8]> {
        (0..count).step_by(slab::slots_of_page(Self::SLOT)).map(|_| ptr::null_mut()).collect()
    }

    /// Returns the address of the property with this number.
    #[inline(always)]
    pub(crate) fn nth(run: &[*mut u8], number: usize) -> *mut Header {
        let slots = const { slab::slots_of_page(Self::SLOT) };
        run[number / slots].wrapping_add(number % slots * Self::SLOT.size()).cast()
    }

    /// # Safety
    /// A slot for this type, which is the caller's.
    unsafe fn write(property: *mut Header, value: T) {
        let header = Header::new();
        // SAFETY: the caller's promise.
        unsafe {
            if const { Self::IS_BOXED } {
                property.cast::<Property<Box<T>>>().write(Property { header, value: UnsafeCell::new(Box::new(value)) });
            } else {
                property.cast::<Property<T>>().write(Property { header, value: UnsafeCell::new(value) });
            }
        }
    }

    /// Drops the value alone: the header may be used further.
    unsafe fn drop(header: *mut Header) {
        // SAFETY: the caller's promise; `allocate` made it so.
        unsafe {
            if const { Self::IS_BOXED } {
                ptr::drop_in_place((*header.cast::<Property<Box<T>>>()).value.get());
            } else {
                ptr::drop_in_place((*header.cast::<Property<T>>()).value.get());
            }
        }
    }
}

impl<T> Property<T> {
    /// Does a property of this type not fit a slot?
    const IS_BOXED: bool = size_of::<Self>() > SLOT_BYTES_MAX || align_of::<Self>() > SLOT_BYTES_MAX;

    /// The value.
    ///
    /// # Safety
    /// `header` is a live `Property<T>` of the calling thread's trustee, and nothing else borrows its value.
    #[inline(always)]
    pub(crate) unsafe fn value<'a>(header: *mut Header) -> &'a mut T {
        // SAFETY: the caller's promise; the header is the first field.
        unsafe {
            if const { Self::IS_BOXED } {
                &mut *(*header.cast::<Property<Box<T>>>()).value.get()
            } else {
                &mut *(*header.cast::<Property<T>>()).value.get()
            }
        }
    }
}

/// Drops the value of a closed property, which stays with its slot.
///
/// # Safety
/// It is live, closed and not in use, its value has not been dropped, nothing borrows the value, and this is its
/// trustee's thread.
pub(crate) unsafe fn drop_value(header: *mut Header) {
    // SAFETY: the caller's promise; the kind is of the type it was allocated with. Marked before: the destructor may
    // panic.
    unsafe {
        debug_assert!(!(*header).is_dropped(), "a value is dropped once");
        (*header).set_dropped();
        (slab::kind_of(header).drop)(header);
    }
}

/// Drops a property, unless its value was dropped before, and frees it.
///
/// # Safety
/// It is live, no trust or request refers to it any more, and this is its trustee's thread (or the trustee
/// never came to know of it).
pub(crate) unsafe fn destroy(header: *mut Header) {
    struct Free(*mut Header);
    impl Drop for Free {
        fn drop(&mut self) {
            // SAFETY: the value has been dropped, and no other code knows the property any more.
            unsafe { slab::free(self.0) }
        }
    }
    // The destructor of the value may panic.
    let _free = Free(header);
    // SAFETY: live; the kind is of the type it was allocated with.
    unsafe {
        if !(*header).is_dropped() {
            (slab::kind_of(header).drop)(header);
        }
    }
}
