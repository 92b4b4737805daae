//! Work that blocks in the operating system, on threads of its own: the worker serves others meanwhile.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::promised::own_promise;

/// Runs `f` on a thread of its own and waits for its result.
///
/// # Errors
/// If the system gives no thread; if `f` panics.
pub(crate) fn run<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> io::Result<R> {
    let result = Arc::new(Mutex::new(None));
    let (promise, done) = own_promise::<()>();
    let keeps = Arc::clone(&result);
    std::thread::Builder::new().name("gossamer-array".to_owned()).spawn(move || {
        let made = f();
        *keeps.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        promise.keep(());
    })?;
    // On an error the thread has panicked, and has reported it.
    let _ = done.wait();
    let made = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    made.ok_or_else(|| io::Error::other("a thread of the array panicked"))
}
