//! Moves that threads of the program ask for (`gossamer_region.h`), and ties: reasons for which a thread stays where it
//! is. State of our code or the C library that a thread has on one machine, and that does not go along, is a tie.
//!
//! Here: the thread's own side, in the program's code. Not here: its hosts (`moves.rs`).

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use crate::handles::{self, Kind};
use crate::told::tell_once;
use crate::words::words;
use crate::{affinity, block, host, ids, magazine, mask, openmp, side, table};

thread_local! {
    /// Calls of `gsm_thread_hold` that have not been taken back.
    static HOLDS: Cell<u32> = const { Cell::new(0) };
    /// Whether the thread's function has ended.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    /// Address on the stack of the last handler of a signal that has begun; 0 for none, or one that has returned.
    static HANDLER: Cell<usize> = const { Cell::new(0) };
}

/// Why a thread stays, and what to do about it.
struct Tie {
    what: &'static str,
    cure: &'static str,
}

const MAIN: Tie = Tie {
    what: "it is the main thread, in whose storage constructors may have left addresses",
    cure: "move threads of pthread_create",
};
const TEAM: Tie = Tie {
    what: "the program has OpenMP, whose teams have addresses of one machine's threads",
    cure: "say where threads start (--threads-at)",
};
const HELD: Tie = Tie { what: "gsm_thread_hold holds it", cure: "call gsm_thread_free before" };
const ENDING: Tie = Tie { what: "its function has ended, and destructors run", cure: "move before" };
const IN_HANDLER: Tie = Tie {
    what: "a handler of a signal runs, or was left by siglongjmp",
    cure: "have the handler set a variable, and move when that is set",
};
const STACK: Tie = Tie { what: "it runs on a stack that other machines do not have", cure: "take a stack of malloc" };
const LOADED: Tie = Tie {
    what: "the program has loaded a library while it runs (dlopen), which machine 0 alone knows whole",
    cure: "link the program with the library, or load it first (LD_PRELOAD)",
};
const LOCALE: Tie = Tie {
    what: "it has a locale of its own (uselocale), whose tables are this machine's",
    cure: "call uselocale(LC_GLOBAL_LOCALE) before, or setlocale",
};
const LOCALES: Tie = Tie {
    what: "it has made a locale (newlocale, duplocale), whose tables are this machine's",
    cure: "call freelocale before, or setlocale",
};
const CONVERSION: Tie = Tie {
    what: "it has made a conversion (iconv_open), whose code is this machine's",
    cure: "call iconv_close before",
};
const BOUND: Tie = Tie {
    what: "it is bound to processors of this machine",
    cure: "let it use all of them (pthread_setaffinity_np) before",
};
const POLICY: Tie = Tie { what: "it has another scheduling policy than SCHED_OTHER", cure: "set that before" };
const SEGMENT: Tie = Tie { what: "it uses the segment register gs", cure: "set its base to 0 before" };

/// Functions for threads that the header calls.
#[repr(C)]
pub struct Calls {
    machine: extern "C" fn() -> c_int,
    go: extern "C" fn(c_int) -> c_int,
    hold: extern "C" fn() -> c_int,
    free: extern "C" fn() -> c_int,
}

static CALLS: Calls = Calls { machine, go, hold, free };

/// Entry point of the header for threads; the number in the name is its version. Null: the program was not started by
/// `gossamer-launch run --region`.
#[unsafe(no_mangle)]
pub extern "C" fn gossamer_region_threads_1() -> *const Calls {
    if side::is_in_program() { &raw const CALLS } else { std::ptr::null() }
}

extern "C" fn machine() -> c_int {
    side::own_machine().into()
}

extern "C" fn hold() -> c_int {
    HOLDS.set(HOLDS.get().saturating_add(1));
    0
}

extern "C" fn free() -> c_int {
    match HOLDS.get().checked_sub(1) {
        Some(holds) => {
            HOLDS.set(holds);
            0
        }
        None => libc::EINVAL,
    }
}

/// In a block, at the end of its thread: destructors have what does not go along.
pub(crate) fn note_end() {
    ENDS.set(true);
}

/// Calls a handler of a signal, which is tied meanwhile.
pub(crate) fn in_handler(handler: impl FnOnce()) {
    let place = 0_u8;
    let before = HANDLER.replace((&raw const place).addr());
    handler();
    HANDLER.set(before);
}

