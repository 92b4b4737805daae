//! Threads meet at a barrier. Those of one machine gather there first: as many as came in the round before go to the barrier's home
//! as one message, and the machine's answer releases them all. So pages of barriers are read only, and a round costs one message a machine.
//!
//! Nobody knows how many threads of a machine will come: POSIX lets any of them. So who has gathered does not wait for more than [`FLUSH`].
//!
//! Everything here runs in fibers of a machine's worker, unless it says otherwise. At the home each who has come is counted once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trust::Promise;

use crate::report::BARRIER_MESSAGES;
use crate::{line, side};

/// How long who has come waits for others of the machine at most.
const FLUSH: Duration = Duration::from_millis(1);

/// Of one machine, at one barrier.
#[derive(Default)]
struct Gathered {
    /// Who came in the last round, and has come in this one.
    expected: usize,
    arrived: usize,
    round: u64,
    /// Who has come and is not with the home yet, and since when.
    here: Vec<Promise<bool>>,
    since: Option<Instant>,
    has_timer: bool,
}

/// At the home of a barrier: who has come, in messages that are not answered.
#[derive(Default)]
struct Meeting {
    arrived: u32,
    waiting: Vec<Promise<()>>,
}

thread_local! {
    static GATHERED: RefCell<HashMap<usize, Gathered>> = RefCell::default();
    static MEETINGS: RefCell<HashMap<usize, Meeting>> = RefCell::default();
}

/// From a thread of the program: waits until `count` threads have come. Of these one is told `true`.
pub(crate) fn meet(address: usize, count: u32) -> bool {
    let home = line::home_of(address);
    side::at(side::own_machine(), move || {
        let (promise, pending) = trust::promise();
        let (is_time, needs_timer) =
            GATHERED.with_borrow_mut(|all| all.entry(address).or_default().come(promise, count));
        if is_time {
            go(address, count, home);
        } else if needs_timer {
            drop(trust::spawn(move || flush_later(address, count, home)));
        }
        pending.wait().unwrap_or(false)
    })
}

/// The barrier is no more, on this machine: what is known of it is of no use.
pub(crate) fn forget(address: usize) {
    side::at(side::own_machine(), move || {
        GATHERED.with_borrow_mut(|all| {
            if all.get(&address).is_some_and(|gathered| gathered.here.is_empty() && !gathered.has_timer) {
                all.remove(&address);
            }
        });
    });
}

impl Gathered {
    /// Whether it is time to go, and whether somebody is to look later.
    fn come(&mut self, promise: Promise<bool>, count: u32) -> (bool, bool) {
        self.here.push(promise);
        self.arrived += 1;
        self.since.get_or_insert_with(Instant::now);
        let is_time = self.arrived >= self.expected || self.here.len() >= count as usize;
        let needs_timer = !is_time && !self.has_timer;
        self.has_timer |= needs_timer;
        (is_time, needs_timer)
    }

    fn go(&mut self) -> (u64, Vec<Promise<bool>>) {
        self.since = None;
        (self.round, std::mem::take(&mut self.here))
    }

    fn is_over(&mut self, round: u64) {
        if self.round == round {
            (self.round, self.expected) = (round + 1, self.arrived - self.here.len());
            self.arrived = self.here.len();
        }
    }
}

/// Takes those who are here to the home, as one; and releases them.
fn go(address: usize, count: u32, home: u16) {
    let (round, mut here) = GATHERED.with_borrow_mut(|all| all.entry(address).or_default().go());
    while !here.is_empty() {
        let arrived = here.len() as u32;
        if home != side::own_machine() {
            BARRIER_MESSAGES.fetch_add(1, Ordering::Relaxed);
        }
        let (released, is_last) = side::from_worker(home, move || arrive(address, count, arrived));
        GATHERED.with_borrow_mut(|all| all.entry(address).or_default().is_over(round));
        let released = here.drain(..(released as usize).min(arrived as usize));
        released.enumerate().for_each(|(at, promise)| promise.keep(is_last && at == 0));
    }
}

/// At the home: so many have come. Waits until they may go on: how many of them, and whether it was they who were waited for. More than
/// the barrier is for come in the next round.
fn arrive(address: usize, count: u32, arrived: u32) -> (u32, bool) {
    let pending = MEETINGS.with_borrow_mut(|all| {
        let meeting = all.entry(address).or_default();
        let missing = count.saturating_sub(meeting.arrived);
        if arrived < missing {
            meeting.arrived += arrived;
            let (promise, pending) = trust::promise();
            meeting.waiting.push(promise);
            return Ok(pending);
        }
        let waiting = all.remove(&address).map(|meeting| meeting.waiting).unwrap_or_default();
        Err((missing, waiting))
    });
    match pending {
        Ok(pending) => {
            let _ = pending.wait(); // nobody drops it
            (arrived, false)
        }
        Err((missing, waiting)) => {
            waiting.into_iter().for_each(|promise| promise.keep(()));
            (missing, true)
        }
    }
}

/// Who has gathered goes when [`FLUSH`] is over, whoever else may come.
fn flush_later(address: usize, count: u32, home: u16) {
    let left = || {
        GATHERED.with_borrow_mut(|all| {
            let gathered = all.entry(address).or_default();
            let since = gathered.since;
            gathered.has_timer = since.is_some();
            since.map(|since| FLUSH.saturating_sub(since.elapsed()))
        })
    };
    let mut time = FLUSH;
    loop {
        trust::sleep(time);
        time = match left() {
            None => return,
            Some(Duration::ZERO) => {
                drop(trust::spawn(move || go(address, count, home)));
                FLUSH
            }
            Some(left) => left,
        };
    }
}
