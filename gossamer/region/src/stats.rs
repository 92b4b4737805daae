//! Counters of regions. Only a machine's page server writes them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writing thread.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds to the count, on the page server only.
    pub(crate) fn add(&self, count: u64) {
        // Relaxed: it orders nothing.
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of this machine.
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

/// Counters of all regions of a program since its start, over all machines.
///
/// ```
/// gossamer_region::main(
///     || {
///         let region = gossamer_region::Region::new(1 << 20).unwrap();
///         region.span::<u8>(1 << 20).fill(1);
///         let stats = region.stats();
///         assert_eq!(stats.reads + stats.writes, 0, "one process has no faults that a page server sees");
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
    /// Faults, among these, on pages that were already there, or under way, when the page server looked.
    pub late: u64,
    /// Runs of pages that were requested and came; a fault or a prefetch leads to one or none.
    pub runs: u64,
    /// Pages fetched from another machine.
    pub fetched: u64,
    /// Pages that were untouched before.
    pub zeros: u64,
    /// Read-only pages that became writable.
    pub upgrades: u64,
    /// Pages given up because another machine wrote them.
    pub dropped: u64,
    /// Pages that another machine fetched from here.
    pub yielded: u64,
    /// Runs kept for a while because they had just arrived ([`HOLD`](crate::HOLD)).
    pub held: u64,
    /// Nanoseconds from the page servers' first sight of each fault until its page was there, summed.
    pub waited_ns: u64,
}

impl Stats {
    /// Returns the counters of this machine.
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
