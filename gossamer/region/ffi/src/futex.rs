//! `futex(2)` over all machines: waits for a word of the program's memory, by code that knows no functions of POSIX for
//! it (OpenMP, C++'s static variables, atomics and promises, Rust). The filter stops these calls (`trap.rs`).
//!
//! A thread that waits enters the line of the address (`line.rs`), of which all machines are told (`awaited.rs`), and
//! then compares the word. One that wakes has changed the word before, and then looks at what its machine was told:
//! either it sends a wake to the line, or the waiter finds the new word. A wake without waiters sends nothing.
//!
//! Machines of one host have one memory, where the system knows a word by its place in the memory's file: there it
//! answers all calls itself.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gossamer_region::link::common;
use libc::timespec;

use crate::call::{Call, OPERATION, WITH_SECOND};
use crate::line::{self, ALL, Turn};
use crate::refused::refuse_other;
use crate::waits::{self, Kind};
use crate::{awaited, clocks, side, table};

/// Result of a call: a count, or an error number.
type Done = Result<u64, c_int>;

/// Answers a call of `futex(2)` of a thread of the program, as the system does.
pub(crate) fn call(call: &Call) -> isize {
    let [address, operation, _, _, second, _] = call.arguments;
    let has_second = WITH_SECOND.contains(&(operation as c_int & OPERATION));
    let are_shared = (table::is_shared(address), has_second && table::is_shared(second));
    if are_shared == (true, has_second)
        && let Some(common) = in_common_memory(call, has_second)
    {
        return execute_noted(&common, address);
    }
    if are_shared == (true, false) && wakes_nobody(address, operation as c_int) {
        return 0;
    }
    if are_shared == (false, false) || !side::is_machine() {
        return call.execute(); // memory of this machine, or a child's call
    }
    let done = match are_shared {
        (true, is_shared) if is_shared == has_second => answer(call),
        _ => {
            refuse_other("futex between memory of all machines and a library's own", "variables of the program");
            Err(libc::ENOSYS)
        }
    };
    done.map_or_else(|errno| -(errno as isize), |count| count as isize)
}

/// Returns the call for the system where all machines have one memory; none where they do not, or for a call that is
/// refused.
fn in_common_memory(call: &Call, has_second: bool) -> Option<Call> {
    const KNOWN: [c_int; 7] = [
        libc::FUTEX_WAIT,
        libc::FUTEX_WAKE,
        libc::FUTEX_REQUEUE,
        libc::FUTEX_CMP_REQUEUE,
        libc::FUTEX_WAKE_OP,
        libc::FUTEX_WAIT_BITSET,
        libc::FUTEX_WAKE_BITSET,
    ];
    let mut call = *call;
    let operation = call.arguments[1] as c_int;
    if !KNOWN.contains(&(operation & OPERATION)) {
        return None;
    }
    call.arguments[0] = common(call.arguments[0])?;
    // The waiters are in several processes.
    call.arguments[1] = (operation & !libc::FUTEX_PRIVATE_FLAG) as usize;
    if has_second {
        call.arguments[4] = common(call.arguments[4])?;
    }
    Some(call)
}

/// Has the system do the call; one that may wait without a limit of time is noted meanwhile.
fn execute_noted(call: &Call, address: usize) -> isize {
    let [_, operation, _, limit, ..] = call.arguments;
    let is_wait = matches!(operation as c_int & OPERATION, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET);
    match is_wait && limit == 0 {
        true => waits::during(Kind::Futex, address, None, || call.execute()),
        false => call.execute(),
    }
}

/// Whether it is a plain wake of an address where nobody waits: then it need not be known who asks, which takes a
/// system call.
fn wakes_nobody(address: usize, operation: c_int) -> bool {
    operation & !libc::FUTEX_PRIVATE_FLAG == libc::FUTEX_WAKE
        && address.is_multiple_of(size_of::<u32>())
        && !awaited::may_be(address)
}

