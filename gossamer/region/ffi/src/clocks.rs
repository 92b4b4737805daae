//! Clocks of machine 0, told to threads of all machines, where threads may move: each host counts from its own start,
//! and a thread that moves has times, and deadlines, from the machine that it has left.
//!
//! Each machine adds a difference to its host's clocks, which it measures by round trips to machine 0: at the start,
//! and each second, as two hosts' clocks drift apart. Machines of one host have one clock, and add nothing.
//!
//! Invariant: a thread's clock never goes back. A difference grows at once and shrinks slowly; a
//! thread that arrives before the time at which it has left waits for that time.

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering, fence};
use std::time::Duration;

use libc::{clockid_t, timespec};
use trust::JoinHandle;

use crate::real::real;
use crate::side;

/// Clocks that count from the start of their host.
const CLOCKS: [clockid_t; 3] = [libc::CLOCK_MONOTONIC, libc::CLOCK_MONOTONIC_RAW, libc::CLOCK_BOOTTIME];
/// Times of these clocks, in nanoseconds.
pub(crate) type Times = [i64; CLOCKS.len()];
/// Differences of each of these clocks to machine 0's: all of a range agrees with what was measured.
type Differences = [RangeInclusive<i64>; CLOCKS.len()];

const SECOND_NS: i64 = 1_000_000_000;
/// Time between two measurements.
const EVERY: Duration = Duration::from_secs(1);
/// Round trips of a measurement.
const ROUNDS: u32 = 16;
/// Nanoseconds in which a difference that is too large shrinks by one: more than clocks of hosts drift apart.
const SHRINKS_IN_NS: i64 = 4000;

/// Whether this program's machines have different clocks. Set before its first thread begins.
static DIFFER: AtomicBool = AtomicBool::new(false);
/// This machine's differences, in the order of [`CLOCKS`].
static DIFFERENCES: [Kept; CLOCKS.len()] = [const { Kept::new() }; CLOCKS.len()];

/// A difference to machine 0's clock, as a function of the host's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Difference {
    /// Nanoseconds at the time `since` of the host.
    start: i64,
    since: i64,
    /// Nanoseconds by which it shrinks from then on.
    excess: i64,
}

impl Difference {
    fn at(&self, time: i64) -> i64 {
        self.start - self.excess.min((time - self.since).max(0) / SHRINKS_IN_NS)
    }

    /// Returns it with what was measured taken into account, from this time of the host on.
    fn corrected(&self, time: i64, measured: &RangeInclusive<i64>) -> Difference {
        let start = self.at(time).max(*measured.start());
        Difference { start, since: time, excess: (start - *measured.end()).max(0) }
    }
}

/// A difference that one fiber writes while threads read it.
struct Kept {
    /// Odd while it is written.
    version: AtomicU32,
    start: AtomicI64,
    since: AtomicI64,
    excess: AtomicI64,
}

impl Kept {
    const fn new() -> Kept {
        Kept {
            version: AtomicU32::new(0),
            start: AtomicI64::new(0),
            since: AtomicI64::new(0),
            excess: AtomicI64::new(0),
        }
    }

    fn get(&self) -> Difference {
        Difference {
            start: self.start.load(Ordering::Relaxed),
            since: self.since.load(Ordering::Relaxed),
            excess: self.excess.load(Ordering::Relaxed),
        }
    }

    /// Returns the time of this clock of the host, and of machine 0.
    fn times(&self, clock: clockid_t) -> (i64, i64) {
        loop {
            let version = self.version.load(Ordering::Acquire); // Acquire: with the Release of `change`
            if version.is_multiple_of(2) {
                // In here: a time that is read before a change is told by the difference before it.
                let time = time_of_host(clock);
                let difference = self.get();
                fence(Ordering::Acquire); // Acquire: with the Release fence of `change`
                if self.version.load(Ordering::Relaxed) == version {
                    return (time, time + difference.at(time));
                }
            }
            std::thread::yield_now();
        }
    }

    /// Replaces the difference by that which `new` returns for it and the time of this clock of the host.
    fn change(&self, clock: clockid_t, new: impl FnOnce(Difference, i64) -> Difference) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release); // Release: with the Acquire fence of `times`
        let Difference { start, since, excess } = new(self.get(), time_of_host(clock));
        self.start.store(start, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.excess.store(excess, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release); // Release: with the Acquire of `times`
    }
}

