//! Calls that cannot work on several machines: they fail with `ENOTSUP`, and a message names the alternative once
//! (`region_calls` has all of them). A program that goes on after such a call may print something else than one process
//! would, so it does not end with status 0.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libc::{pid_t, pthread_t};
use region_calls::{Call, call};

use crate::real::real;
use crate::told::tell_once;
use crate::{FAILURE_STATUS, alarms, arena, block, ids, side};

/// The first call that this machine has refused, and its thread, in words.
static FIRST: OnceLock<String> = OnceLock::new();

/// Ends the process, where it cannot go on: constructors have no way to learn of an error.
pub(crate) fn end(what: &str, instead: &str) -> ! {
    let _ours = arena::Ours::begin();
    eprintln!("gossamer: {what} does not work in a program on several machines; use {instead} (docs/region.md)");
    // SAFETY: it ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, FAILURE_STATUS) };
    std::process::abort()
}

/// Records that a call of the calling thread is refused.
pub(crate) fn note(name: &str, when: &str) {
    side::outside(|| {
        FIRST.get_or_init(|| format!("{name}{}{when} by {}", if when.is_empty() { "" } else { " " }, ids::caller()));
    });
}

/// Refuses a call of the C library: `errno`, and the message of its row, the first time.
pub(crate) fn refuse(name: &'static str, row: &'static Call) {
    note(name, row.when);
    tell_once(name, row.when, || format!("{}; called by {}", row.message(name), ids::caller()));
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = libc::ENOTSUP };
}

/// Refuses a call that has no row, with a message, the first time.
pub(crate) fn refuse_other(what: &'static str, instead: &str) {
    note(what, "");
    tell_caller(what, instead);
}

/// Prints that a call does not work, and its thread, the first time. For the functions of `gossamer_region.h`: their
/// callers look for errors.
pub(crate) fn tell_caller(what: &'static str, instead: &str) {
    tell_once(what, "", || {
        format!(
            "{what} does not work in a program on several machines; use {instead} (docs/region.md); called by {}",
            ids::caller()
        )
    });
}

/// In the first fiber: the status of a program that has ended by itself with this one.
pub(crate) fn status_after(status: u8) -> u8 {
    if status != 0 {
        return status;
    }
    let first =
        (0..side::machines()).find_map(|machine| side::from_worker_with(machine, |()| FIRST.get().cloned(), ()));
    let Some(first) = first else { return status };
    eprintln!(
        "gossamer: the program has ended by itself with status 0, but after a refused call ({first}): its output may \
         not be that of one process, and its status is {FAILURE_STATUS}"
    );
    FAILURE_STATUS as u8
}

/// Refused: a thread of another machine cannot be cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_cancel(id: pthread_t) -> c_int {
    if !side::is_in_program() {
        return real!(pthread_cancel: fn(pthread_t) -> c_int, id);
    }
    refuse("pthread_cancel", const { call("pthread_cancel", "") });
    libc::ENOTSUP
}

/// Calls that are refused where this holds, with this result.
macro_rules! refused {
    ($is_refused:path: $($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr;)*) => {$(
        /// Refused.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            if !$is_refused() {
                return real!($name: fn($($type),*) -> $result $(, $argument)*);
            }
            refuse(stringify!($name), const { call(stringify!($name), "") });
            $failed
        }
    )*};
}

const NOWHERE: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

// A child would have none of the program's memory.
refused! { side::is_in_program:
    fork() -> pid_t, -1;
    _Fork() -> pid_t, -1;
    forkpty(terminal: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void) -> c_int, -1;
    daemon(keeps_folder: c_int, keeps_streams: c_int) -> c_int, -1;
}

// Other memory would be one machine's own.
refused! { side::is_programs:
    brk(end: *mut c_void) -> c_int, -1;
    sbrk(bytes: isize) -> *mut c_void, NOWHERE;
    shmat(segment: c_int, at: *const c_void, flags: c_int) -> *mut c_void, NOWHERE;
    sem_open(name: *const c_char, flags: c_int, mode: libc::mode_t, value: libc::c_uint) -> *mut c_void,
        std::ptr::null_mut();
}

/// Calls that the C library has each of its threads do, by a signal: it does not know threads in blocks.
macro_rules! of_each_thread {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The C library's function; refused where threads may move.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            if !block::are_on() || !side::is_in_program() {
                return real!($name: fn($($type),*) -> c_int $(, $argument)*);
            }
            refuse(stringify!($name), const { call(stringify!($name), "with --move asked") });
            -1
        }
    )*};
}

of_each_thread! {
    setuid(user: libc::uid_t);
    seteuid(user: libc::uid_t);
    setreuid(user: libc::uid_t, effective: libc::uid_t);
    setresuid(user: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t);
    setgid(group: libc::gid_t);
    setegid(group: libc::gid_t);
    setregid(group: libc::gid_t, effective: libc::gid_t);
    setresgid(group: libc::gid_t, effective: libc::gid_t, saved: libc::gid_t);
    setgroups(count: usize, groups: *const libc::gid_t);
}

/// Calls without effect on output, which are taken as done.
macro_rules! hints {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// Does nothing, with a message, the first time. A page that is locked could not travel.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            if !side::is_programs() {
                return real!($name: fn($($type),*) -> c_int $(, $argument)*);
            }
            tell_once(stringify!($name), "", || const { call(stringify!($name), "") }.message(stringify!($name)));
            0
        }
    )*};
}

hints! {
    mlock(start: *const c_void, bytes: usize);
    mlock2(start: *const c_void, bytes: usize, flags: c_int);
    mlockall(flags: c_int);
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
    if !side::is_programs() || !starts_thread {
        let done = real!(
            timer_create: fn(libc::clockid_t, *mut libc::sigevent, *mut libc::timer_t) -> c_int, clock, event, timer
        );
        if done == 0 {
            // SAFETY: the call has written it.
            alarms::note(unsafe { *timer }, clock);
        }
        return done;
    }
    refuse("timer_create", const { call("timer_create", "with SIGEV_THREAD") });
    -1
}

/// Functions that work on the calling thread only.
macro_rules! own_thread_only {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The C library's function, for the calling thread; refused for others.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(id: pthread_t $(, $argument: $type)*) -> c_int {
            match ids::real_of(id) {
                Some(id) => real!($name: fn(pthread_t $(, $type)*) -> c_int, id $(, $argument)*),
                None => {
                    refuse(stringify!($name), const { call(stringify!($name), "of another thread") });
                    libc::ENOTSUP
                }
            }
        }
    )*};
}

own_thread_only! {
    pthread_kill(signal: c_int);
    pthread_sigqueue(signal: c_int, value: *mut c_void);
}
