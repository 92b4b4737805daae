//! `pthread_barrier_t`, in the bytes of the C library's own.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{pthread_barrier_t, pthread_barrierattr_t};

use crate::real::real;
use crate::{line, table};

#[repr(C)]
struct Barrier {
    count: AtomicU32,
    arrived: AtomicU32,
    round: AtomicU32,
}

const _: () = assert!(size_of::<Barrier>() <= size_of::<pthread_barrier_t>());

type Pointer = *mut pthread_barrier_t;

fn ours(barrier: Pointer) -> Option<&'static Barrier> {
    // SAFETY: the program's, which stays while it is used, and is changed by these functions only.
    (table::is_shared(barrier.addr())).then(|| unsafe { &*barrier.cast::<Barrier>() })
}

/// As the C library's, for threads of all machines.
///
/// # Safety
/// As that says, here and at all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: Pointer,
    attr: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    let Some(ours) = ours(barrier) else {
        return real!(pthread_barrier_init: fn(Pointer, *const pthread_barrierattr_t, c_uint) -> c_int, barrier, attr, count);
    };
    if count == 0 {
        return libc::EINVAL;
    }
    ours.arrived.store(0, Ordering::Relaxed);
    ours.round.store(0, Ordering::Relaxed);
    ours.count.store(count, Ordering::SeqCst);
    0
}

/// As [`pthread_barrier_init`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_destroy(barrier: Pointer) -> c_int {
    match ours(barrier) {
        Some(_) => 0,
        None => real!(pthread_barrier_destroy: fn(Pointer) -> c_int, barrier),
    }
}

/// As [`pthread_barrier_init`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: Pointer) -> c_int {
    let Some(ours) = ours(barrier) else { return real!(pthread_barrier_wait: fn(Pointer) -> c_int, barrier) };
    let (round, count) = (ours.round.load(Ordering::SeqCst), ours.count.load(Ordering::Relaxed));
    // Two lines in turn: who comes again early cannot take what somebody has not taken of the round before.
    let line = barrier.addr() + (round % 2) as usize;
    if ours.arrived.fetch_add(1, Ordering::SeqCst) + 1 < count {
        line::take(line, None);
        return 0;
    }
    ours.arrived.store(0, Ordering::SeqCst);
    ours.round.store(round.wrapping_add(1), Ordering::SeqCst);
    if count > 1 {
        line::give(line, u64::from(count - 1));
    }
    libc::PTHREAD_BARRIER_SERIAL_THREAD
}
