//! Barriers on one machine: its threads gather here first. As many as came in the round before go to the barrier's home
//! as one message, and the home's answer releases them all. So the pages of barriers are only read, and a round costs
//! two messages per machine.
//!
//! POSIX lets any threads come to a barrier, so the number of a machine's threads is unknown. Therefore a gathered
//! thread waits for others no longer than [`FLUSH`].
//!
//! A waiter polls a word of this process, and soon sleeps on it. From a machine's last arriving thread to the waiters
//! there are a message to the page server, one between page servers, and a store or a wake-up of all.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gossamer::link;
use gossamer_region::link::{arrive, linger};
use trust::link::post;

use crate::report::BARRIER_MESSAGES;
use crate::waits::{self, Kind};
use crate::{line, side};

/// Longest time that a thread waits for others of its machine.
const FLUSH: Duration = Duration::from_millis(1);

/// Time for which a waiter yields the processor before it sleeps. A wake-up costs many times as much as a round in
/// which no thread sleeps (measured: 7 and 50 us).
pub(crate) const LINGER: Duration = Duration::from_micros(50);

/// Threads of this machine at one barrier.
#[derive(Default)]
struct Gathered {
    /// Threads that came in the last round, and have come in this one.
    expected: u32,
    arrived: u32,
    round: u64,
    /// Group of threads that have come and are not yet reported to the home.
    here: Option<Arc<Group>>,
    size: u32,
    /// Groups reported to the home.
    sent: HashMap<u64, Sent>,
    next_token: u64,
    /// The barrier is destroyed: this goes when the last group has its answer.
    is_over: bool,
}

/// Group of threads reported to the home as one.
struct Sent {
    group: Arc<Group>,
    round: u64,
    /// Number of its threads.
    size: u32,
}

/// The object on which threads wait.
#[derive(Default)]
struct Group {
    /// Number of its threads that may go on, in order of arrival.
    released: AtomicU32,
    /// Places of the threads that get `true` from [`meet`]: one for each round that this group completed.
    serials: Mutex<Vec<u32>>,
}

/// Gathered threads by address of the barrier.
static GATHERED: Mutex<Option<HashMap<usize, Gathered>>> = Mutex::new(None);

/// Locks the table. The lock's holder neither waits nor touches memory of the program, since the page server takes the
/// lock too. So no signal handler may run while it is held.
fn all() -> MutexGuard<'static, Option<HashMap<usize, Gathered>>> {
    GATHERED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<R>(address: usize, f: impl FnOnce(&mut Gathered) -> R) -> R {
    f(all().get_or_insert_default().entry(address).or_default())
}

/// From a thread of the program: waits until `count` threads have come under this key, at the home of its
/// address. One of these threads gets `true`.
pub(crate) fn wait_for_all(key: usize, count: u32) -> bool {
    let home = line::home_of(key);
    side::outside(move || {
        let (group, place) = side::without_signals(|| {
            let (group, place, is_time) = with(key, |gathered| gathered.come(count));
            if is_time {
                go(key, count, home, None);
            }
            (group, place)
        });
        waits::during(Kind::Barrier, key, None, || {
            group.wait(place, || side::without_signals(|| go(key, count, home, Some(&group))));
        });
        side::without_signals(|| group.serials().contains(&place))
    })
}

/// From a thread of the program: discards the state of a destroyed barrier on all machines.
pub(crate) fn forget(key: usize) {
    side::outside(move || {
        side::without_signals(|| forget_here(key));
        for machine in (0..side::machines()).filter(|machine| *machine != side::own_machine()) {
            post(link::page_server(machine), move |_| forget_here(key), &[]);
        }
    });
}

fn forget_here(key: usize) {
    let mut all = all();
    let all = all.get_or_insert_default();
    if let Some(gathered) = all.get_mut(&key) {
        gathered.is_over = true;
        if gathered.is_empty() {
            all.remove(&key);
        }
    }
}

impl Gathered {
    /// Adds a thread. Returns its group, its place in the group, and whether the group should go to the home now.
    fn come(&mut self, count: u32) -> (Arc<Group>, u32, bool) {
        let group = Arc::clone(self.here.get_or_insert_default());
        let place = self.size;
        self.size += 1;
        self.arrived += 1;
        (group, place, self.arrived >= self.expected || self.size >= count)
    }

    fn is_empty(&self) -> bool {
        self.here.is_none() && self.sent.is_empty()
    }

    /// Takes the gathered threads for a report to the home; None if they have gone, or are no longer `group`.
    fn leave(&mut self, group: Option<&Arc<Group>>) -> Option<(u64, u32)> {
        let here = self.here.take_if(|here| group.is_none_or(|group| Arc::ptr_eq(here, group)))?;
        let size = std::mem::take(&mut self.size);
        let token = self.next_token;
        self.next_token += 1;
        self.sent.insert(token, Sent { group: here, round: self.round, size });
        Some((token, size))
    }

