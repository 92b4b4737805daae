//! A property in memory: a 16-byte header, then the value. What counts its trusts is in `count.rs`.
//!
//! A property is touched by its trustee's thread alone, from the moment its trust is first used there. The
//! thread that entrusts it to another trustee writes it before, and hands it over with the request or the
//! trust (whichever reaches the trustee first carries the writes along).

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

/// What a trustee must know of a property's type.
pub(crate) struct PropertyType {
    /// Drops the value and frees the memory.
    drop: unsafe fn(*mut Header),
}

const POISONED: u32 = 1;
const DYING: u32 = 2;
const COUNTED: u32 = 4;
const MARK_BITS: u32 = 3;
/// Places that the list of a trustee's properties can have.
pub(crate) const PLACE_MAX: u32 = (1 << (32 - MARK_BITS)) - 1;

/// The part of a property that does not depend on its type.
#[repr(C)]
pub(crate) struct Header {
    kind: &'static PropertyType,
    /// Marks in the low bits, place in the trustee's list above them.
    marks: Cell<u32>,
    /// Trusts that the trustee knows of. May be negative for a while: see `count.rs`.
    count: Cell<i32>,
}

const _: () = assert!(size_of::<Header>() == 16);

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
        assert!(place <= PLACE_MAX, "one trustee cannot hold more than {PLACE_MAX} properties");
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

/// A property of type `T`.
#[repr(C)]
pub(crate) struct Property<T> {
    header: Header,
    value: UnsafeCell<T>,
}

impl<T> Property<T> {
    const KIND: &'static PropertyType = &PropertyType { drop: Self::drop };

    /// A new property with one trust.
    pub(crate) fn allocate(value: T) -> *mut Header {
        let header = Header { kind: Self::KIND, marks: Cell::new(0), count: Cell::new(1) };
        let property = Box::into_raw(Box::new(Property { header, value: UnsafeCell::new(value) })).cast();
        assert!(crate::slot::fits(property), "this platform's addresses are longer than 48 bits");
        property
    }

    unsafe fn drop(header: *mut Header) {
        // SAFETY: the caller's promise; `allocate` made it as this box.
        drop(unsafe { Box::from_raw(header.cast::<Property<T>>()) });
    }

    /// The value.
    ///
    /// # Safety
    /// `header` is a live `Property<T>` of the calling thread's trustee, and nothing else borrows its value.
    #[inline(always)]
    pub(crate) unsafe fn value<'a>(header: *mut Header) -> &'a mut T {
        // SAFETY: the caller's promise; the header is the first field.
        unsafe { &mut *(*header.cast::<Property<T>>()).value.get() }
    }
}

/// Drops a property and frees it.
///
/// # Safety
/// It is live, no trust or request refers to it any more, and this is its trustee's thread (or the trustee
/// never came to know of it).
pub(crate) unsafe fn destroy(header: *mut Header) {
    // SAFETY: live; the kind is of the type it was allocated with.
    unsafe { ((*header).kind.drop)(header) }
}
