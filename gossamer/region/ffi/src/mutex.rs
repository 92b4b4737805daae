//! `pthread_mutex_t`, in the bytes of the C library's own, and `pthread_once`. First come, first served; a thread that
//! finds the mutex free and its page here sends nothing.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use libc::{pthread_mutex_t, pthread_mutexattr_t, pthread_once_t, timespec};
use region_calls::call;

use crate::real::real;
use crate::semaphore::Count;
use crate::waits::{self, Kind};
use crate::{clocks, ids, refused, safe_points, side, table};

/// Layout of the C library's mutex, as far as its initialisers depend on it: all zero but for `kind`.
#[repr(C)]
struct Mutex {
    count: AtomicI32,
    depth: AtomicU32,
    _unused: [u32; 2],
    kind: AtomicI32,
    _also: u32,
    owner: AtomicU64,
}

const _: () = assert!(size_of::<Mutex>() <= size_of::<pthread_mutex_t>());

/// Bits of a kind that define a second lock by the owner.
const KIND: c_int = 3;

type Pointer = *mut pthread_mutex_t;

/// Returns the mutex, if it is in memory that all machines share.
fn ours(mutex: Pointer) -> Option<&'static Mutex> {
    // SAFETY: the program's mutex, which stays while it is used, and is changed by these functions only.
    (table::is_shared(mutex.addr())).then(|| unsafe { &*mutex.cast::<Mutex>() })
}

impl Mutex {
    fn count(&self) -> Count {
        // SAFETY: a word of the mutex, changed as an atomic only.
        unsafe { Count::at(self.count.as_ptr(), 1) }
    }

    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == ids::own()
    }

    /// Locks it by `take`; returns the errors of POSIX.
    fn lock(&self, take: impl FnOnce(&Count) -> Result<(), c_int>) -> c_int {
        if self.is_mine() {
            match self.kind.load(Ordering::Relaxed) & KIND {
                libc::PTHREAD_MUTEX_RECURSIVE => {
                    self.depth.fetch_add(1, Ordering::Relaxed);
                    return 0;
                }
                libc::PTHREAD_MUTEX_ERRORCHECK => return libc::EDEADLK,
                _ => {}
            }
        }
        match take(&self.count()) {
            Ok(()) => {
                self.owner.store(ids::own(), Ordering::Relaxed);
                0
            }
            Err(errno) => errno,
        }
    }

    fn unlock(&self) -> c_int {
        if !self.is_mine() {
            let checks = self.kind.load(Ordering::Relaxed) & KIND != libc::PTHREAD_MUTEX_NORMAL;
            if checks || self.count.load(Ordering::Relaxed) == 0 {
                return libc::EPERM;
            }
        }
        if self.depth.load(Ordering::Relaxed) > 0 {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return 0;
        }
        self.owner.store(0, Ordering::Relaxed);
        self.count().give();
        0
    }
}

/// In a fiber: the thread that holds the mutex at this address, by its id; 0 if none does.
pub(crate) fn holder(address: usize) -> u64 {
    ours(std::ptr::with_exposed_provenance_mut(address)).map_or(0, |mutex| mutex.owner.load(Ordering::Relaxed))
}

fn wait(count: &Count) -> Result<(), c_int> {
    count.take(None);
    Ok(())
}

fn wait_until(count: &Count, clock: libc::clockid_t, time: *const timespec) -> Result<(), c_int> {
    safe_points::at_call();
    if count.try_take() {
        return Ok(());
    }
    // SAFETY: the caller's.
    let time = unsafe { *time };
    match side::is_time(&time) {
        true if count.take(Some(clocks::until(clock, &time))) => Ok(()),
        true => Err(libc::ETIMEDOUT),
        false => Err(libc::EINVAL),
    }
}

