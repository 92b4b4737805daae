//! Sample of a machine: counters of its workers, their answers to probes, memory, traffic.
//!
//! Here: the data, and how it is read. Not here: when (`answer.rs`), or its meaning (`snapshot.rs`).

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};
use trust::TrusteeReference;

use super::probe::Probes;
pub use super::probe::ROUND_TRIP_BOUNDS_NS;
use super::stacks::Stack;
use super::tasks::{self, TasksSample};
use super::threads::{self, ThreadsSample};
use super::traffic;
use crate::losses::record;
use crate::rack::{Program, try_program};
use crate::{codec, names};

/// Sample of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSample {
    /// Name of the program's file, without its folders. Never its arguments.
    pub program: String,
    /// Number of the machine.
    pub machine: u16,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Nanoseconds since its first sample, by a clock that never jumps: for rates.
    pub at_ns: u64,
    /// Milliseconds since 1970.
    pub clock_ms: u64,
    /// Milliseconds since its start.
    pub up_ms: u64,
    /// Memory of the process in use, in bytes.
    pub resident_bytes: u64,
    /// Bytes of it that are shared with other processes.
    pub shared_bytes: u64,
    /// Names of the values of each worker.
    pub names: Vec<String>,
    /// Its workers, in order.
    pub workers: Vec<WorkerSample>,
    /// Batches sent to each machine, and their bytes (requests and answers).
    pub sent: Vec<(u64, u64)>,
    /// Trusts that are published by name, on machine 0.
    #[serde(default)] // programs of earlier releases have none
    pub published: Vec<NamedTrust>,
    /// Machines that the program has lost, as far as this one knows, each with the cause.
    #[serde(default)]
    pub lost: Vec<(u16, String)>,
    /// Tasks there.
    #[serde(default)]
    pub tasks: TasksSample,
    /// Threads of a C program there.
    #[serde(default)]
    pub threads: ThreadsSample,
    /// Stacks of workers that do not come to their loop, by the worker's number. Sampled anew every few seconds.
    #[serde(default)]
    pub stacks: Vec<(usize, Stack)>,
    /// Trustees that move between the workers of pools that the program has beside its own workers.
    #[serde(default)]
    pub moving: Vec<MovingTrustee>,
}

/// Trustee that moves between the workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovingTrustee {
    /// Name of the pool.
    pub pool: String,
    /// The trustee, as errors and dumps name it.
    pub trustee: String,
    /// Index of the pool's worker that runs it.
    pub worker: usize,
    /// Requests that it has run.
    pub requests: u64,
    /// Its moves.
    pub moves: u64,
    /// Those that undid a trial.
    pub moves_undone: u64,
    /// Moves that did not take place.
    pub moves_refused: u64,
    /// The reason why the last one did not, if it did not.
    pub bound: String,
}

/// Trust that is published by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedTrust {
    /// The name.
    pub name: String,
    /// Type of the property.
    pub type_name: String,
    /// Its place.
    pub place: String,
}

/// Activity of one worker since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSample {
    /// Values in the order of [`MachineSample::names`].
    pub values: Vec<u64>,
    /// State of its thread, as reported by the kernel: `R`, `S`, `D`, `T`.
    pub state: String,
    /// Time for which a probe has not been answered, in milliseconds; 0 if all are.
    pub silent_ms: u64,
    /// Round trips of probes: their number in each bucket of [`ROUND_TRIP_BOUNDS_NS`], and beyond.
    pub round_trips: Vec<u64>,
    /// Sum of the round trips, in nanoseconds.
    pub round_trips_ns: u64,
    /// Closure or fiber that keeps it from its loop, if a probe has not been answered for long and that is known.
    pub kept_by: String,
    /// Memory of its own: stacks of its fibers, pages of its properties.
    pub memory_bytes: u64,
}

impl NamedTrust {
    fn of((name, type_name, place): (String, String, String)) -> NamedTrust {
        NamedTrust { name, type_name, place }
    }
}

impl MachineSample {
    /// Returns a value of a worker by its name, 0 if there is none.
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

    /// Encodes the sample, for [`MachineSample::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes the sample in these bytes, if it is one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<MachineSample> {
        codec::decode::<_, { 64 << 20 }>(bytes).ok()
    }

    /// Takes a sample of this machine, now; `None` before the program runs.
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
            published: names::published().into_iter().map(NamedTrust::of).collect(),
            lost: record::all().into_iter().map(|loss| (loss.machine, loss.cause)).collect(),
            tasks: tasks::take(),
            threads: threads::take(),
            stacks: (program.trustees.iter().enumerate())
                .filter_map(|(place, worker)| Some((place, probes.stack_of(*worker)?)))
                .collect(),
            moving: moving(),
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

fn moving() -> Vec<MovingTrustee> {
    let of_pool = |(pool, place): (String, trust::Place)| {
        let stats = trust::stats(place.trustee)?;
        Some(MovingTrustee {
            pool,
            trustee: format!("{:?}", place.trustee.id()),
            worker: place.worker,
            requests: stats.requests_served + stats.requests_run_here,
            moves: stats.moves,
            moves_undone: stats.moves_undone,
            moves_refused: stats.moves_refused,
            bound: place.bound.map_or_else(String::new, |bound| bound.to_string()),
        })
    };
    trust::link::moving().into_iter().filter_map(of_pool).collect()
}

fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Returns the program's name for people: that of its file.
pub(super) fn program_name() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the memory of this process in use, and the shared bytes of it; 0 if the system does not tell.
fn memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    };
    (field("VmRSS:").unwrap_or(0), field("RssShmem:").unwrap_or(0))
}

/// Returns the trustees of this machine that move, of pools that the program has beside its workers.
pub(super) fn moving_trustees() -> Vec<TrusteeReference> {
    trust::link::moving().into_iter().map(|(_, place)| place.trustee).collect()
}

/// Returns the workers of this machine that are watched.
pub(super) fn workers() -> Vec<TrusteeReference> {
    try_program().map_or_else(Vec::new, |program: &Program| program.trustees.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trustees_that_move_are_seen_with_their_pool_worker_and_moves() {
        let pool = trust::Threadpool::builder().workers(2).trustees(2).pin(false).name("tables").build();
        pool.entrust(0).apply(|count| *count += 1);
        let asked = trust::link::ask_to_move(&pool, 0, 1);
        limits::wait_until("it moves", || asked.outcome().is_some());
        let seen: Vec<MovingTrustee> = moving().into_iter().filter(|trustee| trustee.pool == "tables").collect();
        let places: Vec<_> = seen.iter().map(|trustee| (trustee.worker, trustee.moves)).collect();
        assert_eq!(places, [(1, 1), (1, 0)]);
        assert!(seen[0].requests > 0 && seen[0].bound.is_empty(), "{seen:?}");
        assert_eq!(seen[0].trustee, format!("{:?}", pool.trustees()[0].id()));
    }
}
