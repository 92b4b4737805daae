//! The program's threads: each starts on the next machine in turn, or where `--threads-at` says. The stack of its
//! functions is in the region, so that others may be given pointers to it; its own storage (`__thread`, `errno`) is its
//! machine's.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{clockid_t, pthread_attr_t, pthread_t, timespec};

use crate::arithmetic::Arithmetic;
use crate::block::{self, Block};
use crate::mask::{self, Mask};
use crate::moves::{self, Begin};
use crate::real::real;
use crate::record::{self, Past, Record};
use crate::stack::{GUARD_BYTES, Stack};
use crate::table::{self, table};
use crate::waits::{self, Kind};
use crate::{
    affinity, arena, clocks, copy, ends, ids, joins, magazine, objects, openmp, refused, safe_points, side, starter,
    trap,
};

/// Stack of the program's functions, by default.
const STACK_BYTES: usize = 8 << 20;
/// Interval at which a main function that has ended by `pthread_exit` checks whether all threads have.
const LOOK: Duration = Duration::from_millis(5);

/// Number of threads, created one after the other, that start on each machine. Empty: one each.
static SHARES: OnceLock<Vec<usize>> = OnceLock::new();
const THREADS_AT: &str = "GOSSAMER_REGION_THREADS_AT";

/// Reads where threads are to start; called before any thread starts.
///
/// # Errors
/// A message, if the variable does not hold numbers.
pub(crate) fn note_shares() -> Result<(), String> {
    let Some(text) = std::env::var_os(THREADS_AT) else { return Ok(()) };
    let shares: Option<Vec<usize>> =
        text.to_str().and_then(|text| text.split(',').map(|share| share.trim().parse().ok()).collect());
    let shares = shares
        .ok_or_else(|| format!("{THREADS_AT}={}: how many threads start on each machine, as 9,10", text.display()))?;
    SHARES.get_or_init(|| shares);
    Ok(())
}

/// Returns the machine, of this many, for the thread with this number; number 0 is the main function's, on machine 0.
fn machine_of(count: usize, machines: usize, shares: &[usize]) -> u16 {
    let round = shares.iter().fold(0usize, |sum, share| sum.saturating_add(*share));
    let Some(mut left) = count.checked_sub(1).and_then(|created| created.checked_rem(round)) else {
        return (count % machines) as u16;
    };
    let is_of = |share: &usize| match left.checked_sub(*share) {
        Some(after) => {
            left = after;
            false
        }
        None => true,
    };
    (shares.iter().position(is_of).unwrap_or(0) % machines) as u16
}

/// Parameters of a new thread.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    function: usize,
    argument: usize,
    stack_bytes: usize,
    guard_bytes: usize,
    /// Stack that the program gives it, or 0.
    given_stack: usize,
    id: u64,
    is_detached: bool,
    inherited: Inherited,
}

/// Attributes that a thread has from the one that creates it.
#[derive(Clone, Copy)]
struct Inherited {
    /// Signals that it blocks.
    mask: Mask,
    /// Rounding and traps of its arithmetic.
    arithmetic: Arithmetic,
}

impl Inherited {
    fn of_this_thread() -> Inherited {
        Inherited { mask: mask::mask(), arithmetic: Arithmetic::of_this_thread() }
    }

    /// Gives them, but the signals that it blocks, to the calling thread.
    fn take_over(&self) {
        self.arithmetic.take_over();
    }
}

/// Claims an id and a machine for a thread: this one, or the next in turn. `None`: there is no room.
pub(crate) fn prepare(
    function: usize,
    argument: usize,
    stack_bytes: usize,
    is_detached: bool,
    machine: Option<u16>,
) -> Option<(Start, u16)> {
    let count = table().created.all.fetch_add(1, Ordering::SeqCst);
    let next = || machine_of(count, side::machines().into(), SHARES.get().map_or(&[], Vec::as_slice));
    let machine = machine.unwrap_or_else(next);
    let id = ids::claim(machine)?;
    let (inherited, guard_bytes, given_stack) = (Inherited::of_this_thread(), GUARD_BYTES, 0);
    let start = Start { function, argument, stack_bytes, guard_bytes, given_stack, id, is_detached, inherited };
    Some((start, machine))
}

impl Start {
    /// Returns the parameters of a thread that begins with these signals blocked.
    pub(crate) fn with_mask(self, mask: Mask) -> Start {
        Start { inherited: Inherited { mask, ..self.inherited }, ..self }
    }
}

