//! Counts in memory, the base of mutexes and semaphores; a thread enters a line only if the count requires it.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::real::real;
use crate::waits::{self, Kind};
use crate::{arena, clocks, line, safe_points, side, table, told};

/// A count in the program's memory: holders and waiters, less the initial value.
pub(crate) struct Count {
    word: &'static AtomicI32,
    /// A thread that finds this count or more has to wait.
    room: i32,
}

impl Count {
    /// # Safety
    /// `word` is in memory that stays for as long as this is used, and is changed as an atomic only.
    pub(crate) unsafe fn at(word: *mut i32, room: i32) -> Count {
        // SAFETY: as the caller says.
        Count { word: unsafe { AtomicI32::from_ptr(word) }, room }
    }

    fn address(&self) -> usize {
        self.word.as_ptr().addr()
    }

    pub(crate) fn try_take(&self) -> bool {
        let more = |count: i32| (count < self.room).then(|| count + 1);
        self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes one, in order of arrival. `false`: not in this time.
    pub(crate) fn take(&self, time: Option<Duration>) -> bool {
        if self.word.fetch_add(1, Ordering::SeqCst) < self.room || self.take_in_line(time) {
            return true;
        }
        // Leaves the count again, unless a giver has already counted this thread: then its permit comes.
        let less = |count: i32| (count > self.room).then(|| count - 1);
        match self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => false,
            Err(_) => line::take(self.address(), None),
        }
    }

    fn take_in_line(&self, time: Option<Duration>) -> bool {
        // A count with room for one is a lock.
        let kind = if self.room == 1 { Kind::Mutex } else { Kind::Semaphore };
        waits::during(kind, self.address(), time, || line::take(self.address(), time))
    }

    pub(crate) fn give(&self) {
        if self.word.fetch_sub(1, Ordering::SeqCst) > self.room {
            line::give(self.address(), 1);
        }
    }

    fn value(&self) -> i32 {
        (self.room - self.word.load(Ordering::SeqCst)).max(0)
    }
}

type Sem = *mut c_void;

fn count(sem: Sem) -> Option<Count> {
    // SAFETY: the first word of the program's semaphore, which it changes by these functions only.
    (table::is_shared(sem.addr()) || arena::is_open()).then(|| unsafe { Count::at(sem.cast(), 0) })
}

/// See `condvar.rs`.
fn tell_of_own() {
    told::tell_of_own("a sem_t outside of what gsm_region_share has named, of which each machine has its own,");
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_init(sem: Sem, shared: c_int, value: c_uint) -> c_int {
    if count(sem).is_none() {
        return real!(sem_init: fn(Sem, c_int, c_uint) -> c_int, sem, shared, value);
    }
    let Ok(value) = i32::try_from(value) else { return fail(libc::EINVAL) };
    // SAFETY: the program's own memory, of which it makes a semaphore.
    unsafe { sem.cast::<i32>().write(-value) };
    0
}

/// See [`sem_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_destroy(sem: Sem) -> c_int {
    match count(sem) {
        Some(_) => 0,
        None => real!(sem_destroy: fn(Sem) -> c_int, sem),
    }
}

/// See [`sem_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_wait(sem: Sem) -> c_int {
    match count(sem) {
        Some(count) => {
            safe_points::at_call();
            count.take(None);
            safe_points::at_call();
            0
        }
        None => {
            tell_of_own();
            real!(sem_wait: fn(Sem) -> c_int, sem)
        }
    }
}

/// See [`sem_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_trywait(sem: Sem) -> c_int {
    match count(sem) {
        Some(count) if count.try_take() => 0,
        Some(_) => fail(libc::EAGAIN),
        None => real!(sem_trywait: fn(Sem) -> c_int, sem),
    }
}

/// See [`sem_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_timedwait(sem: Sem, time: *const libc::timespec) -> c_int {
    match count(sem) {
        // SAFETY: the caller's.
        Some(count) => wait_until(&count, libc::CLOCK_REALTIME, unsafe { &*time }),
        None => {
            tell_of_own();
            real!(sem_timedwait: fn(Sem, *const libc::timespec) -> c_int, sem, time)
        }
    }
}

/// See [`sem_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_clockwait(sem: Sem, clock: libc::clockid_t, time: *const libc::timespec) -> c_int {
    match count(sem) {
        // SAFETY: the caller's.
        Some(count) => wait_until(&count, clock, unsafe { &*time }),
        None => {
            tell_of_own();
            real!(sem_clockwait: fn(Sem, libc::clockid_t, *const libc::timespec) -> c_int, sem, clock, time)
        }
    }
}

fn wait_until(count: &Count, clock: libc::clockid_t, time: &libc::timespec) -> c_int {
    safe_points::at_call();
    match side::is_time(time) {
        _ if count.try_take() => 0,
        true if count.take(Some(clocks::until(clock, time))) => 0,
        true => fail(libc::ETIMEDOUT),
        false => fail(libc::EINVAL),
    }
}

/// See [`sem_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_post(sem: Sem) -> c_int {
    match count(sem) {
        Some(count) => {
            count.give();
            0
        }
        None => real!(sem_post: fn(Sem) -> c_int, sem),
    }
}

/// See [`sem_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_getvalue(sem: Sem, value: *mut c_int) -> c_int {
    let Some(count) = count(sem) else { return real!(sem_getvalue: fn(Sem, *mut c_int) -> c_int, sem, value) };
    // SAFETY: the caller's.
    unsafe { value.write(count.value()) };
    0
}
