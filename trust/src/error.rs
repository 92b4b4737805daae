//! What can go wrong with a request, as the client sees it.

use std::any::Any;
use std::fmt;

/// Why a request had no result. Returned by `try_apply` and its kin; `apply` panics with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An earlier closure panicked while it held the property, which may be half-changed.
    /// [`Trust::clear_poison`](crate::Trust::clear_poison) accepts it as it is.
    Poisoned {
        /// Type of the property.
        property: &'static str,
        /// Message of the first panic.
        panic: String,
    },
    /// The closure of this very request panicked.
    Panicked {
        /// Type of the property.
        property: &'static str,
        /// The panic's message.
        panic: String,
    },
    /// The trustee's thread has ended, and its properties with it.
    Gone {
        /// Type of the property.
        property: &'static str,
    },
    /// An argument or a result could not be serialised or read back.
    Codec {
        /// Type of the property.
        property: &'static str,
        /// What the serialiser said.
        cause: String,
    },
    /// The trustee could not take the request on, for instance for lack of memory for a fiber's stack.
    Refused {
        /// Type of the property.
        property: &'static str,
        /// What was lacking.
        cause: String,
    },
    /// A serialised argument or result is larger than one request may carry.
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is carried.
        limit_bytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Poisoned { property, panic } => write!(
                f,
                "the property of type `{property}` is poisoned: a closure panicked while it held it ({panic}); \
                 use `try_apply` to handle this, `clear_poison` to accept the property as it is"
            ),
            Error::Panicked { property, panic } => {
                write!(f, "a closure delegated to a property of type `{property}` panicked: {panic}")
            }
            Error::Gone { property } => write!(
                f,
                "the trustee of this property of type `{property}` is gone: its thread has ended; \
                 keep the pool (or thread) alive for as long as its trusts are used"
            ),
            Error::Codec { property, cause } => write!(
                f,
                "an argument or result of a request to a property of type `{property}` did not serialise: {cause}"
            ),
            Error::Refused { property, cause } => {
                write!(f, "a request to a property of type `{property}` was refused by its trustee: {cause}")
            }
            Error::TooLarge { bytes, limit_bytes } => write!(
                f,
                "a serialised argument or result of {bytes} bytes is over the limit of {limit_bytes} bytes; \
                 send it in pieces"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// The text of a panic's payload.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic whose payload is not text".to_owned()
    }
}
