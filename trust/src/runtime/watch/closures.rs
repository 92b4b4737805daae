//! Delegated closures that take long: which worker of this process is in one, in which, and since when.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use crate::ids::TrusteeId;
use crate::registry;
use crate::request::Operation;
use crate::running::Look;

/// One that was running when it was looked for twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongClosure {
    /// Whose trustee runs it.
    pub worker: TrusteeId,
    /// Its type, and that of its property.
    pub name: String,
    /// When it was seen first.
    pub since: Instant,
}

/// Those that run now, and ran when anybody called this before.
///
/// What is not seen: closures of a thread on its own trustee, those of async programs, fibers, callbacks.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
/// static IS_SEEN: AtomicBool = AtomicBool::new(false);
/// let pool = trust::Threadpool::new(1);
/// let slow = pool.entrust(());
/// slow.apply_then(|_| while !IS_SEEN.load(Ordering::Relaxed) { std::thread::yield_now() }, |()| ());
/// let find = || trust::link::long_closures().into_iter().find(|closure| closure.worker == pool.trustees()[0].id());
/// while find().is_none() {
///     trust::sleep(Duration::from_millis(10)); // this thread sends what it was given
/// }
/// IS_SEEN.store(true, Ordering::Relaxed);
/// trust::wait_all();
/// ```
pub fn long_closures() -> Vec<LongClosure> {
    // One for the process: who looks marks what it has seen, and another one would take that for its own mark.
    static ALL: LazyLock<Mutex<LongClosures>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner).look()
}

/// What was seen of all workers of the process.
#[derive(Debug, Default)]
struct LongClosures {
    since: HashMap<TrusteeId, Instant>,
}

impl LongClosures {
    fn look(&mut self) -> Vec<LongClosure> {
        let now = Instant::now();
        let before = std::mem::take(&mut self.since);
        let mut long = Vec::new();
        for shared in registry::all() {
            let worker = shared.id;
            match shared.counters.running.look() {
                Look::Nothing => {}
                Look::New(_) => {
                    self.since.insert(worker, now);
                }
                Look::Still(what) => {
                    let since = *self.since.entry(worker).or_insert(before.get(&worker).copied().unwrap_or(now));
                    // SAFETY: workers put nothing else there.
                    let operation = unsafe { Operation::of_running(what) };
                    long.push(LongClosure { worker, name: (operation.name)(), since });
                }
            }
        }
        long
    }
}
