//! Delegated closures that take long: the worker that runs each, its name, and the time since when.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use crate::ids::TrusteeId;
use crate::registry;
use crate::request::Operation;
use crate::running::Look;

/// A closure that was running in two successive looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongClosure {
    /// Worker of the trustee that runs it.
    pub worker: TrusteeId,
    /// Type of the closure, and of its property.
    pub name: String,
    /// Time at which it was first seen.
    pub since: Instant,
}

/// Returns the closures that run now and ran already at the previous call of this function, by any thread.
///
/// Not seen: closures of a thread on its own trustee, closures of async programs, fibers, callbacks.
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
    // One for the process: each look marks the closures seen, and a second instance would mistake those marks for its
    // own.
    static ALL: LazyLock<Mutex<LongClosures>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner).look()
}

/// Closures seen at all workers of the process.
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
