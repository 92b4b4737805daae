//! Short names for operations of any type: one table per pair, so that a request names its operation in 16 bits of the
//! word that also holds the address of its property. Requests are 8 bytes shorter, and cache lines dominate the cost of
//! a batch.
//!
//! The client gives an operation the name that its address hashes to, if that is free, and keeps to it for good. An
//! operation whose name is taken is spelled out in each request. Entries are written by the client before the first
//! batch that uses them is published and read by the trustee after it has seen that batch [request-bit], so they need
//! no order of their own.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::config::ADDRESS_BITS;

/// Names of one pair.
const NAMES: usize = 64;
/// Stands for an operation without a name: its address follows.
const SPELLED_OUT: u64 = 0xffff;

/// The part of the table that both sides see.
pub(super) struct Dictionary<O> {
    operations: [AtomicPtr<O>; NAMES],
}

impl<O> Dictionary<O> {
    pub(super) fn new() -> Self {
        Dictionary { operations: [const { AtomicPtr::new(ptr::null_mut()) }; NAMES] }
    }

    fn set(&self, name: usize, operation: &'static O) {
        // Ordered by [request-bit].
        self.operations[name].store(ptr::from_ref(operation).cast_mut(), Ordering::Relaxed);
    }
}

/// The client's copy.
pub(super) struct Names<O> {
    operations: [Cell<*const O>; NAMES],
}

impl<O: 'static> Names<O> {
    pub(super) fn new() -> Self {
        Names { operations: [const { Cell::new(ptr::null()) }; NAMES] }
    }

    #[inline(always)]
    fn name(&self, shared: &Dictionary<O>, operation: &'static O) -> u64 {
        let operation_at = ptr::from_ref(operation);
        // Operations are 8-aligned and 56 bytes or more: the low bits tell neighbours apart.
        let name = (operation_at.addr() / 8) % NAMES;
        if self.operations[name].get() == operation_at { name as u64 } else { self.give(shared, name, operation) }
    }

    #[cold]
    fn give(&self, shared: &Dictionary<O>, name: usize, operation: &'static O) -> u64 {
        if !self.operations[name].get().is_null() {
            return SPELLED_OUT;
        }
        self.operations[name].set(operation);
        shared.set(name, operation);
        name as u64
    }
}

/// The head of a request, as the client writes it.
pub(crate) struct RequestHead<O: 'static> {
    name: u64,
    operation: &'static O,
}

impl<O> Clone for RequestHead<O> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<O> Copy for RequestHead<O> {}

impl<O> RequestHead<O> {
    /// Bytes of the longest head.
    pub(crate) const BYTES_MAX: usize = 16;

    #[inline(always)]
    pub(super) fn new(names: &Names<O>, shared: &Dictionary<O>, operation: &'static O) -> Self {
        RequestHead { name: names.name(shared, operation), operation }
    }

    /// Bytes of this head.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        if self.name == SPELLED_OUT { 16 } else { 8 }
    }

    /// Writes the head; returns the place of the captures.
    ///
    /// # Safety
    /// `bytes()` bytes at `at`, a multiple of 8, may be written.
    #[inline(always)]
    pub(crate) unsafe fn write<P>(self, at: *mut u8, property: *mut P) -> *mut u8 {
        let word = (self.name << ADDRESS_BITS) | property.expose_provenance() as u64;
        // SAFETY: the caller's promise.
        unsafe {
            at.cast::<u64>().write(word);
            if self.name == SPELLED_OUT {
                at.add(8).cast::<&'static O>().write(self.operation);
            }
        }
        at.wrapping_add(self.bytes())
    }
}

/// Reads the head of a request: its operation, its property, and the start of its captures.
///
/// # Safety
/// A [`RequestHead`] of this pair was written at `at`, with a property of type `P`, and published.
#[inline(always)]
pub(super) unsafe fn read_head<O, P>(shared: &Dictionary<O>, at: *mut u8) -> (&'static O, *mut P, *mut u8) {
    // SAFETY: the caller's promise: a word, behind which the operation follows if it has no name; a name that
    // was used has been given, before the batch was published.
    unsafe {
        let word = at.cast::<u64>().read();
        let property = ptr::with_exposed_provenance_mut((word & ((1 << ADDRESS_BITS) - 1)) as usize);
        let name = word >> ADDRESS_BITS;
        if name == SPELLED_OUT {
            return (*at.add(8).cast::<&'static O>(), property, at.add(16));
        }
        // Ordered by [request-bit].
        let operation = shared.operations[name as usize % NAMES].load(Ordering::Relaxed);
        (&*operation, property, at.add(8))
    }
}
