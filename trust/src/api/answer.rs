//! Outcome of a call, handed from the thread that completes it to the task that awaits it. One state word says which
//! side may touch which field:
//!
//! ```text
//! EMPTY ──task──> BUSY ──task──> WAITING ──task──> BUSY ..      BUSY: the task puts a waker down
//!   └──────────────┴──────────────┴── outcome ──> DONE ──task──> TAKEN
//! ```
//!
//! The value is written before `DONE` (a swap with Release) and read after `DONE` was seen (Acquire). The waker is
//! written before `WAITING` (Release) and taken by the thread that swaps `WAITING` for `DONE` (Acquire). If that swap
//! finds `BUSY`, the task needs no wake: its own exchange fails and it then sees `DONE`. Checked by loom:
//! `answer/model.rs`.

#![allow(unsafe_code)]

#[cfg(all(test, loom))]
mod model;

use std::mem::MaybeUninit;
use std::task::{Poll, Waker};

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

const EMPTY: u32 = 0;
const BUSY: u32 = 1;
const WAITING: u32 = 2;
const DONE: u32 = 3;
const TAKEN: u32 = 4;

/// Outcome slot, set once by the completer and awaited by one task.
pub(crate) struct Answer<V> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<V>>,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: the value and the waker move from one thread to another; the states above say which thread owns them.
unsafe impl<V: Send> Send for Answer<V> {}
// SAFETY: as above.
unsafe impl<V: Send> Sync for Answer<V> {}

impl<V> Answer<V> {
    pub(crate) fn new() -> Self {
        Answer {
            state: AtomicU32::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
            waker: UnsafeCell::new(None),
        }
    }

    /// Sets the outcome. Returns the waker to wake, if the task has left one.
    ///
    /// # Safety
    /// Called once.
    pub(crate) unsafe fn set(&self, value: V) -> Option<Waker> {
        // SAFETY: not `DONE`, so nobody reads it, and nobody else writes it (the caller's promise).
        self.value.with_mut(|at| unsafe { (*at).write(value) });
        // Release: pairs with the Acquire in `is_set` and `wait`. Acquire: with the Release of `WAITING`.
        match self.state.swap(DONE, Ordering::AcqRel) {
            // SAFETY: the task does not touch it from `WAITING` to `DONE`, and after that only to drop it.
            WAITING => self.waker.with_mut(|waker| unsafe { (*waker).take() }),
            _ => None,
        }
    }

    /// Returns whether the outcome was set, taken or not.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // Pairs with the Release in `set`.
        self.state.load(Ordering::Acquire) >= DONE
    }

    /// Task side: returns the outcome, or `None` if it was taken before. If the outcome is not there yet, stores the
    /// waker.
    ///
    /// # Safety
    /// Called by one thread at a time, which sees the writes of the thread before.
    pub(crate) unsafe fn poll(&self, waker: &Waker) -> Poll<Option<V>> {
        if !self.is_set() && self.wait(waker) {
            return Poll::Pending;
        }
        Poll::Ready(self.take())
    }

    fn take(&self) -> Option<V> {
        // Only the one task takes, so nothing comes in between. Pairs with the Release in `set`.
        if self.state.load(Ordering::Acquire) == TAKEN {
            return None;
        }
        self.state.store(TAKEN, Ordering::Relaxed);
        // SAFETY: it was `DONE`, so it is written; it is read once, for it is `TAKEN` now.
        Some(self.value.with_mut(|at| unsafe { (*at).assume_init_read() }))
    }

    /// Task side: stores its waker. False if the outcome has come.
    fn wait(&self, waker: &Waker) -> bool {
        // Before anything changes: cloning runs the executor's code.
        let mut new = Some(waker.clone());
        // Pairs with the Release in `set`.
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state >= DONE {
                return false;
            }
            // Acquire: sees the waker of a poll on another thread.
            match self.state.compare_exchange_weak(state, BUSY, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        // SAFETY: this task set `BUSY`, so the field is its own.
        self.waker.with_mut(|at| unsafe { std::ptr::swap(at, &raw mut new) });
        // Release: pairs with the Acquire in `set`.
        let is_left = self.state.compare_exchange(BUSY, WAITING, Ordering::Release, Ordering::Acquire).is_ok();
        // The previous waker: dropping it runs the executor's code too.
        drop(new);
        is_left
    }
}

impl<V> Drop for Answer<V> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Acquire) == DONE {
            // SAFETY: written and not taken.
            self.value.with_mut(|at| unsafe { (*at).assume_init_drop() });
        }
    }
}
