//! Queues of waiting threads: for each address a line, kept on one machine, its home. Here is all lock state outside of
//! the memory of the locks; a thread that need not wait sends nothing.
//!
//! Everything here runs in fibers of the home's worker, unless stated otherwise.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use trust::link::wait_in_line;
use trust::{Pending, Promise};

use crate::{awaited, side};

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Woken,
    /// It goes on in the line of another address, where the thread stands already.
    Moved {
        to: usize,
        ticket: u64,
    },
}

/// Bits of a waiter that every wake finds, and of a wake that finds every waiter.
pub(crate) const ALL: u32 = !0;

struct Waiter {
    promise: Promise<Turn>,
    /// Wakes without any of these leave the waiter out.
    bits: u32,
}

#[derive(Default)]
struct Line {
    /// Permits given before a thread came for them.
    permits: u64,
    waiting: VecDeque<Waiter>,
}

thread_local! {
    static LINES: RefCell<HashMap<usize, Line>> = RefCell::default();
    /// Threads that stand in a line and have not begun to wait.
    static ENTERED: RefCell<(u64, HashMap<u64, Pending<Turn>>)> = RefCell::default();
}

/// Returns the machine that keeps the line of an address.
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
        has_permit || stand(address, enter_line(address, ALL), time).is_some()
    })
}

/// From a thread of the program: gives permits to an address; waiters get them first.
pub(crate) fn give(address: usize, permits: u64) {
    side::at(home_of(address), move || {
        let woken = wake_line(address, permits, ALL);
        if woken < permits {
            LINES.with_borrow_mut(|lines| lines.entry(address).or_default().permits += permits - woken);
        }
    });
}

/// From a thread of the program: enters the line, so that every later [`wake`] with one of these bits counts it. Call
/// [`wait`] next.
pub(crate) fn enter(address: usize, bits: u32) -> u64 {
    side::at(home_of(address), move || enter_line(address, bits))
}

/// Same as [`enter`]; on return all machines know that a thread may wait there.
pub(crate) fn enter_and_tell(address: usize, bits: u32) -> u64 {
    side::at(home_of(address), move || enter_line_and_tell(address, bits))
}

/// From a thread of the program: waits for its turn. `None`: it did not come in this time, and the thread has left the
/// line.
pub(crate) fn wait(address: usize, ticket: u64, time: Option<Duration>) -> Option<Turn> {
    side::at(home_of(address), move || stand(address, ticket, time))
}

/// From a thread of the program: wakes at most this many threads of the line that have one of these bits; returns how
/// many.
pub(crate) fn wake(address: usize, count: u64, bits: u32) -> u64 {
    side::at(home_of(address), move || {
        let woken = wake_line(address, count, bits);
        if woken == 0 && is_empty(address) {
            awaited::take_back(address);
        }
        woken
    })
}

/// From a thread of the program: wakes at most `wakes` threads of the line, and has at most `moves` others go on in the
/// line of the address `to`. Returns both counts; those moved stand there, and all machines know, before any is woken.
pub(crate) fn wake_and_move(address: usize, wakes: u64, to: usize, moves: u64) -> (u64, u64) {
    side::at(home_of(address), move || {
        let (woken, moved) = (leave_line(address, wakes, ALL), leave_line(address, moves, ALL));
        let (counts, home) = ((woken.len() as u64, moved.len() as u64), home_of(to));
        for Waiter { promise, bits } in moved {
            let ticket = match home == side::own_machine() {
                true => enter_line_and_tell(to, bits),
                false => side::from_worker(home, move || enter_line_and_tell(to, bits)),
            };
            promise.keep(Turn::Moved { to, ticket });
        }
        woken.into_iter().for_each(|waiter| waiter.promise.keep(Turn::Woken));
        counts
    })
}

fn enter_line(address: usize, bits: u32) -> u64 {
    let (promise, pending) = trust::promise();
    let ticket = ENTERED.with_borrow_mut(|(next, entered)| {
        *next += 1;
        entered.insert(*next, pending);
        *next
    });
    LINES.with_borrow_mut(|lines| lines.entry(address).or_default().waiting.push_back(Waiter { promise, bits }));
    ticket
}

fn enter_line_and_tell(address: usize, bits: u32) -> u64 {
    let ticket = enter_line(address, bits);
    awaited::tell(address);
    ticket
}

fn stand(address: usize, ticket: u64, time: Option<Duration>) -> Option<Turn> {
    let pending = ENTERED.with_borrow_mut(|(_, entered)| entered.remove(&ticket))?;
    let Some(time) = time else { return pending.wait().ok() };
    let give_up = |id| {
        let left = LINES.with_borrow_mut(|lines| {
            let waiting = &mut lines.get_mut(&address)?.waiting;
            let place = waiting.iter().position(|waiter| waiter.promise.id() == id)?;
            waiting.remove(place)
        });
        forget_if_empty(address);
        left.map(|waiter| waiter.promise.discard()).is_some()
    };
    wait_in_line(pending, time, give_up)?.ok()
}

fn wake_line(address: usize, count: u64, bits: u32) -> u64 {
    let woken = leave_line(address, count, bits);
    let count = woken.len() as u64;
    woken.into_iter().for_each(|waiter| waiter.promise.keep(Turn::Woken));
    count
}

/// Takes at most this many waiters that have one of these bits out of the line, the first first.
fn leave_line(address: usize, count: u64, bits: u32) -> Vec<Waiter> {
    let found = LINES.with_borrow_mut(|lines| match lines.get_mut(&address) {
        Some(line) => take_out(&mut line.waiting, count, |waiter| waiter.bits & bits != 0),
        None => vec![],
    });
    forget_if_empty(address);
    found
}

/// Takes at most this many of those that `is_meant` out, and leaves the order of the others.
fn take_out<T>(waiting: &mut VecDeque<T>, count: u64, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (mut found, mut place) = (vec![], 0);
    while found.len() < count && place < waiting.len() {
        match is_meant(&waiting[place]) {
            true => found.extend(waiting.remove(place)),
            false => place += 1,
        }
    }
    found
}

fn is_empty(address: usize) -> bool {
    LINES.with_borrow(|lines| lines.get(&address).is_none_or(|line| line.waiting.is_empty()))
}

fn forget_if_empty(address: usize) {
    LINES.with_borrow_mut(|lines| {
        if lines.get(&address).is_some_and(|line| line.permits == 0 && line.waiting.is_empty()) {
            lines.remove(&address);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::take_out;

    #[test]
    fn those_meant_leave_in_order() {
        let mut waiting: VecDeque<u32> = (0..10).collect();
        assert_eq!(take_out(&mut waiting, 3, |waiter| waiter % 2 == 1), [1, 3, 5]);
        assert!(take_out(&mut waiting, 0, |_| true).is_empty());
        assert!(take_out(&mut waiting, u64::MAX, |waiter| *waiter > 100).is_empty());
        assert_eq!(waiting, [0, 2, 4, 6, 7, 8, 9]);
        assert_eq!(take_out(&mut waiting, 2, |_| true), [0, 2]);
        assert_eq!(take_out(&mut waiting, u64::MAX, |_| true), [4, 6, 7, 8, 9]);
    }
}
