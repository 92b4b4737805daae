//! Containment of panics of users' code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the user's code. A panic ends here; the panic hook has already reported it.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        discard(panic);
    }
}

/// Drops the payload of a panic, which is the user's. If its destructor panics in turn it is leaked.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
}
