//! Signals that a thread blocks. SIGSYS is never one of them: it stands for a system call that has to be answered
//! (`trap.rs`).

use std::ffi::c_int;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::sigset_t;

/// Signals of a thread's own faults, which are never blocked.
pub(crate) const OF_FAULTS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];
/// Signals that end a machine, whether threads of the program are there or not.
pub(crate) const ENDING: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Signals of a set: bit 0 is signal 1.
pub(crate) type Mask = u64;

fn bit(signal: c_int) -> Mask {
    1 << (signal.unsigned_abs() - 1)
}

/// Whether a signal is one of these.
pub(crate) fn has(mask: Mask, signal: c_int) -> bool {
    mask & bit(signal) != 0
}

/// Returns the set of these signals.
pub(crate) fn set_of(mask: Mask) -> sigset_t {
    // SAFETY: zeros are the empty set; its first word has the signals of the kernel.
    unsafe {
        let mut set: sigset_t = mem::zeroed();
        (&raw mut set).cast::<Mask>().write(mask);
        set
    }
}

/// Returns the set of one signal.
pub(crate) fn set_with(signal: c_int) -> sigset_t {
    set_of(bit(signal))
}

/// Returns the signals of a set.
///
/// # Safety
/// `set` is a set.
pub(crate) unsafe fn mask_of(set: *const sigset_t) -> Mask {
    // SAFETY: as the caller says; its first word has the signals of the kernel.
    unsafe { set.cast::<Mask>().read() }
}

/// Signals that the program does not have, and that its threads do not block.
static HIDDEN: AtomicU64 = AtomicU64::new(0);

/// Hides a signal from the program; before its first thread starts.
pub(crate) fn hide(signal: c_int) {
    HIDDEN.fetch_or(bit(signal), Ordering::Relaxed);
}

/// Returns those of these signals that the program has.
pub(crate) fn of_program(mask: Mask) -> Mask {
    mask & !HIDDEN.load(Ordering::Relaxed)
}

/// Returns a set of these signals that a thread may block.
pub(crate) fn blockable(mask: Mask) -> sigset_t {
    set_of(mask & !bit(libc::SIGSYS))
}

/// The C library's `pthread_sigmask`.
static SIGMASK: AtomicUsize = AtomicUsize::new(0);

/// Notes the C library's `pthread_sigmask`, before a signal is hidden. The plain name leads to this library's function,
/// which is for the program.
pub(crate) fn note(sigmask: usize) {
    SIGMASK.store(sigmask, Ordering::Relaxed);
}

fn sigmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) {
    type Function = unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;
    let function: Function = match SIGMASK.load(Ordering::Relaxed) {
        0 => libc::pthread_sigmask, // no signal is hidden yet
        // SAFETY: `note` was given a function of this type.
        noted => unsafe { std::mem::transmute::<usize, Function>(noted) },
    };
    // SAFETY: the callers' sets; the mask is the calling thread's.
    unsafe { function(how, set, before) };
}

/// Changes the signals that the calling thread blocks; returns those before.
fn change(how: c_int, mask: Mask) -> Mask {
    let (set, mut before) = (blockable(mask), MaybeUninit::uninit());
    sigmask(how, &raw const set, before.as_mut_ptr());
    // SAFETY: the call has filled it.
    unsafe { mask_of(before.as_ptr()) }
}

/// Sets the signals that the calling thread blocks; returns those before.
pub(crate) fn set_mask(mask: Mask) -> Mask {
    change(libc::SIG_SETMASK, mask)
}

/// Returns the signals that the calling thread blocks.
pub(crate) fn mask() -> Mask {
    let mut now = MaybeUninit::uninit();
    sigmask(libc::SIG_BLOCK, ptr::null(), now.as_mut_ptr());
    // SAFETY: the call has filled it.
    unsafe { mask_of(now.as_ptr()) }
}

fn others_than_faults() -> Mask {
    OF_FAULTS.iter().fold(!0, |mask, signal| mask & !bit(*signal))
}

/// Returns the set of all signals but those of faults.
pub(crate) fn all_but_faults() -> sigset_t {
    set_of(others_than_faults())
}

/// Blocks all signals but those of faults, too, in the calling thread, and in threads that it starts; returns those
/// blocked before.
pub(crate) fn block() -> Mask {
    change(libc::SIG_BLOCK, others_than_faults())
}

/// Same as [`block`], but signals of faults are not blocked, even if they were before.
pub(crate) fn block_all_but_faults() -> Mask {
    set_mask(others_than_faults())
}

/// On the worker of a machine other than 0: lets it be ended by a signal, as it may have no thread of the program.
pub(crate) fn can_be_ended() {
    set_mask(ENDING.iter().fold(mask(), |mask, signal| mask & !bit(*signal)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals that the calling thread blocks, as the system says.
    fn blocked() -> Mask {
        let mut blocked: Mask = 0;
        let (how, none) = (libc::SIG_BLOCK, ptr::null::<Mask>());
        // SAFETY: it fills the word.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, none, &raw mut blocked, size_of::<Mask>()) };
        blocked
    }

    /// Our own code blocks a hidden signal; the program cannot.
    #[test]
    fn a_hidden_signal_is_blocked_by_our_code_alone() {
        note(crate::objects::c_function(c"pthread_sigmask").unwrap());
        let hidden = libc::SIGRTMAX() - 3; // of no other test
        hide(hidden);
        let before = block();
        assert!(has(blocked(), hidden) && has(blocked(), libc::SIGUSR1) && has(mask(), hidden));
        assert!(!has(blocked(), libc::SIGSYS));
        set_mask(before);
        assert_eq!(blocked(), before);
        let all = set_of(!0);
        // SAFETY: a set; the name leads to this library's function, as in programs.
        assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut()) }, 0);
        assert!(!has(blocked(), hidden) && has(blocked(), libc::SIGUSR1));
        set_mask(before);
    }
}
