//! Workloads and contenders, and which contender runs which workload.

use super::conditions::{BURST, Condition};
use super::std_threads::{beside_pool, beside_servers};
use crate::contender::Timed;
use crate::contenders::{Mode, MutexCounter, ParkingLotCounter, apply, apply_then, shared};
use crate::kv::tables;
use crate::names::serde_by_name;
use crate::options::FIBERS;
use crate::prelude::*;
use crate::watch::Split;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Work {
    /// `apply` on 1,024 counters, one fiber a worker; latencies are taken
    #[value(name = "apply")]
    Apply,
    /// `apply` on 1,024 counters, 64 fibers a worker
    #[value(name = "apply-64-fibers")]
    ApplyFibers,
    /// `apply_then` on one counter
    #[value(name = "apply_then-1")]
    ApplyThen1,
    /// `apply_then` on 16 counters
    #[value(name = "apply_then-16")]
    ApplyThen16,
    /// `apply_then` on 1,024 counters
    #[value(name = "apply_then-1024")]
    ApplyThen1024,
    /// A hash table of 1,000 keys by Zipf's law, 5% writes, a shard a worker
    #[value(name = "tables-zipf")]
    TablesZipf,
    /// Each plain thread asks one trustee; only in `std-threads`, as the next three
    #[value(name = "trustees-1")]
    Trustees1,
    /// Each plain thread asks two trustees in turn
    #[value(name = "trustees-2")]
    Trustees2,
    /// Each plain thread asks 16 trustees in turn; the pool has a worker for each, though there may be fewer cores
    #[value(name = "trustees-16")]
    Trustees16,
    /// Each plain thread asks 16 objects in turn, dealt to as many trustees as there are cores
    #[value(name = "shards-16")]
    Shards16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Who {
    /// Delegation with the default way of waiting
    Default,
    /// Delegation with workers that sleep without polling first
    #[value(name = "spin-0")]
    Spin0,
    /// They poll for up to 20 us
    #[value(name = "spin-20us")]
    Spin20us,
    /// They poll for up to 500 us
    #[value(name = "spin-500us")]
    Spin500us,
    /// They poll for up to 2 ms
    #[value(name = "spin-2ms")]
    Spin2ms,
    /// std Mutex; for the table 512 shards, each under one
    StdMutex,
    /// parking_lot Mutex
    #[value(name = "parking_lot")]
    ParkingLot,
    /// DashMap
    #[value(name = "dashmap")]
    DashMap,
    /// Requests and replies by std::sync::mpsc, a thread a server
    StdMpsc,
}

const KEYS: usize = 1000;
const WRITES_PERCENT: u32 = 5;
const MANY_OBJECTS: usize = 1024;
const SHARDS: usize = 16;

/// Kind of a value.
pub fn text_of(value: impl ValueEnum) -> String {
    let help = value.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string));
    help.unwrap_or_default()
}

serde_by_name!(Work, Who);

impl Who {
    /// The contenders with a fixed spin.
    pub const SPINS: [Who; 4] = [Who::Spin0, Who::Spin20us, Who::Spin500us, Who::Spin2ms];

    fn spin(self) -> Option<Duration> {
        match self {
            Who::Spin0 => Some(Duration::ZERO),
            Who::Spin20us => Some(Duration::from_micros(20)),
            Who::Spin500us => Some(Duration::from_micros(500)),
            Who::Spin2ms => Some(Duration::from_millis(2)),
            _ => None,
        }
    }
}

impl Work {
    /// Whether it is for plain threads beside a pool.
    fn is_for_std_threads(self) -> bool {
        self >= Work::Trustees1
    }

    /// Whether it is measured under this condition on so many cores.
    pub fn is_in(self, condition: Condition, cores: usize) -> bool {
        let differs = self != Work::Shards16 || cores < SHARDS;
        self.is_for_std_threads() == (condition == Condition::StdThreads) && differs
    }

    pub fn suits(self, who: Who) -> bool {
        match who {
            Who::StdMutex => !self.is_for_std_threads(),
            Who::ParkingLot => !self.is_for_std_threads() && self != Work::TablesZipf,
            Who::DashMap => self == Work::TablesZipf,
            Who::StdMpsc => self.is_for_std_threads(),
            _ => true,
        }
    }

