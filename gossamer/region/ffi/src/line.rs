//! Queues of waiting threads: for each address a line, kept on one machine, its home. Here is all lock state outside of
//! the memory of the locks; a thread that need not wait sends nothing.
//!
//! Everything here runs in fibers of the home's worker, unless stated otherwise.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use trust::link::{wait_in_line, withdraw};
use trust::{Pending, Promise};

use crate::side;

#[derive(Default)]
struct Line {
    /// Permits given before a thread came for them.
    permits: u64,
    waiting: VecDeque<Promise<()>>,
}

thread_local! {
    static LINES: RefCell<HashMap<usize, Line>> = RefCell::default();
    /// Threads that stand in a line and have not begun to wait.
    static ENTERED: RefCell<(u64, HashMap<u64, Pending<()>>)> = RefCell::default();
}

/// From a thread of the program: returns the machine that keeps the line of an address.
pub(crate) fn home_of(address: usize) -> u16 {
    ((address / 64) % usize::from(side::machines())) as u16
}

/// From a thread of the program: takes a permit of an address, in order of arrival. `false`: none came in this time.
pub(crate) fn take(address: usize, time: Option<Duration>) -> bool {
    side::at(home_of(address), move || {
        let has_permit = LINES.with_borrow_mut(|lines| {
            let found = lines.get_mut(&address).filter(|line| line.permits > 0);
            found.map(|line| line.permits -= 1).is_some()
        });
        has_permit || stand(address, enter_line(address), time)
    })
}

/// From a thread of the program: gives permits to an address; waiters get them first.
pub(crate) fn give(address: usize, permits: u64) {
    side::at(home_of(address), move || {
        let woken = wake_line(address, permits);
        if woken < permits {
            LINES.with_borrow_mut(|lines| lines.entry(address).or_default().permits += permits - woken);
        }
    });
}

/// From a thread of the program: enters the line, so that every later [`wake`] counts it. Call [`wait`] next.
pub(crate) fn enter(address: usize) -> u64 {
    side::at(home_of(address), move || enter_line(address))
}

/// From a thread of the program: waits for its turn. `false`: it did not come in this time, and the thread has left the
/// line.
pub(crate) fn wait(address: usize, ticket: u64, time: Option<Duration>) -> bool {
    side::at(home_of(address), move || stand(address, ticket, time))
}

/// From a thread of the program: wakes at most this many threads of the line.
pub(crate) fn wake(address: usize, count: u64) {
    side::at(home_of(address), move || wake_line(address, count));
}

fn enter_line(address: usize) -> u64 {
    let (promise, pending) = trust::promise();
    let ticket = ENTERED.with_borrow_mut(|(next, entered)| {
        *next += 1;
        entered.insert(*next, pending);
        *next
    });
    LINES.with_borrow_mut(|lines| lines.entry(address).or_default().waiting.push_back(promise));
    ticket
}

fn stand(address: usize, ticket: u64, time: Option<Duration>) -> bool {
    let Some(pending) = ENTERED.with_borrow_mut(|(_, entered)| entered.remove(&ticket)) else { return false };
    let Some(time) = time else { return pending.wait().is_ok() };
    let give_up = |id| {
        let has_left =
            LINES.with_borrow_mut(|lines| lines.get_mut(&address).is_some_and(|line| withdraw(&mut line.waiting, id)));
        forget_if_empty(address);
        has_left
    };
    wait_in_line(pending, time, give_up).is_some_and(|turn| turn.is_ok())
}

fn wake_line(address: usize, count: u64) -> u64 {
    let woken: Vec<_> = LINES.with_borrow_mut(|lines| {
        let Some(line) = lines.get_mut(&address) else { return vec![] };
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(line.waiting.len());
        line.waiting.drain(..count).collect()
    });
    let count = woken.len() as u64;
    woken.into_iter().for_each(|promise| promise.keep(()));
    forget_if_empty(address);
    count
}

fn forget_if_empty(address: usize) {
    LINES.with_borrow_mut(|lines| {
        if lines.get(&address).is_some_and(|line| line.permits == 0 && line.waiting.is_empty()) {
            lines.remove(&address);
        }
    });
}
