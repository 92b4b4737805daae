//! The program's threads: each starts on the next machine in turn, or where `--threads-at` says. The stack of its
//! functions is in the region, so that others may be given pointers to it; its own storage (`__thread`, `errno`) is its
//! machine's.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{clockid_t, pthread_attr_t, pthread_t, timespec};

use crate::mask::{self, Mask};
use crate::real::real;
use crate::stack::{GUARD_BYTES, Stack};
use crate::table::{self, THREADS_MAX, Thread, table};
use crate::{copy, ends, line, side};

/// States of a [`Thread`].
const FREE: u32 = 0;
const RUNNING: u32 = 1;
const ENDED: u32 = 2;
/// Running; no thread joins it.
const DETACHED: u32 = 3;

/// An id is this mark, with the thread's turn and its place.
const MARK: u64 = 0x6753 << 48;
/// Stack of the thread itself, without the program's functions.
const OWN_STACK_BYTES: usize = 512 << 10;
const STACK_BYTES: usize = 8 << 20;
/// Interval at which a main function that has ended by `pthread_exit` checks whether all threads have.
const LOOK: Duration = Duration::from_millis(5);

thread_local! {
    static ID: Cell<u64> = const { Cell::new(0) };
}

/// Processors that the process may use, from before any worker was pinned to one.
static PROCESSORS: OnceLock<libc::cpu_set_t> = OnceLock::new();

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

/// Records and counts the processors; called before any thread starts.
pub(crate) fn note_processors() -> u32 {
    // SAFETY: zeros are a set, which the call fills.
    let set = PROCESSORS.get_or_init(|| unsafe {
        let mut set = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        set
    });
    // SAFETY: it reads the set.
    unsafe { libc::CPU_COUNT(set) }.unsigned_abs().max(1)
}

/// Returns the calling thread's id, as the program knows it; 0 if it is not the program's.
pub(crate) fn own_id() -> u64 {
    ID.get()
}

/// Gives the calling thread, which is not in the table, an id to run the end of the program.
pub(crate) fn be_the_last() {
    ID.set(MARK | 0xffff);
}

/// Whether the calling thread runs the end of the program.
pub(crate) fn is_the_last() -> bool {
    ID.get() == MARK | 0xffff
}

fn id_of(place: usize, turn: u32) -> u64 {
    MARK | u64::from(turn) << 16 | place as u64
}

/// Returns the thread with this id, if there is one.
fn find(id: u64) -> Option<&'static Thread> {
    let thread = table().threads.get((id & 0xffff) as usize)?;
    let is_it = id_of((id & 0xffff) as usize, thread.turn.load(Ordering::SeqCst)) == id;
    (is_it && thread.state.load(Ordering::SeqCst) != FREE).then_some(thread)
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

/// The C library's `fenv_t`, which is no longer than this on any processor.
type Arithmetic = [u64; 4];

#[link(name = "m")]
unsafe extern "C" {
    fn fegetenv(arithmetic: *mut Arithmetic) -> c_int;
    fn fesetenv(arithmetic: *const Arithmetic) -> c_int;
}

impl Inherited {
    fn of_this_thread() -> Inherited {
        let mut arithmetic = [0; 4];
        // SAFETY: it fills what it has of it.
        unsafe { fegetenv(&raw mut arithmetic) };
        Inherited { mask: mask::mask(), arithmetic }
    }

    /// Gives them to the calling thread, whose function then begins with them.
    fn take_over(&self) {
        // SAFETY: another thread's, of the same processor.
        unsafe { fesetenv(&raw const self.arithmetic) };
        mask::set_mask(self.mask);
    }
}

fn claim(state: u32) -> Option<(u64, u16)> {
    let count = table().next_thread.fetch_add(1, Ordering::SeqCst);
    let machine = machine_of(count, side::machines().into(), SHARES.get().map_or(&[], Vec::as_slice));
    (0..THREADS_MAX).map(|more| (count + more) % THREADS_MAX).find_map(|place| {
        let thread = &table().threads[place];
        thread.state.compare_exchange(FREE, state, Ordering::SeqCst, Ordering::SeqCst).ok()?;
        Some((id_of(place, thread.turn.load(Ordering::SeqCst)), machine))
    })
}

/// Frees the place of a thread for another one.
fn forget(thread: &Thread) {
    // The id holds 32 bits of it.
    thread.turn.fetch_add(1, Ordering::SeqCst);
    thread.state.store(FREE, Ordering::SeqCst);
}

/// Claims a place and a machine for a thread. `None`: there is no room.
pub(crate) fn prepare(function: usize, argument: usize, stack_bytes: usize, detached: bool) -> Option<(Start, u16)> {
    let (id, machine) = claim(if detached { DETACHED } else { RUNNING })?;
    let inherited = Inherited::of_this_thread();
    Some((Start { function, argument, stack_bytes, guard_bytes: GUARD_BYTES, given_stack: 0, id, inherited }, machine))
}

impl Start {
    /// Returns the parameters of a thread that begins with these signals blocked.
    pub(crate) fn with_mask(self, mask: Mask) -> Start {
        Start { inherited: Inherited { mask, ..self.inherited }, ..self }
    }
}

