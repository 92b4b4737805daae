//! `pthread_rwlock_t`: its whole state is at the home of its address, which admits readers while no writer holds the
//! lock, also before writers that wait: the C library's default.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::time::Duration;

use libc::{clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};
use trust::Promise;
use trust::link::wait_in_line;

use crate::real::real;
use crate::waits::{self, Kind};
use crate::{clocks, ids, line, safe_points, side, table};

#[derive(Default)]
struct Lock {
    /// Thread that writes, by its id.
    writer: Option<u64>,
    readers: u32,
    /// Waiters in order of arrival.
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    taker: Taker,
    /// Promise that wakes it.
    promise: Promise<()>,
}

/// A thread that takes the lock, by its id.
#[derive(Clone, Copy)]
struct Taker {
    thread: u64,
    write: bool,
}

impl Taker {
    fn new(write: bool) -> Taker {
        Taker { thread: ids::own(), write }
    }
}

thread_local! {
    static LOCKS: RefCell<HashMap<usize, Lock>> = RefCell::default();
}

impl Lock {
    fn try_take(&mut self, Taker { thread, write }: Taker) -> bool {
        match write {
            _ if self.writer.is_some() => return false,
            true if self.readers > 0 => return false,
            true => self.writer = Some(thread),
            false => self.readers += 1,
        }
        true
    }

    /// Admits the waiters that may hold the lock now.
    fn admit(&mut self, woken: &mut Vec<Promise<()>>) {
        while let Some(Waiter { taker, .. }) = self.waiting.front()
            && self.try_take(*taker)
        {
            woken.extend(self.waiting.pop_front().map(|waiter| waiter.promise));
        }
    }
}

fn with<R>(address: usize, f: impl FnOnce(&mut Lock) -> R) -> R {
    LOCKS.with_borrow_mut(|locks| {
        let lock = locks.entry(address).or_default();
        let result = f(lock);
        if lock.writer.is_none() && lock.readers == 0 && lock.waiting.is_empty() {
            locks.remove(&address);
        }
        result
    })
}

/// On the home's worker: takes the lock, and returns 0 or the error.
fn take(address: usize, taker: Taker, time: Option<Duration>) -> c_int {
    let waits = with(address, |lock| {
        if lock.writer == Some(taker.thread) {
            return Err(libc::EDEADLK);
        }
        Ok((!lock.try_take(taker)).then(|| {
            let (promise, pending) = trust::promise();
            lock.waiting.push_back(Waiter { taker, promise });
            pending
        }))
    });
    let pending = match waits {
        Ok(Some(pending)) => pending,
        Ok(None) => return 0,
        Err(error) => return error,
    };
    let Some(time) = time else { return if pending.wait().is_ok() { 0 } else { libc::EINVAL } };
    let give_up = |id| {
        let mut woken = vec![];
        let left = with(address, |lock| {
            let at = lock.waiting.iter().position(|waiter| waiter.promise.id() == id)?;
            let left = lock.waiting.remove(at);
            lock.admit(&mut woken); // readers may have stood behind a writer that has left
            left
        });
        woken.into_iter().for_each(|promise| promise.keep(()));
        left.map(|waiter| waiter.promise.discard()).is_some()
    };
    match wait_in_line(pending, time, give_up).is_some_and(|turn| turn.is_ok()) {
        true => 0,
        false => libc::ETIMEDOUT,
    }
}

/// On the home's worker: releases the lock. `false`: no thread holds it.
fn release(address: usize) -> bool {
    let mut woken = vec![];
    let was_taken = with(address, |lock| {
        let was_taken = lock.writer.is_some() || lock.readers > 0;
        if lock.writer.take().is_none() {
            lock.readers = lock.readers.saturating_sub(1);
        }
        lock.admit(&mut woken);
        was_taken
    });
    woken.into_iter().for_each(|promise| promise.keep(()));
    was_taken
}

type Pointer = *mut pthread_rwlock_t;

/// Returns its address, if it is in memory that all machines share.
fn ours(lock: Pointer) -> Option<usize> {
    table::is_shared(lock.addr()).then_some(lock.addr())
}

/// On the home's worker: the thread that writes, by its id, or 0; and the number of threads that read.
pub(crate) fn holders(address: usize) -> (u64, u32) {
    LOCKS.with_borrow(|locks| locks.get(&address).map_or((0, 0), |lock| (lock.writer.unwrap_or(0), lock.readers)))
}