/// The C library's function.
#[inline(always)]
fn read(clock: clockid_t, time: *mut timespec) -> c_int {
    real!(clock_gettime: fn(clockid_t, *mut timespec) -> c_int, clock, time)
}

fn nanoseconds(time: &timespec) -> i64 {
    time.tv_sec.saturating_mul(SECOND_NS).saturating_add(time.tv_nsec)
}

fn timespec_of(nanoseconds: i64) -> timespec {
    let nanoseconds = nanoseconds.max(0);
    timespec { tv_sec: nanoseconds / SECOND_NS, tv_nsec: nanoseconds % SECOND_NS }
}

fn time_of_host(clock: clockid_t) -> i64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    read(clock, &raw mut time); // all systems have these clocks
    nanoseconds(&time)
}

fn times_of_host() -> Times {
    CLOCKS.map(time_of_host)
}

/// Returns the number of a clock that is machine 0's here.
fn number_of(clock: clockid_t) -> Option<usize> {
    let known = match clock {
        // Its times follow those of the finer one by some milliseconds, which differ between hosts.
        libc::CLOCK_MONOTONIC_COARSE => libc::CLOCK_MONOTONIC,
        libc::CLOCK_BOOTTIME_ALARM => libc::CLOCK_BOOTTIME,
        clock => clock,
    };
    CLOCKS.iter().position(|clock| *clock == known).filter(|_| do_differ())
}

/// Whether this program's machines have different clocks.
pub(crate) fn do_differ() -> bool {
    DIFFER.load(Ordering::Relaxed)
}

/// Returns the times of the host and of machine 0 on a clock with this number.
fn times_of(number: usize) -> (i64, i64) {
    DIFFERENCES[number].times(CLOCKS[number])
}

/// The C library's function, with machine 0's time on all machines.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // Else a call costs some instructions only: most machines have one clock.
    if do_differ() { read_common(clock, time) } else { read(clock, time) }
}

/// Same as the C library's function, where machines have different clocks.
#[cold]
#[inline(never)]
fn read_common(clock: clockid_t, time: *mut timespec) -> c_int {
    match number_of(clock) {
        Some(number) if !time.is_null() => {
            // SAFETY: the caller's of `clock_gettime`.
            unsafe { time.write(timespec_of(times_of(number).1)) };
            0
        }
        _ => read(clock, time),
    }
}

/// Returns the time left until a time of a clock, as the program reads it; zero if it is over. By the host's clock,
/// which may be the faster one: then a little more.
pub(crate) fn until(clock: clockid_t, time: &timespec) -> Duration {
    let (now, is_common) = match number_of(clock) {
        Some(number) => (timespec_of(times_of(number).1), true),
        None => {
            let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
            read(clock, &raw mut now);
            (now, false)
        }
    };
    let left = u64::try_from(nanoseconds(time).saturating_sub(nanoseconds(&now))).unwrap_or(0);
    let more = if is_common { left / SHRINKS_IN_NS.unsigned_abs() } else { 0 };
    Duration::from_nanos(left.saturating_add(more))
}

/// Returns the host's time, more than zero, at a time of machine 0's. `None`: the program has the host's clock, or this
/// is no time.
pub(crate) fn time_here(clock: clockid_t, time: &timespec) -> Option<timespec> {
    let number = number_of(clock).filter(|_| time.tv_sec >= 0 && side::is_time(time))?;
    let (of_host, now) = times_of(number);
    Some(timespec_of(of_host.saturating_add(nanoseconds(time).saturating_sub(now)).max(1)))
}

/// Same as the C library's `clock_nanosleep`, until a time of machine 0's clock.
pub(crate) fn sleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int {
    let sleep = |flags, time, left| {
        real!(
            clock_nanosleep: fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int,
            clock, flags, time, left
        )
    };
    // SAFETY: null, or the caller's.
    let Some(end) = unsafe { time.as_ref() }.filter(|_| flags & libc::TIMER_ABSTIME != 0).copied() else {
        return sleep(flags, time, left);
    };
    loop {
        let Some(there) = time_here(clock, &end) else { return sleep(flags, time, left) };
        match sleep(flags, &raw const there, left) {
            0 if !until(clock, &end).is_zero() => {} // the difference has changed
            done => return done,
        }
    }
}

