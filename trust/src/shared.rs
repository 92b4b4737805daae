//! `Shared<T>`: a read-only value with several owners that may travel in closures (T11, thesis 2.7).

#![allow(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

#[cfg(noref_auto)]
use crate::noref::NoRef;

/// A read-only value with several owners, which delegated closures may capture and return.
///
/// An `Arc` by another name, so it works within one process: capture it where copying a large constant value
/// with each request would cost too much. Its owners share memory; what changes belongs into a
/// [`Trust`](crate::Trust).
///
/// ```
/// use trust::Shared;
/// let words = Shared::new(vec!["to", "be"]);
/// let counter = trust::local_trustee().entrust(0);
/// let these = words.clone();
/// assert_eq!(counter.apply(move |c| { *c += these.len(); *c }), 2);
/// ```
pub struct Shared<T: ?Sized>(Arc<T>);

// SAFETY: within one process, where alone it can be captured and run, an `Arc` of a value that may be shared is
// as good on one thread as on another. (A rack refuses it: see `gossamer`.)
#[cfg(noref_auto)]
unsafe impl<T: ?Sized + Send + Sync> NoRef for Shared<T> {}

impl<T> Shared<T> {
    /// Shares a value.
    pub fn new(value: T) -> Self {
        Shared(Arc::new(value))
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> From<Arc<T>> for Shared<T> {
    fn from(value: Arc<T>) -> Self {
        Shared(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
