//! Panics that must not spread, and messages on standard error that must not panic.

use std::any::Any;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(feature = "net")]
use crate::error::panic_text;

/// Runs `f`. A panic ends here, as does one of its payload's destructor; the panic hook has reported it.
pub(crate) fn quietly<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            discard(payload);
            None
        }
    }
}

/// Runs the body of a thread that others wait for, and that none of them can miss: a panic ends the process.
#[cfg(feature = "net")]
pub(crate) fn or_give_up<R>(thread: &str, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        give_up(format_args!("{thread} has panicked: {}", panic_text(&*payload)));
    })
}

/// Drops the payload of a panic, and leaks the payload if its destructor panics in turn.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

/// Guard that ends the process if it is dropped by an unwinding: for frames that others point into.
pub(crate) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        give_up(format_args!("a panic reached a frame that waits for an answer"));
    }
}

/// Ends the process, with a last message.
#[cold]
pub(crate) fn give_up(why: fmt::Arguments<'_>) -> ! {
    tell(format_args!("{why}; the process ends"));
    std::process::abort();
}

/// Returns the name of the calling thread, for messages. Works even after its thread-locals are destroyed.
pub(crate) fn thread_name() -> String {
    let name = catch_unwind(|| std::thread::current().name().map(str::to_owned));
    name.ok().flatten().map_or_else(|| "without a name".to_owned(), |name| format!("`{name}`"))
}

/// Writes a line to standard error, if that accepts it.
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "trust: {line}");
}
