//! The exchange that `gossamer-bench echo` measures (thesis 3.3.1), the same for all contenders: every worker is client
//! and server, picks its peers at random, keeps a number of requests outstanding, and checks each answer.
//!
//! Here: the requests and their destinations, the answers expected, and the figures of a run; in [`mod@array`], the
//! same of `gossamer-bench array`. Not here: the transport.
//!
//! Invariant: a run with wrong answers or totals gives no figures.

#![forbid(unsafe_code)]

pub mod array;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Sizes of requests and replies that every contender can do, in bytes.
pub const SIZES: [usize; 9] = [8, 32, 128, 512, 1024, 2048, 4096, 16_384, 65_536];
/// One request of so many is timed.
pub const TIMED_EVERY: u64 = 16;
/// The largest number of requests that a worker keeps outstanding.
pub const OUTSTANDING_MAX: usize = 4096;

/// The points that an exchange program measures: each size with each number of outstanding requests.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Plan {
    /// Bytes of each request and each reply.
    #[arg(long, value_delimiter = ',', default_value = "8,32,128,512,1024,2048,4096,16384,65536")]
    pub bytes: Vec<usize>,
    /// Requests that each worker keeps outstanding.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,512")]
    pub outstanding: Vec<usize>,
    /// How long each point is measured, in milliseconds.
    #[arg(long, default_value_t = 200)]
    pub millis: u64,
    /// Seed of the picks of peers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// Says why the plan is impossible, if it is.
    ///
    /// # Errors
    /// The option that is out of range, with the range.
    pub fn check(&self) -> Result<(), String> {
        if let Some(bytes) = self.bytes.iter().find(|bytes| !SIZES.contains(bytes)) {
            return Err(format!("--bytes {bytes}: one of {SIZES:?} is possible"));
        }
        if let Some(outstanding) = self.outstanding.iter().find(|count| !(1..=OUTSTANDING_MAX).contains(*count)) {
            return Err(format!("--outstanding {outstanding}: 1 to {OUTSTANDING_MAX} are possible"));
        }
        if self.millis == 0 || self.bytes.is_empty() || self.outstanding.is_empty() {
            return Err("--millis, --bytes and --outstanding must not be 0 or empty".to_owned());
        }
        Ok(())
    }

    /// The points, in order: bytes and outstanding requests.
    pub fn points(&self) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        self.bytes.iter().flat_map(|&bytes| self.outstanding.iter().map(move |&outstanding| (bytes, outstanding)))
    }

    /// The command line that gives this plan to a program of the exchange.
    pub fn arguments(&self) -> Vec<String> {
        let list = |values: &[usize]| values.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let (millis, seed) = (self.millis.to_string(), self.seed.to_string());
        let pairs = [
            ("--bytes", list(&self.bytes)),
            ("--outstanding", list(&self.outstanding)),
            ("--millis", millis),
            ("--seed", seed),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// How long a point is measured.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

/// The picks of one worker: every other worker is as likely.
#[derive(Clone, Debug)]
pub struct Peers {
    state: u64,
    own: usize,
    workers: usize,
}

impl Peers {
    /// The picks of worker `own` among `workers`, at least two.
    pub fn new(own: usize, workers: usize, seed: u64) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (own as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95);
        Peers { state, own, workers: workers.max(2) }
    }

    /// The next one (splitmix64).
    pub fn pick(&mut self) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let pick = ((u128::from(split_mix(self.state)) * (self.workers as u128 - 1)) >> 64) as usize;
        pick + usize::from(pick >= self.own)
    }
}

/// The last steps of splitmix64: neighbours come out unlike each other.
fn split_mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The number that a request carries: no two of a point are equal.
pub fn number(worker: usize, made: u64) -> u64 {
    ((worker as u64) << 48) | made
}

/// Does the worker that made this request note how long it takes?
pub fn is_timed(number: u64) -> bool {
    (number & ((1 << 48) - 1)).is_multiple_of(TIMED_EVERY)
}

