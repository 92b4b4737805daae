//! Signals that a thread blocks. SIGSYS is never one of them: it stands for a system call that has to be answered
//! (`trap.rs`).

use std::ffi::c_int;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Returns a set of these signals that a thread may block.
pub(crate) fn blockable(mask: Mask) -> sigset_t {
    set_of(mask & !bit(libc::SIGSYS))
}

/// The C library's `pthread_sigmask`.
static SIGMASK: AtomicUsize = AtomicUsize::new(0);

/// Notes the C library's `pthread_sigmask`, before a thread starts. The plain name leads to this library's function,
/// which is for the program.
pub(crate) fn note(sigmask: usize) {
    SIGMASK.store(sigmask, Ordering::Relaxed);
}

fn sigmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) {
    type Function = unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;
    let function: Function = match SIGMASK.load(Ordering::Relaxed) {
        0 => libc::pthread_sigmask,
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

fn all_but_faults() -> Mask {
    OF_FAULTS.iter().fold(!0, |mask, signal| mask & !bit(*signal))
}

/// Blocks all signals but those of faults, too, in the calling thread, and in threads that it starts; returns those
/// blocked before.
pub(crate) fn block() -> Mask {
    change(libc::SIG_BLOCK, all_but_faults())
}

/// Same as [`block`], but signals of faults are not blocked, even if they were before.
pub(crate) fn block_all_but_faults() -> Mask {
    set_mask(all_but_faults())
}

/// On the worker of a machine other than 0: lets it be ended by a signal, as it may have no thread of the program.
pub(crate) fn can_be_ended() {
    set_mask(ENDING.iter().fold(mask(), |mask, signal| mask & !bit(*signal)));
}
