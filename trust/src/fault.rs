//! Why a request has no response: what takes the place of one on its way back to the client, and becomes an [`Error`]
//! or a panic there.

use std::any::Any;
use std::panic::Location;

use crate::error::{Error, panic_text};
use crate::unwind::discard;

/// A call of the program that waits: its name and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Called {
    pub(crate) name: &'static str,
    pub(crate) at: &'static Location<'static>,
}

impl Called {
    /// At the place in the program from which the functions marked `track_caller` were called.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn here(name: &'static str) -> Called {
        Called { name, at: Location::caller() }
    }
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum Fault {
    Panicked(Box<dyn Any + Send>),
    Poisoned(String),
    Gone,
    Codec(String),
    Refused(String),
    /// Which circle.
    Deadlock(String),
    /// Bytes, and how many may be carried.
    TooLarge(usize, usize),
}

impl Fault {
    /// As the error of a property of type `T`.
    pub(crate) fn into_error<T>(self) -> Error {
        self.into_error_of(std::any::type_name::<T>())
    }

    /// As the error of a property of the type with this name.
    pub(crate) fn into_error_of(self, property: &'static str) -> Error {
        match self {
            Fault::Panicked(payload) => {
                let panic = panic_text(&*payload);
                discard(payload);
                Error::Panicked { property, panic }
            }
            Fault::Poisoned(panic) => Error::Poisoned { property, panic },
            Fault::Gone => Error::Gone { property },
            Fault::Codec(cause) => Error::Codec { property, cause },
            Fault::Refused(cause) => Error::Refused { property, cause },
            Fault::Deadlock(cycle) => Error::Deadlock { cycle },
            Fault::TooLarge(bytes, limit_bytes) => Error::TooLarge { bytes, limit_bytes },
        }
    }

    /// Goes on with it in the client: the closure's own panic as it was, anything else as a panic with its text.
    #[track_caller]
    pub(crate) fn resume<T>(self) -> ! {
        match self {
            Fault::Panicked(payload) => std::panic::resume_unwind(payload),
            other => panic!("{}", other.into_error::<T>()),
        }
    }

    /// As [`resume`](Self::resume), from inside of a closure: it says in its text where in the program the call is.
    #[cold]
    pub(crate) fn resume_call<T>(self, call: Called) -> ! {
        match self {
            Fault::Panicked(payload) => std::panic::resume_unwind(payload),
            other => panic!("{} (`{}` at {})", other.into_error::<T>(), call.name, call.at),
        }
    }

    /// Tells of it where nobody waits for it (`apply_then`).
    #[cold]
    pub(crate) fn report<T>(self, call: &str) {
        crate::unwind::tell(format_args!("the callback of an `{call}` does not run: {}", self.into_error::<T>()));
    }
}