/// The C library's function, for threads of all machines.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(mutex: Pointer, attr: *const pthread_mutexattr_t) -> c_int {
    let Some(ours) = ours(mutex) else {
        return real!(pthread_mutex_init: fn(Pointer, *const pthread_mutexattr_t) -> c_int, mutex, attr);
    };
    let (mut kind, mut robust) = (libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_MUTEX_STALLED);
    if !attr.is_null() {
        unsafe extern "C" {
            fn pthread_mutexattr_gettype(attr: *const pthread_mutexattr_t, kind: *mut c_int) -> c_int;
        }
        // SAFETY: the caller's attributes.
        unsafe {
            pthread_mutexattr_gettype(attr, &raw mut kind);
            libc::pthread_mutexattr_getrobust(attr, &raw mut robust);
        }
    }
    if robust == libc::PTHREAD_MUTEX_ROBUST {
        // A machine that dies ends the program, so no thread could find a dead owner's lock.
        const ROBUST: &str = "pthread_mutexattr_setrobust";
        refused::refuse(ROBUST, const { call(ROBUST, "with PTHREAD_MUTEX_ROBUST") });
        return libc::ENOTSUP;
    }
    ours.count.store(0, Ordering::Relaxed);
    ours.depth.store(0, Ordering::Relaxed);
    ours.owner.store(0, Ordering::Relaxed);
    ours.kind.store(kind, Ordering::SeqCst);
    0
}

/// See [`pthread_mutex_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_destroy(mutex: Pointer) -> c_int {
    match ours(mutex) {
        Some(mutex) if mutex.count.load(Ordering::SeqCst) == 0 => 0,
        Some(_) => libc::EBUSY,
        None => real!(pthread_mutex_destroy: fn(Pointer) -> c_int, mutex),
    }
}

/// See [`pthread_mutex_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: Pointer) -> c_int {
    match ours(mutex) {
        Some(mutex) => {
            safe_points::at_call();
            mutex.lock(wait)
        }
        None => real!(pthread_mutex_lock: fn(Pointer) -> c_int, mutex),
    }
}

/// See [`pthread_mutex_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: Pointer) -> c_int {
    let Some(mutex) = ours(mutex) else { return real!(pthread_mutex_trylock: fn(Pointer) -> c_int, mutex) };
    match mutex.lock(|count| if count.try_take() { Ok(()) } else { Err(libc::EBUSY) }) {
        libc::EDEADLK => libc::EBUSY,
        other => other,
    }
}

/// See [`pthread_mutex_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_timedlock(mutex: Pointer, time: *const timespec) -> c_int {
    match ours(mutex) {
        Some(mutex) => mutex.lock(|count| wait_until(count, libc::CLOCK_REALTIME, time)),
        None => real!(pthread_mutex_timedlock: fn(Pointer, *const timespec) -> c_int, mutex, time),
    }
}

/// See [`pthread_mutex_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: Pointer,
    clock: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    match ours(mutex) {
        Some(mutex) => mutex.lock(|count| wait_until(count, clock, time)),
        None => {
            real!(pthread_mutex_clocklock: fn(Pointer, libc::clockid_t, *const timespec) -> c_int, mutex, clock, time)
        }
    }
}

/// See [`pthread_mutex_init`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: Pointer) -> c_int {
    match ours(mutex) {
        Some(mutex) => mutex.unlock(),
        None => real!(pthread_mutex_unlock: fn(Pointer) -> c_int, mutex),
    }
}

/// Interval at which a thread checks whether another one's `init` has returned.
const LOOK: Duration = Duration::from_micros(100);

/// Function that is to run once. C++ has ones that throw.
pub(crate) type Init = Option<extern "C-unwind" fn()>;

/// The C library's function, for threads of all machines. Where `init` throws, the next thread calls it again.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_once(once: *mut pthread_once_t, init: Init) -> c_int {
    const RUNS: i32 = 1;
    const DONE: i32 = 2;
    /// Guard: the state after `init`, which has thrown unless it says otherwise.
    struct After<'a>(&'a AtomicI32, i32);
    impl Drop for After<'_> {
        fn drop(&mut self) {
            self.0.store(self.1, Ordering::SeqCst);
        }
    }
    if !table::is_shared(once.addr()) {
        let init = init.map_or(std::ptr::null_mut(), |init| init as *mut c_void);
        return real!(pthread_once: fn(*mut pthread_once_t, *mut c_void) -> c_int, once, init);
    }
    // SAFETY: the program's, changed by this function only.
    let state = unsafe { AtomicI32::from_ptr(once.cast()) };
    while state.load(Ordering::SeqCst) != DONE {
        if state.compare_exchange(0, RUNS, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            waits::during(Kind::Once, once.addr(), None, || {
                while state.load(Ordering::SeqCst) == RUNS {
                    std::thread::sleep(LOOK);
                }
            });
            continue;
        }
        let mut after = After(state, 0);
        if let Some(init) = init {
            init();
        }
        after.1 = DONE;
    }
    0
}
