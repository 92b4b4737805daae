//! `pthread_barrier_t`, in the bytes of the C library's own. It holds the number of threads that wait there and never
//! changes: arrivals are gathered on each machine (`gather.rs`).

use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use gossamer_region::link::prefetch;
use libc::{pthread_barrier_t, pthread_barrierattr_t};

use crate::PAGE_BYTES;
use crate::real::real;
use crate::{gather, refused, side, table};

/// Layout of the C library's barrier, so that a barrier may be initialised before its page is shared.
#[repr(C)]
struct Barrier {
    _unused: [u32; 2],
    count: AtomicU32,
}

const _: () = assert!(size_of::<Barrier>() <= size_of::<pthread_barrier_t>());

type Pointer = *mut pthread_barrier_t;

fn ours(barrier: Pointer) -> Option<&'static Barrier> {
    // SAFETY: the program's barrier, which stays while it is used, and is changed by these functions only.
    (table::is_shared(barrier.addr())).then(|| unsafe { &*barrier.cast::<Barrier>() })
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: Pointer,
    attr: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    let Some(ours) = ours(barrier) else {
        return real!(
            pthread_barrier_init: fn(Pointer, *const pthread_barrierattr_t, c_uint) -> c_int, barrier, attr, count
        );
    };
    if count == 0 {
        return libc::EINVAL;
    }
    ours.count.store(count, Ordering::SeqCst);
    0
}

/// See [`pthread_barrier_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_destroy(barrier: Pointer) -> c_int {
    match ours(barrier) {
        Some(_) => {
            gather::forget(barrier.addr());
            gather::forget(fetched(barrier));
            0
        }
        None => real!(pthread_barrier_destroy: fn(Pointer) -> c_int, barrier),
    }
}

/// Meets, fetches the pages of `range` that belong to a region to the caller's machine, to read, and meets again: so no
/// thread goes on and writes them before all have theirs.
///
/// # Safety
/// See [`pthread_barrier_init`].
pub(crate) unsafe fn wait_and_fetch(barrier: Pointer, range: Range<usize>) -> c_int {
    let Some(ours) = ours(barrier) else { return libc::EINVAL };
    let count = ours.count.load(Ordering::SeqCst);
    if count == 0 {
        return libc::EINVAL; // not initialised
    }
    let is_serial = gather::wait_for_all(barrier.addr(), count);
    if side::machines() > 1 && !range.is_empty() {
        side::outside(|| side::without_signals(|| prefetch(range.clone())));
        for address in (range.start / PAGE_BYTES * PAGE_BYTES..range.end).step_by(PAGE_BYTES) {
            // SAFETY: a page of the region, or one that the region has a part of; if it is away, it is fetched.
            unsafe { std::ptr::with_exposed_provenance::<u8>(address).read_volatile() };
        }
    }
    gather::wait_for_all(fetched(barrier), count);
    if is_serial { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
}

/// The key under which threads meet after fetching.
fn fetched(barrier: Pointer) -> usize {
    barrier.addr() + 1
}

/// See [`pthread_barrier_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: Pointer) -> c_int {
    let Some(ours) = ours(barrier) else {
        if side::is_in_program() && side::machines() > 1 {
            refused::tell(
                "a pthread_barrier_t outside of what gsm_region_share has named, of which each machine has its own,",
                "a gsm_barrier_t, or name its page",
            );
        }
        return real!(pthread_barrier_wait: fn(Pointer) -> c_int, barrier);
    };
    match ours.count.load(Ordering::SeqCst) {
        0 => libc::EINVAL, // not initialised
        count if gather::wait_for_all(barrier.addr(), count) => libc::PTHREAD_BARRIER_SERIAL_THREAD,
        _ => 0,
    }
}