/// Answers a call about shared memory.
fn answer(call: &Call) -> Done {
    let [address, operation, value, fourth, second, last] = call.arguments;
    // The system takes the lower halves of these.
    let (operation, last) = (operation as c_int, last as u32);
    let (count, most) = (value as c_int, fourth as c_int);
    if !address.is_multiple_of(size_of::<u32>()) {
        return Err(libc::EINVAL);
    }
    if operation & libc::FUTEX_CLOCK_REALTIME != 0 && operation & OPERATION != libc::FUTEX_WAIT_BITSET {
        return Err(libc::ENOSYS);
    }
    match operation & OPERATION {
        libc::FUTEX_WAIT => wait(address, value as u32, ALL, Limit::after(fourth)?),
        libc::FUTEX_WAIT_BITSET => {
            let clock = match operation & libc::FUTEX_CLOCK_REALTIME {
                0 => libc::CLOCK_MONOTONIC,
                _ => libc::CLOCK_REALTIME,
            };
            wait(address, value as u32, last, Limit::at(clock, fourth)?)
        }
        libc::FUTEX_WAKE => wake(address, count, ALL),
        libc::FUTEX_WAKE_BITSET => wake(address, count, last),
        libc::FUTEX_REQUEUE => requeue(address, count, second, most, None),
        libc::FUTEX_CMP_REQUEUE => requeue(address, count, second, most, Some(last)),
        libc::FUTEX_WAKE_OP => wake_and_change(address, count, second, most, last),
        _ => {
            refuse_other("futex with inheritance of priorities", "mutexes without PTHREAD_PRIO_INHERIT");
            Err(libc::ENOSYS)
        }
    }
}

/// The end of the time for a wait.
#[derive(Debug, Clone, Copy)]
enum Limit {
    None,
    After(Instant),
    At(libc::clockid_t, timespec),
}

impl Limit {
    /// Reads a time from now on; none at a null address.
    fn after(time: usize) -> Result<Limit, c_int> {
        let Some(time) = read_time(time)? else { return Ok(Limit::None) };
        let time = Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32);
        Ok(Instant::now().checked_add(time).map_or(Limit::None, Limit::After))
    }

    /// Reads a time of this clock; none at a null address.
    fn at(clock: libc::clockid_t, time: usize) -> Result<Limit, c_int> {
        Ok(read_time(time)?.map_or(Limit::None, |time| Limit::At(clock, time)))
    }

    fn left(&self) -> Option<Duration> {
        match self {
            Limit::None => None,
            Limit::After(end) => Some(end.saturating_duration_since(Instant::now())),
            Limit::At(clock, time) => Some(clocks::until(*clock, time)),
        }
    }
}

fn read_time(at: usize) -> Result<Option<timespec>, c_int> {
    // SAFETY: null, or the caller's.
    let time = unsafe { std::ptr::with_exposed_provenance::<timespec>(at).as_ref() }.copied();
    match time {
        Some(time) if time.tv_sec < 0 || !side::is_time(&time) => Err(libc::EINVAL),
        time => Ok(time),
    }
}

/// Returns a word of the program's memory.
fn word(address: usize) -> &'static AtomicU32 {
    // SAFETY: memory of a region, which stays; a multiple of 4. Threads that use it as a futex change it as an atomic.
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(address)) }
}

/// Waits for a wake with one of these bits, if the word has this value.
fn wait(address: usize, value: u32, bits: u32, limit: Limit) -> Done {
    if bits == 0 {
        return Err(libc::EINVAL);
    }
    let has_value = || word(address).load(Ordering::SeqCst) == value;
    if !has_value() {
        return Err(libc::EAGAIN);
    }
    let ticket = line::enter_and_tell(address, bits);
    // Only now: a wake that follows a change finds this thread in line, or this thread the change.
    let (is_over, limit) = match has_value() {
        true => (libc::ETIMEDOUT, limit),
        // A wake may have counted this thread already.
        false => (libc::EAGAIN, Limit::After(Instant::now())),
    };
    if stand(address, ticket, limit) { Ok(0) } else { Err(is_over) }
}

/// Stands in the line, and in those to which the thread is moved. `false`: its time is over.
fn stand(mut address: usize, mut ticket: u64, limit: Limit) -> bool {
    loop {
        let left = limit.left();
        match waits::during(Kind::Futex, address, left, || line::wait(address, ticket, left)) {
            Some(Turn::Woken) => return true,
            Some(Turn::Moved { to, ticket: there }) => (address, ticket) = (to, there),
            None => return false,
        }
    }
}

/// Wakes waiters with one of these bits; one at least, as the system does.
fn wake(address: usize, count: c_int, bits: u32) -> Done {
    if bits == 0 {
        return Err(libc::EINVAL);
    }
    let count = u64::from(count.max(1).unsigned_abs());
    Ok(if awaited::may_be(address) { line::wake(address, count, bits) } else { 0 })
}

/// Wakes waiters, and has others wait for wakes of another address instead; if the word has this value. Returns the
/// number of both.
fn requeue(address: usize, wakes: c_int, to: usize, moves: c_int, value: Option<u32>) -> Done {
    let (Ok(wakes), Ok(moves)) = (u64::try_from(wakes), u64::try_from(moves)) else { return Err(libc::EINVAL) };
    if !to.is_multiple_of(size_of::<u32>()) {
        return Err(libc::EINVAL);
    }
    if value.is_some_and(|value| word(address).load(Ordering::SeqCst) != value) {
        return Err(libc::EAGAIN);
    }
    if !awaited::may_be(address) {
        return Ok(0);
    }
    let (woken, moved) = line::wake_and_move(address, wakes, to, moves);
    Ok(woken + moved)
}

