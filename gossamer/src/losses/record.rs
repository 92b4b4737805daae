//! The machines that were lost while the program went on, for the whole process, and the callbacks that the program has
//! for them, as have the crates above (hooks). Called by all that answers to losses; calls nothing of them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Machine that was lost while the program went on. Its `Display` is the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Number of the machine.
    pub machine: u16,
    /// The cause in words, as the launcher tells it: `machine 3 (pid 4711) was killed by signal 9 (SIGKILL)`.
    pub cause: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

pub(super) type Callback = Arc<dyn Fn(&Loss) + Send + Sync>;

/// Call of a crate above, with the number of a lost machine.
type Hook = fn(u16);

struct Told {
    /// In the order that all machines see.
    losses: Vec<Loss>,
    callbacks: Vec<Callback>,
    hooks: Vec<Hook>,
    /// Called on each worker.
    worker_hooks: Vec<Hook>,
}

static TOLD: Mutex<Told> =
    Mutex::new(Told { losses: Vec::new(), callbacks: Vec::new(), hooks: Vec::new(), worker_hooks: Vec::new() });
/// Number of the losses, so that most callers take no lock.
static COUNT: AtomicU32 = AtomicU32::new(0);
static LOST: Machines = Machines::none();
/// Machines that this one has shut out: those that it does not know to be lost yet, too.
static SHUT_OUT: Machines = Machines::none();
/// The program outlives losses.
static MAY_COME: AtomicBool = AtomicBool::new(false);

/// Set of machines: a bit for each.
struct Machines([AtomicU64; 1 << 10]);

impl Machines {
    const fn none() -> Machines {
        Machines([const { AtomicU64::new(0) }; 1 << 10])
    }

    fn has(&self, machine: u16) -> bool {
        // Acquire: pairs with the Release in `add`.
        self.0[usize::from(machine / 64)].load(Ordering::Acquire) >> (machine % 64) & 1 != 0
    }

    fn add(&self, machine: u16) {
        // Release: pairs with the Acquire in `has`.
        self.0[usize::from(machine / 64)].fetch_or(1 << (machine % 64), Ordering::Release);
    }
}

fn told() -> MutexGuard<'static, Told> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program outlives losses from now on.
pub(super) fn expect_some() {
    // Relaxed: set before `gsm_main`, and before any request comes from machines that have begun.
    MAY_COME.store(true, Ordering::Relaxed);
}

/// Returns whether machines may be lost while the program goes on.
pub(crate) fn may_come() -> bool {
    MAY_COME.load(Ordering::Relaxed)
}

/// Returns the number of losses so far. A machine that has not been told of one yet counts fewer than others.
pub(crate) fn count() -> u32 {
    // Acquire: pairs with the Release in `note`, whose lock the reader may not take.
    COUNT.load(Ordering::Acquire)
}

/// Returns all losses so far.
pub(crate) fn all() -> Vec<Loss> {
    told().losses.clone()
}

/// Returns the lost machines after the first so many losses.
pub(crate) fn after(count: u32) -> Vec<u16> {
    told().losses.iter().skip(count as usize).map(|loss| loss.machine).collect()
}

pub(crate) fn is_lost(machine: u16) -> bool {
    LOST.has(machine)
}

/// No request of this machine begins from now on. Called before this machine says that it has shut it out, so before
/// any machine is told of the loss.
pub(super) fn shut_out(machine: u16) {
    SHUT_OUT.add(machine);
}

/// Returns whether no request of this machine begins any more.
pub(crate) fn is_shut_out(machine: u16) -> bool {
    SHUT_OUT.has(machine)
}

/// Notes losses, before any request that they make fail is answered. Returns the callbacks that are to be called.
pub(super) fn note(losses: &[Loss]) -> Vec<Callback> {
    let mut told = told();
    losses.iter().for_each(|loss| told.hooks.iter().for_each(|hook| hook(loss.machine)));
    told.losses.extend_from_slice(losses);
    losses.iter().for_each(|loss| LOST.add(loss.machine)); // after the hooks
    // Release: pairs with the Acquire in `count`.
    COUNT.store(told.losses.len() as u32, Ordering::Release);
    told.callbacks.clone()
}

/// Adds a hook for each worker, for the losses that are noted from now on.
pub(crate) fn add_worker_hook(hook: Hook) {
    told().worker_hooks.push(hook);
}

/// Returns the hooks for each worker so far. Asked for after a loss was noted, it has each one that was added before
/// that.
pub(super) fn worker_hooks() -> Vec<Hook> {
    told().worker_hooks.clone()
}

/// Adds a callback. Returns the losses before.
pub(super) fn add(callback: Callback) -> Vec<Loss> {
    let mut told = told();
    told.callbacks.push(callback);
    told.losses.clone()
}

/// Adds a hook, and calls it for the losses before. It is called under the lock of this file, by each later `note`
/// before the loss is known.
pub(crate) fn hook(hook: Hook) {
    let mut told = told();
    told.losses.iter().for_each(|loss| hook(loss.machine));
    told.hooks.push(hook);
}
