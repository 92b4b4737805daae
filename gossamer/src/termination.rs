//! Results of a program's first fiber, and the exit statuses that they mean.

use std::fmt::Debug;

use crate::complain::complain;

/// Exit status of a program whose first fiber returned an error, as that of a process whose `main` does.
const ERROR_STATUS: u8 = 1;

/// Results that the first fiber of a program may have ([`main`](crate::main)): nothing, an exit status (`u8`), or a
/// `Result` of these, whose error is printed by its `Debug`, as std's `main` does (a `String` has quotes then), and
/// gives status 1.
///
/// After a success the program ends when all fibers of machine 0 have ended. After an error, and after a status other
/// than 0, it ends at once, as after a panic: other fibers may wait for things that the first one will no longer do.
///
/// ```
/// use gossamer::Termination;
/// assert_eq!(().failure(), None);
/// assert_eq!((0u8.failure(), 3u8.failure()), (None, Some(3)));
/// assert_eq!(Err::<(), _>("no such file").failure(), Some(1)); // and prints the error
/// ```
#[diagnostic::on_unimplemented(
    message = "the first fiber of a program cannot return `{Self}`",
    note = "it returns `()`, an exit status (`u8`), or a `Result` of these with an error that is `Debug`"
)]
pub trait Termination {
    /// Returns the exit status, unless it is a success. Prints an error to standard error.
    fn failure(self) -> Option<u8>;
}

impl Termination for () {
    fn failure(self) -> Option<u8> {
        None
    }
}

impl Termination for u8 {
    fn failure(self) -> Option<u8> {
        Some(self).filter(|status| *status != 0)
    }
}

impl<T: Termination, E: Debug> Termination for Result<T, E> {
    fn failure(self) -> Option<u8> {
        match self {
            Ok(value) => value.failure(),
            Err(error) => {
                complain(format_args!("the program failed: {error:?}"));
                Some(ERROR_STATUS)
            }
        }
    }
}

/// Type of functions, to name the result of those that do not return: `!` has no name in stable Rust.
#[doc(hidden)]
pub trait Function {
    /// The result.
    type Output;
}

impl<R> Function for fn() -> R {
    type Output = R;
}

impl Termination for <fn() -> ! as Function>::Output {
    fn failure(self) -> Option<u8> {
        self
    }
}