fn lock(address: usize, write: bool) -> c_int {
    safe_points::at_call();
    let (taker, kind) = (Taker::new(write), if write { Kind::Write } else { Kind::Read });
    waits::during(kind, address, None, || side::at(line::home_of(address), move || take(address, taker, None)))
}

fn try_lock(address: usize, write: bool) -> c_int {
    let taker = Taker::new(write);
    match side::at(line::home_of(address), move || with(address, |lock| lock.try_take(taker))) {
        true => 0,
        false => libc::EBUSY,
    }
}

fn timed_lock(address: usize, write: bool, clock: clockid_t, time: *const timespec) -> c_int {
    safe_points::at_call();
    // SAFETY: the caller's.
    let time = unsafe { *time };
    if !side::is_time(&time) {
        return libc::EINVAL;
    }
    let left = clocks::until(clock, &time);
    let taker = Taker::new(write);
    side::at(line::home_of(address), move || take(address, taker, Some(left)))
}

/// Makes a lock that nobody holds, whatever was there: memory of a lock that was held may be used again.
fn forget(address: usize) -> c_int {
    side::at(line::home_of(address), move || LOCKS.with_borrow_mut(|locks| drop(locks.remove(&address))));
    0
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_init(lock: Pointer, attr: *const pthread_rwlockattr_t) -> c_int {
    match ours(lock) {
        Some(address) => forget(address),
        None => real!(pthread_rwlock_init: fn(Pointer, *const pthread_rwlockattr_t) -> c_int, lock, attr),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_destroy(lock: Pointer) -> c_int {
    match ours(lock) {
        Some(_) => 0,
        None => real!(pthread_rwlock_destroy: fn(Pointer) -> c_int, lock),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_rdlock(lock: Pointer) -> c_int {
    match ours(lock) {
        Some(address) => self::lock(address, false),
        None => real!(pthread_rwlock_rdlock: fn(Pointer) -> c_int, lock),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_wrlock(lock: Pointer) -> c_int {
    match ours(lock) {
        Some(address) => self::lock(address, true),
        None => real!(pthread_rwlock_wrlock: fn(Pointer) -> c_int, lock),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_tryrdlock(lock: Pointer) -> c_int {
    match ours(lock) {
        Some(address) => try_lock(address, false),
        None => real!(pthread_rwlock_tryrdlock: fn(Pointer) -> c_int, lock),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_trywrlock(lock: Pointer) -> c_int {
    match ours(lock) {
        Some(address) => try_lock(address, true),
        None => real!(pthread_rwlock_trywrlock: fn(Pointer) -> c_int, lock),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedrdlock(lock: Pointer, time: *const timespec) -> c_int {
    match ours(lock) {
        Some(address) => timed_lock(address, false, libc::CLOCK_REALTIME, time),
        None => real!(pthread_rwlock_timedrdlock: fn(Pointer, *const timespec) -> c_int, lock, time),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedwrlock(lock: Pointer, time: *const timespec) -> c_int {
    match ours(lock) {
        Some(address) => timed_lock(address, true, libc::CLOCK_REALTIME, time),
        None => real!(pthread_rwlock_timedwrlock: fn(Pointer, *const timespec) -> c_int, lock, time),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockrdlock(lock: Pointer, clock: clockid_t, time: *const timespec) -> c_int {
    match ours(lock) {
        Some(address) => timed_lock(address, false, clock, time),
        None => real!(pthread_rwlock_clockrdlock: fn(Pointer, clockid_t, *const timespec) -> c_int, lock, clock, time),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockwrlock(lock: Pointer, clock: clockid_t, time: *const timespec) -> c_int {
    match ours(lock) {
        Some(address) => timed_lock(address, true, clock, time),
        None => real!(pthread_rwlock_clockwrlock: fn(Pointer, clockid_t, *const timespec) -> c_int, lock, clock, time),
    }
}

/// See [`pthread_rwlock_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_unlock(lock: Pointer) -> c_int {
    let Some(address) = ours(lock) else { return real!(pthread_rwlock_unlock: fn(Pointer) -> c_int, lock) };
    match side::at(line::home_of(address), move || release(address)) {
        true => 0,
        false => libc::EPERM,
    }
}