/// On a worker: starts the thread on this machine, with a stack of this machine's part of the heap. `false`: there is
/// no room, or the system refuses.
///
/// `end` ends the program; it is called where the thread of the main function and all others have ended.
pub(crate) fn start_here(start: Start, end: Option<fn() -> !>) -> bool {
    let stack = match start.given_stack {
        0 => Stack::new(start.stack_bytes, start.guard_bytes),
        given => Some(Stack::given(given, start.stack_bytes)),
    };
    let Some(stack) = stack else { return false };
    std::thread::Builder::new().stack_size(OWN_STACK_BYTES).spawn(move || run(start, stack, end)).is_ok()
}

fn run(start: Start, stack: Stack, end: Option<fn() -> !>) {
    if let Some(processors) = PROCESSORS.get() {
        // SAFETY: a set that the system has filled.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), processors) };
    }
    ID.set(start.id);
    start.inherited.take_over();
    let Range { start: bottom, end: top } = stack.range();
    // SAFETY: memory that is the thread's until it is freed below, when nothing runs on it any more.
    let result = unsafe { side::run_on(bottom, top, start.function, start.argument) };
    // SAFETY: as above.
    unsafe { side::run_on(bottom, top, ends::end_thread as *const () as usize, 0) };
    drop(stack);
    if let Some(end) = end {
        wait_for_all(start.id); // main's thread still takes the program's signals
        end();
    }
    mask::block();
    let Some(thread) = find(start.id) else { return };
    thread.result.store(result, Ordering::SeqCst);
    match thread.state.compare_exchange(RUNNING, ENDED, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => line::give(line_of(thread), 1),
        Err(_) => forget(thread),
    }
    ID.set(0);
}

/// Returns the address of the line of the threads that join it.
fn line_of(thread: &Thread) -> usize {
    thread.state.as_ptr().addr()
}

fn real_self() -> pthread_t {
    real!(pthread_self: fn() -> pthread_t)
}

/// Returns the C library's id for an id, for calls that know no others: of our threads only the calling one.
pub(crate) fn real_of(id: pthread_t) -> Option<pthread_t> {
    match id >> 48 == MARK >> 48 {
        true => (id == own_id()).then(real_self),
        false => Some(id),
    }
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
    if !side::is_in_program() {
        return real!(
            pthread_create: fn(*mut pthread_t, *const pthread_attr_t, *mut c_void, *mut c_void) -> c_int,
            id, attr, function, argument
        );
    }
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
    let Some((start, machine)) = prepare(function, argument, stack_bytes, detached) else { return libc::EAGAIN };
    // Without a stack the C library returns an address where there is none.
    let given_stack = Some(given_stack.expose_provenance()).filter(|stack| {
        let last = stack.wrapping_add(given_bytes).wrapping_sub(1);
        table::is_shared(*stack) && table::is_shared(last)
    });
    let start = Start { guard_bytes, given_stack: given_stack.unwrap_or(0), ..start };
    // SAFETY: the caller's.
    unsafe { id.write(start.id) };
    copy::bring_to(machine);
    if side::at(machine, move || start_here(start, None)) {
        return 0;
    }
    find(start.id).map(forget);
    libc::EAGAIN
}

/// See [`pthread_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(id: pthread_t, result: *mut *mut c_void) -> c_int {
    match id >> 48 == MARK >> 48 {
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
    if id >> 48 != MARK >> 48 {
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
    if id >> 48 != MARK >> 48 {
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
    unsafe { join(id, result, time.map(|time| side::until(clock, time))) }
}

/// Joins one of our threads.
///
/// # Safety
/// `result` is null, or a place for the thread's result.
unsafe fn join(id: pthread_t, result: *mut *mut c_void, time: Option<Duration>) -> c_int {
    let Some(thread) = find(id) else { return libc::ESRCH };
    match thread.state.load(Ordering::SeqCst) {
        DETACHED => return libc::EINVAL,
        _ if id == own_id() => return libc::EDEADLK,
        _ => {}
    }
    if !line::take(line_of(thread), time) {
        return libc::ETIMEDOUT;
    }
    if !result.is_null() {
        let value = std::ptr::with_exposed_provenance_mut(thread.result.load(Ordering::SeqCst));
        // SAFETY: the caller's.
        unsafe { result.write(value) };
    }
    forget(thread);
    0
}

/// See [`pthread_create`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(id: pthread_t) -> c_int {
    if id >> 48 != MARK >> 48 {
        return real!(pthread_detach: fn(pthread_t) -> c_int, id);
    }
    let Some(thread) = find(id) else { return libc::ESRCH };
    match thread.state.compare_exchange(RUNNING, DETACHED, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {}
        Err(ENDED) => {
            line::take(line_of(thread), None);
            forget(thread);
        }
        Err(_) => return libc::EINVAL,
    }
    0
}

/// See [`pthread_create`].
#[unsafe(no_mangle)]
pub extern "C" fn pthread_self() -> pthread_t {
    match side::is_in_program() {
        true => own_id(),
        false => real_self(),
    }
}

/// Waits for all other threads when the main function has ended by `pthread_exit`.
fn wait_for_all(own: u64) {
    let runs = |thread: &Thread| matches!(thread.state.load(Ordering::SeqCst), RUNNING | DETACHED);
    let threads = || table().threads.iter().enumerate().filter(|(place, _)| *place as u64 != own & 0xffff);
    while threads().any(|(_, thread)| runs(thread)) {
        std::thread::sleep(LOOK);
    }
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