/// The answer of server `server` to the request with this number.
pub fn answer(number: u64, server: usize) -> u64 {
    number.rotate_left(17) ^ (server as u64 + 1).wrapping_mul(0xa24b_aed4_963e_e407)
}

/// Marks the first and last word of a message, so that one that is cut or displaced is noticed.
pub fn mark(words: &mut [u64], value: u64) {
    if let [.., last] = words {
        *last = !value;
    }
    if let [first, ..] = words {
        *first = value;
    }
}

/// The value that a message is marked with; `None` if the marks do not agree.
pub fn marked(words: &[u64]) -> Option<u64> {
    match words {
        [] => None,
        [only] => Some(*only),
        [first, .., last] => (*first == !*last).then_some(*first),
    }
}

/// The work of one worker in a point, as client and as server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests it made that were answered.
    pub requests: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// Sum of the numbers it sent.
    pub sent: u64,
    /// Requests it served.
    pub served: u64,
    /// Sum of the numbers it served.
    pub received: u64,
    /// When it began, in nanoseconds of this host's clock.
    pub start_ns: u64,
    /// When its last answer had come.
    pub end_ns: u64,
}

impl Tally {
    /// Both together.
    pub fn and(self, other: Tally) -> Tally {
        let start = |tally: &Tally| if tally.start_ns == 0 { u64::MAX } else { tally.start_ns };
        Tally {
            requests: self.requests + other.requests,
            wrong: self.wrong + other.wrong,
            sent: self.sent.wrapping_add(other.sent),
            served: self.served + other.served,
            received: self.received.wrapping_add(other.received),
            start_ns: start(&self).min(start(&other)),
            end_ns: self.end_ns.max(other.end_ns),
        }
    }
}

/// Now, on the clock that all processes of the host share.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Latencies of some requests of one worker.
pub struct Meter {
    histogram: Histogram<u64>,
}

impl Default for Meter {
    fn default() -> Self {
        // Three digits, up to a minute: the bounds are valid.
        let histogram = Histogram::new_with_max(60_000_000_000, 3).unwrap_or_else(|error| unreachable!("{error}"));
        Meter { histogram }
    }
}

impl Meter {
    /// When the `made`-th request is sent: the time, if it is one of those that are timed.
    #[inline]
    pub fn start(made: u64) -> Option<Instant> {
        is_timed(made).then(Instant::now)
    }

    /// When its answer has come.
    #[inline]
    pub fn stop(&mut self, start: Option<Instant>) {
        if let Some(start) = start {
            let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.histogram.saturating_record(ns.max(1));
        }
    }

    /// Values and how often each was seen, for sending.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        self.histogram.iter_recorded().map(|seen| (seen.value_iterated_to(), seen.count_at_value())).collect()
    }

    /// Takes in those of another worker.
    pub fn add(&mut self, counts: &[(u64, u64)]) {
        for &(value, count) in counts {
            self.histogram.saturating_record_n(value, count);
        }
    }

    fn quantile(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64
    }
}

/// The figures of one point of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes of each request and each reply.
    pub bytes: usize,
    /// Requests that each worker kept outstanding.
    pub outstanding: usize,
    /// Requests answered, over all workers.
    pub requests: u64,
    /// From the first start to the last answer.
    pub elapsed_ns: u64,
    /// Half of the requests that were timed were answered faster.
    pub p50_ns: f64,
    /// 99 of 100 were.
    pub p99_ns: f64,
    /// 999 of 1000 were.
    pub p999_ns: f64,
    /// Memory of all processes together, a shared page once, where the program tells it.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// Prefix of a point's line in a program's output.
const LINE: &str = "point ";

impl Point {
    /// The figures of a point, from the tallies of all workers together.
    ///
    /// # Errors
    /// An answer was wrong, or the requests sent are not the requests served.
    pub fn new(bytes: usize, outstanding: usize, all: &Tally, meter: &Meter) -> Result<Point, String> {
        let is_right = all.wrong == 0 && all.requests > 0 && (all.requests, all.sent) == (all.served, all.received);
        if !is_right {
            return Err(format!("{bytes} bytes, {outstanding} outstanding: the answers are wrong: {all:?}"));
        }
        Ok(Point {
            bytes,
            outstanding,
            requests: all.requests,
            elapsed_ns: all.end_ns.saturating_sub(all.start_ns).max(1),
            p50_ns: meter.quantile(0.5),
            p99_ns: meter.quantile(0.99),
            p999_ns: meter.quantile(0.999),
            memory_bytes: None,
        })
    }

