//! Timers on the time for which a thread computes. Each sends a signal to the thread again and again (`anywhere.rs`),
//! until it is dropped. It does not run while the thread waits, so that no call is interrupted: the system looks at it
//! where a tick has found the thread in its own code.

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use crate::table::MACHINES_MAX;
use crate::{mask, side};

/// Time that a thread computes between two signals.
const EVERY_NS: i64 = 2_000_000;

/// The signal; 0 where threads do not move.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Sets the signal; before the program's first thread starts.
pub(crate) fn note(signal: c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// Returns the signal, or 0.
pub(crate) fn signal() -> c_int {
    SIGNAL.load(Ordering::Relaxed)
}

/// Whether it is the signal of timers, which the program does not have.
pub(crate) fn takes(signal: c_int) -> bool {
    signal != 0 && signal == self::signal()
}

/// Whether the calling thread blocks it, or there is none.
pub(crate) fn is_blocked() -> bool {
    let signal = signal();
    signal == 0 || mask::has(mask::mask(), signal)
}

/// A timer that sends the signal to a thread of this machine, until it is dropped.
pub(crate) struct Timer(c_int);

/// The system's `sigevent` of a signal for one thread.
#[repr(C)]
struct Event {
    value: usize,
    signal: c_int,
    notify: c_int,
    thread: i32,
    _unused: [i32; 11],
}

const _: () = assert!(size_of::<Event>() == 64);

impl Timer {
    /// Starts one for the thread with this id of the system. None: there is no signal, or the system refuses.
    pub(crate) fn start(thread: i32) -> Option<Timer> {
        /// Bits of a clock: of one thread, and of the time in its own code.
        const OF_THREAD: c_int = 4;
        const OWN_CODE: c_int = 1;
        let signal = signal();
        if signal == 0 {
            return None;
        }
        let clock = !thread << 3 | OF_THREAD | OWN_CODE;
        let mut event = Event { value: 0, signal, notify: libc::SIGEV_THREAD_ID, thread, _unused: [0; 11] };
        let mut timer: c_int = 0;
        let interval = libc::timespec { tv_sec: 0, tv_nsec: EVERY_NS };
        // Also the first one: a signal at once could interrupt a call.
        let times = libc::itimerspec { it_interval: interval, it_value: interval };
        // SAFETY: the system reads the event and the times, and writes the number.
        unsafe {
            if libc::syscall(libc::SYS_timer_create, clock, &raw mut event, &raw mut timer) != 0 {
                return None;
            }
            let timer = Timer(timer);
            let started = libc::syscall(libc::SYS_timer_settime, timer.0, 0, &raw const times, 0_usize);
            (started == 0).then_some(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: a timer of this type, which is deleted once.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}

/// Hash of the sets of registers that the system saves here and of their places, which differ among processors, and
/// whether the program may use tiles, which other machines' threads do not get.
#[cfg(target_arch = "x86_64")]
fn registers() -> (u64, bool) {
    /// Asks for the sets of registers that the process was given by `ARCH_REQ_XCOMP_PERM`.
    const PERMITTED: i64 = 0x1022;
    const TILES: u64 = 3 << 17;
    /// Bit of the processor's features: `xgetbv` may be used.
    const OSXSAVE: u32 = 1 << 27;
    /// Asks the processor for the length and place of a set.
    const LAYOUT: u32 = 0xd;
    if std::arch::x86_64::__cpuid(1).ecx & OSXSAVE == 0 {
        return (0, false);
    }
    let (low, high): (u32, u32);
    // SAFETY: it reads a register, which the system allows.
    unsafe { std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack)) };
    let mut permitted = 0_u64;
    // SAFETY: it writes to the variable.
    let done = unsafe { libc::syscall(libc::SYS_arch_prctl, PERMITTED, &raw mut permitted) };
    let (sets, mut hasher) = (u64::from(high) << 32 | u64::from(low), DefaultHasher::new());
    sets.hash(&mut hasher);
    for set in (2..u64::BITS).filter(|set| sets & 1 << set != 0) {
        let layout = std::arch::x86_64::__cpuid_count(LAYOUT, set);
        (set, layout.eax, layout.ebx).hash(&mut hasher);
    }
    (hasher.finish(), done == 0 && permitted & TILES != 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn registers() -> (u64, bool) {
    (0, false)
}

/// In a fiber: whether a thread of this machine may go to that one with all registers.
pub(crate) fn fits(to: u16) -> bool {
    const SAME: u8 = 1;
    const OTHER: u8 = 2;
    /// For each machine, once it has been asked.
    static KNOWN: [AtomicU8; MACHINES_MAX] = [const { AtomicU8::new(0) }; MACHINES_MAX];
    let Some(known) = KNOWN.get(usize::from(to)) else { return false };
    let facts = || (signal(), registers());
    let own = facts();
    if own.1.1 {
        return false;
    }
    match known.load(Ordering::Relaxed) {
        0 => {
            let is_same = side::from_worker(to, facts) == (own.0, (own.1.0, false));
            known.store(if is_same { SAME } else { OTHER }, Ordering::Relaxed);
            is_same
        }
        known => known == SAME,
    }
}
