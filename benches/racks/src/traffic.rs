//! Destinations of requests, by distance: the same for the workers with one number on all machines.

use gossamer_ways::Peer;
use rand::Rng;
use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand_distr::Zipf;
use serde::Serialize;

use crate::grid::Grid;

/// Partners of a worker in [`Traffic::Neighbours`].
pub const NEIGHBOURS: usize = 64;
/// The same in [`Traffic::Few`].
pub const FEW: usize = 2;
/// Exponent of [`Traffic::Zipf`], as YCSB has it.
const EXPONENT: f64 = 0.99;

/// Kind of destinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Traffic {
    /// Any worker of another machine, each as often.
    Uniform,
    /// The same by Zipf's law: each worker has favourites of its own.
    Zipf,
    /// 64 partners, each as often.
    Neighbours,
    /// Two partners, each as often.
    Few,
    /// All to all: one partner after the other, each gets all that is outstanding.
    Phases,
}

impl Traffic {
    /// All kinds.
    pub const ALL: [Traffic; 5] = [Traffic::Uniform, Traffic::Zipf, Traffic::Neighbours, Traffic::Few, Traffic::Phases];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Traffic::Uniform => "uniform",
            Traffic::Zipf => "zipf",
            Traffic::Neighbours => "neighbours",
            Traffic::Few => "few",
            Traffic::Phases => "phases",
        }
    }
}

/// Destinations of a rack.
#[derive(Debug)]
pub(crate) struct Destinations {
    traffic: Traffic,
    workers: u16,
    /// All workers of other machines.
    others: u32,
    neighbours: Vec<Peer>,
    zipf: Zipf<f64>,
}

impl Destinations {
    pub(crate) fn new(traffic: Traffic, (machines, workers): (u16, u16), grid: Grid) -> Result<Destinations, String> {
        let others = u32::from(machines.saturating_sub(1)) * u32::from(workers);
        let zipf = Zipf::new(f64::from(others), EXPONENT).map_err(|error| format!("no other workers: {error}"))?;
        let partners = if traffic == Traffic::Few { FEW } else { NEIGHBOURS };
        let neighbours = neighbours(partners, (machines, workers), grid);
        Ok(Destinations { traffic, workers, others, neighbours, zipf })
    }

    /// Picks the destination of a worker's next request, in its phase of this number.
    pub(crate) fn pick(&self, worker: u16, phase: u32, random: &mut SmallRng) -> Peer {
        match self.traffic {
            Traffic::Uniform => self.other(random.random_range(0..self.others)),
            Traffic::Zipf => {
                let rank = (self.zipf.sample(random) as u32 - 1).min(self.others - 1);
                // A prime larger than any number of workers: each worker has an order of its own.
                let place = u64::from(rank) * 2_147_483_647 + u64::from(worker) * 40_503;
                self.other((place % u64::from(self.others)) as u32)
            }
            Traffic::Neighbours | Traffic::Few => {
                let Peer { machine, worker: distance } = self.neighbours[random.random_range(0..self.neighbours.len())];
                Peer { machine, worker: (worker + distance) % self.workers }
            }
            Traffic::Phases => {
                let machines = self.others / u32::from(self.workers);
                let distance = (phase / machines) as u16 % self.workers;
                Peer { machine: 1 + (phase % machines) as u16, worker: (worker + distance) % self.workers }
            }
        }
    }

    fn other(&self, index: u32) -> Peer {
        let workers = u32::from(self.workers);
        Peer { machine: 1 + (index / workers) as u16, worker: (index % workers) as u16 }
    }
}

/// Distances of so many partners, each with the one back: a worker's partners have it for a partner.
fn neighbours(most: usize, (machines, workers): (u16, u16), grid: Grid) -> Vec<Peer> {
    let mut found = Vec::new();
    for worker in 0..workers {
        for machine in 1..machines {
            let there = Peer { machine, worker };
            let back = Peer { machine: grid.back(machine), worker: (workers - worker) % workers };
            if found.len() + 1 + usize::from(there != back) <= most && !found.contains(&there) {
                found.push(there);
                if there != back {
                    found.push(back);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use gossamer_ways::route::Route;
    use rand::SeedableRng;
    use std::collections::HashSet;

    fn destinations(traffic: Traffic, rack: (u16, u16)) -> Destinations {
        let grid = Grid::of(Route::new(rack.0, Route::DIRECT_MAX), rack.0).unwrap();
        Destinations::new(traffic, rack, grid).unwrap()
    }

    #[test]
    fn neighbours_are_mutual() {
        let kinds = [(Traffic::Neighbours, NEIGHBOURS), (Traffic::Few, FEW)];
        for (rack, (traffic, partners)) in crate::RACKS.into_iter().flat_map(|rack| kinds.map(|kind| (rack, kind))) {
            let found = destinations(traffic, rack).neighbours;
            let distinct: HashSet<_> = found.iter().copied().collect();
            assert_eq!((found.len(), distinct.len()), (partners, partners), "{rack:?}");
            let grid = Grid::of(Route::new(rack.0, Route::DIRECT_MAX), rack.0).unwrap();
            for Peer { machine, worker } in found {
                let back = Peer { machine: grid.back(machine), worker: (rack.1 - worker) % rack.1 };
                assert!(distinct.contains(&back), "{rack:?}: {back:?}");
            }
        }
    }

    #[test]
    fn favourites_differ_by_worker_and_are_few() {
        let destinations = destinations(Traffic::Zipf, (12, 32));
        let mut random = SmallRng::seed_from_u64(1);
        let mut favourite = |worker: u16| {
            let mut counts = std::collections::HashMap::<Peer, u32>::new();
            for _ in 0..10_000 {
                *counts.entry(destinations.pick(worker, 0, &mut random)).or_default() += 1;
            }
            counts.into_iter().map(|(peer, count)| (count, peer)).max().unwrap()
        };
        let (one, other) = (favourite(0), favourite(1));
        assert!(one.0 > 1_000 && other.0 > 1_000, "{one:?} {other:?}");
        assert_ne!(one.1, other.1);
    }

    #[test]
    fn phases_reach_all() {
        let destinations = destinations(Traffic::Phases, (12, 32));
        let mut random = SmallRng::seed_from_u64(1);
        let reached: HashSet<_> = (0..11 * 32).map(|phase| destinations.pick(5, phase, &mut random)).collect();
        assert_eq!(reached.len(), 11 * 32);
    }
}
