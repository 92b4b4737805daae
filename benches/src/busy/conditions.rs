//! The conditions: how many workers, pinned or not, and which strangers take cores from them.
//!
//! Not here: whether they can be had (child.rs), the threads that take cores (strangers.rs), the quota (quota.rs).

use crate::names::serde_by_name;
use crate::prelude::*;

/// A condition under which the workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Condition {
    /// As many workers as cores, and nothing else runs
    Quiet,
    /// Half as many workers as cores, from 4 cores on
    HalfWorkers,
    /// A thread spins on the last core; workers are pinned
    HogPinned,
    /// A thread spins on the last core; workers are not pinned
    HogFloatingWorkers,
    /// A thread spins on no core in particular; workers are pinned
    HogFloats,
    /// Twice as many workers as cores
    #[value(name = "workers-2x")]
    Workers2x,
    /// Four times as many workers as cores
    #[value(name = "workers-4x")]
    Workers4x,
    /// A cgroup leaves the process CPU time for half the cores, by turns of 100 ms (needs a cgroup that can be written)
    Quota,
    /// A thread wakes every millisecond and spins for 50 us, on no core in particular
    Noise,
    /// All clients rest for 1 ms, then work for 1 ms, and so on
    Bursts,
    /// A thread of real-time priority (SCHED_FIFO) takes each core in turn for 4 ms, one every 100 ms (needs
    /// CAP_SYS_NICE)
    RealTime,
    /// Plain threads, as many as cores, ask a pool as wide as the machine
    StdThreads,
}

serde_by_name!(Condition);

/// How long the real-time thread has a core, and how often it takes one.
pub const TURN: Duration = Duration::from_millis(4);
/// From one turn of the real-time thread to the next.
pub const TURN_PERIOD: Duration = Duration::from_millis(100);
/// How long the noise lasts, and how often it comes.
pub const NOISE: Duration = Duration::from_micros(50);
/// From one noise to the next.
pub const NOISE_PERIOD: Duration = Duration::from_millis(1);
/// How long bursts last, and the rests between them.
pub const BURST: Duration = Duration::from_millis(1);

impl Condition {
    /// Workers, or threads that contend for locks.
    pub fn workers(self, cores: usize) -> usize {
        match self {
            Condition::HalfWorkers => (cores / 2).max(1),
            Condition::Workers2x => 2 * cores,
            Condition::Workers4x => 4 * cores,
            _ => cores,
        }
    }

    /// Whether they are pinned, as far as there is a core for each.
    pub fn pins(self) -> bool {
        self != Condition::HogFloatingWorkers
    }

    /// Cores that are left to the workers, on average.
    pub fn cores_left(self, cores: usize) -> f64 {
        let share = |part: Duration, whole: Duration| part.as_secs_f64() / whole.as_secs_f64();
        let cores = cores as f64;
        match self {
            Condition::HogPinned | Condition::HogFloatingWorkers | Condition::HogFloats => cores - 1.0,
            Condition::HalfWorkers | Condition::Quota | Condition::Bursts => cores / 2.0,
            Condition::Noise => cores - share(NOISE, NOISE_PERIOD),
            Condition::RealTime => cores - share(TURN, TURN_PERIOD),
            Condition::Quiet | Condition::Workers2x | Condition::Workers4x | Condition::StdThreads => cores,
        }
    }
}
