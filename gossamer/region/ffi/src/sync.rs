//! `gsm_mutex_t` and `gsm_barrier_t` of `gossamer_region.h`: the C library's, on pages of our table, so that they work
//! wherever the program has their number. Also the entry point by which a program with that header finds this library.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use libc::{pthread_barrier_t, pthread_mutex_t, timespec};

use crate::PAGE_BYTES;
use crate::table::{SYNCS_MAX, SyncPage, table};
use crate::{barrier, mutex, named, refused, side, table};

const MUTEX: u64 = 1;
const BARRIER: u64 = 2;

const _: () = assert!(size_of::<pthread_mutex_t>() <= size_of::<SyncPage>());
const _: () = assert!(size_of::<pthread_barrier_t>() <= size_of::<SyncPage>());

/// Functions that the header calls, as it declares them.
#[repr(C)]
pub struct Calls {
    share: extern "C" fn(*mut c_void, usize) -> c_int,
    mutex_init: unsafe extern "C" fn(*mut u64) -> c_int,
    mutex_destroy: extern "C" fn(u64) -> c_int,
    mutex_lock: extern "C" fn(u64) -> c_int,
    mutex_trylock: extern "C" fn(u64) -> c_int,
    mutex_timedlock: unsafe extern "C" fn(u64, *const timespec) -> c_int,
    mutex_unlock: extern "C" fn(u64) -> c_int,
    barrier_init: unsafe extern "C" fn(*mut u64, c_uint) -> c_int,
    barrier_destroy: extern "C" fn(u64) -> c_int,
    barrier_wait: extern "C" fn(u64) -> c_int,
    barrier_wait_fetch: extern "C" fn(u64, *const c_void, usize) -> c_int,
}

static CALLS: Calls = Calls {
    share: named::share,
    mutex_init,
    mutex_destroy,
    mutex_lock,
    mutex_trylock,
    mutex_timedlock,
    mutex_unlock,
    barrier_init,
    barrier_destroy,
    barrier_wait,
    barrier_wait_fetch,
};

/// Entry point of the header; the number in the name is its version. Null: the program was not started by
/// `gossamer-launch run --region`.
#[unsafe(no_mangle)]
pub extern "C" fn gossamer_region_calls_2() -> *const Calls {
    if side::is_in_program() { &raw const CALLS } else { std::ptr::null() }
}

/// Entry point for programs compiled with the previous header, whose list ends earlier.
#[unsafe(no_mangle)]
pub extern "C" fn gossamer_region_calls_1() -> *const Calls {
    gossamer_region_calls_2()
}

/// Returns the number of a mutex or barrier: its turn among those of its place, its kind, and its place.
fn number_of(turn: u32, kind: u64, place: usize) -> u64 {
    u64::from(turn) << 32 | kind << 16 | place as u64
}

fn make(kind: u64) -> Option<(u64, *mut c_void)> {
    (0..SYNCS_MAX).find_map(|place| {
        let turn = &table().sync_turns[place];
        let free = turn.load(Ordering::SeqCst);
        let is_ours = free.is_multiple_of(2)
            && turn.compare_exchange(free, free.wrapping_add(1), Ordering::SeqCst, Ordering::SeqCst).is_ok();
        is_ours.then(|| (number_of(free.wrapping_add(1), kind, place), page(place)))
    })
}

fn page(place: usize) -> *mut c_void {
    table().syncs[place].0.as_ptr().cast_mut().cast()
}

fn find(number: u64, kind: u64) -> Option<*mut c_void> {
    let place = (number & 0xffff) as usize;
    let turn = table().sync_turns.get(place)?.load(Ordering::SeqCst);
    let is_there = !turn.is_multiple_of(2) && number == number_of(turn, kind, place);
    if !is_there {
        refused::tell_caller(
            "a gsm_mutex_t or gsm_barrier_t that is not initialised, or was after this machine had its copy of it,",
            "gsm_mutex_init and gsm_barrier_init before the first pthread_create, or put it where gsm_region_share \
             shares it",
        );
    }
    is_there.then(|| page(place))
}

