//! A property in memory: an 8-byte header, then the value, or a box of it where it is large. Where that lies, and what its
//! type is, is in `homes.rs`; what counts its trusts in `count.rs`.
//!
//! A property is touched by its trustee's thread alone, from the moment its trust is first used there. The
//! thread that entrusts it to another trustee writes it before, and hands it over with the request or the
//! trust (whichever reaches the trustee first carries the writes along).

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::any::TypeId;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::Arc;

use crate::homes::{self, Homes, SLOT_BYTES_MAX};

/// What a trustee must know of a property's type.
pub(crate) struct PropertyType {
    /// Drops the value.
    drop: unsafe fn(*mut Header),
    slot: Layout,
    value: TypeId,
}

impl PropertyType {
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot.size()
    }
    pub(crate) fn slot_align(&self) -> usize {
        self.slot.align()
    }
    /// The type of the value.
    pub(crate) fn value(&self) -> TypeId {
        self.value
    }
}

const POISONED: u32 = 1;
const DYING: u32 = 2;
const COUNTED: u32 = 4;
const MARK_BITS: u32 = 3;
/// The last place that a property can know. It stands for no place in the list: see `count.rs`.
pub(crate) const PLACE_MAX: u32 = (1 << (32 - MARK_BITS)) - 1;

/// The part of a property that does not depend on its type.
#[repr(C)]
pub(crate) struct Header {
    /// Marks in the low bits, place in the trustee's list above them.
    marks: Cell<u32>,
    /// Trusts that the trustee knows of. May be negative for a while: see `count.rs`.
    count: Cell<i32>,
}

const _: () = assert!(size_of::<Header>() == 8);

impl Header {
    #[inline(always)]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.marks.get() & POISONED != 0
    }
    pub(crate) fn set_poisoned(&self, poisoned: bool) {
        self.set_mark(POISONED, poisoned);
    }
    /// Waits to be buried.
    pub(crate) fn is_dying(&self) -> bool {
        self.marks.get() & DYING != 0
    }
    pub(crate) fn set_dying(&self, dying: bool) {
        self.set_mark(DYING, dying);
    }
    /// Its count has changed since the mark was cleared.
    pub(crate) fn is_counted(&self) -> bool {
        self.marks.get() & COUNTED != 0
    }
    pub(crate) fn set_counted(&self, counted: bool) {
        self.set_mark(COUNTED, counted);
    }
    fn set_mark(&self, mark: u32, on: bool) {
        let marks = self.marks.get();
        self.marks.set(if on { marks | mark } else { marks & !mark });
    }

    pub(crate) fn place(&self) -> u32 {
        self.marks.get() >> MARK_BITS
    }
    pub(crate) fn set_place(&self, place: u32) {
        assert!(place <= PLACE_MAX, "a place that the marks leave no room for");
        self.marks.set((place << MARK_BITS) | (self.marks.get() & ((1 << MARK_BITS) - 1)));
    }

    pub(crate) fn count(&self) -> i32 {
        self.count.get()
    }
    /// Adds to the count; aborts rather than wrap, as `Arc` does.
    pub(crate) fn add_count(&self, delta: i32) -> i32 {
        let Some(count) = self.count.get().checked_add(delta) else {
            crate::unwind::tell(format_args!("more than {} trusts of one property", i32::MAX));
            std::process::abort();
        };
        self.count.set(count);
        self.set_counted(true);
        count
    }
}

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

    /// A new property with one trust, in one of these homes.
    pub(crate) fn allocate(homes: &Arc<Homes>, value: T) -> *mut Header {
        let property = homes.allocate(Self::KIND);
        let header = Header { marks: Cell::new(0), count: Cell::new(1) };
        // SAFETY: the room is for this type (`SLOT`), and ours.
        unsafe {
            if const { Self::IS_BOXED } {
                property.cast::<Property<Box<T>>>().write(Property { header, value: UnsafeCell::new(Box::new(value)) });
            } else {
                property.cast::<Property<T>>().write(Property { header, value: UnsafeCell::new(value) });
            }
        }
        property
    }

    unsafe fn drop(header: *mut Header) {
        // SAFETY: the caller's promise; `allocate` made it so.
        unsafe {
            if const { Self::IS_BOXED } {
                ptr::drop_in_place(header.cast::<Property<Box<T>>>());
            } else {
                ptr::drop_in_place(header.cast::<Property<T>>());
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

/// Drops a property and frees it.
///
/// # Safety
/// It is live, no trust or request refers to it any more, and this is its trustee's thread (or the trustee
/// never came to know of it).
pub(crate) unsafe fn destroy(header: *mut Header) {
    struct Free(*mut Header);
    impl Drop for Free {
        fn drop(&mut self) {
            // SAFETY: the value has been dropped, and nobody knows the property any more.
            unsafe { homes::free(self.0) }
        }
    }
    // The destructor of the value may panic.
    let _free = Free(header);
    // SAFETY: live; the kind is of the type it was allocated with.
    unsafe { (homes::kind_of(header).drop)(header) }
}
