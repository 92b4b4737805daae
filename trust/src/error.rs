//! Errors of a request, as the client sees them.

use std::any::Any;

/// Reason why a request has no result. [`Trust::call`](crate::Trust::call) gives it; `apply` panics with its
/// text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An earlier closure panicked while it held the property, which may be half-changed.
    /// [`Trust::clear_poison`](crate::Trust::clear_poison) accepts it as it is.
    #[error(
        "the property of type `{property}` is poisoned: a closure panicked while it held it ({panic}); use \
         `clear_poison` to accept the property as it is"
    )]
    Poisoned {
        /// Type of the property.
        property: &'static str,
        /// Message of the first panic.
        panic: String,
    },
    /// The closure of this very request panicked.
    #[error("a closure delegated to a property of type `{property}` panicked: {panic}")]
    Panicked {
        /// Type of the property.
        property: &'static str,
        /// Message of the panic.
        panic: String,
    },
    /// The property is gone: it was closed ([`Trust::close`](crate::Trust::close)), or its trustee's thread has ended,
    /// and its properties with it, or its machine was lost. The closure has not run.
    #[error("{}", gone(.property, *.was_closed))]
    Gone {
        /// Type of the property.
        property: &'static str,
        /// Whether it was closed: by `close`, or by its trustee after the loss of a machine, when as many trusts had
        /// been dropped as were known there. Else its trustee is gone.
        was_closed: bool,
    },
    /// The trustee's machine was lost after the request had been sent, before its answer came: the closure may have
    /// run.
    #[error("machine {machine} was lost before the answer to a request came, so its closure may have run")]
    Lost {
        /// Number of the machine.
        machine: u16,
    },
    /// An argument or a result could not be serialised or read back.
    #[error("an argument or result of a request to a property of type `{property}` did not serialise: {cause}")]
    Codec {
        /// Type of the property.
        property: &'static str,
        /// Message of the serialiser, and the cure where one is known.
        cause: String,
    },
    /// The trustee could not accept the request, for instance for lack of memory for a fiber's stack.
    #[error("a request to a property of type `{property}` was refused by its trustee: {cause}")]
    Refused {
        /// Type of the property.
        property: &'static str,
        /// The missing resource.
        cause: String,
    },
    /// [`together`](crate::together) was given two trusts of the same property, which cannot be borrowed twice.
    #[error("two of the trusts given to `together` are of the same property of type `{property}`: name each once")]
    Twice {
        /// Type of the property.
        property: &'static str,
    },
    /// The property is on another machine, and the call works within the process: [`together`](crate::together), or
    /// one [`in_process`](crate::Call::in_process).
    #[error(
        "a property of type `{property}` is on another machine, and `together` and calls `in_process` work within one: \
         entrust what is changed together to trustees of one machine, and launch the call there; values reach another \
         machine as arguments (`with`)"
    )]
    Apart {
        /// Type of the property.
        property: &'static str,
    },
    /// Fibers wait for each other in a cycle, and the last one was not made to wait for ever. Its closure has not run.
    #[error("deadlock: {cycle}")]
    Deadlock {
        /// The fibers and properties of the cycle.
        cycle: String,
    },
    /// No answer came in time. The request is not withdrawn: the closure may run later, or has run.
    #[error("a property of type `{property}` did not answer in time; the closure was sent, and may run yet")]
    TimedOut {
        /// Type of the property.
        property: &'static str,
    },
    /// A serialised argument or result is larger than one request may carry.
    #[error(
        "a serialised argument or result of {bytes} bytes is over the limit of {limit_bytes} bytes; send it in pieces"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// Largest size that is carried.
        limit_bytes: usize,
    },
}

/// Returns the text of [`Error::Gone`].
fn gone(property: &str, was_closed: bool) -> String {
    if was_closed {
        return format!(
            "the property of type `{property}` was closed, and the closure has not run: by `close`, or, after the loss \
             of a machine, because all its trusts that were known there had been dropped"
        );
    }
    format!(
        "the trustee of this property of type `{property}` is gone: its thread has ended, or its machine was lost; \
         keep the pool (or thread) alive for as long as its trusts are used"
    )
}

/// Payload of the panic by which an [aborted](crate::JoinHandle::abort) fiber unwinds.
///
/// ```
/// let fiber = trust::spawn(|| trust::sleep(std::time::Duration::MAX));
/// trust::yield_now(); // it begins
/// fiber.abort();
/// assert!(fiber.join().unwrap_err().is::<trust::Aborted>());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fiber was aborted")]
#[non_exhaustive]
pub struct Aborted;

/// Returns the text of a panic's payload.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else if let Some(error) = payload.downcast_ref::<Error>() {
        error.to_string()
    } else if payload.is::<Aborted>() {
        Aborted.to_string()
    } else {
        "a panic whose payload is not text".to_owned()
    }
}
