//! The outcome of a call, from the thread that has it to the task that awaits it. One word says who may touch what:
//!
//! ```text
//! EMPTY ──task──> BUSY ──task──> WAITING ──task──> BUSY ..      BUSY: the task puts a waker down
//!   └──────────────┴──────────────┴── outcome ──> DONE ──task──> TAKEN
//! ```
//!
//! The outcome is written before `DONE` (swap, R) and read after it was seen (A). A waker is written before `WAITING`
//! (R) and taken by who swaps `WAITING` for `DONE` (A); who finds `BUSY` there leaves the task alone, for it sees
//! `DONE` when its own exchange fails. Checked by loom: `answer/model.rs`.

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

/// Given once, by whoever has the outcome, and awaited by one task.
pub(crate) struct Answer<V> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<V>>,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: the value goes from one thread to another, as does the waker; the states above say whose they are.
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

    /// Gives the outcome. Returns who is to be woken.
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

    /// Was it given, taken or not?
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // Pairs with the Release in `set`.
        self.state.load(Ordering::Acquire) >= DONE
    }

    /// Task: the outcome, or `None` if it was taken before. Until it is there, leaves the waker to be woken.
    ///
    /// # Safety
    /// By one thread at a time, which sees what the one before did.
    pub(crate) unsafe fn poll(&self, waker: &Waker) -> Poll<Option<V>> {
        if !self.is_set() && self.wait(waker) {
            return Poll::Pending;
        }
        Poll::Ready(self.take())
    }

    fn take(&self) -> Option<V> {
        // Only the one task takes: nobody comes in between. Pairs with the Release in `set`.
        if self.state.load(Ordering::Acquire) == TAKEN {
            return None;
        }
        self.state.store(TAKEN, Ordering::Relaxed);
        // SAFETY: it was `DONE`, so it is written; it is read once, for it is `TAKEN` now.
        Some(self.value.with_mut(|at| unsafe { (*at).assume_init_read() }))
    }

    /// Task: leaves its waker. False if the outcome has come.
    fn wait(&self, waker: &Waker) -> bool {
        // Before anything changes: it is the executor's code.
        let mut new = Some(waker.clone());
        // Pairs with the Release in `set`.
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state >= DONE {
                return false;
            }
            // Acquire: what a task left that polled on another thread.
            match self.state.compare_exchange_weak(state, BUSY, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        // SAFETY: `BUSY` by this task: it is this one's.
        self.waker.with_mut(|at| unsafe { std::ptr::swap(at, &raw mut new) });
        // Release: pairs with the Acquire in `set`.
        let is_left = self.state.compare_exchange(BUSY, WAITING, Ordering::Release, Ordering::Acquire).is_ok();
        // The one before: the executor's code again.
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
