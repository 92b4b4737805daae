//! Threads on the machine where they run, from their start until they are joined; and the threads that join them.
//!
//! Everything here runs on the machine's worker, in fibers unless stated otherwise.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
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

thread_local! {
    static THREADS: RefCell<HashMap<u64, Thread>> = RefCell::default();
}

/// Notes a thread that starts.
pub(crate) fn begin(id: u64, is_detached: bool) {
    let state = if is_detached { State::Detached } else { State::Running };
    THREADS.with_borrow_mut(|threads| threads.insert(id, Thread { state, real: None, joiners: VecDeque::new() }));
}

/// Notes the C library's id of a thread.
pub(crate) fn note_real(id: u64, real: pthread_t) {
    THREADS.with_borrow_mut(|threads| {
        if let Some(thread) = threads.get_mut(&id) {
            thread.real = Some(real);
        }
    });
}

/// Returns the C library's id of a thread that has not ended.
pub(crate) fn real_of(id: u64) -> Option<pthread_t> {
    let runs = |thread: &&Thread| !matches!(thread.state, State::Ended(_));
    THREADS.with_borrow(|threads| threads.get(&id).filter(runs)?.real)
}

/// Forgets a thread that could not start.
pub(crate) fn forget(id: u64) {
    THREADS.with_borrow_mut(|threads| threads.remove(&id));
}

/// From a thread that ends, on our side: it can be joined now. Does not wait.
pub(crate) fn end(id: u64, result: usize) {
    post(side::place(side::own_machine()).trustee(), move |_| ended(id, result), &[]);
}

/// In delegated context.
fn ended(id: u64, result: usize) {
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

/// Returns the threads that run here, by their ids.
pub(crate) fn running() -> Vec<u64> {
    let runs = |(_, thread): &(&u64, &Thread)| !matches!(thread.state, State::Ended(_));
    THREADS.with_borrow(|threads| threads.iter().filter(runs).map(|(id, _)| *id).collect())
}

/// Returns the number of threads that run here, without this one.
pub(crate) fn running_without(id: u64) -> usize {
    running().into_iter().filter(|other| *other != id).count()
}
