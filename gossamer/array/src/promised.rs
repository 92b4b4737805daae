//! Promises of a worker to itself.

use trust::{Pending, Promise};

/// Makes a promise that this machine keeps, or drops where it never will: the loss of another machine alone does not
/// end the wait for it.
pub(crate) fn own_promise<T: 'static>() -> (Promise<T>, Pending<T>) {
    trust::link::promise_at(trust::local_trustee().id())
}
