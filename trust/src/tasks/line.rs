//! Lines of fibers that wait for their turn: each has left a [`Promise`] in a queue at the property it waits for, and
//! may give up after a time. The owner of the line decides which is next.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::Error;
use crate::tasks::promise::{Pending, Promise, PromiseId};

/// Takes the promise of this name out of a line and discards it, for a waiter that gives up. False if it is not there
/// any more: then its value is on its way.
pub fn withdraw<T>(line: &mut VecDeque<Promise<T>>, id: PromiseId) -> bool {
    let place = line.iter().position(|promise| promise.id() == id);
    place.and_then(|place| line.remove(place)).map(Promise::discard).is_some()
}

/// Waits for a promise that stands in a line, for at most `time`; then `leave` takes it out. `None` if the waiter has
/// given up. Where `leave` does not find the promise any more, its value is waited for: no turn is lost to the time. A
/// waiter that is [aborted](crate::JoinHandle::abort) leaves its promise in the line, and its turn is lost.
///
/// # Panics
/// As [`Pending::wait`].
pub fn wait_in_line<T: 'static>(
    pending: Pending<T>,
    time: Duration,
    leave: impl FnOnce(PromiseId) -> bool,
) -> Option<Result<T, Error>> {
    match pending.wait_timeout(time) {
        None if leave(pending.id()) => None,
        None => Some(pending.wait()),
        outcome => outcome,
    }
}
