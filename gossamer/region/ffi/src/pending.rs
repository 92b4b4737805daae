//! Signals that were sent to a thread which blocks them, and wait. The system keeps them for the thread's host: they go
//! along as the thread moves, and a host that is used again has none.
//!
//! Not here: signals that wait for any thread of the process.

use std::ffi::c_int;

use crate::mask::Mask;
use crate::{side, timer};

/// A signal, as the system tells of it (`siginfo_t`).
pub(crate) type Waiting = [u64; size_of::<libc::siginfo_t>() / 8];

/// Most of them: more than the system keeps for a user by default.
const MOST: usize = 1 << 17;
/// Bytes of the system's set of signals.
const SET_BYTES: usize = size_of::<Mask>();

/// Returns those that wait for the calling thread alone.
fn waiting() -> Mask {
    let mut all: Mask = 0;
    // SAFETY: it fills the set.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut all, SET_BYTES) };
    if all == 0 {
        return 0; // nor for the process
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    own.and_then(|own| Mask::from_str_radix(own.trim(), 16).ok()).unwrap_or(0)
}

/// On a host, with signals blocked: takes those that wait for it.
pub(crate) fn take() -> Vec<Waiting> {
    let next = || {
        let set = waiting();
        let (mut found, at_once): (Waiting, _) = ([0; _], libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: it reads the set and the time, and fills the rest. Of a thread's signals and its process's it takes
        // the thread's first.
        let signal = set != 0
            && unsafe {
                let (set, time) = (&raw const set, &raw const at_once);
                libc::syscall(libc::SYS_rt_sigtimedwait, set, &raw mut found, time, SET_BYTES) > 0
            };
        signal.then_some(found)
    };
    // That of a timer of ours is no signal of the program.
    let is_of_program = |found: &Waiting| !timer::takes(found[0] as c_int);
    std::iter::from_fn(next).take(MOST).filter(is_of_program).collect()
}

/// On a host, with signals blocked: has these wait for it.
pub(crate) fn put(signals: &[Waiting]) {
    for found in signals {
        let signal = found[0] as c_int; // the first field
        // SAFETY: it reads what is known of the signal; a thread may send itself any.
        unsafe {
            let (process, thread) = (side::process(), libc::gettid());
            // Where as many wait as may, the system keeps one of each all the same, but not what is known of it.
            if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, found.as_ptr()) != 0 {
                libc::syscall(libc::SYS_tgkill, process, thread, signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask;

    #[test]
    fn signals_of_a_thread_are_taken_in_order_and_wait_again() {
        let before = mask::block();
        let (first, second) = (libc::SIGRTMIN() + 3, libc::SIGRTMIN() + 4);
        let values =
            |signals: &[Waiting]| signals.iter().map(|found| (found[0] as c_int, found[3])).collect::<Vec<_>>();
        assert_eq!(take(), [] as [Waiting; 0]);
        for (signal, value) in [(second, 7), (first, 5), (first, 6)] {
            let mut found: Waiting = [0; _];
            (found[0], found[1], found[3]) = (signal as u64, u64::from(libc::SI_QUEUE.cast_unsigned()), value);
            put(&[found]);
        }
        let taken = take();
        assert_eq!(values(&taken), [(first, 5), (first, 6), (second, 7)]);
        assert_eq!(waiting(), 0);
        put(&taken);
        assert_eq!(take(), taken);
        mask::set_mask(before);
    }
}
