//! Operations of a run, claimed by the clients in chunks: so many of them, or as many as fit into a time.
//!
//! One relaxed `fetch_add` a chunk (hundreds of operations in a measured run), the same for all
//! contenders.

use crate::basics::*;
use crate::contender::{Timed, Workload};
use crate::pick::SHORTEST;
use crossbeam_utils::CachePadded;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const LARGEST_CHUNK: u64 = 1024;
/// A chunk of a run by time takes this long at least and at most, if that can be had.
const CHUNK_TIMES: Range<Duration> = Duration::from_micros(5)..Duration::from_micros(20);
const FIRST_CHUNK: u64 = 16;

/// Operations left in a run.
#[derive(Debug)]
pub struct Budget {
    /// One for each client: as in thesis 2.6.1 each makes the same number, and one that is starved delays the end.
    parts: Box<[CachePadded<Part>]>,
    /// Of a run that ends with its operations.
    chunk: u64,
    timed: Option<Timed>,
    /// When the first operation was claimed.
    began: OnceLock<Instant>,
    /// How a client rests between bursts.
    rest: fn(Duration),
}

#[derive(Debug)]
struct Part {
    next: AtomicU64,
    total: u64,
}

impl Budget {
    /// The budget of `workload`, for `clients` threads of `fibers` claimants each, which rest by `rest` where there are
    /// bursts.
    pub fn new(workload: &Workload, clients: usize, fibers: usize, rest: fn(Duration)) -> Self {
        let (ops, timed, parts) = (workload.ops, workload.timed, clients as u64);
        let claimants = (clients * fibers).max(1) as u64;
        let total = |part| if timed.is_some() { u64::MAX } else { ops / parts + u64::from(part < ops % parts) };
        Self {
            parts: (0..parts)
                .map(|part| CachePadded::new(Part { next: AtomicU64::new(0), total: total(part) }))
                .collect(),
            chunk: 1 << (ops / (16 * claimants)).clamp(1, LARGEST_CHUNK).ilog2(),
            timed,
            began: OnceLock::new(),
            rest,
        }
    }

    /// The operations of a claimant of this client, chunk by chunk, by number.
    pub fn claims(&self, client: usize) -> Claims<'_> {
        let part = &self.parts[client];
        let chunk = if self.timed.is_some() { FIRST_CHUNK } else { self.chunk };
        Claims { budget: self, part, chunk, claimed: Duration::ZERO }
    }

    /// Time since the first client began, once this client is to go on; `None` when the run is over.
    fn now(&self, timed: &Timed) -> Option<Duration> {
        let began = *self.began.get_or_init(Instant::now);
        loop {
            let now = began.elapsed();
            if now >= timed.lasts {
                return None;
            }
            let Some(burst) = timed.bursts else { return Some(now) };
            let phase = Duration::from_nanos((now.as_nanos() % (2 * burst.as_nanos())) as u64);
            if phase >= burst {
                return Some(now);
            }
            (self.rest)(burst - phase);
        }
    }
}

/// The operations of one claimant.
#[derive(Debug)]
pub struct Claims<'a> {
    budget: &'a Budget,
    part: &'a Part,
    chunk: u64,
    /// When the last chunk was claimed, where the run ends by the clock.
    claimed: Duration,
}

impl Claims<'_> {
    /// Looks at the clock, and makes chunks of a size at which that costs little and the end is not missed by much.
    fn goes_on(&mut self, timed: &Timed) -> bool {
        let Some(now) = self.budget.now(timed) else { return false };
        let took = now - self.claimed;
        self.claimed = now;
        if took < CHUNK_TIMES.start {
            self.chunk = (self.chunk * 2).min(LARGEST_CHUNK);
        } else if took > CHUNK_TIMES.end {
            self.chunk = (self.chunk / 2).max(1);
        }
        true
    }
}

impl Iterator for Claims<'_> {
    type Item = Range<u64>;

    #[inline]
    fn next(&mut self) -> Option<Range<u64>> {
        if let Some(timed) = self.budget.timed
            && !self.goes_on(&timed)
        {
            return None;
        }
        let start = self.part.next.fetch_add(self.chunk, Ordering::Relaxed);
        // Chunks that vary in size may run into the end of an array of picks: the numbers behind it are left out.
        let end = (start + self.chunk).min((start | (SHORTEST as u64 - 1)) + 1);
        (start < self.part.total).then(|| start..end.min(self.part.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pick::{Dist, Picks};

    fn workload(ops: u64, timed: Option<Timed>) -> Workload {
        let picks = Picks::new(Dist::Uniform, 1, 1, 1);
        Workload { ops, timed, ..Workload::of(3, 1, picks) }
    }

    fn claimed(budget: &Budget, client: usize) -> u64 {
        let mut next = 0;
        for claim in budget.claims(client) {
            assert_eq!(claim.start, next);
            assert!(claim.end > claim.start && claim.end - claim.start <= LARGEST_CHUNK);
            next = claim.end;
        }
        next
    }

    fn no_rest(_: Duration) {
        panic!("there are no bursts")
    }

    #[test]
    fn an_equal_budget_is_split() {
        for total in [0, 1, 1000, 100_001] {
            let budget = Budget::new(&workload(total, None), 3, 4, no_rest);
            let each: Vec<u64> = (0..3).map(|client| claimed(&budget, client)).collect();
            assert_eq!(each.iter().sum::<u64>(), total);
            assert!(each.iter().max().unwrap() - each.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn a_run_by_time_ends_by_the_clock_and_no_chunk_leaves_its_array() {
        let lasts = Duration::from_millis(30);
        let budget = Budget::new(&workload(1, Some(Timed { lasts, bursts: None })), 3, 1, no_rest);
        let (began, mut made) = (Instant::now(), 0);
        for claim in budget.claims(0) {
            let place = claim.start % SHORTEST as u64;
            assert!(claim.start < claim.end && place + (claim.end - claim.start) <= SHORTEST as u64, "{claim:?}");
            made += claim.end - claim.start;
        }
        assert!(began.elapsed() >= lasts, "it ended after {:?}", began.elapsed());
        assert!(made > 10 * LARGEST_CHUNK, "chunks did not grow: {made} operations");
        assert!(budget.claims(1).next().is_none(), "the time is that of all clients");
    }

    #[test]
    fn between_bursts_clients_rest() {
        thread_local!(static RESTED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) });
        fn rest(time: Duration) {
            RESTED.set(RESTED.get() + time);
            std::thread::sleep(time);
        }
        let burst = Duration::from_millis(1);
        let timed = Timed { lasts: Duration::from_secs(20), bursts: Some(burst) };
        let budget = Budget::new(&workload(1, Some(timed)), 3, 1, rest);
        let mut claims = budget.claims(0);
        while RESTED.get() < 3 * burst {
            assert!(claims.next().is_some(), "in twenty seconds it rested for {:?}", RESTED.get());
        }
    }
}