/// In a fiber of the worker: starts the thread on this machine, with a stack of this machine's part of the heap.
/// `false`: there is no room, or the system refuses.
fn start_here(start: Start) -> bool {
    let stack = match start.given_stack {
        0 => Stack::new(start.stack_bytes, start.guard_bytes),
        given => Some(Stack::given(given, start.stack_bytes)),
    };
    let Some(stack) = stack else { return false };
    joins::begin(start.id, start.is_detached);
    let real = match block::are_on() && side::machines() > 1 && !openmp::has_teams() {
        true => start_in_block(start, stack),
        false => {
            let run = move || {
                run(start, stack, None);
                false
            };
            starter::start(Box::new(run))
        }
    };
    match real {
        Some(real) => joins::note_real(start.id, real),
        None => joins::forget(start.id),
    }
    real.is_some()
}

/// Starts a thread that may move. None: as above.
fn start_in_block(start: Start, stack: Stack) -> Option<pthread_t> {
    let block = Block::allocate()?;
    let inherited = start.inherited;
    let begin = Begin { mask: inherited.mask, function: start.function, argument: start.argument };
    let run = move || {
        inherited.take_over();
        moves::begin(start.id, stack, block, begin)
    };
    let real = starter::start(Box::new(run));
    if real.is_none() {
        block.give_back();
    }
    real
}

/// Returns the program's first thread, to be run by the process's: constructors have left values in its storage. None:
/// there is no room.
///
/// `end` ends the program; it is called where the thread of the main function and all others have ended.
pub(crate) fn first(start: Start, end: fn() -> !) -> Option<impl FnOnce() + Send> {
    let stack = Stack::new(start.stack_bytes, start.guard_bytes)?;
    joins::begin(start.id, start.is_detached);
    joins::note_real(start.id, ids::real_of_first());
    Some(move || {
        affinity::use_all_processors();
        trap::filter_this_thread();
        run(start, stack, Some(end));
    })
}

/// On a thread that the filter is installed in, and that may use all processors, with signals blocked.
fn run(start: Start, stack: Stack, end: Option<fn() -> !>) {
    ids::act_as(start.id);
    waits::begin(start.id);
    record::begin(start.id, Record::new(Past::new(start.function), false, start.stack_bytes));
    start.inherited.take_over();
    let Range { start: bottom, end: top } = stack.range();
    // SAFETY: memory that is the thread's until it is freed below, when nothing runs on it any more.
    let result = openmp::in_team(start.function, start.argument, |function, argument| unsafe {
        let begin = Begin { mask: start.inherited.mask, function, argument };
        side::run_on(bottom, top, Begin::run as *const () as usize, (&raw const begin).expose_provenance())
    });
    // SAFETY: as above.
    unsafe { side::run_on(bottom, top, ends::end_thread as *const () as usize, 0) };
    let own_mask = mask::block();
    magazine::end();
    stack.keep();
    if let Some(end) = end {
        let program = side::the_programs(); // main's thread still takes the program's signals
        mask::set_mask(own_mask);
        wait_for_all(start.id);
        drop(program);
        end();
    }
    waits::end(start.id);
    record::end(start.id); // no question is put to one that stays
    joins::end(start.id, result);
    ids::act_as(0);
}

/// The C library's function; the thread starts on the next machine in turn.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    id: *mut pthread_t,
    attr: *const pthread_attr_t,
    function: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    if arena::is_open() {
        refused::end("a thread that a constructor starts before main", "a thread that main starts");
    }
    if !side::is_in_program() {
        return real!(
            pthread_create: fn(*mut pthread_t, *const pthread_attr_t, *mut c_void, *mut c_void) -> c_int,
            id, attr, function, argument
        );
    }
    safe_points::at_call();
    let (mut state, mut stack_bytes, mut guard_bytes) = (libc::PTHREAD_CREATE_JOINABLE, STACK_BYTES, GUARD_BYTES);
    let (mut given_stack, mut given_bytes) = (std::ptr::null_mut(), 0);
    if !attr.is_null() {
        unsafe extern "C" {
            fn pthread_attr_getdetachstate(attr: *const pthread_attr_t, state: *mut c_int) -> c_int;
        }
        // SAFETY: the caller's attributes.
        unsafe {
            pthread_attr_getdetachstate(attr, &raw mut state);
            libc::pthread_attr_getstacksize(attr, &raw mut stack_bytes);
            libc::pthread_attr_getguardsize(attr, &raw mut guard_bytes);
            libc::pthread_attr_getstack(attr, &raw mut given_stack, &raw mut given_bytes);
        }
    }
    let detached = state == libc::PTHREAD_CREATE_DETACHED;
    let (function, argument) = (function.expose_provenance(), argument.expose_provenance());
    let stays = side::outside(|| objects::keeps_threads(function)).then(side::own_machine);
    let Some((start, machine)) = prepare(function, argument, stack_bytes, detached, stays) else {
        return libc::EAGAIN;
    };
    // Without a stack the C library returns an address where there is none.
    let given_stack = Some(given_stack.expose_provenance()).filter(|stack| {
        let last = stack.wrapping_add(given_bytes).wrapping_sub(1);
        table::is_shared(*stack) && table::is_shared(last)
    });
    let start = Start { guard_bytes, given_stack: given_stack.unwrap_or(0), ..start };
    // SAFETY: the caller's.
    unsafe { id.write(start.id) };
    copy::bring_to(machine);
    if side::at(machine, move || start_here(start)) {
        return 0;
    }
    ids::release(start.id);
    libc::EAGAIN
}

