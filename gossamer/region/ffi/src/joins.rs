//! Threads on the machine where they have begun, from their start until they are joined; and the threads that join
//! them. Where threads move, that machine knows where they are.
//!
//! Everything here runs on the machine's worker, in fibers unless stated otherwise.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::pthread_t;
use trust::Promise;
use trust::link::{post, wait_in_line, withdraw};

use crate::{ids, side};

/// State of a thread.
enum State {
    Running,
    /// Running; no thread joins it.
    Detached,
    /// Ended, with this result.
    Ended(usize),
}

struct Thread {
    state: State,
    /// The C library's id.
    real: Option<pthread_t>,
    joiners: VecDeque<Promise<()>>,
}

/// Threads that have moved here, by their ids, with the C library's.
static ARRIVED: Mutex<BTreeMap<u64, pthread_t>> = Mutex::new(BTreeMap::new());
/// Threads of this machine's ids that are on other machines.
static AWAY: Mutex<BTreeMap<u64, u16>> = Mutex::new(BTreeMap::new());

fn arrived() -> MutexGuard<'static, BTreeMap<u64, pthread_t>> {
    ARRIVED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn away() -> MutexGuard<'static, BTreeMap<u64, u16>> {
    AWAY.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static THREADS: RefCell<HashMap<u64, Thread>> = RefCell::default();
}

/// Notes a thread that starts.
pub(crate) fn begin(id: u64, is_detached: bool) {
    let state = if is_detached { State::Detached } else { State::Running };
    THREADS.with_borrow_mut(|threads| threads.insert(id, Thread { state, real: None, joiners: VecDeque::new() }));
}

/// Notes the C library's id of a thread, unless it has moved already.
pub(crate) fn note_real(id: u64, real: pthread_t) {
    if away().contains_key(&id) || arrived().contains_key(&id) {
        return;
    }
    THREADS.with_borrow_mut(|threads| {
        if let Some(thread) = threads.get_mut(&id) {
            thread.real = Some(real);
        }
    });
}

/// On a host: notes a thread that has come from another machine.
pub(crate) fn arrive(id: u64) {
    arrived().insert(id, ids::real_self());
    away().remove(&id);
}

/// On a host: forgets a thread that has come from another machine, and leaves this one, or has ended.
pub(crate) fn leave(id: u64) {
    arrived().remove(&id);
}

/// On a host: notes that its thread goes to another machine. From here on no thread of this one finds it here.
pub(crate) fn go(id: u64, to: u16) {
    if ids::machine_of(id) == side::own_machine() {
        away().insert(id, to);
    }
    leave(id);
}

/// On the machine that its id names: notes the machine to which a thread goes.
pub(crate) fn note_machine(id: u64, machine: u16) {
    away().insert(id, machine);
    THREADS.with_borrow_mut(|threads| {
        if let Some(thread) = threads.get_mut(&id) {
            thread.real = None; // that of its first host, which has other work
        }
    });
}

/// On the machine that its id names: returns the machine where a thread is that has not ended.
pub(crate) fn machine_of(id: u64) -> Option<u16> {
    let runs = |thread: &Thread| !matches!(thread.state, State::Ended(_));
    let is_there = THREADS.with_borrow(|threads| threads.get(&id).is_some_and(runs));
    is_there.then(|| away().get(&id).copied().unwrap_or_else(side::own_machine))
}

/// Returns the C library's id of a thread that has not ended, and is here.
pub(crate) fn real_of(id: u64) -> Option<pthread_t> {
    if let Some(real) = arrived().get(&id) {
        return Some(*real);
    }
    if away().contains_key(&id) {
        return None;
    }
    let runs = |thread: &&Thread| !matches!(thread.state, State::Ended(_));
    THREADS.with_borrow(|threads| threads.get(&id).filter(runs)?.real)
}

