//! Threads for the twin: as many as the program has workers, on all cores that the process may use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of this process, before its workers chose theirs.
static CORES: OnceLock<Option<CpuSet>> = OnceLock::new();

/// Records the cores. Call it before there are workers: their threads, and all that these start, keep to one core each.
pub fn note_cores() {
    CORES.get_or_init(|| sched_getaffinity(None).ok());
}

/// Runs `work` on so many threads, each on the result of `prepare` there for its number. The time is that from the
/// first thread that worked to the last.
///
/// # Panics
/// If one of them does.
pub fn run<S, R: Send>(
    threads: usize,
    prepare: impl Fn(usize) -> S + Sync,
    work: impl Fn(S) -> R + Sync,
) -> (Vec<R>, Duration) {
    let everyone = std::sync::Barrier::new(threads);
    let one = |number| {
        if let Some(Some(cores)) = CORES.get() {
            let _ = sched_setaffinity(None, cores); // it runs all the same
        }
        let prepared = prepare(number);
        everyone.wait();
        let start = Instant::now();
        let result = work(prepared);
        (result, start, Instant::now())
    };
    let ended: Vec<_> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let start = ended.iter().map(|(_, start, _)| *start).min();
    let end = ended.iter().map(|(.., end)| *end).max();
    let time = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
    (ended.into_iter().map(|(result, ..)| result).collect(), time)
}

/// Runs `work` on each number below `count`, on so many threads that take the next one when they are done. Results in
/// the order of the numbers.
///
/// # Panics
/// If one of them does.
pub fn each<R: Send>(threads: usize, count: usize, work: impl Fn(usize) -> R + Sync) -> (Vec<R>, Duration) {
    let next = AtomicUsize::new(0);
    let take = |()| {
        let numbers = std::iter::from_fn(|| {
            let number = next.fetch_add(1, Ordering::Relaxed); // no work depends on the order
            (number < count).then_some(number)
        });
        numbers.map(|number| (number, work(number))).collect::<Vec<_>>()
    };
    let (parts, time) = run(threads, |_| (), take);
    let mut all: Vec<(usize, R)> = parts.into_iter().flatten().collect();
    all.sort_unstable_by_key(|(number, _)| *number);
    (all.into_iter().map(|(_, result)| result).collect(), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_worked_on_once() {
        note_cores();
        let (squares, _) = each(3, 100, |number| number * number);
        assert_eq!(squares, (0..100).map(|number| number * number).collect::<Vec<_>>());
        let (sums, _) = run(4, |number| number + 1, |prepared| prepared * 2);
        assert_eq!(sums, [2, 4, 6, 8]);
    }
}
