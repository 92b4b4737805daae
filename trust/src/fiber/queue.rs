//! A first-in first-out queue of suspended fibers, linked through the fibers themselves: no allocation.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use super::{Fiber, FiberRef};

/// Fibers that wait for the same thing, in the order they came.
pub(crate) struct FiberQueue {
    head: Cell<*mut Fiber>,
    tail: Cell<*mut Fiber>,
    len: Cell<usize>,
}

impl Default for FiberQueue {
    fn default() -> Self {
        FiberQueue::new()
    }
}

impl FiberQueue {
    pub(crate) const fn new() -> Self {
        FiberQueue { head: Cell::new(ptr::null_mut()), tail: Cell::new(ptr::null_mut()), len: Cell::new(0) }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// Adds a fiber that is in no queue [one-waker].
    #[inline(always)]
    pub(crate) fn push(&self, fiber: FiberRef) {
        let FiberRef(fiber) = fiber;
        let tail = self.tail.replace(fiber);
        // SAFETY: a fiber that has not finished lives, and is touched by its own thread only [fiber-own-thread].
        unsafe {
            (*fiber).next.set(ptr::null_mut());
            if tail.is_null() {
                self.head.set(fiber);
            } else {
                (*tail).next.set(fiber);
            }
        }
        self.len.set(self.len.get() + 1);
    }

    /// Fibers in the queue, the first one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FiberRef> + '_ {
        let mut next = self.head.get();
        std::iter::from_fn(move || {
            let fiber = (!next.is_null()).then_some(next)?;
            // SAFETY: in the queue, so it lives [one-waker]; the queue does not change while it is borrowed by its own
            // thread.
            next = unsafe { (*fiber).next.get() };
            Some(FiberRef(fiber))
        })
    }

    /// The fiber that came last.
    pub(crate) fn last(&self) -> Option<FiberRef> {
        let tail = self.tail.get();
        (!tail.is_null()).then_some(FiberRef(tail))
    }

    /// Takes out the fiber that came first.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<FiberRef> {
        let head = self.head.get();
        if head.is_null() {
            return None;
        }
        // SAFETY: as in `push`.
        let next = unsafe { (*head).next.get() };
        self.head.set(next);
        if next.is_null() {
            self.tail.set(ptr::null_mut());
        }
        self.len.set(self.len.get() - 1);
        Some(FiberRef(head))
    }
}
