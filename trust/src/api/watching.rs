//! Watching a program from outside: empty requests to workers, states of their threads, traces. For `gossamer`.

use std::sync::Arc;
use std::time::Duration;

use crate::api::dump::Dump;
use crate::api::reference::TrusteeReference;
use crate::fiber::footprint::Footprint;
use crate::registry;
use crate::registry::probe::Probe;
use crate::runtime::worker;
use crate::trace::{self, Trace};

/// Sends an empty request to this worker; `None` if it has ended.
///
/// ```
/// let pool = trust::Threadpool::new(1);
/// let probe = trust::link::probe(pool.trustees()[0]).unwrap();
/// while probe.took().is_none() {
///     std::thread::yield_now();
/// }
/// assert!(probe.took().unwrap() <= probe.age());
/// ```
#[must_use]
pub fn probe(worker: TrusteeReference) -> Option<Arc<Probe>> {
    registry::find(worker.id()).and_then(|worker| Probe::send(&worker))
}

/// Returns the state of this worker's thread as the kernel reports it: `R` runs, `S` sleeps, `D` waits for a device,
/// `T` was stopped. `None` if it has ended.
///
/// ```
/// assert_eq!(trust::link::thread_state(trust::local_trustee()), Some('R'));
/// ```
#[must_use]
pub fn thread_state(worker: TrusteeReference) -> Option<char> {
    let thread = registry::find(worker.id())?.thread.get();
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name before it may contain anything, even parentheses.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns the number of this worker's thread in the system; `None` if it has ended.
///
/// ```
/// assert_eq!(trust::link::thread_id(trust::local_trustee()), Some(unsafe { libc::gettid() }));
/// ```
#[must_use]
pub fn thread_id(worker: TrusteeReference) -> Option<i32> {
    Some(registry::find(worker.id())?.thread.get())
}

/// Returns the threads of a dump that did not answer in time.
///
/// ```
/// assert!(trust::link::unanswered(&trust::dump()).is_empty());
/// ```
#[must_use]
pub fn unanswered(dump: &Dump) -> Vec<TrusteeReference> {
    dump.unanswered().map(TrusteeReference::from_id).collect()
}

/// Returns the fiber that runs on this worker now, by name and kind; `None` if none does, or if the system does not
/// allow that (`membarrier`). The kernel interrupts all threads of the process for a moment: use it for workers that do
/// not get to their loop.
///
/// ```
/// assert_eq!(trust::link::running_fiber(trust::local_trustee()), None);
/// ```
#[must_use]
pub fn running_fiber(worker: TrusteeReference) -> Option<String> {
    registry::find(worker.id())?.fibers.name()
}

/// Returns the number of the calling fiber, unique on its thread for ever; `None` outside of fibers.
///
/// ```
/// assert_eq!(trust::link::fiber_id(), None);
/// assert!(trust::spawn(trust::link::fiber_id).join().unwrap().is_some());
/// ```
#[must_use]
pub fn fiber_id() -> Option<u64> {
    worker::existing(|worker| worker.scheduler.current_id()).flatten()
}

/// Memory in use by one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Stacks of its fibers, as far as they were touched; includes stacks kept for later fibers.
    pub stacks_bytes: u64,
    /// Pages of its properties. Allocations made by the properties themselves are not known.
    pub properties_bytes: u64,
}

/// Returns the memory in use by this worker; `None` if it has ended. Asks the kernel about each page of its stacks.
///
/// ```
/// let pool = trust::Threadpool::new(1);
/// let counter = pool.entrust(7u64);
/// pool.spawn(move || counter.apply(|c| *c)).join().unwrap();
/// let memory = trust::link::memory(pool.trustees()[0]).unwrap();
/// assert!(memory.stacks_bytes > 0 && memory.properties_bytes > 0);
/// ```
#[must_use]
pub fn memory(worker: TrusteeReference) -> Option<Memory> {
    let worker = registry::find(worker.id())?;
    let stacks_bytes = worker.stacks.get().map_or(0, Footprint::resident_bytes);
    Some(Memory { stacks_bytes, properties_bytes: worker.slab.bytes() })
}

/// Records for `time` the actions of each of these workers, and those waits of their fibers for answers that begin and
/// end in it. Returns the traces in the order of `workers`; blocks the thread meanwhile. `None` if another trace is
/// under way.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
/// static IS_OVER: AtomicBool = AtomicBool::new(false);
/// let pool = trust::Threadpool::new(1);
/// let sleeper = pool.spawn(|| while !IS_OVER.load(Ordering::Relaxed) { trust::sleep(Duration::from_millis(1)) });
/// let trace = || trust::link::trace(&pool.trustees(), Duration::from_millis(20)).unwrap();
/// let ran_fibers = |traces: Vec<trust::link::Trace>| {
///     traces[0].events.iter().any(|event| event.kind == trust::link::TraceKind::Fibers)
/// };
/// while !ran_fibers(trace()) {} // on a machine that is busy, a worker may do nothing for so long
/// IS_OVER.store(true, Ordering::Relaxed);
/// sleeper.join().unwrap();
/// ```
#[must_use]
pub fn trace(workers: &[TrusteeReference], time: Duration) -> Option<Vec<Trace>> {
    trace::make(time, |session| {
        let read = |worker: &TrusteeReference| registry::find(worker.id()).map(|worker| worker.trace.read(session));
        workers.iter().map(|worker| read(worker).unwrap_or_default()).collect()
    })
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Fibers of one worker ask two others in turn, and yield in between: each wait is for the trustee that was asked,
    /// and lasts as long as its closure at least.
    #[test]
    fn waits_of_fibers_are_traced_with_their_trustees() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        const CLOSURE: Duration = Duration::from_millis(2);
        let pool = crate::Threadpool::builder().workers(3).pin(false).build();
        let ids: Vec<_> = pool.trustees().iter().map(|trustee| trustee.id()).collect();
        let properties = [1, 2].map(|worker| pool.trustees()[worker].entrust(0u64));
        let ask = |first: usize| {
            let properties = properties.clone();
            pool.spawn_on(0, move || {
                for turn in first.. {
                    if IS_OVER.load(Ordering::Relaxed) {
                        return;
                    }
                    properties[turn % 2].apply(|_| std::thread::sleep(CLOSURE));
                    crate::yield_now();
                }
            })
        };
        let fibers: Vec<_> = (0..6).map(ask).collect();
        let mut traces = Vec::new();
        limits::wait_until("waits for both", || {
            traces = trace(pool.trustees(), Duration::from_millis(50)).unwrap_or_default();
            let waits = |worker: usize| {
                let is_for = |wait: &&crate::trace::AnswerWait| wait.trustee == ids[worker];
                traces.first().map_or(0, |trace| trace.waits.iter().filter(is_for).count())
            };
            waits(1) > 2 && waits(2) > 2
        });
        IS_OVER.store(true, Ordering::Relaxed);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        for wait in &traces[0].waits {
            assert!(ids[1..].contains(&wait.trustee), "{wait:?}");
            assert!(wait.ns >= CLOSURE.as_nanos() as u64, "{wait:?}");
        }
        assert!(traces[1..].iter().all(|trace| trace.waits.is_empty()), "they ask nobody");
        // The waits of one fiber follow one another, for the one and the other trustee.
        let mut of_fiber = std::collections::HashMap::new();
        for wait in &traces[0].waits {
            if let Some((end_ns, trustee)) = of_fiber.insert(wait.fiber, (wait.start_ns + wait.ns, wait.trustee)) {
                assert!(wait.start_ns >= end_ns && wait.trustee != trustee, "{wait:?} after {end_ns}");
            }
        }
    }
}
