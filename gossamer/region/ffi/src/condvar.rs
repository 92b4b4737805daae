//! `pthread_cond_t`, in the bytes of the C library's own.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};

use crate::mutex::{pthread_mutex_lock, pthread_mutex_unlock};
use crate::real::real;
use crate::waits::{self, Kind};
use crate::{arena, clocks, line, side, table, told};

#[repr(C)]
struct Condvar {
    /// Threads that wait, or are about to.
    waiting: AtomicU32,
    clock: AtomicI32,
}

const _: () = assert!(size_of::<Condvar>() <= size_of::<pthread_cond_t>());

/// Interval at which a thread that destroys a condition variable checks whether the woken threads have left it.
const LOOK: Duration = Duration::from_micros(100);

type Pointer = *mut pthread_cond_t;
type MutexPointer = *mut pthread_mutex_t;

fn ours(condvar: Pointer) -> Option<&'static Condvar> {
    // SAFETY: the program's condition variable, which stays while it is used, and is changed by these functions only.
    (table::is_shared(condvar.addr()) || arena::is_open()).then(|| unsafe { &*condvar.cast::<Condvar>() })
}

/// Tells that threads of other machines do not wake one that waits.
fn tell_of_own() {
    told::tell_of_own(
        "a pthread_cond_t outside of what gsm_region_share has named, of which each machine has its own,",
    );
}

impl Condvar {
    fn address(&self) -> usize {
        self.waiting.as_ptr().addr()
    }

    /// # Safety
    /// `mutex` is the program's, and locked by the calling thread.
    unsafe fn wait(&self, mutex: MutexPointer, time: Option<(clockid_t, timespec)>) -> c_int {
        if time.is_some_and(|(_, time)| !side::is_time(&time)) {
            return libc::EINVAL;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // In line before the mutex is free, so that a later signal finds it there.
        let ticket = line::enter(self.address(), line::ALL);
        // SAFETY: as the caller says.
        let unlocked = unsafe { pthread_mutex_unlock(mutex) };
        let left = match unlocked {
            0 => time.map(|(clock, time)| clocks::until(clock, &time)),
            _ => Some(Duration::ZERO),
        };
        let turn = waits::during(Kind::Condvar, self.address(), left, || line::wait(self.address(), ticket, left));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if unlocked != 0 {
            return unlocked;
        }
        // SAFETY: as the caller says.
        unsafe { pthread_mutex_lock(mutex) };
        if turn.is_some() { 0 } else { libc::ETIMEDOUT }
    }

    fn wake(&self, count: u64) -> c_int {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            line::wake(self.address(), count, line::ALL);
        }
        0
    }
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_init(condvar: Pointer, attr: *const pthread_condattr_t) -> c_int {
    let Some(ours) = ours(condvar) else {
        return real!(pthread_cond_init: fn(Pointer, *const pthread_condattr_t) -> c_int, condvar, attr);
    };
    let mut clock = libc::CLOCK_REALTIME;
    if !attr.is_null() {
        // SAFETY: the caller's attributes.
        unsafe { libc::pthread_condattr_getclock(attr, &raw mut clock) };
    }
    ours.waiting.store(0, Ordering::Relaxed);
    ours.clock.store(clock, Ordering::SeqCst);
    0
}

/// See [`pthread_cond_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_destroy(condvar: Pointer) -> c_int {
    let Some(condvar) = ours(condvar) else {
        return real!(pthread_cond_destroy: fn(Pointer) -> c_int, condvar);
    };
    // Woken threads have yet to leave: afterwards the memory is the caller's.
    let is_used = || condvar.waiting.load(Ordering::SeqCst) > 0;
    if is_used() {
        waits::during(Kind::Leaving, condvar.address(), None, || {
            while is_used() {
                std::thread::sleep(LOOK);
            }
        });
    }
    0
}

/// See [`pthread_cond_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condvar: Pointer, mutex: MutexPointer) -> c_int {
    match ours(condvar) {
        // SAFETY: as the caller says.
        Some(condvar) => unsafe { condvar.wait(mutex, None) },
        None => {
            tell_of_own();
            real!(pthread_cond_wait: fn(Pointer, MutexPointer) -> c_int, condvar, mutex)
        }
    }
}

/// See [`pthread_cond_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(condvar: Pointer, mutex: MutexPointer, time: *const timespec) -> c_int {
    match ours(condvar) {
        // SAFETY: as the caller says.
        Some(condvar) => unsafe { condvar.wait(mutex, Some((condvar.clock.load(Ordering::Relaxed), *time))) },
        None => {
            tell_of_own();
            real!(pthread_cond_timedwait: fn(Pointer, MutexPointer, *const timespec) -> c_int, condvar, mutex, time)
        }
    }
}

/// See [`pthread_cond_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_clockwait(
    condvar: Pointer,
    mutex: MutexPointer,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    match ours(condvar) {
        // SAFETY: as the caller says.
        Some(condvar) => unsafe { condvar.wait(mutex, Some((clock, *time))) },
        None => {
            tell_of_own();
            real!(
                pthread_cond_clockwait: fn(Pointer, MutexPointer, clockid_t, *const timespec) -> c_int,
                condvar, mutex, clock, time
            )
        }
    }
}

/// See [`pthread_cond_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condvar: Pointer) -> c_int {
    match ours(condvar) {
        Some(condvar) => condvar.wake(1),
        None => real!(pthread_cond_signal: fn(Pointer) -> c_int, condvar),
    }
}

/// See [`pthread_cond_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condvar: Pointer) -> c_int {
    match ours(condvar) {
        Some(condvar) => condvar.wake(u64::MAX),
        None => real!(pthread_cond_broadcast: fn(Pointer) -> c_int, condvar),
    }
}
