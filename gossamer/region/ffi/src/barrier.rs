//! `pthread_barrier_t`, in the bytes of the C library's own. Machines of one host have one memory, in which threads
//! count their arrivals and wait. Elsewhere it holds the number of threads alone, and never changes: arrivals are
//! gathered on each machine (`gather.rs`).

use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gossamer_region::link::{common, linger, prefetch};
use libc::{pthread_barrier_t, pthread_barrierattr_t};

use crate::PAGE_BYTES;
use crate::real::real;
use crate::side::KeptErrno;
use crate::waits::{self, Kind};
use crate::{gather, safe_points, side, table, told};

/// Layout of the C library's barrier, so that a barrier may be initialised before its page is shared.
#[repr(C)]
struct Barrier {
    /// Threads that have come in this round; in the upper half the number of rounds that are over. In one word, so that
    /// each thread knows the round that it has come in.
    state: AtomicU64,
    count: AtomicU32,
    _unused: u32,
    /// Threads that have come and have not gone on.
    inside: AtomicU32,
}

const _: () = assert!(size_of::<Barrier>() <= size_of::<pthread_barrier_t>());
const _: () = assert!(align_of::<Barrier>() <= align_of::<pthread_barrier_t>());

/// Interval at which a thread that destroys a barrier checks whether others have left it.
const LOOK: Duration = Duration::from_micros(100);

type Pointer = *mut pthread_barrier_t;

fn round_of(state: u64) -> u32 {
    (state >> u32::BITS) as u32
}

impl Barrier {
    /// Returns it in the memory that all machines have in common, if they do.
    fn in_common_memory(&self) -> Option<&'static Barrier> {
        let address = common(std::ptr::from_ref(self).addr())?;
        // SAFETY: the same bytes, all atomics, in a mapping that stays; a multiple of a page away.
        Some(unsafe { &*std::ptr::with_exposed_provenance::<Barrier>(address) })
    }

    /// In common memory, on our side: waits until `count` threads have come. The last one gets `true`.
    fn meet(&self, count: u32) -> bool {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let is_last = |state: u64| state as u32 + 1 >= count;
        let next_round = |state: u64| u64::from(round_of(state).wrapping_add(1)) << u32::BITS;
        let come = |state: u64| Some(if is_last(state) { next_round(state) } else { state + 1 });
        let before = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, come).unwrap_or_default();
        match is_last(before) {
            true => self.call(libc::FUTEX_WAKE, i32::MAX.cast_unsigned()),
            false => self.wait_after(round_of(before)),
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        is_last(before)
    }

    fn wait_after(&self, round: u32) {
        let since = Instant::now();
        while round_of(self.state.load(Ordering::SeqCst)) == round {
            if !linger(since, gather::LINGER) {
                self.call(libc::FUTEX_WAIT, round);
            }
        }
    }

    /// Waits at the number of rounds, or wakes those who do, in all processes.
    fn call(&self, operation: c_int, value: u32) {
        const UPPER: usize = if cfg!(target_endian = "little") { 1 } else { 0 };
        let word = self.state.as_ptr().cast::<u32>().wrapping_add(UPPER);
        // SAFETY: a word that stays while a thread is inside; no time is given.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, value, std::ptr::null::<libc::timespec>()) };
    }
}

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
    ours.state.store(0, Ordering::Relaxed);
    ours.inside.store(0, Ordering::Relaxed);
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
        Some(ours) => {
            // Its bytes are the caller's when all have gone on.
            while ours.in_common_memory().is_some_and(|common| common.inside.load(Ordering::SeqCst) > 0) {
                std::thread::sleep(LOOK);
            }
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

/// In a fiber: the number of threads that meet under a key.
pub(crate) fn count_of(key: usize) -> u32 {
    let at = std::ptr::with_exposed_provenance_mut(key & !1); // without the bit of `fetched`
    ours(at).map_or(0, |barrier| barrier.count.load(Ordering::SeqCst))
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
            told::tell(
                "a pthread_barrier_t outside of what gsm_region_share has named, of which each machine has its own,",
                "a gsm_barrier_t, or name its page",
            );
        }
        return real!(pthread_barrier_wait: fn(Pointer) -> c_int, barrier);
    };
    safe_points::at_call();
    let _errno = KeptErrno::new();
    let common = ours.in_common_memory();
    let count = common.unwrap_or(ours).count.load(Ordering::SeqCst);
    let is_serial = match common {
        _ if count == 0 => return libc::EINVAL, // not initialised
        Some(common) => waits::during(Kind::Barrier, barrier.addr(), None, || side::outside(|| common.meet(count))),
        None => gather::wait_for_all(barrier.addr(), count),
    };
    safe_points::at_call();
    if is_serial { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
}