    /// Releases this many threads of a reported group. Returns how many must be reported again.
    fn release(&mut self, token: u64, released: u32, is_last: bool) -> u32 {
        let Some(sent) = self.sent.get_mut(&token) else { return 0 };
        if self.round == sent.round {
            (self.round, self.expected) = (sent.round + 1, self.arrived - self.size);
            self.arrived = self.size;
        }
        let before = sent.group.released.load(Ordering::Relaxed);
        let after = (before + released).min(sent.size);
        if is_last && after > before {
            sent.group.serials().push(before);
        }
        sent.group.released.store(after, Ordering::Release); // Release: with the Acquire in `wait`
        sent.group.wake();
        sent.round = self.round;
        let left = sent.size - after;
        if left == 0 {
            self.sent.remove(&token);
        }
        left
    }
}

/// Reports the gathered threads to the home as one: any, or only this group.
fn go(address: usize, count: u32, home: u16, group: Option<&Arc<Group>>) {
    if let Some((token, size)) = with(address, |gathered| gathered.leave(group)) {
        say(address, count, home, token, size);
    }
}

fn say(address: usize, count: u32, home: u16, token: u64, size: u32) {
    if home != side::own_machine() {
        BARRIER_MESSAGES.fetch_add(1, Ordering::Relaxed);
    }
    arrive(home, address as u64, count, size, move |released, is_last| {
        let left = release(address, token, released, is_last);
        if left > 0 {
            say(address, count, home, token, left);
        }
    });
}

/// On the page server: releases this many threads of a reported group. Returns how many must be reported again.
fn release(address: usize, token: u64, released: u32, is_last: bool) -> u32 {
    let mut all = all();
    let all = all.get_or_insert_default();
    let Some(gathered) = all.get_mut(&address) else { return 0 };
    let left = gathered.release(token, released, is_last);
    if gathered.is_over && gathered.is_empty() {
        all.remove(&address);
    }
    left
}

impl Group {
    fn serials(&self) -> MutexGuard<'_, Vec<u32>> {
        self.serials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the thread with this place may go on; calls `flush` if that takes long.
    fn wait(&self, place: u32, flush: impl FnOnce()) {
        let mut flush = Some(flush).filter(|_| place == 0);
        let since = Instant::now();
        loop {
            let released = self.released.load(Ordering::Acquire); // Acquire: with the Release in `release`
            if released > place {
                return;
            }
            if linger(since, LINGER) {
                continue;
            }
            // By the clock: signals end a wait, and a frequent one would put off the flush forever.
            let left = FLUSH.saturating_sub(since.elapsed());
            if left.is_zero()
                && let Some(flush) = flush.take()
            {
                flush();
                continue;
            }
            let timeout = libc::timespec { tv_sec: 0, tv_nsec: left.as_nanos() as libc::c_long };
            let timeout = flush.as_ref().map_or(ptr::null(), |_| &raw const timeout);
            let (word, operation) = (self.released.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
            // SAFETY: a word that lives; the timeout is null or lives too.
            unsafe { libc::syscall(libc::SYS_futex, word, operation, released, timeout) };
        }
    }

    fn wake(&self) {
        let (word, operation) = (self.released.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
        // SAFETY: a word that lives.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, i32::MAX) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds threads; returns for each whether the group should go to the home.
    fn come(gathered: &mut Gathered, threads: u32, count: u32) -> Vec<bool> {
        (0..threads).map(|_| gathered.come(count).2).collect()
    }

    #[test]
    fn as_many_as_came_in_the_last_round_go_as_one() {
        let mut gathered = Gathered::default();
        // The number of threads is not known yet: each goes by itself.
        for _ in 0..3 {
            assert_eq!(come(&mut gathered, 1, 6), [true]);
            gathered.leave(None);
        }
        (0..3).for_each(|token| assert_eq!(gathered.release(token, 1, false), 0));
        assert!(gathered.is_empty());
        assert_eq!(come(&mut gathered, 3, 6), [false, false, true]);
        assert_eq!(gathered.leave(None), Some((3, 3)));
        assert_eq!(gathered.leave(None), None);
        assert_eq!(gathered.release(3, 3, true), 0);
        assert!(gathered.is_empty());
        assert_eq!(gathered.release(3, 3, true), 0, "it is known no more");
    }

    #[test]
    fn those_for_whom_a_round_has_no_place_are_said_again() {
        let mut gathered = Gathered::default();
        let group = gathered.come(2).0;
        assert_eq!(come(&mut gathered, 2, 2), [true, true]);
        assert_eq!(gathered.leave(Some(&group)), Some((0, 3)));
        assert_eq!(gathered.release(0, 2, true), 1);
        assert_eq!((group.released.load(Ordering::Relaxed), group.serials().clone()), (2, vec![0]));
        assert_eq!(gathered.release(0, 1, true), 0);
        assert_eq!((group.released.load(Ordering::Relaxed), group.serials().clone()), (3, vec![0, 2]));
        let late = gathered.come(2).0;
        assert_eq!(gathered.leave(Some(&group)), None, "it is another group that is here");
        late.released.store(1, Ordering::Relaxed);
        late.wait(0, || unreachable!("it may go on"));
    }

    #[test]
    fn the_first_of_a_group_does_not_wait_for_others_for_long() {
        let group = Group::default();
        let mut flushed = 0;
        group.wait(0, || {
            flushed += 1;
            group.released.store(1, Ordering::Relaxed);
        });
        assert_eq!(flushed, 1);
    }
}
