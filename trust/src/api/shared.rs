//! `Shared<T>`: a read-only value with several owners that may travel in closures (thesis 2.7).

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::ids;
#[cfg(noref_auto)]
use crate::noref::NoRef;

/// Read-only value with several owners, which delegated closures may capture and return.
///
/// An `Arc` by another name, so it works within one process: capture it where copying a large constant value with each
/// request would cost too much. Its owners share memory; mutable data belongs in a [`Trust`](crate::Trust).
///
/// ```
/// use trust::Shared;
/// let words = Shared::new(vec!["to", "be"]);
/// let counter = trust::local_trustee().entrust(0);
/// let these = words.clone();
/// assert_eq!(counter.apply(move |c| { *c += these.len(); *c }), 2);
/// ```
///
/// Its owners are the fibers and threads of one process: another machine of a rack program that receives one cannot
/// read it, and panics if it tries.
pub struct Shared<T: ?Sized> {
    value: ManuallyDrop<Arc<T>>,
    /// Machine that has the value.
    machine: u16,
}

// SAFETY: within one process an `Arc` of a value that may be shared is as good on one thread as on another; on
// another machine the pointer is not followed, by `deref`, `clone` and `drop` alike.
#[cfg(noref_auto)]
unsafe impl<T: ?Sized + Send + Sync> NoRef for Shared<T> {}

impl<T> Shared<T> {
    /// Shares a value.
    ///
    /// ```
    /// let words = trust::Shared::new(vec!["to", "be"]);
    /// assert_eq!(words.len(), 2);
    /// ```
    pub fn new(value: T) -> Self {
        Shared::from(Arc::new(value))
    }
}

impl<T: ?Sized> Shared<T> {
    fn is_here(&self) -> bool {
        self.machine == ids::machine()
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    /// # Panics
    /// On a machine of a rack program other than the value's own.
    fn deref(&self) -> &T {
        assert!(self.is_here(), "this `Shared` value is on machine {}: send what is needed of it", self.machine);
        &self.value
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        assert!(self.is_here(), "this `Shared` value is on machine {}: clone it there", self.machine);
        Shared { value: self.value.clone(), machine: self.machine }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: dropped once, here; another machine must not touch the count.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

impl<T: ?Sized> From<Arc<T>> for Shared<T> {
    fn from(value: Arc<T>) -> Self {
        Shared { value: ManuallyDrop::new(value), machine: ids::machine() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