/// Returns machine 0's times, for a thread that leaves this machine.
pub(crate) fn told() -> Times {
    std::array::from_fn(|number| if do_differ() { times_of(number).1 } else { 0 })
}

/// On a host, before a thread goes on that has left another machine at these times: waits for them.
pub(crate) fn wait_for(told: &Times) {
    if do_differ() {
        wait_until(told, |number| times_of(number).1);
    }
}

/// Waits until the clocks, which `now` reads by their numbers, have these times.
fn wait_until(times: &Times, now: impl Fn(usize) -> i64) {
    let left = || times.iter().enumerate().map(|(number, time)| time.saturating_sub(now(number))).max().unwrap_or(0);
    while let Some(left) = u64::try_from(left()).ok().filter(|left| *left > 0) {
        std::thread::sleep(Duration::from_nanos(left));
    }
}

/// Identity of this host's clocks; `None`: the system does not tell.
fn identity() -> Option<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().filter(|boot| !boot.is_empty())?;
    // Before Linux 5.6 there is one for all.
    let namespace = std::fs::metadata("/proc/self/ns/time").map_or(0, |found| found.ino());
    let mut hasher = DefaultHasher::new();
    (boot, namespace).hash(&mut hasher);
    Some(hasher.finish())
}

/// In a fiber: measures the differences to machine 0's clocks. `None`: it has ended.
fn measure() -> Option<Differences> {
    let mut found = CLOCKS.map(|_| (i64::MIN, i64::MAX));
    for _ in 0..ROUNDS {
        let before = times_of_host();
        let there = gossamer::spawn_on(side::place(0), times_of_host).join().ok()?;
        let after = times_of_host();
        for (number, (least, most)) in found.iter_mut().enumerate() {
            *least = (*least).max(there[number] - after[number]);
            *most = (*most).min(there[number] - before[number]);
        }
    }
    // A clock may have been stopped meanwhile.
    Some(found.map(|(least, most)| least.min(most)..=most))
}

/// In a fiber of another machine than 0: begins to tell machine 0's times, if its clocks are others. Returns whether
/// they are.
fn begin_here(first: Option<u64>) -> bool {
    let is_one_host = first.is_some() && first == identity();
    let Some(measured) = measure().filter(|all| !is_one_host || all.iter().any(|measured| !measured.contains(&0)))
    else {
        return false;
    };
    for ((kept, clock), measured) in DIFFERENCES.iter().zip(CLOCKS).zip(measured) {
        let start = measured.start().midpoint(*measured.end());
        kept.change(clock, |_, since| Difference { start, since, excess: 0 });
    }
    note();
    true
}

fn note() {
    DIFFER.store(true, Ordering::Relaxed); // threads begin later, by requests
}

/// In the first fiber, before the program's first thread begins: has all machines tell machine 0's times, until the
/// program ends, as `has_ended` says.
pub(crate) fn begin(has_ended: fn() -> bool) {
    let first = identity();
    let asked: Vec<_> = (1..side::machines())
        .map(|machine| (machine, gossamer::spawn_on(side::place(machine), move || begin_here(first))))
        .collect();
    let differs = |(machine, asked): (u16, JoinHandle<bool>)| matches!(asked.join(), Ok(true)).then_some(machine);
    let others: Vec<u16> = asked.into_iter().filter_map(differs).collect();
    if others.is_empty() {
        return;
    }
    note();
    side::from_worker_on_others(note);
    let begun = std::thread::Builder::new().name("gossamer-clocks".to_owned()).spawn(move || keep(&others, has_ended));
    if let Err(error) = begun {
        eprintln!("gossamer: clocks of machines may drift apart: there is no thread to measure them: {error}");
    }
}

/// On machine 0: has these machines measure their differences again and again, up to the end of the program.
fn keep(others: &[u16], has_ended: fn() -> bool) {
    while !has_ended() {
        std::thread::sleep(EVERY);
        let others = others.to_vec();
        let ask = move || {
            let asked: Vec<_> =
                others.into_iter().map(|machine| gossamer::spawn_on(side::place(machine), correct)).collect();
            asked.into_iter().for_each(|asked| drop(asked.join())); // one that has ended
        };
        if trust::spawn_on(&side::place(0).trustee(), ask).join().is_err() {
            return;
        }
    }
}

