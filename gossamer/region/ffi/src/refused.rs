//! Calls that cannot work on several machines: they fail with `ENOTSUP`, and a message names the alternative once.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use libc::{cpu_set_t, pid_t, pthread_attr_t, pthread_t};

use crate::real::real;
use crate::{side, threads};

/// Prints the message, the first time.
pub(crate) fn tell(what: &'static str, instead: &str) {
    static TOLD: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    side::outside(|| {
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(what) {
            eprintln!(
                "gossamer: {what} does not work in a program on several machines; use {instead} (docs/region.md)"
            );
        }
    });
}

/// Refused: the child would have none of the program's memory.
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> pid_t {
    if !side::is_in_program() {
        return real!(fork: fn() -> pid_t);
    }
    tell("fork", "posix_spawn, system or popen");
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = libc::ENOTSUP };
    -1
}

/// Refused: a thread of another machine cannot be cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_cancel(id: pthread_t) -> c_int {
    if !side::is_in_program() {
        return real!(pthread_cancel: fn(pthread_t) -> c_int, id);
    }
    tell("pthread_cancel", "a variable that the thread looks at");
    libc::ENOTSUP
}

/// Calls for memory that is one machine's own: refused, with this result.
macro_rules! of_one_machine {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr, $instead:literal;)*) => {$(
        /// Refused.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            if !side::is_in_program() {
                return real!($name: fn($($type),*) -> $result $(, $argument)*);
            }
            tell(stringify!($name), $instead);
            // SAFETY: the calling thread's own.
            unsafe { *libc::__errno_location() = libc::ENOTSUP };
            $failed
        }
    )*};
}

const NOWHERE: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

of_one_machine! {
    brk(end: *mut c_void) -> c_int, -1, "malloc or mmap";
    sbrk(bytes: isize) -> *mut c_void, NOWHERE, "malloc or mmap";
    shmat(segment: c_int, at: *const c_void, flags: c_int) -> *mut c_void, NOWHERE, "mmap of anonymous memory";
    sem_open(name: *const c_char, flags: c_int, mode: libc::mode_t, value: libc::c_uint) -> *mut c_void,
        std::ptr::null_mut(), "sem_init";
    mlock(start: *const c_void, bytes: usize) -> c_int, -1, "memory without locks";
    mlock2(start: *const c_void, bytes: usize, flags: c_int) -> c_int, -1, "memory without locks";
    mlockall(flags: c_int) -> c_int, -1, "memory without locks";
}

/// Refused where the C library would start a thread of its own, which knows nothing of other machines.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(
    clock: libc::clockid_t,
    event: *mut libc::sigevent,
    timer: *mut libc::timer_t,
) -> c_int {
    // SAFETY: null, or the caller's.
    let starts_thread = unsafe { event.as_ref() }.is_some_and(|event| event.sigev_notify == libc::SIGEV_THREAD);
    if !side::is_in_program() || !starts_thread {
        return real!(
            timer_create: fn(libc::clockid_t, *mut libc::sigevent, *mut libc::timer_t) -> c_int, clock, event, timer
        );
    }
    tell("timer_create with SIGEV_THREAD", "a thread that sleeps, or SIGEV_SIGNAL");
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = libc::ENOTSUP };
    -1
}

/// Functions that work on the calling thread only.
macro_rules! own_thread_only {
    ($($name:ident($($argument:ident: $type:ty),*), $instead:literal;)*) => {$(
        /// The C library's function, for the calling thread; refused for others.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(id: pthread_t $(, $argument: $type)*) -> c_int {
            match threads::real_of(id) {
                Some(id) => real!($name: fn(pthread_t $(, $type)*) -> c_int, id $(, $argument)*),
                None => {
                    tell(concat!(stringify!($name), " of another thread"), $instead);
                    libc::ENOTSUP
                }
            }
        }
    )*};
}

own_thread_only! {
    pthread_kill(signal: c_int), "a variable that the thread looks at";
    pthread_setname_np(name: *const c_char), "it in the thread itself";
    pthread_getname_np(name: *mut c_char, bytes: usize), "it in the thread itself";
    pthread_setaffinity_np(bytes: usize, set: *const cpu_set_t), "it in the thread itself";
    pthread_getaffinity_np(bytes: usize, set: *mut cpu_set_t), "it in the thread itself";
    pthread_getattr_np(attr: *mut pthread_attr_t), "it in the thread itself";
    pthread_getcpuclockid(clock: *mut libc::clockid_t), "it in the thread itself";
    pthread_setschedparam(policy: c_int, parameters: *const c_void), "it in the thread itself";
    pthread_setschedprio(priority: c_int), "it in the thread itself";
    pthread_sigqueue(signal: c_int, value: *mut c_void), "a variable that the thread looks at";
    pthread_getschedparam(policy: *mut c_int, parameters: *mut c_void), "it in the thread itself";
}
