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
use crate::{affinity, block, callers, host, ids, magazine, mask, openmp, record, side, table, waits};

thread_local! {
    /// Calls of `gsm_thread_hold` that have not been taken back, here and in the thread's record.
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

const OF_MAIN: Tie = Tie {
    what: "it is the main thread, in whose storage constructors may have left addresses",
    cure: "move threads of pthread_create",
};
const TEAM: Tie = Tie {
    what: "the program has OpenMP, whose teams have addresses of one machine's threads",
    cure: "say where threads start (--threads-at)",
};
const HELD_BY_ITSELF: Tie = Tie { what: "gsm_thread_hold holds it", cure: "call gsm_thread_free before" };
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
const CALLED_BACK: Tie = Tie {
    what: "a function of the C library has called it back, and may hold a lock of this machine",
    cure: "move when that function has returned",
};

const MAPPED: Tie = Tie {
    what: "the program has set a locale, to whose tables it may have pointers amid its own code",
    cure: "ask while it makes calls that may wait",
};

fn set_holds(holds: u32) {
    HOLDS.set(holds);
    if let Some(record) = record::own() {
        record.note_holds(holds);
    }
}

pub(crate) extern "C" fn hold() -> c_int {
    set_holds(HOLDS.get().saturating_add(1));
    0
}

pub(crate) extern "C" fn free() -> c_int {
    match HOLDS.get().checked_sub(1) {
        Some(holds) => {
            set_holds(holds);
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

pub(crate) extern "C" fn go(to: c_int) -> c_int {
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
    let error = match found() {
        Some(tie) => {
            tell(TIES[tie]);
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

/// All ties, in the order in which they are looked for; a tie is known by its place here.
const TIES: [&Tie; 15] = [
    &TEAM,
    &OF_MAIN,
    &HELD_BY_ITSELF,
    &ENDING,
    &IN_HANDLER,
    &STACK,
    &LOADED,
    &LOCALE,
    &LOCALES,
    &CONVERSION,
    &BOUND,
    &POLICY,
    &SEGMENT,
    &CALLED_BACK,
    &MAPPED,
];
pub(crate) const MAIN: u8 = 1;
pub(crate) const HELD: u8 = 2;
/// Those that never pass: of a team, of the first thread, its end, and a loaded library.
const LASTING: [usize; 4] = [0, MAIN as usize, 3, 6];
const BACK: usize = 13;
/// The last one, which holds amid the program's own code only.
pub(crate) const TABLES: usize = 14;

/// Returns a tie and its cure, in words.
pub(crate) fn in_words(tie: u8) -> String {
    TIES.get(usize::from(tie)).map_or_else(String::new, |Tie { what, cure }| format!("{what}; {cure}"))
}

/// Whether a tie stays for as long as its thread is on this machine.
pub(crate) fn lasts(tie: usize) -> bool {
    LASTING.contains(&tie)
}

/// Returns the calling thread's first tie, if it has one.
pub(crate) fn found() -> Option<usize> {
    let place = 0_u8;
    let now = (&raw const place).addr();
    let is_tied: [bool; BACK] = [
        !host::is_in_block() && side::outside(openmp::has_teams),
        !host::is_in_block(),
        HOLDS.get() > 0,
        ENDS.get(),
        is_in_handler(now) || is_on_signal_stack(),
        !table::is_shared(now),
        table::table().has_loaded.load(Ordering::SeqCst) != 0 || host::is_in_block() && block::has_added(),
        has_own_locale(),
        host::is_in_block() && handles::has(Kind::Locale),
        host::is_in_block() && handles::has(Kind::Conversion),
        affinity::is_bound(),
        has_own_policy(),
        uses_gs(),
    ];
    let first = is_tied.into_iter().position(|is_tied| is_tied);
    first.or_else(|| callers::is_called_back().then_some(BACK)) // which takes the longest to find
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
pub(crate) fn depart(to: u16) -> c_int {
    // Blocks at hand are this machine's.
    magazine::end();
    words().has_magazines.set(false);
    let signal_stack = signal_stack();
    if let Some(stack) = signal_stack {
        set_signal_stack(&libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack });
    }
    let arrived = || _ = signal_stack.as_ref().map(set_signal_stack);
    // Addresses in this machine's memory do not travel with the block; its next host puts its own there.
    let here = (record::noted(), waits::noted());
    record::take_over(0);
    waits::take_over(0);
    host::depart(to, arrived).unwrap_or_else(|| {
        record::take_over(here.0);
        waits::take_over(here.1);
        _ = signal_stack.as_ref().map(set_signal_stack);
        libc::EBUSY
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_pass_but_for_four() {
        let lasting: Vec<&str> = (0..TIES.len()).filter(|tie| lasts(*tie)).map(|tie| TIES[tie].what).collect();
        assert_eq!(lasting, [TEAM.what, OF_MAIN.what, ENDING.what, LOADED.what]);
    }
}
