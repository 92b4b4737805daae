//! A simulated rack, which has no threads and no clock: what `gossamer-bench racks` runs.
//!
//! Each worker keeps a number of requests outstanding. Today each pair of workers has a ring of its own; beside it the
//! state machines of `gossamer-ways` run, the same that a rack would run. Times are sums of measured costs
//! ([`mod@costs`]), so figures compare the two schemes and say nothing about a machine.
//!
//! Large racks are *folded*: as traffic is the same for each machine, one stands for all, and the frames that leave it
//! for the machine at some distance come to it from that distance on the other side. Whole racks give the same figures
//! within a quarter (`folded_and_whole_racks_agree`).
//!
//! Here: the setups and their figures. Not here: the steps of the simulation (`world`), destinations
//! ([`mod@traffic`]), memory ([`mod@memory`]), the tables of docs/scaling.md ([`mod@tables`]).
//!
//! Invariant: a run in which a request was answered twice, never, or out of the order of its pair gives no figures.

#![forbid(unsafe_code)]

pub mod costs;
mod grid;
pub mod memory;
mod sending;
pub mod tables;
pub mod traffic;
mod verified;
mod worker;
mod world;

use gossamer_ways::ways::Limits;
use serde::Serialize;
use traffic::Traffic;

/// Racks that are simulated: machines, and workers of each.
pub const RACKS: [(u16, u16); 3] = [(12, 32), (64, 64), (1000, 128)];

/// Rings between workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// A ring for each pair of workers, and a write for each batch.
    Rings,
    /// Machine ways, and direct ways for those that need them.
    Ways,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Machines and workers of each.
    pub rack: (u16, u16),
    /// Destinations of requests.
    pub traffic: Traffic,
    /// The scheme.
    pub scheme: Scheme,
    /// Requests that each worker keeps outstanding.
    pub outstanding: u32,
    /// Requests of a worker before the figures begin, and while they are taken, in multiples of `outstanding`.
    pub rounds: (u32, u32),
    /// Is every machine simulated?
    pub is_whole: bool,
    /// Knobs of direct ways.
    pub limits: Limits,
    /// Seed of the destinations.
    pub seed: u64,
}

impl Setup {
    /// A folded run of the size of the tables.
    pub fn new(rack: (u16, u16), traffic: Traffic, scheme: Scheme) -> Setup {
        let (rounds, limits) = ((18, 6), Limits::of_machine(rack.1));
        Setup { rack, traffic, scheme, outstanding: 512, rounds, is_whole: false, limits, seed: 1 }
    }

    /// Runs it. An error says which request was answered wrongly, or why there can be no such rack.
    pub fn run(self) -> Result<Figures, String> {
        world::run(self)
    }
}

/// Figures of a run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Requests, or answers, in a write.
    pub requests_a_write: f64,
    /// Writes of a machine in a second, acknowledgements among them.
    pub writes_a_second: f64,
    /// Requests that a machine's workers have answered in a second, in millions.
    pub mops: f64,
    /// Writes on the way of a request or an answer.
    pub hops: f64,
    /// Latency of a request, median.
    pub p50_us: f64,
    /// Latency of a request, 99th percentile.
    pub p99_us: f64,
    /// Direct ways that a machine's workers have in the end.
    pub direct_ways: usize,
    /// Queue pairs of a machine.
    pub queue_pairs: usize,
    /// Bytes of a machine: rings, what workers know of peers, and the most that waited in outboxes.
    pub bytes: usize,
    /// Requests that were answered, all of them once and in order.
    pub answered: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(rack: (u16, u16), traffic: Traffic, scheme: Scheme) -> Setup {
        Setup { outstanding: 32, rounds: (18, 4), ..Setup::new(rack, traffic, scheme) }
    }

    #[test]
    fn each_request_is_answered_once_in_all_traffics() {
        for traffic in Traffic::ALL {
            for scheme in [Scheme::Rings, Scheme::Ways] {
                let setup = Setup { is_whole: true, ..small((6, 4), traffic, scheme) };
                let figures = setup.run().unwrap();
                assert!(figures.answered >= 6 * 4 * 32 * 22, "{traffic:?}: {figures:?}");
                assert!(figures.requests_a_write >= 1.0 && figures.p50_us <= figures.p99_us, "{figures:?}");
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_figures_again() {
        let setup = small((6, 4), Traffic::Uniform, Scheme::Ways);
        assert_eq!(setup.run(), setup.run());
        assert_ne!(setup.run(), Setup { seed: 2, ..setup }.run());
    }

    #[test]
    fn ways_that_open_and_close_all_the_time_lose_nothing() {
        let limits = Limits { batches: 1, full_bytes: 1, within_ns: 1_000, rings: 2, unused_ns: 20_000 };
        for traffic in Traffic::ALL {
            let setup = Setup { limits, is_whole: true, ..small((6, 4), traffic, Scheme::Ways) };
            let figures = setup.run().unwrap();
            assert!(figures.direct_ways <= 4 * 2 && figures.answered >= 6 * 4 * 32 * 22, "{traffic:?}: {figures:?}");
        }
    }

    #[test]
    fn folded_and_whole_racks_agree() {
        for (traffic, scheme, rings) in [
            (Traffic::Uniform, Scheme::Rings, 0),
            (Traffic::Uniform, Scheme::Ways, 0),
            (Traffic::Neighbours, Scheme::Ways, 64),
            (Traffic::Phases, Scheme::Ways, 0),
        ] {
            let limits = Limits { rings, ..Limits::DEFAULT };
            let setup = Setup { outstanding: 128, rounds: (24, 8), limits, ..Setup::new((12, 8), traffic, scheme) };
            let (folded, whole) = (setup.run().unwrap(), Setup { is_whole: true, ..setup }.run().unwrap());
            for figure in [
                |figures: &Figures| figures.requests_a_write,
                |figures: &Figures| figures.writes_a_second,
                |figures: &Figures| figures.p50_us,
                |figures: &Figures| figures.hops,
            ] {
                let ratio = figure(&folded) / figure(&whole);
                assert!((0.8..1.25).contains(&ratio), "{traffic:?}: {ratio}, folded {folded:?}, whole {whole:?}");
            }
        }
    }

    #[test]
    fn far_machines_are_reached_in_two_writes() {
        let figures = small((300, 2), Traffic::Uniform, Scheme::Ways).run().unwrap();
        assert!(figures.hops > 1.8 && figures.hops < 2.0, "{figures:?}");
        assert!(small((257, 2), Traffic::Uniform, Scheme::Ways).run().is_err(), "a prime number makes no full rows");
    }

    #[test]
    fn workers_with_few_partners_get_direct_ways_to_them() {
        let setup = Setup { outstanding: 1024, ..Setup::new((12, 8), Traffic::Few, Scheme::Ways) };
        let figures = setup.run().unwrap();
        assert_eq!(figures.direct_ways, 8 * traffic::FEW, "{figures:?}");
        let small = Setup { outstanding: 128, ..setup };
        assert_eq!(small.run().unwrap().direct_ways, 0, "their batches are small");
        let none = Setup { limits: Limits { rings: 0, ..Limits::DEFAULT }, ..setup };
        assert_eq!(none.run().unwrap().direct_ways, 0);
    }
}
