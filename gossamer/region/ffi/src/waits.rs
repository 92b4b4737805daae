//! Waits of this machine's threads that only another thread of the program ends: each is noted by the waiting thread,
//! by a few stores of its own where it goes to sleep. `hang.rs` reads them.
//!
//! Waits with a limit of time are not noted, nor those for files, processes, signals and the clock.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::joins;

/// The kind of object for which a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub(crate) enum Kind {
    Mutex = 1,
    Condvar,
    Semaphore,
    Read,
    Write,
    Barrier,
    Join,
    Futex,
    Once,
    /// `pthread_cond_destroy`, which waits for woken threads.
    Leaving,
    /// The end of all other threads, after a main function that has ended by `pthread_exit`.
    Others,
}

const KINDS: [Kind; 11] = [
    Kind::Mutex,
    Kind::Condvar,
    Kind::Semaphore,
    Kind::Read,
    Kind::Write,
    Kind::Barrier,
    Kind::Join,
    Kind::Futex,
    Kind::Once,
    Kind::Leaving,
    Kind::Others,
];

/// A wait of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wait {
    pub(crate) thread: u64,
    pub(crate) kind: Kind,
    /// Address of the object, or id of a thread.
    pub(crate) object: u64,
    /// Number of notes that the thread has made so far.
    turn: u64,
}

/// Present wait of a thread, written by the thread alone.
#[derive(Default)]
struct Noted {
    /// 0: it does not wait.
    kind: AtomicU32,
    object: AtomicU64,
    turn: AtomicU64,
}

impl Noted {
    /// Changes it, and returns what it was. A reader that finds parts of two waits finds another one the next time.
    fn set(&self, (kind, object): (u32, u64)) -> (u32, u64) {
        let before = (self.kind.load(Ordering::Relaxed), self.object.load(Ordering::Relaxed));
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.object.store(object, Ordering::Relaxed);
        self.kind.store(kind, Ordering::Release); // Release: with the Acquire in `of`
        before
    }

    fn of(&self, thread: u64) -> Option<Wait> {
        let kind = self.kind.load(Ordering::Acquire); // Acquire: with the Release in `set`
        let kind = KINDS.into_iter().find(|known| *known as u32 == kind)?;
        let (object, turn) = (self.object.load(Ordering::Relaxed), self.turn.load(Ordering::Relaxed));
        Some(Wait { thread, kind, object, turn })
    }
}

/// Threads of this machine that run, by id. Locked with signals blocked, and by threads that are not the program's.
static THREADS: Mutex<Option<HashMap<u64, Arc<Noted>>>> = Mutex::new(None);

thread_local! {
    /// The thread's, which it has among those above; null: none.
    static OWN: Cell<*const Noted> = const { Cell::new(std::ptr::null()) };
}

fn threads() -> MutexGuard<'static, Option<HashMap<u64, Arc<Noted>>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the calling thread, which begins, with signals blocked.
pub(crate) fn begin(thread: u64) {
    let noted = Arc::<Noted>::default();
    OWN.set(Arc::as_ptr(&noted));
    threads().get_or_insert_default().insert(thread, noted);
}

/// Returns what the calling thread has begun with, for [`take_over`].
pub(crate) fn noted() -> usize {
    OWN.get().expose_provenance()
}

/// In a block: records waits as the thread's host has begun; 0: it records none.
pub(crate) fn take_over(noted: usize) {
    OWN.set(std::ptr::with_exposed_provenance(noted));
}

/// Forgets the calling thread, which ends, with signals blocked.
pub(crate) fn end(thread: u64) {
    OWN.set(std::ptr::null());
    threads().get_or_insert_default().remove(&thread);
}

fn set(to: (u32, u64)) -> (u32, u64) {
    // SAFETY: null, or that of the calling thread, which stays until it ends.
    unsafe { OWN.get().as_ref() }.map_or((0, 0), |own| own.set(to))
}

/// Calls `f`, in which the calling thread waits for this object; with a limit of time it is not noted.
pub(crate) fn during<R>(kind: Kind, object: usize, limit: Option<Duration>, f: impl FnOnce() -> R) -> R {
    if limit.is_some() {
        return f();
    }
    // A handler of a signal may wait meanwhile.
    let before = set((kind as u32, object as u64));
    let result = f();
    set(before);
    result
}

/// Returns the kind of the present wait of a thread of this machine, if it waits.
pub(crate) fn kind_of(thread: u64) -> Option<Kind> {
    Some(threads().as_ref()?.get(&thread)?.of(thread)?.kind)
}

/// Whether a thread of this machine does not wait.
pub(crate) fn is_one_running() -> bool {
    let runs = |noted: &Arc<Noted>| noted.kind.load(Ordering::Relaxed) == 0;
    threads().as_ref().is_some_and(|threads| threads.values().any(runs))
}

/// On a worker: the waits of this machine's threads, by their ids, and the threads that have begun here and run
/// anywhere. `None`: one of this machine's does not wait.
pub(crate) fn all() -> Option<(Vec<Wait>, Vec<u64>)> {
    let mut running = joins::here();
    running.sort_unstable();
    let threads = threads();
    // One that has not begun, or has ended, is not there.
    let waits = running.into_iter().map(|id| threads.as_ref()?.get(&id)?.of(id)).collect::<Option<_>>()?;
    Some((waits, joins::running()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_another_one_each_time_and_goes_with_its_end() {
        begin(7);
        let found = || threads().as_ref().and_then(|threads| threads.get(&7)?.of(7));
        let wait = |limit| during(Kind::Join, 3, limit, || (found(), during(Kind::Futex, 4, None, found), found()));
        let (first, within, after) = wait(None);
        assert_eq!(first.as_ref().map(|wait| (wait.kind, wait.object)), Some((Kind::Join, 3)));
        assert_eq!(within.map(|wait| (wait.kind, wait.object)), Some((Kind::Futex, 4)));
        assert_eq!(after.as_ref().map(|wait| (wait.kind, wait.object)), Some((Kind::Join, 3)));
        assert!(after != first && wait(None).0 != first && found().is_none());
        assert_eq!(wait(Some(Duration::ZERO)).0, None);
        end(7);
        assert!(!is_one_running());
    }
}
