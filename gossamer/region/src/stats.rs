//! What regions have done: counters that each keeper alone writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Only on the keeper.
    pub(crate) fn add(&self, count: u64) {
        // Relaxed: it orders nothing.
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of this machine.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    pub(crate) late: Counter,
    pub(crate) runs: Counter,
    pub(crate) fetched: Counter,
    pub(crate) zeros: Counter,
    pub(crate) upgrades: Counter,
    pub(crate) dropped: Counter,
    pub(crate) yielded: Counter,
    pub(crate) held: Counter,
    pub(crate) waited_ns: Counter,
}

pub(crate) static COUNTERS: Counters = Counters {
    reads: Counter::new(),
    writes: Counter::new(),
    late: Counter::new(),
    runs: Counter::new(),
    fetched: Counter::new(),
    zeros: Counter::new(),
    upgrades: Counter::new(),
    dropped: Counter::new(),
    yielded: Counter::new(),
    held: Counter::new(),
    waited_ns: Counter::new(),
};

/// What the regions of a program have done since its start, on all machines together.
///
/// ```
/// gossamer_region::main(
///     || {
///         let region = gossamer_region::Region::new(1 << 20).unwrap();
///         region.span::<u8>(1 << 20).fill(1);
///         let stats = region.stats();
///         assert_eq!(stats.reads + stats.writes, 0, "one process has no faults that a keeper sees");
///         println!("{stats}");
///     },
///     1,
/// );
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Faults of threads that read.
    pub reads: u64,
    /// Faults of threads that write.
    pub writes: u64,
    /// Of these, faults on pages that were there, or under way, when the keeper looked.
    pub late: u64,
    /// Runs of pages that were asked for and came; a fault or a prefetch leads to one or none.
    pub runs: u64,
    /// Pages whose bytes came from another machine.
    pub fetched: u64,
    /// Pages that nobody had touched before.
    pub zeros: u64,
    /// Pages that could be read and became writable.
    pub upgrades: u64,
    /// Pages that were given up because another machine wrote them.
    pub dropped: u64,
    /// Pages whose bytes went to another machine.
    pub yielded: u64,
    /// Runs that were kept for a while because they had just come ([`HOLD`](crate::HOLD)).
    pub held: u64,
    /// Nanoseconds from the keepers' first sight of faults until their pages were there, one by one.
    pub waited_ns: u64,
}

impl Stats {
    /// Those of this machine.
    pub(crate) fn here() -> Stats {
        let of = Counter::get;
        Stats {
            reads: of(&COUNTERS.reads),
            writes: of(&COUNTERS.writes),
            late: of(&COUNTERS.late),
            runs: of(&COUNTERS.runs),
            fetched: of(&COUNTERS.fetched),
            zeros: of(&COUNTERS.zeros),
            upgrades: of(&COUNTERS.upgrades),
            dropped: of(&COUNTERS.dropped),
            yielded: of(&COUNTERS.yielded),
            held: of(&COUNTERS.held),
            waited_ns: of(&COUNTERS.waited_ns),
        }
    }
}

impl std::ops::Add for Stats {
    type Output = Stats;

    fn add(self, other: Stats) -> Stats {
        Stats {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            late: self.late + other.late,
            runs: self.runs + other.runs,
            fetched: self.fetched + other.fetched,
            zeros: self.zeros + other.zeros,
            upgrades: self.upgrades + other.upgrades,
            dropped: self.dropped + other.dropped,
            yielded: self.yielded + other.yielded,
            held: self.held + other.held,
            waited_ns: self.waited_ns + other.waited_ns,
        }
    }
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stats { reads, writes, runs, fetched, zeros, upgrades, waited_ns, .. } = self;
        let wait_us = waited_ns.checked_div(*runs).unwrap_or(0) / 1000;
        write!(
            f,
            "{reads} faults to read, {writes} to write, {runs} runs of pages: {fetched} fetched, {zeros} new, \
             {upgrades} made writable; {wait_us} us each"
        )
    }
}