    pub fn is_timed(self) -> bool {
        self == Work::Apply || self.is_for_std_threads()
    }

    fn objects(self) -> usize {
        match self {
            Work::ApplyThen1 | Work::Trustees1 => 1,
            Work::Trustees2 => 2,
            Work::ApplyThen16 | Work::Trustees16 | Work::Shards16 => SHARDS,
            Work::Apply | Work::ApplyFibers | Work::ApplyThen1024 => MANY_OBJECTS,
            Work::TablesZipf => KEYS,
        }
    }
}

/// One run that is to be made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub condition: Condition,
    pub work: Work,
    pub who: Who,
    pub millis: u64,
    pub round: usize,
    pub seed: u64,
}

impl Spec {
    /// The contender and its workload on so many cores, with latencies told apart like this.
    pub fn stage(&self, cores: usize, split: Split) -> (Contender, Workload) {
        let threads = self.condition.workers(cores);
        let objects = self.work.objects();
        let dist = if self.work == Work::TablesZipf { Dist::Zipf } else { Dist::Uniform };
        let picks = Picks::new(dist, objects, threads, self.seed.wrapping_add(self.round as u64));
        let bursts = (self.condition == Condition::Bursts).then_some(BURST);
        let workload = Workload {
            timed: Some(Timed { lasts: Duration::from_millis(self.millis), bursts }),
            fibers: if self.work == Work::ApplyFibers { FIBERS } else { 1 },
            pin: self.condition.pins(),
            spin: self.who.spin(),
            watch: self.work.is_timed().then_some(split),
            ..Workload::of(threads, objects, picks)
        };
        (self.contender(cores, &workload.picks), workload)
    }

    fn contender(&self, cores: usize, picks: &Picks) -> Contender {
        let operations = || picks.marked(WRITES_PERCENT, self.seed);
        match (self.work, self.who) {
            (Work::TablesZipf, Who::DashMap) => tables::of_dashmap(operations()),
            (Work::TablesZipf, Who::StdMutex) => tables::of_mutexes(operations()),
            (Work::TablesZipf, _) => tables::delegated(Mode::Shared, operations()),
            (_, Who::StdMutex) => shared::<MutexCounter>(),
            (_, Who::ParkingLot) => shared::<ParkingLotCounter>(),
            (_, Who::StdMpsc) => beside_servers(self.trustees(cores)),
            (work, _) if work.is_for_std_threads() => beside_pool(self.trustees(cores).max(cores)),
            (Work::Apply | Work::ApplyFibers, _) => apply(Mode::Shared),
            _ => apply_then(Mode::Shared),
        }
    }

    /// Trustees, or servers, that plain threads ask.
    fn trustees(&self, cores: usize) -> usize {
        let objects = self.work.objects();
        if self.work == Work::Shards16 { objects.min(cores) } else { objects }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_counts_right_in_each_of_its_workloads() {
        let mut runs = 0;
        for &work in Work::value_variants() {
            let condition = if work.is_for_std_threads() { Condition::StdThreads } else { Condition::Quiet };
            for &who in Who::value_variants().iter().filter(|&&who| work.suits(who)) {
                let spec = Spec { condition, work, who, millis: 5, round: 1, seed: 1 };
                let (contender, workload) = spec.stage(2, Split::Whole);
                let run = contender.run(&workload).unwrap();
                run.verify(run.ops).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
                contender.finish().unwrap_or_else(|error| panic!("{spec:?}: {error}"));
                assert!(run.ops > 0 && run.rate_hz > 0.0, "{spec:?}");
                assert!(run.elapsed >= Duration::from_millis(5), "{spec:?}: {:?}", run.elapsed);
                assert_eq!(run.latencies.is_some(), work.is_timed(), "{spec:?}");
                let delegates = who == Who::Default || Who::SPINS.contains(&who);
                assert_eq!(run.stats.contains_key("parks"), delegates, "{spec:?}");
                runs += 1;
            }
        }
        assert_eq!(runs, 5 * 7 + 7 + 4 * 6, "counters, the table, plain threads");
    }
}