/// Whether a handler runs, as far as the stack says: one that was left by `siglongjmp` lies below what runs now, unless
/// that has come down to there again.
fn is_in_handler(now: usize) -> bool {
    now < HANDLER.get()
}

extern "C" fn go(to: c_int) -> c_int {
    let Some(to) = u16::try_from(to).ok().filter(|to| *to < side::machines()) else { return libc::EINVAL };
    if to == side::own_machine() {
        return 0;
    }
    if !block::are_on() {
        tell_once("gsm_thread_move", "", || {
            format!(
                "gsm_thread_move does not work in a program whose threads stay; start it with --move asked \
                 (docs/region.md); called by {}",
                ids::caller()
            )
        });
        return libc::ENOTSUP;
    }
    // From before the look for ties until the thread is there: a handler could tie it, and take blocks of this machine.
    let before = mask::block();
    let error = match tie() {
        Some(tie) => {
            tell(&tie);
            libc::EBUSY
        }
        None => depart(to),
    };
    mask::set_mask(before);
    error
}

fn tell(tie: &Tie) {
    let Tie { what, cure } = *tie;
    tell_once("gsm_thread_move", what, move || {
        let (thread, machine) = (ids::own(), side::own_machine());
        format!("gsm_thread_move: thread {thread:#x} stays on machine {machine}: {what}; {cure} (docs/region.md)")
    });
}

/// Returns the calling thread's first tie, if it has one.
fn tie() -> Option<Tie> {
    let place = 0_u8;
    let now = (&raw const place).addr();
    let ties = [
        (!host::is_in_block() && side::outside(openmp::has_teams), TEAM),
        (!host::is_in_block(), MAIN),
        (HOLDS.get() > 0, HELD),
        (ENDS.get(), ENDING),
        (is_in_handler(now) || is_on_signal_stack(), IN_HANDLER),
        (!table::is_shared(now), STACK),
        (table::table().has_loaded.load(Ordering::SeqCst) != 0, LOADED),
        (host::is_in_block() && block::has_added(), LOADED),
        (has_own_locale(), LOCALE),
        (host::is_in_block() && handles::has(Kind::Locale), LOCALES),
        (host::is_in_block() && handles::has(Kind::Conversion), CONVERSION),
        (affinity::is_bound(), BOUND),
        (has_own_policy(), POLICY),
        (uses_gs(), SEGMENT),
    ];
    ties.into_iter().find(|(is_tied, _)| *is_tied).map(|(_, tie)| tie)
}

fn has_own_policy() -> bool {
    // SAFETY: it asks about the calling thread.
    unsafe { libc::sched_getscheduler(0) != libc::SCHED_OTHER }
}

fn has_own_locale() -> bool {
    // SAFETY: it asks.
    let now = unsafe { libc::uselocale(std::ptr::null_mut()) };
    now != host::OF_ALL_THREADS
}

#[cfg(target_arch = "x86_64")]
fn uses_gs() -> bool {
    let base: u64;
    // SAFETY: it reads a register; `block.rs` has found that programs may.
    unsafe { std::arch::asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn uses_gs() -> bool {
    false
}

/// The calling thread's stack for signals (`sigaltstack`).
fn any_signal_stack() -> libc::stack_t {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: it fills what it is given.
    unsafe {
        libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr());
        stack.assume_init()
    }
}

fn is_on_signal_stack() -> bool {
    any_signal_stack().ss_flags & libc::SS_ONSTACK != 0
}

/// The stack for signals that the program has given the calling thread: one of its host's own is memory of one machine.
fn signal_stack() -> Option<libc::stack_t> {
    let stack = any_signal_stack();
    (stack.ss_flags & libc::SS_DISABLE == 0 && table::is_shared(stack.ss_sp.addr())).then_some(stack)
}

fn set_signal_stack(stack: &libc::stack_t) {
    // SAFETY: memory that the program has given for it, or none.
    unsafe { libc::sigaltstack(stack, std::ptr::null_mut()) };
}

/// With signals blocked: goes to another machine. Returns 0, or the error for which the thread is still here.
fn depart(to: u16) -> c_int {
    // Blocks at hand are this machine's.
    magazine::end();
    words().has_magazines.set(false);
    let signal_stack = signal_stack();
    if let Some(stack) = signal_stack {
        set_signal_stack(&libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack });
    }
    let arrived = || _ = signal_stack.as_ref().map(set_signal_stack);
    host::depart(to, arrived).unwrap_or(libc::EBUSY)
}
