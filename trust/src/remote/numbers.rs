//! Numbers of requests that each worker of this machine has made to each trustee of other machines, readable by all
//! threads of the machine: its service thread answers for all (`reclaim.rs`). And the counts of threads that have no
//! link.
//!
//! A number is written by its worker alone, with a plain store, before any later step of the worker. Counts of threads
//! without links lie in one list until the service thread submits them, which it does before it reports the numbers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::ids::TrusteeId;
use crate::property::Header;
use crate::registry::{self, Message};

/// The numbers of one worker, by the place of the trustee at its carrier.
pub(super) struct Numbers {
    worker: TrusteeId,
    written: Box<[(TrusteeId, AtomicU64)]>,
}

/// Numbers of all workers that were ever attached.
static ALL: Mutex<Vec<Arc<Numbers>>> = Mutex::new(Vec::new());

impl Numbers {
    /// `trustees` are in the order of their ids.
    pub(super) fn new(worker: TrusteeId, trustees: &[TrusteeId]) -> Arc<Numbers> {
        assert!(trustees.is_sorted(), "they are found by their ids");
        let written = trustees.iter().map(|&trustee| (trustee, AtomicU64::new(0))).collect();
        let numbers = Arc::new(Numbers { worker, written });
        lock(&ALL).push(Arc::clone(&numbers));
        numbers
    }

    /// Returns the number of requests to this trustee, those not sent yet included.
    fn made_to(&self, trustee: TrusteeId) -> u64 {
        let place = self.written.binary_search_by_key(&trustee, |(to, _)| *to);
        place.map_or(0, |place| self.written[place].1.load(Ordering::Relaxed))
    }

    /// Counts one more request. Relaxed: see the proof in `reclaim.rs`; this worker is the only writer.
    #[inline(always)]
    pub(super) fn add_one(&self, place: usize) {
        let written = &self.written[place].1;
        written.store(written.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Returns, for each worker of this machine that has made requests to this trustee, its index and their number,
/// including those not sent yet.
pub(crate) fn numbers_for(trustee: TrusteeId) -> Vec<(u16, u64)> {
    let all = lock(&ALL);
    let numbers = all.iter().map(|numbers| (numbers.worker.index() as u16, numbers.made_to(trustee)));
    numbers.filter(|(_, made)| *made > 0).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The service thread of this machine.
static SERVICE: OnceLock<TrusteeId> = OnceLock::new();

/// The service thread of this machine, to which threads without links hand counts for another machine.
pub(crate) fn service() -> Option<TrusteeId> {
    SERVICE.get().copied()
}

/// Notes that this worker has links.
pub(super) fn attached(worker: TrusteeId) {
    let _ = SERVICE.set(worker); // the first one: see `link::attach`
}

/// Counts that wait for the service thread: one for each property.
#[derive(Default)]
struct Forwards(Option<HashMap<(TrusteeId, *mut Header), i64>>);

#[expect(unsafe_code, reason = "the pointers are only used by the properties' own thread")]
// SAFETY: as for `PropertyRef`.
unsafe impl Send for Forwards {}

static FORWARDS: Mutex<Forwards> = Mutex::new(Forwards(None));

/// Counts trusts of a property of another machine, on a thread that need not have a link there: the service thread
/// sends it.
pub(crate) fn forward(trustee: TrusteeId, property: *mut Header, delta: i32) {
    // The service thread is there before the first such trust can be, and ends when all workers have.
    let Some(worker) = service().and_then(registry::find) else { return };
    let mut forwards = lock(&FORWARDS);
    let waiting = forwards.0.get_or_insert_default();
    let is_first = waiting.is_empty();
    *waiting.entry((trustee, property)).or_insert(0) += i64::from(delta);
    drop(forwards);
    if is_first {
        let _ = worker.send(Message::Forward);
    }
}

/// Service thread: takes the counts of [`forward`], to be submitted.
pub(crate) fn take_forwarded() -> impl Iterator<Item = (TrusteeId, *mut Header, i32)> {
    let waiting = lock(&FORWARDS).0.take().unwrap_or_default();
    let parts = |((trustee, property), sum)| registry::parts_of(sum).map(move |part| (trustee, property, part));
    waiting.into_iter().flat_map(parts)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ids::worker_id;

    /// Uses ids of machines that no other test has.
    #[test]
    fn each_worker_tells_what_it_has_asked_of_a_trustee() {
        let trustees = [worker_id(900, 0), worker_id(900, 1), worker_id(901, 0)];
        let workers = [worker_id(0, 5), worker_id(0, 6)].map(|worker| Numbers::new(worker, &trustees));
        for (worker, place, times) in [(0, 0, 3), (1, 0, 1), (1, 2, 2)] {
            (0..times).for_each(|_| workers[worker].add_one(place));
        }
        assert_eq!(numbers_for(trustees[0]), [(5, 3), (6, 1)]);
        assert_eq!(numbers_for(trustees[1]), []);
        assert_eq!(numbers_for(trustees[2]), [(6, 2)]);
        assert_eq!(numbers_for(worker_id(902, 0)), []);
    }
}