/// Forgets a thread that could not start.
pub(crate) fn forget(id: u64) {
    THREADS.with_borrow_mut(|threads| threads.remove(&id));
}

/// From a thread that ends, on our side: it can be joined now. Waits only where the thread has moved.
pub(crate) fn end(id: u64, result: usize) {
    match ids::machine_of(id) {
        first if first == side::own_machine() => post(side::place(first).trustee(), move |_| ended(id, result), &[]),
        first => side::at(first, move || ended(id, result)),
    }
}

/// In delegated context.
fn ended(id: u64, result: usize) {
    away().remove(&id);
    let joiners = THREADS.with_borrow_mut(|threads| {
        let thread = threads.get_mut(&id)?;
        let was = std::mem::replace(&mut thread.state, State::Ended(result));
        let joiners = std::mem::take(&mut thread.joiners);
        if let State::Detached = was {
            threads.remove(&id);
            return None;
        }
        Some(joiners)
    });
    match joiners {
        Some(joiners) => joiners.into_iter().for_each(|promise| promise.keep(())),
        None => drop(trust::spawn(move || ids::release(id))),
    }
}

/// Waits for the end of a thread; returns its result, or an errno.
pub(crate) fn join(id: u64, time: Option<Duration>) -> Result<usize, c_int> {
    let pending = THREADS.with_borrow_mut(|threads| {
        let thread = threads.get_mut(&id).ok_or(libc::ESRCH)?;
        match thread.state {
            State::Detached => Err(libc::EINVAL),
            State::Ended(_) => Ok(None),
            State::Running => {
                let (promise, pending) = trust::promise();
                thread.joiners.push_back(promise);
                Ok(Some(pending))
            }
        }
    })?;
    let leave = |promise| {
        THREADS.with_borrow_mut(|threads| {
            threads.get_mut(&id).is_some_and(|thread| withdraw(&mut thread.joiners, promise))
        })
    };
    let has_ended = match (pending, time) {
        (None, _) => true,
        (Some(pending), None) => pending.wait().is_ok(),
        (Some(pending), Some(time)) => wait_in_line(pending, time, leave).is_some_and(|turn| turn.is_ok()),
    };
    if !has_ended {
        return Err(libc::ETIMEDOUT);
    }
    match THREADS.with_borrow_mut(|threads| threads.remove(&id)) {
        Some(Thread { state: State::Ended(result), .. }) => Ok(result),
        _ => Err(libc::ESRCH), // another thread has joined it too
    }
}

/// Lets a thread end without being joined; returns 0 or an errno, and whether it has ended already.
pub(crate) fn detach(id: u64) -> (c_int, bool) {
    THREADS.with_borrow_mut(|threads| {
        let Some(thread) = threads.get_mut(&id) else { return (libc::ESRCH, false) };
        match thread.state {
            State::Running => {
                thread.state = State::Detached;
                (0, false)
            }
            State::Detached => (libc::EINVAL, false),
            State::Ended(_) => {
                threads.remove(&id);
                (0, true)
            }
        }
    })
}

/// Returns the threads that run here, by their ids, wherever they have begun.
pub(crate) fn here() -> Vec<u64> {
    let (arrived, away) = (arrived().keys().copied().collect::<Vec<_>>(), away().clone());
    let is_here = |id: &u64| !away.contains_key(id) && !arrived.contains(id);
    running().into_iter().filter(is_here).chain(arrived.iter().copied()).collect()
}

/// Returns the threads of this machine's ids that run, by their ids.
pub(crate) fn running() -> Vec<u64> {
    let runs = |(_, thread): &(&u64, &Thread)| !matches!(thread.state, State::Ended(_));
    THREADS.with_borrow(|threads| threads.iter().filter(runs).map(|(id, _)| *id).collect())
}

/// Returns the number of threads that run here, without this one.
pub(crate) fn running_without(id: u64) -> usize {
    running().into_iter().filter(|other| *other != id).count()
}
