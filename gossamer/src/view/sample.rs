//! What a machine tells of itself when it is asked: counters of its workers, their answers to probes, memory, traffic.
//!
//! Here: what is told, and how it is read. Not here: when (`answer.rs`), or what it means (`snapshot.rs`).

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};
use trust::TrusteeReference;

use super::probe::Probes;
use super::traffic;
use crate::rack::{Program, try_program};

/// Upper bounds of the buckets of round trips, in nanoseconds, each four times the one before; one more bucket has no
/// bound.
pub const ROUND_TRIP_BOUNDS_NS: [u64; 10] =
    [4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000, 256_000_000, 1_000_000_000];

/// What one machine tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSample {
    /// Name of the program's file, without its folders. Never its arguments.
    pub program: String,
    /// Which machine of the program.
    pub machine: u16,
    /// On which host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Nanoseconds since its first sample, by a clock that never jumps: for rates.
    pub at_ns: u64,
    /// Milliseconds since 1970.
    pub clock_ms: u64,
    /// Since its start, in milliseconds.
    pub up_ms: u64,
    /// Memory of the process in use, in bytes.
    pub resident_bytes: u64,
    /// How much of it is shared with other processes.
    pub shared_bytes: u64,
    /// Names of the values of each worker.
    pub names: Vec<String>,
    /// Its workers, in order.
    pub workers: Vec<WorkerSample>,
    /// To each machine: batches, and their bytes, that went there (requests and answers).
    pub sent: Vec<(u64, u64)>,
}

/// What one worker has done since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSample {
    /// As [`MachineSample::names`] has them.
    pub values: Vec<u64>,
    /// What its thread does, as the kernel says it: `R`, `S`, `D`, `T`.
    pub state: String,
    /// Since how long a probe has not been answered, in milliseconds; 0 if all are.
    pub silent_ms: u64,
    /// Round trips of probes: how many in each bucket of [`ROUND_TRIP_BOUNDS_NS`], and beyond.
    pub round_trips: Vec<u64>,
    /// All of them together, in nanoseconds.
    pub round_trips_ns: u64,
    /// What keeps it from its loop, if a probe has not been answered for long and that is known: a closure or a fiber.
    pub kept_by: String,
    /// Memory of its own: stacks of its fibers, pages of its properties.
    pub memory_bytes: u64,
}

impl MachineSample {
    /// A value of a worker by its name, 0 where there is none.
    ///
    /// ```
    /// use gossamer::view::{MachineSample, WorkerSample};
    /// let worker = WorkerSample { values: vec![7], ..WorkerSample::default() };
    /// let sample = MachineSample { names: vec!["parks".into()], workers: vec![worker], ..MachineSample::default() };
    /// assert_eq!((sample.value(0, "parks"), sample.value(0, "polls"), sample.value(1, "parks")), (7, 0, 0));
    /// ```
    #[must_use]
    pub fn value(&self, worker: usize, name: &str) -> u64 {
        let place = self.names.iter().position(|other| other == name);
        let value = |place: usize| self.workers.get(worker)?.values.get(place).copied();
        place.and_then(value).unwrap_or(0)
    }

    /// Its bytes, for [`MachineSample::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Writing into memory fails only for types that are not in it.
        bincode::serde::encode_to_vec(self, bincode::config::standard()).unwrap_or_default()
    }

    /// The sample in these bytes, if it is one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<MachineSample> {
        let format = bincode::config::standard().with_limit::<{ 64 << 20 }>();
        let (sample, taken) = bincode::serde::decode_from_slice(bytes, format).ok()?;
        (taken == bytes.len()).then_some(sample)
    }

    /// Of this machine, now; `None` before the program runs.
    pub(super) fn take(probes: &Probes) -> Option<MachineSample> {
        let program = try_program()?;
        let rack = &program.rack;
        let own = &rack.machines()[usize::from(rack.machine())];
        let (resident_bytes, shared_bytes) = memory();
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(MachineSample {
            program: program_name(),
            machine: rack.machine(),
            host: own.host.clone(),
            pid: std::process::id(),
            at_ns: u64::try_from(origin().elapsed().as_nanos()).unwrap_or(u64::MAX),
            clock_ms: u64::try_from(clock.as_millis()).unwrap_or(u64::MAX),
            up_ms: u64::try_from(program.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            resident_bytes,
            shared_bytes,
            names: trust::Stats::default().iter().map(|(name, _)| name.to_owned()).collect(),
            workers: program
                .trustees
                .iter()
                .enumerate()
                .map(|(place, worker)| of_worker(*worker, place, probes))
                .collect(),
            sent: traffic::sent(rack.machines().len()),
        })
    }
}

fn of_worker(worker: TrusteeReference, place: usize, probes: &Probes) -> WorkerSample {
    let trips = probes.of(place);
    WorkerSample {
        values: trust::stats(worker).map_or_else(Vec::new, |stats| stats.iter().map(|(_, value)| value).collect()),
        state: trust::link::thread_state(worker).map_or_else(|| "X".to_owned(), String::from),
        silent_ms: trips.silent_ms,
        round_trips: trips.buckets.to_vec(),
        round_trips_ns: trips.sum_ns,
        kept_by: trips.kept_by,
        memory_bytes: trips.memory_bytes,
    }
}

fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// The program's name, as people know it: its file's.
pub(super) fn program_name() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Memory of this process in use, and how much of it is shared; 0 where the system does not say.
fn memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    };
    (field("VmRSS:").unwrap_or(0), field("RssShmem:").unwrap_or(0))
}

/// The workers of this machine that are watched.
pub(super) fn workers() -> Vec<TrusteeReference> {
    try_program().map_or_else(Vec::new, |program: &Program| program.trustees.clone())
}
