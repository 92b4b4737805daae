//! Entrusting values to places of the rack.

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::{NoRef, Trust, local_trustee};

use crate::rack::{Place, program};

/// Entrusts a value to the next worker of this machine in turn. Does not wait.
///
/// ```
/// gossamer::main(
///     || {
///         let counter = gossamer::entrust(17);
///         counter.apply(|c| *c += 1);
///         assert_eq!(counter.apply(|c| *c), 18);
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main).
///
/// Source: thesis 3.2.2, table II.
#[track_caller]
pub fn entrust<T: Send + 'static>(value: T) -> Trust<T> {
    program().next_entrust().entrust(value)
}

/// Entrusts a value to the worker at a place. A value for another machine travels serialised (serde), and the caller
/// waits.
///
/// ```
/// gossamer::main(
///     || {
///         let words = vec!["to".to_owned(), "be".to_owned()];
///         for place in gossamer::rack().places() {
///             let there = gossamer::entrust_on(place, words.clone());
///             assert_eq!(there.apply(|words| words.len()), 2);
///         }
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main); if there is no such place; if it is on another machine and the caller may
/// not wait (in delegated closures and callbacks), or the value cannot be serialised.
#[track_caller]
pub fn entrust_on<T>(place: Place, value: T) -> Trust<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    if place.machine == program().rack.machine {
        return place.trustee().entrust(value);
    }
    // The value arrives in a property of its own, and is entrusted from there, by the worker that owns it.
    let landing = entrust_with(place, || None::<T>);
    landing.apply_with(|landed, value| *landed = Some(value), value);
    landing.apply(|landed| match landed.take() {
        Some(value) => local_trustee().entrust(value),
        None => unreachable!("it has just landed"),
    })
}

/// Entrusts the result of `make`, which runs at a place: for values that cannot travel. `make` may capture no
/// references or pointers ([`NoRef`]). The caller waits until the value is made.
///
/// ```
/// use std::collections::HashMap;
/// gossamer::main(
///     || {
///         let shards: Vec<_> = gossamer::rack()
///             .places()
///             .map(|place| gossamer::entrust_with(place, || HashMap::<u64, u64>::new()))
///             .collect();
///         shards[1].apply(|shard| shard.insert(1, 2));
///         assert_eq!(shards[1].apply(|shard| shard.len()), 1);
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main); if there is no such place; in delegated closures and callbacks, where
/// nothing may wait; if `make` panics.
#[track_caller]
pub fn entrust_with<T, F>(place: Place, make: F) -> Trust<T>
where
    T: 'static,
    F: FnOnce() -> T + NoRef + Send + 'static,
{
    match trust::link::entrust_remote(place.trustee(), make) {
        Ok(trust) => trust,
        Err(error) => panic!("nothing was entrusted to {place}: {error}"),
    }
}
