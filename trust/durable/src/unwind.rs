//! Panics that must not get any further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the user's code. A panic ends here: the panic hook has told of it.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        discard(panic);
    }
}

/// Drops the payload of a panic, which is the user's. One whose destructor panics in turn is leaked.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
}

/// The text of a panic.
pub(crate) fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic whose payload is not text".into())
}