/// In a fiber: measures again.
fn correct() {
    for ((kept, clock), measured) in DIFFERENCES.iter().zip(CLOCKS).zip(measure().into_iter().flatten()) {
        kept.change(clock, |difference, time| difference.corrected(time, &measured));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn second(count: i64) -> i64 {
        count * SECOND_NS
    }

    /// Told times over corrections are those of the measurements, and never go back.
    #[test]
    fn differences_are_corrected_and_clocks_go_on() {
        let mut difference = Difference { start: 5000, since: 0, excess: 0 };
        // Measured within a range, it stays.
        difference = difference.corrected(second(1), &(4000..=6000));
        assert_eq!(difference.at(second(2)), 5000);
        // Too small: it grows at once, to what may be right.
        difference = difference.corrected(second(2), &(7000..=9000));
        assert_eq!(difference.at(second(2)), 7000);
        // Too large: it shrinks slowly, and no further.
        let before = second(3) + difference.at(second(3));
        difference = difference.corrected(second(3), &(1000..=2000));
        assert!(second(3) + difference.at(second(3)) >= before);
        assert_eq!(difference.at(second(3) + 4000), 6999);
        assert_eq!(difference.at(second(4)), 2000);
        // Each nanosecond of the host's is told as one, or as none.
        let told = |time: i64| time + difference.at(time);
        assert!((second(3)..second(3) + 20_000).all(|time| (0..=1).contains(&(told(time + 1) - told(time)))));
        // A new measurement amid that begins with what is told.
        let now = second(3) + 400_000;
        assert_eq!(difference.corrected(now, &(0..=0)).at(now), difference.at(now));
        assert_eq!(difference.corrected(now, &(0..=9000)).at(second(9)), difference.at(now));
    }

    /// Clocks of two hosts, one faster by 50 ppm: told times stay within what is measured and drifts in a second.
    #[test]
    fn a_clock_that_drifts_is_followed() {
        for faster in [-50, 50] {
            let first = |time: i64| time + second(1000) + time / 1_000_000 * faster;
            let mut random = fastrand::Rng::with_seed(7);
            let mut difference = Difference { start: second(1000), since: 0, excess: 0 };
            let mut last = 0;
            for at in 1..200 {
                let time = second(at);
                let (before, after) = (random.i64(0..100_000), random.i64(0..100_000));
                let is = first(time) - time;
                let measured = is - after..=is + before;
                let told = time + difference.at(time);
                assert!(told > last && (told - first(time)).abs() <= 160_000, "{faster} {at}: {}", told - first(time));
                difference = difference.corrected(time, &measured);
                last = time + difference.at(time);
                assert!(last >= told);
            }
        }
    }

    #[test]
    fn times_are_told_while_they_are_corrected() {
        let kept = Kept::new();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..20_000_i64 {
                    let measured = if at % 2 == 0 { -1_000_000..=-500_000 } else { 10..=500 };
                    kept.change(CLOCKS[0], |difference, time| difference.corrected(time, &measured));
                }
                is_done.store(true, Ordering::Relaxed);
            });
            let mut last = (0, 0);
            while !is_done.load(Ordering::Relaxed) {
                let times = kept.times(CLOCKS[0]);
                assert!(times.0 >= last.0 && times.1 >= last.1, "{last:?} {times:?}");
                last = times;
            }
        });
    }

    /// A thread from a machine whose clocks are told a little late here.
    #[test]
    fn a_thread_that_arrives_too_early_waits() {
        let told = times_of_host().map(|time| time + 2_000_000);
        wait_until(&told, |number| time_of_host(CLOCKS[number]));
        assert!(times_of_host().iter().zip(told).all(|(now, told)| *now >= told));
    }

    #[test]
    fn machines_of_one_host_add_nothing() {
        assert!(identity().is_some() && identity() == identity() && !do_differ());
        assert_eq!((number_of(libc::CLOCK_MONOTONIC), told()), (None, [0; 3]));
        let hour = timespec { tv_sec: i64::MAX, tv_nsec: 0 };
        assert!(until(libc::CLOCK_MONOTONIC, &hour) > Duration::from_secs(3600));
        assert_eq!(until(libc::CLOCK_REALTIME, &timespec_of(5)), Duration::ZERO);
    }
}
