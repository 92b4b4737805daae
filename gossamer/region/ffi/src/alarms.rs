//! Timers of the program (`timer_create`) that end at a time of machine 0's clocks (`clocks.rs`). A timer is of the
//! machine whose thread has made it.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libc::{clockid_t, itimerspec, timer_t};

use crate::real::real;
use crate::{clocks, side};

/// Clocks of this machine's timers, where machines have different ones.
static TIMERS: Mutex<BTreeMap<usize, clockid_t>> = Mutex::new(BTreeMap::new());

fn with<R>(f: impl FnOnce(&mut BTreeMap<usize, clockid_t>) -> R) -> R {
    side::outside_without_signals(|| f(&mut TIMERS.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Records a timer that has been made.
pub(crate) fn note(timer: timer_t, clock: clockid_t) {
    if clocks::do_differ() {
        with(|timers| timers.insert(timer.addr(), clock));
    }
}

/// The C library's function, by machine 0's clock.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_settime(
    timer: timer_t,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    let set = |new| {
        real!(
            timer_settime: fn(timer_t, c_int, *const itimerspec, *mut itimerspec) -> c_int, timer, flags, new, old
        )
    };
    if flags & libc::TIMER_ABSTIME == 0 || !clocks::do_differ() {
        return set(new);
    }
    let clock = with(|timers| timers.get(&timer.addr()).copied());
    // SAFETY: null, or the caller's; no time stops the timer.
    let asked = unsafe { new.as_ref() }.filter(|asked| asked.it_value.tv_sec != 0 || asked.it_value.tv_nsec != 0);
    let there = clock
        .zip(asked)
        .and_then(|(clock, asked)| Some(itimerspec { it_value: clocks::time_here(clock, &asked.it_value)?, ..*asked }));
    set(there.as_ref().map_or(new, ptr::from_ref))
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_delete(timer: timer_t) -> c_int {
    if clocks::do_differ() {
        with(|timers| timers.remove(&timer.addr()));
    }
    real!(timer_delete: fn(timer_t) -> c_int, timer)
}
