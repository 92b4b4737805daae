//! The calling thread: is it a worker of the program?

use std::cell::Cell;

thread_local! {
    static IS_WORKER: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Is the caller a worker of the program, which reaches other machines?
///
/// # Panics
/// Outside of `gossamer::main`.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get().unwrap_or_else(|| {
        let rack = gossamer::rack();
        let id = trust::local_trustee().id();
        let is_worker = rack.places().any(|place| place.machine == rack.machine() && place.trustee().id() == id);
        IS_WORKER.set(Some(is_worker));
        is_worker
    })
}

/// Is it one, or one of the program's threads that has asked before? Asks nobody, so that it may be called anywhere.
pub(crate) fn is_known_worker() -> bool {
    IS_WORKER.get() == Some(true)
}

/// May the caller make an object on another machine?
pub(crate) fn may_go_elsewhere() -> bool {
    trust::may_wait() && is_worker() && gossamer::rack().machines().len() > 1
}