fn unmake(number: u64) {
    let turn = (number >> 32) as u32;
    // Nothing to do if another thread has destroyed it meanwhile.
    let _ = table().sync_turns[(number & 0xffff) as usize].compare_exchange(
        turn,
        turn.wrapping_add(1),
        Ordering::SeqCst,
        Ordering::SeqCst,
    );
}

unsafe extern "C" fn mutex_init(number: *mut u64) -> c_int {
    let Some((made, mutex)) = make(MUTEX) else { return libc::EAGAIN };
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: attributes that are initialised first; a page that no other code has; the caller's number.
    unsafe {
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ERRORCHECK);
        let done = mutex::pthread_mutex_init(mutex.cast(), attributes.as_ptr());
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
        number.write(made);
        done
    }
}

/// A function of one number, which calls the C library's for the mutex or barrier of that number.
macro_rules! of_number {
    ($($name:ident = $kind:ident, $module:ident::$function:ident;)*) => {$(
        extern "C" fn $name(number: u64) -> c_int {
            match find(number, $kind) {
                // SAFETY: a page of the table on which one was initialised.
                Some(at) => unsafe { $module::$function(at.cast()) },
                None => libc::EINVAL,
            }
        }
    )*};
}

of_number! {
    mutex_lock = MUTEX, mutex::pthread_mutex_lock;
    mutex_trylock = MUTEX, mutex::pthread_mutex_trylock;
    mutex_unlock = MUTEX, mutex::pthread_mutex_unlock;
    barrier_wait = BARRIER, barrier::pthread_barrier_wait;
    end_mutex = MUTEX, mutex::pthread_mutex_destroy;
    end_barrier = BARRIER, barrier::pthread_barrier_destroy;
}

extern "C" fn mutex_destroy(number: u64) -> c_int {
    let done = end_mutex(number);
    if done == 0 {
        unmake(number);
    }
    done
}

unsafe extern "C" fn mutex_timedlock(number: u64, time: *const timespec) -> c_int {
    match find(number, MUTEX) {
        // SAFETY: a page of the table on which one was initialised; the caller's time.
        Some(at) => unsafe { mutex::pthread_mutex_timedlock(at.cast(), time) },
        None => libc::EINVAL,
    }
}

unsafe extern "C" fn barrier_init(number: *mut u64, count: c_uint) -> c_int {
    let Some((made, barrier)) = make(BARRIER) else { return libc::EAGAIN };
    // SAFETY: a page that no other code has.
    let done = unsafe { barrier::pthread_barrier_init(barrier.cast(), std::ptr::null(), count) };
    match done {
        // SAFETY: the caller's number.
        0 => unsafe { number.write(made) },
        _ => unmake(made),
    }
    done
}

extern "C" fn barrier_wait_fetch(number: u64, at: *const c_void, bytes: usize) -> c_int {
    let (Some(barrier), start) = (find(number, BARRIER), at.expose_provenance()) else { return libc::EINVAL };
    let range = start..start.saturating_add(bytes);
    let mut pages = (range.start / PAGE_BYTES * PAGE_BYTES..range.end).step_by(PAGE_BYTES);
    if bytes > 0 && side::machines() > 1 && !pages.all(|page| table::is_shared(page.max(range.start))) {
        // The other threads wait for this one all the same.
        // SAFETY: a page of the table on which one was initialised.
        unsafe { barrier::wait_and_fetch(barrier.cast(), 0..0) };
        refused::tell_caller(
            "gsm_barrier_wait_fetch of memory that the machines do not share",
            "gsm_region_share first; with 0 bytes it fetches nothing",
        );
        return libc::EFAULT;
    }
    // SAFETY: a page of the table on which one was initialised.
    unsafe { barrier::wait_and_fetch(barrier.cast(), range) }
}

extern "C" fn barrier_destroy(number: u64) -> c_int {
    let done = end_barrier(number);
    if done == 0 {
        unmake(number);
    }
    done
}