/// Changes the word at `second`, wakes waiters of `address`, and those of `second` if the word was as asked.
fn wake_and_change(address: usize, count: c_int, second: usize, most: c_int, what: u32) -> Done {
    if !second.is_multiple_of(size_of::<u32>()) {
        return Err(libc::EINVAL);
    }
    let change = Change::of(what)?;
    let apply = |old: u32| Some(change.apply(old));
    let before = word(second).fetch_update(Ordering::SeqCst, Ordering::SeqCst, apply).unwrap_or_default();
    let woken = wake(address, count, ALL)?;
    Ok(woken + if change.wakes_second(before) { wake(second, most, ALL)? } else { 0 })
}

/// Change of a word, and a question about its value before (`FUTEX_WAKE_OP`).
#[derive(Debug, Clone, Copy)]
struct Change {
    operation: u32,
    argument: u32,
    question: u32,
    compared: i32,
}

impl Change {
    /// Takes the word of a call apart: 4 bits of operation, 4 of the question, twice 12 of numbers with a sign.
    fn of(what: u32) -> Result<Change, c_int> {
        const SHIFTS: u32 = 8;
        let number = |place: u32| ((what << (20 - place)).cast_signed()) >> 20;
        let (operation, argument) = (what >> 28, number(12));
        let argument = match operation & SHIFTS {
            0 => argument.cast_unsigned(),
            _ => 1 << (argument & 31),
        };
        let change =
            Change { operation: operation & !SHIFTS, argument, question: what >> 24 & 15, compared: number(0) };
        let is_known = change.operation <= libc::FUTEX_OP_XOR.cast_unsigned()
            && change.question <= libc::FUTEX_OP_CMP_GE.cast_unsigned();
        if is_known { Ok(change) } else { Err(libc::ENOSYS) }
    }

    fn apply(&self, old: u32) -> u32 {
        match self.operation.cast_signed() {
            libc::FUTEX_OP_SET => self.argument,
            libc::FUTEX_OP_ADD => old.wrapping_add(self.argument),
            libc::FUTEX_OP_OR => old | self.argument,
            libc::FUTEX_OP_ANDN => old & !self.argument,
            _ => old ^ self.argument,
        }
    }

    fn wakes_second(&self, old: u32) -> bool {
        let (old, compared) = (old.cast_signed(), self.compared);
        match self.question.cast_signed() {
            libc::FUTEX_OP_CMP_EQ => old == compared,
            libc::FUTEX_OP_CMP_NE => old != compared,
            libc::FUTEX_OP_CMP_LT => old < compared,
            libc::FUTEX_OP_CMP_LE => old <= compared,
            libc::FUTEX_OP_CMP_GT => old > compared,
            _ => old >= compared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Change;

    /// The macro `FUTEX_OP` of `<linux/futex.h>`.
    fn op(operation: u32, argument: i32, question: u32, compared: i32) -> u32 {
        let number = |number: i32| number.cast_unsigned() & 0xfff;
        (operation & 15) << 28 | (question & 15) << 24 | number(argument) << 12 | number(compared)
    }

    #[test]
    fn words_change_as_the_system_changes_them() {
        let new = |operation, argument, old| Change::of(op(operation, argument, 0, 0)).unwrap().apply(old);
        assert_eq!([0, 1, 2, 3, 4].map(|operation| new(operation, 6, 3)), [6, 9, 7, 1, 5]);
        // Numbers have a sign, and may be shifts.
        assert_eq!(new(1, -1, 0), u32::MAX);
        assert_eq!([0, 1, 2, 3, 4].map(|operation| new(operation | 8, 33, 7)), [2, 9, 7, 5, 5]);
        assert_eq!(Change::of(op(5, 0, 0, 0)).unwrap_err(), libc::ENOSYS);
    }

    #[test]
    fn values_before_are_compared_with_their_sign() {
        let wakes = |question, compared, old: i32| {
            Change::of(op(0, 0, question, compared)).unwrap().wakes_second(old.cast_unsigned())
        };
        let all = |compared, old| [0, 1, 2, 3, 4, 5].map(|question| wakes(question, compared, old));
        assert_eq!(all(5, 5), [true, false, false, true, false, true]);
        assert_eq!(all(5, -6), [false, true, true, true, false, false]);
        assert_eq!(all(-5, 4), [false, true, false, false, true, true]);
        assert_eq!(Change::of(op(0, 0, 6, 0)).unwrap_err(), libc::ENOSYS);
    }
}
