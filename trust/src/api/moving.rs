//! Trustees that move, and their places, as everybody in the process may know them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::runtime::seats::Seat;
use crate::{Bound, TrusteeReference};

/// Place of one trustee.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The trustee.
    pub trustee: TrusteeReference,
    /// Index of the worker that runs it.
    pub worker: usize,
    /// Reason why it did not move when it was last to do so, if it did not.
    pub bound: Option<Bound>,
}

impl Place {
    pub(super) fn of(seat: &Arc<Seat>) -> Place {
        Place { trustee: TrusteeReference::from_id(seat.shared.id), worker: seat.runner(), bound: seat.bound() }
    }
}

/// Pools of this process with trustees that move.
static POOLS: Mutex<Vec<Weak<Moving>>> = Mutex::new(Vec::new());

/// The trustees of a pool that move, as others see them.
pub(super) struct Moving {
    name: String,
    seats: Vec<Arc<Seat>>,
}

impl Moving {
    /// Shows the trustees of a pool of this name for as long as the pool keeps the result.
    pub(super) fn show(name: &str, seats: &[Arc<Seat>]) -> Arc<Moving> {
        let moving = Arc::new(Moving { name: name.to_owned(), seats: seats.to_vec() });
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&moving));
        moving
    }
}

/// Returns the places of all trustees of this process that move, with the names of their pools.
///
/// ```
/// let pool = trust::Threadpool::builder().workers(2).trustees(3).name("tables").build();
/// let workers = || trust::link::moving().into_iter().filter(|(name, _)| name == "tables").map(|(_, at)| at.worker);
/// assert_eq!(workers().collect::<Vec<_>>(), [0, 1, 0]);
/// drop(pool);
/// assert_eq!(workers().count(), 0);
/// ```
#[must_use]
pub fn moving() -> Vec<(String, Place)> {
    let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let pools: Vec<Arc<Moving>> = pools.iter().filter_map(Weak::upgrade).collect();
    pools.iter().flat_map(|pool| pool.seats.iter().map(|seat| (pool.name.clone(), Place::of(seat)))).collect()
}