/// See [`pthread_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(id: pthread_t, result: *mut *mut c_void) -> c_int {
    match ids::is_ours(id) {
        // SAFETY: as the caller says.
        true => unsafe { join(id, result, None) },
        false => real!(pthread_join: fn(pthread_t, *mut *mut c_void) -> c_int, id, result),
    }
}

/// See [`pthread_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_tryjoin_np(id: pthread_t, result: *mut *mut c_void) -> c_int {
    if !ids::is_ours(id) {
        return real!(pthread_tryjoin_np: fn(pthread_t, *mut *mut c_void) -> c_int, id, result);
    }
    // SAFETY: as the caller says.
    match unsafe { join(id, result, Some(Duration::ZERO)) } {
        libc::ETIMEDOUT => libc::EBUSY,
        other => other,
    }
}

/// See [`pthread_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_timedjoin_np(id: pthread_t, result: *mut *mut c_void, time: *const timespec) -> c_int {
    // SAFETY: as the caller says.
    unsafe { pthread_clockjoin_np(id, result, libc::CLOCK_REALTIME, time) }
}

/// See [`pthread_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_clockjoin_np(
    id: pthread_t,
    result: *mut *mut c_void,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    if !ids::is_ours(id) {
        return real!(
            pthread_clockjoin_np: fn(pthread_t, *mut *mut c_void, clockid_t, *const timespec) -> c_int,
            id, result, clock, time
        );
    }
    // SAFETY: null, or the caller's.
    let time = unsafe { time.as_ref() };
    if time.is_some_and(|time| !side::is_time(time)) {
        return libc::EINVAL;
    }
    // SAFETY: as the caller says.
    unsafe { join(id, result, time.map(|time| clocks::until(clock, time))) }
}

/// Joins one of our threads.
///
/// # Safety
/// `result` is null, or a place for the thread's result.
unsafe fn join(id: pthread_t, result: *mut *mut c_void, time: Option<Duration>) -> c_int {
    if id == ids::own() {
        return libc::EDEADLK;
    }
    safe_points::at_call();
    let wait = || side::at(ids::machine_of(id), move || joins::join(id, time));
    let joined = waits::during(Kind::Join, id as usize, time, wait);
    safe_points::at_call();
    let value = match joined {
        Ok(value) => value,
        Err(errno) => return errno,
    };
    ids::release(id);
    if !result.is_null() {
        // SAFETY: the caller's.
        unsafe { result.write(std::ptr::with_exposed_provenance_mut(value)) };
    }
    0
}

/// See [`pthread_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(id: pthread_t) -> c_int {
    if !ids::is_ours(id) {
        return real!(pthread_detach: fn(pthread_t) -> c_int, id);
    }
    let (errno, has_ended) = side::at(ids::machine_of(id), move || joins::detach(id));
    if has_ended {
        ids::release(id);
    }
    errno
}

/// See [`pthread_create`].
#[unsafe(no_mangle)]
pub extern "C" fn pthread_self() -> pthread_t {
    match side::is_in_program() {
        true => ids::own(),
        false => ids::real_self(),
    }
}

/// Waits for all other threads when the main function has ended by `pthread_exit`. In the program's code.
fn wait_for_all(own: u64) {
    waits::during(Kind::Others, 0, None, || {
        while (0..side::machines()).any(|machine| side::at(machine, move || joins::running_without(own)) > 0) {
            std::thread::sleep(LOOK);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::machine_of;

    #[test]
    fn threads_start_in_turn_or_where_they_are_told() {
        let machines = |shares: &[usize]| (0..9).map(|count| machine_of(count, 3, shares)).collect::<Vec<_>>();
        assert_eq!(machines(&[]), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        // The main function's thread is on machine 0 and is not counted.
        assert_eq!(machines(&[2, 1, 3]), [0, 0, 0, 1, 2, 2, 2, 0, 0]);
        assert_eq!(machines(&[0, 0, 1]), [0, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(machines(&[0, 0]), machines(&[]));
    }
}
