//! Locks of the parts with loom models: std's, or loom's (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks. A poisoned lock is taken as it is: no code panics in the middle of a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
