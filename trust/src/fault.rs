//! Fault of a request: it takes the place of the response on the way back to the client, and becomes an [`Error`] or a
//! panic there.

use std::any::Any;
use std::panic::Location;

use crate::error::{Error, panic_text};
use crate::unwind::discard;

/// Waiting call of the program: its name and location.
#[derive(Clone, Copy)]
pub(crate) struct Called {
    pub(crate) name: &'static str,
    pub(crate) at: &'static Location<'static>,
}

impl Called {
    /// Makes it for the place in the program from which the functions marked `track_caller` were called.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn here(name: &'static str) -> Called {
        Called { name, at: Location::caller() }
    }
}

/// Reason why a request has no response.
#[derive(Debug)]
pub(crate) enum Fault {
    Panicked(Box<dyn Any + Send>),
    Poisoned(String),
    Gone,
    /// The property was closed.
    Closed,
    /// The machine was lost after the request had been sent.
    Lost(u16),
    Codec(String),
    Refused(String),
    /// Description of the cycle.
    Deadlock(String),
    /// Bytes, and the most that may be carried.
    TooLarge(usize, usize),
    /// The property is on another machine than the values of the call.
    Apart,
}

impl Fault {
    /// Makes the error for a property of type `T`.
    pub(crate) fn into_error<T>(self) -> Error {
        self.into_error_of(std::any::type_name::<T>())
    }

    /// Makes the error for a property of the type with this name.
    pub(crate) fn into_error_of(self, property: &'static str) -> Error {
        match self {
            Fault::Panicked(payload) => {
                let panic = panic_text(&*payload);
                discard(payload);
                Error::Panicked { property, panic }
            }
            Fault::Poisoned(panic) => Error::Poisoned { property, panic },
            Fault::Gone => Error::Gone { property, was_closed: false },
            Fault::Closed => Error::Gone { property, was_closed: true },
            Fault::Lost(machine) => Error::Lost { machine },
            Fault::Codec(cause) => Error::Codec { property, cause },
            Fault::Refused(cause) => Error::Refused { property, cause },
            Fault::Deadlock(cycle) => Error::Deadlock { cycle },
            Fault::TooLarge(bytes, limit_bytes) => Error::TooLarge { bytes, limit_bytes },
            Fault::Apart => Error::Apart { property },
        }
    }

    /// Resumes the fault in the client: the closure's own panic unchanged, any other fault as a panic with its text.
    #[track_caller]
    pub(crate) fn resume<T>(self) -> ! {
        match self {
            Fault::Panicked(payload) => std::panic::resume_unwind(payload),
            other => panic!("{}", other.into_error::<T>()),
        }
    }

    /// Makes the text for a call that cannot return an error.
    fn text_of_plain<T>(self) -> String {
        let error = self.into_error::<T>();
        let other_call = match error {
            Error::Poisoned { .. } => ", or make the call with `call()` to handle this",
            _ => "",
        };
        format!("{error}{other_call}")
    }

    /// Same as [`resume`](Self::resume), for a call that has an equivalent with errors, and from inside a closure: the
    /// text gives the location of the call in the program.
    #[inline(always)]
    pub(crate) fn resume_call<T>(self, call: Called) -> ! {
        // In its parts: by its address, each call would store it before it knows of a fault.
        self.resume_at::<T>(call.name, call.at)
    }

    #[cold]
    fn resume_at<T>(self, name: &'static str, at: &'static Location<'static>) -> ! {
        match self {
            Fault::Panicked(payload) => std::panic::resume_unwind(payload),
            other => panic!("{} (`{name}` at {at})", other.text_of_plain::<T>()),
        }
    }

    /// Reports a fault that no caller waits for (`apply_then`).
    #[cold]
    pub(crate) fn report<T>(self, call: &str) {
        crate::unwind::tell_rarely(format!("the callback of an `{call}` does not run: {}", self.text_of_plain::<T>()));
    }
}
