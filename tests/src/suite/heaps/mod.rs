//! The heap over the rack: `gossamer-heap`, over any transport.

mod bunches;
mod ends;
mod oracle;
mod owners;
mod room;
mod scopes;
mod sharing;
mod tasks;

pub use bunches::*;
pub use ends::*;
pub use oracle::*;
pub use owners::*;
pub use room::*;
pub use scopes::*;
pub use sharing::*;
pub use tasks::*;

use std::time::Duration;

use gossamer::{Place, Transport};

use crate::suite::ground::{JoinOutcome, places, until};

/// Returns whether the memory of that place is not mapped here, so that its objects are copied or moved.
fn is_far(place: Place) -> bool {
    let transport = gossamer::rack().machines()[usize::from(place.machine)].transport;
    !matches!(transport, Transport::Here | Transport::Shm)
}

/// Runs a fiber there; returns its result.
fn at<R: gossamer::NoRef + Send + 'static>(
    place: Place,
    f: impl FnOnce() -> R + gossamer::NoRef + Send + 'static,
) -> R {
    gossamer::spawn_on(place, f).join().or_its_panic()
}

/// Counts the objects of the machine of that place, once those that other behaviours dropped have gone: the count is
/// the same three times in a row, with every worker of the rack heard in between.
fn objects_at(place: Place) -> u64 {
    let count = || at(place, || gossamer_heap::stats().objects);
    let mut last = count();
    let mut same = 0;
    while same < 3 {
        gossamer::sleep(Duration::from_millis(2));
        places().into_iter().for_each(|place| at(place, || ()));
        let now = count();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Waits until the machine of that place has at most this many objects.
fn until_objects(place: Place, most: u64) {
    until(|| at(place, || gossamer_heap::stats().objects) <= most);
}
