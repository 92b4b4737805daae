//! The type-independent part of a property: the header before its value, and the description of its type for the
//! trustee.

use std::alloc::Layout;
use std::any::TypeId;
use std::cell::Cell;

use crate::unwind::tell;

/// Description of a property's type for its trustee.
pub(crate) struct PropertyType {
    /// Drops the value.
    pub(super) drop: unsafe fn(*mut Header),
    pub(super) slot: Layout,
    pub(super) value: TypeId,
}

impl PropertyType {
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot.size()
    }
    /// The type of the value.
    pub(crate) fn value(&self) -> TypeId {
        self.value
    }
}

const POISONED: u32 = 1;
const UNREFERENCED: u32 = 2;
const COUNTED: u32 = 4;
const HAS_LINE: u32 = 8;
const OLD: u32 = 16;
const CLOSED: u32 = 32;
const HELD: u32 = 64;
const DROPPED: u32 = 128;
const MARK_BITS: u32 = 8;
/// The largest place that a header can hold. It stands for no place in the list: see `reclaim.rs`.
pub(crate) const PLACE_MAX: u32 = (1 << (32 - MARK_BITS)) - 1;

/// The part of a property that does not depend on its type.
#[repr(C)]
pub(crate) struct Header {
    /// Marks in the low bits, place in the trustee's list above them.
    marks: Cell<u32>,
    /// Trusts that the trustee has counted. May be negative for a while: see `reclaim.rs`.
    count: Cell<i32>,
}

const _: () = assert!(size_of::<Header>() == 8);

impl Header {
    /// Header of a property with one trust.
    pub(super) fn new() -> Self {
        Header { marks: Cell::new(0), count: Cell::new(1) }
    }
    /// Are its requests refused? It is poisoned, or closed [closed-refuses].
    #[inline(always)]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.marks.get() & POISONED != 0
    }
    /// A closed property stays poisoned.
    pub(crate) fn set_poisoned(&self, poisoned: bool) {
        self.set_mark(POISONED, poisoned || self.is_closed());
    }
    /// Is the property waiting to be reclaimed, or closed after its count came to 0?
    pub(crate) fn is_unreferenced(&self) -> bool {
        self.marks.get() & UNREFERENCED != 0
    }
    pub(crate) fn set_unreferenced(&self, unreferenced: bool) {
        self.set_mark(UNREFERENCED, unreferenced);
    }
    /// May a machine that is lost have cloned a trust of it? Then its count proves nothing, and it is never freed.
    pub(crate) fn is_old(&self) -> bool {
        self.marks.get() & OLD != 0
    }
    pub(crate) fn set_old(&self) {
        self.set_mark(OLD, true);
    }
    /// Has it been closed? Its requests are refused, and its value is dropped once nobody has it.
    pub(crate) fn is_closed(&self) -> bool {
        self.marks.get() & CLOSED != 0
    }
    pub(crate) fn close(&self) {
        self.set_mark(CLOSED | POISONED, true);
    }
    /// Has a launched closure its latched value?
    pub(crate) fn is_held(&self) -> bool {
        self.marks.get() & HELD != 0
    }
    pub(crate) fn set_held(&self, held: bool) {
        self.set_mark(HELD, held);
    }
    /// Has its latched value waiters, or is it lent or held?
    pub(crate) fn is_in_use(&self) -> bool {
        self.marks.get() & (HAS_LINE | HELD) != 0
    }
    /// Has its value been dropped ahead of the property, which was closed?
    pub(crate) fn is_dropped(&self) -> bool {
        self.marks.get() & DROPPED != 0
    }
    pub(super) fn set_dropped(&self) {
        debug_assert!(self.is_closed(), "its requests would find no value");
        self.set_mark(DROPPED, true);
    }
    /// Has its count changed since the mark was cleared?
    pub(crate) fn is_counted(&self) -> bool {
        self.marks.get() & COUNTED != 0
    }
    pub(crate) fn set_counted(&self, counted: bool) {
        self.set_mark(COUNTED, counted);
    }
    /// Has its latched value waiters, or is the value lent?
    #[inline(always)]
    pub(crate) fn has_line(&self) -> bool {
        self.marks.get() & HAS_LINE != 0
    }
    /// Is it poisoned, or has its latched value waiters, or is the value lent?
    #[inline(always)]
    pub(crate) fn is_poisoned_or_in_line(&self) -> bool {
        self.marks.get() & (POISONED | HAS_LINE) != 0
    }
    pub(crate) fn set_line(&self, has_line: bool) {
        self.set_mark(HAS_LINE, has_line);
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
            tell(format_args!("more than {} trusts of one property", i32::MAX));
            std::process::abort();
        };
        self.count.set(count);
        self.set_counted(true);
        count
    }
}
