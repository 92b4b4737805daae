//! How a program is watched from outside: empty requests to workers, what their threads do, traces. For `gossamer`.

use std::sync::Arc;
use std::time::Duration;

use crate::api::reference::TrusteeReference;
use crate::registry;
use crate::registry::probe::Probe;
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

/// What the thread of this worker does, as the kernel says it: `R` runs, `S` sleeps, `D` waits for a device, `T` was stopped. `None` if it
/// has ended.
///
/// ```
/// assert_eq!(trust::link::thread_state(trust::local_trustee()), Some('R'));
/// ```
#[must_use]
pub fn thread_state(worker: TrusteeReference) -> Option<char> {
    let thread = registry::find(worker.id())?.thread.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name before it may hold anything, also parentheses.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Notes for so long what each of these workers does, and returns it in their order; blocks the thread meanwhile. `None` if that is being
/// done already.
///
/// ```
/// use std::time::Duration;
/// let pool = trust::Threadpool::new(1);
/// let sleeper = pool.spawn(|| (0..20).for_each(|_| trust::sleep(Duration::from_millis(2))));
/// let traces = trust::link::trace(&pool.trustees(), Duration::from_millis(20)).unwrap();
/// assert!(traces[0].events.iter().any(|event| event.kind == trust::link::TraceKind::Fibers));
/// sleeper.join().unwrap();
/// ```
#[must_use]
pub fn trace(workers: &[TrusteeReference], time: Duration) -> Option<Vec<Trace>> {
    trace::make(time, |session| {
        let read = |worker: &TrusteeReference| registry::find(worker.id()).map(|worker| worker.trace.read(session));
        workers.iter().map(|worker| read(worker).unwrap_or_default()).collect()
    })
}