    /// Millions of requests a second.
    pub fn mops(&self) -> f64 {
        self.requests as f64 * 1e3 / self.elapsed_ns as f64
    }

    /// As a line of a program's output.
    pub fn line(&self) -> String {
        // Plain numbers: they always serialise.
        format!("{LINE}{}", serde_json::to_string(self).unwrap_or_default())
    }

    /// The points in a program's output.
    ///
    /// # Errors
    /// A line that begins as a point and is none.
    pub fn read(output: &str) -> Result<Vec<Point>, String> {
        let lines = output.lines().filter_map(|line| line.strip_prefix(LINE));
        lines.map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_others_are_picked_alike() {
        for own in 0..4 {
            let (mut peers, mut picked) = (Peers::new(own, 4, 7), [0u32; 4]);
            (0..30_000).for_each(|_| picked[peers.pick()] += 1);
            assert_eq!(picked[own], 0);
            assert!(picked.iter().enumerate().all(|(peer, &times)| peer == own || (9_500..10_500).contains(&times)));
        }
    }

    #[test]
    fn marks_tell_cut_and_displaced_messages() {
        let mut words = [0; 4];
        mark(&mut words, 9);
        assert_eq!(
            (marked(&words), marked(&words[..3]), marked(&words[1..]), marked(&[])),
            (Some(9), None, None, None)
        );
        mark(&mut words[..1], 5);
        assert_eq!(marked(&words[..1]), Some(5));
    }

    #[test]
    fn wrong_runs_have_no_figures() {
        let right =
            Tally { requests: 2, sent: 9, served: 2, received: 9, start_ns: 100, end_ns: 300, ..Tally::default() };
        let point = Point::new(8, 1, &right, &Meter::default()).unwrap();
        assert_eq!((point.elapsed_ns, point.mops()), (200, 10.0));
        assert_eq!(Point::read(&format!("noise\n{}\n", point.line())).unwrap(), [point]);
        assert!(Point::read("point of no return").is_err());
        for wrong in [Tally { wrong: 1, ..right }, Tally { served: 1, ..right }, Tally { received: 8, ..right }] {
            assert!(Point::new(8, 1, &wrong, &Meter::default()).is_err());
        }
        let both = right.and(Tally { start_ns: 50, end_ns: 200, ..right });
        assert_eq!((both.requests, both.start_ns, both.end_ns), (4, 50, 300));
        assert_eq!(right.and(Tally::default()), right);
    }

    #[test]
    fn meters_are_merged() {
        let mut meter = Meter::default();
        meter.add(&[(100, 99), (1_000_000, 1)]);
        let mut other = Meter::default();
        other.add(&meter.counts());
        assert!((meter.quantile(0.5) - 100.0).abs() < 1.0 && other.quantile(0.999) > 990_000.0);
        assert!(Meter::start(TIMED_EVERY * 3).is_some() && Meter::start(1).is_none());
    }

    #[test]
    fn plans_are_told_on() {
        let plan = Plan { bytes: vec![8, 32], outstanding: vec![1], millis: 5, seed: 3 };
        assert_eq!(plan.arguments().join(" "), "--bytes 8,32 --outstanding 1 --millis 5 --seed 3");
        assert_eq!(plan.points().collect::<Vec<_>>(), [(8, 1), (32, 1)]);
        assert!(plan.check().is_ok());
        assert!(Plan { bytes: vec![9], ..plan.clone() }.check().unwrap_err().contains("--bytes 9"));
        assert!(Plan { outstanding: vec![0], ..plan }.check().unwrap_err().contains("1 to 4096"));
    }
}
