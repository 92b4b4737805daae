//! The decisions, against a simulated pool: each worker has some fibers and some trustees, a request takes time at
//! both, and the rate is the highest one that overloads no worker.

use std::time::Duration;

use super::*;

const WINDOW: Duration = Duration::from_millis(10);
/// Time of a request at its client and at its trustee.
const CLIENT: f64 = 1e-6;
const TRUSTEE: f64 = 1e-6;

struct Pool {
    /// Share of the requests that each trustee has, and the worker that runs it.
    shares: Vec<f64>,
    places: Vec<usize>,
    /// Share of the requests that fibers of each worker make.
    fibers: Vec<f64>,
    /// Factors for the time of requests: of all at their trustees, and of all where some workers do not serve.
    work: f64,
    some_serve: f64,
    /// Part of the time that other threads have the core of each worker.
    stolen: Vec<f64>,
    is_bound: Vec<bool>,
    is_idle: bool,
    /// Trustees do not go where they are asked to.
    stays: bool,
    sample: Sample,
    controller: Controller,
    noise: f64,
    seed: u64,
    /// Moves, each at its time.
    moves: Vec<(Duration, Move)>,
}

impl Pool {
    fn new(workers: usize, shares: Vec<f64>, seed: u64) -> Pool {
        let seats = shares.len();
        let sum: f64 = shares.iter().sum();
        let mut pool = Pool {
            shares: shares.into_iter().map(|share| share / sum).collect(),
            places: (0..seats).map(|seat| seat % workers).collect(),
            fibers: vec![1.0 / workers as f64; workers],
            work: 1.0,
            some_serve: 1.0,
            stolen: vec![0.0; workers],
            is_bound: vec![false; seats],
            is_idle: false,
            stays: false,
            sample: Sample { idle: vec![Duration::ZERO; workers], stolen: vec![0.0; workers], ..Sample::default() },
            controller: Controller::new(workers, seats),
            noise: 0.02,
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            moves: Vec::new(),
        };
        pool.sample = pool.seen(&[], 0.0);
        pool
    }

    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Time of each worker for one request of the pool.
    fn costs(&self) -> Vec<f64> {
        let all_serve = (0..self.fibers.len()).all(|worker| self.places.contains(&worker));
        let factor = if all_serve { 1.0 } else { self.some_serve };
        let mut costs: Vec<f64> = self.fibers.iter().map(|share| share * CLIENT * factor).collect();
        for (share, &place) in self.shares.iter().zip(&self.places) {
            costs[place] += share * TRUSTEE * self.work * factor;
        }
        costs.iter_mut().zip(&self.stolen).for_each(|(cost, stolen)| *cost /= 1.0 - stolen);
        costs
    }

    /// Requests a second.
    fn rate(&self) -> f64 {
        if self.is_idle { 0.0 } else { 1.0 / self.costs().into_iter().fold(0.0, f64::max) }
    }

    fn seen(&self, costs: &[f64], requests: f64) -> Sample {
        let at = self.sample.at + if costs.is_empty() { Duration::ZERO } else { WINDOW };
        let idle = |(worker, idle): (usize, &Duration)| {
            let busy = costs.get(worker).map_or(Duration::ZERO, |cost| Duration::from_secs_f64(cost * requests));
            *idle + (at - self.sample.at).saturating_sub(busy)
        };
        let served = |seat: usize| {
            let before = self.sample.seats.get(seat).map_or(0, |seat| seat.served);
            before + (requests * self.shares[seat]) as u64
        };
        let seat = |seat| SeatSample { served: served(seat), worker: self.places[seat], is_bound: self.is_bound[seat] };
        Sample {
            at,
            idle: self.sample.idle.iter().enumerate().map(idle).collect(),
            stolen: self.stolen.iter().zip(costs).map(|(part, cost)| if *cost > 0.0 { *part } else { 0.0 }).collect(),
            seats: (0..self.shares.len()).map(seat).collect(),
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.sample.at + time;
        while self.sample.at < end {
            let noise = 1.0 + self.noise * (2.0 * self.random() - 1.0);
            let requests = self.rate() * WINDOW.as_secs_f64() * noise.min(1.0 / noise);
            let next = self.seen(&self.costs(), requests);
            let moves = self.controller.decide(&self.sample, &next);
            for &to in &moves {
                assert!(!self.is_bound[to.seat], "a trustee that cannot move");
                assert!(self.stays || self.places[to.seat] != to.to, "a move to where it is");
                if !self.stays {
                    self.places[to.seat] = to.to;
                }
                self.moves.push((next.at, to));
            }
            self.sample = next;
        }
    }

    fn moves_since(&self, at: Duration) -> usize {
        self.moves.iter().filter(|(moved, _)| *moved >= at).count()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn hot_trustees_of_one_worker_are_parted() {
    let mut pool = Pool::new(4, vec![4.0, 0.1, 0.1, 0.1, 4.0, 0.1, 0.1, 0.1], 1);
    // All on the worker that has the first one.
    assert_eq!(pool.places[0], pool.places[4]);
    let before = pool.rate();
    pool.run(5 * SECOND);
    assert_ne!(pool.places[0], pool.places[4]);
    assert!(pool.rate() > 1.3 * before, "{} after {before}", pool.rate());
}

#[test]
fn a_steady_load_sees_a_move_in_ten_seconds_at_most() {
    for seed in 0..5 {
        let shares = (1..=8).map(f64::from).collect();
        let mut pool = Pool::new(4, shares, seed);
        pool.some_serve = 1.0 + 0.1 * seed as f64;
        pool.run(120 * SECOND);
        let (since, trials) = (pool.sample.at, pool.controller.trials().0);
        pool.run(600 * SECOND);
        let trials = pool.controller.trials().0 - trials;
        assert!(trials <= 60, "seed {seed}: {trials} trials, {} moves", pool.moves_since(since));
    }
}

#[test]
fn a_trial_that_costs_is_undone_and_comes_ever_more_rarely() {
    // Sharing is best: where some do not serve, each request takes half as long again.
    let mut pool = Pool::new(4, vec![1.0; 4], 3);
    pool.some_serve = 1.5;
    let (before, places) = (pool.rate(), pool.places.clone());
    pool.run(600 * SECOND);
    let (trials, undone) = pool.controller.trials();
    assert!((6..=20).contains(&undone), "{undone} of {trials}");
    pool.run(3 * SECOND);
    assert_eq!((pool.rate(), &pool.places), (before, &places));
    assert_eq!(pool.controller.servers().len(), 4);
}

#[test]
fn fewer_workers_serve_where_that_is_faster() {
    let mut pool = Pool::new(4, vec![1.0; 8], 4);
    pool.some_serve = 0.5;
    pool.run(10 * SECOND);
    let servers = pool.controller.servers();
    assert!(servers.len() < 4 && servers.ends_with(&[3]), "the last ones: {servers:?}");
    assert!(pool.places.iter().all(|place| servers.contains(place)), "{:?}", pool.places);
}

#[test]
fn workers_that_lose_their_core_do_not_serve() {
    // Fewer are faster, and the last worker, which would serve then, has half a core.
    let mut pool = Pool::new(2, vec![1.0; 2], 8);
    (pool.some_serve, pool.stolen[1]) = (0.5, 0.5);
    pool.fibers = vec![0.9, 0.1];
    pool.run(5 * SECOND);
    assert_eq!((pool.places.as_slice(), pool.controller.servers()), ([0, 0].as_slice(), [0].as_slice()));
    // The other one, from here on.
    pool.stolen = vec![0.5, 0.0];
    pool.fibers = vec![0.1, 0.9];
    pool.run(20 * SECOND);
    assert_eq!((pool.places.as_slice(), pool.controller.servers()), ([1, 1].as_slice(), [1].as_slice()));
}

#[test]
fn another_load_is_noticed() {
    let mut pool = Pool::new(4, vec![4.0, 4.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], 5);
    pool.run(60 * SECOND);
    // Two trustees of one worker are hot from here on.
    let first = pool.places.iter().position(|&place| place == pool.places[7]).unwrap_or(0);
    let (one, other) = if first == 7 { (6, 7) } else { (first, 7) };
    pool.places[one] = pool.places[other];
    pool.shares = vec![0.01; 8];
    (pool.shares[one], pool.shares[other]) = (0.47, 0.47);
    let before = pool.rate();
    pool.run(15 * SECOND);
    assert!(pool.rate() > 1.2 * before, "{} after {before}", pool.rate());
}

/// By turns fewer workers that serve are faster, where there is little to do, and all of them.
#[test]
fn phases_are_followed_within_some_windows() {
    let mut pool = Pool::new(2, vec![1.0; 2], 10);
    for phase in 0..6 {
        let servers = 1 + phase % 2;
        (pool.work, pool.some_serve) = if servers == 1 { (1.0, 0.3) } else { (10.0, 1.0) };
        let mut windows = 0;
        while pool.controller.servers().len() != servers {
            pool.run(WINDOW);
            windows += 1;
            assert!(windows <= 10, "phase {phase}");
        }
        pool.run(2 * SECOND);
        assert_eq!(pool.controller.servers().len(), servers, "phase {phase}");
    }
}

#[test]
fn trustees_that_cannot_move_stay() {
    let mut pool = Pool::new(2, vec![1.0; 6], 6);
    pool.some_serve = 0.5;
    pool.is_bound = vec![true, false, true, false, false, false];
    pool.run(30 * SECOND);
    assert_eq!((pool.places[0], pool.places[2]), (0, 0));
}

#[test]
fn an_idle_pool_is_left_alone() {
    let mut pool = Pool::new(4, vec![1.0; 4], 7);
    pool.is_idle = true;
    pool.run(30 * SECOND);
    assert_eq!(pool.controller.trials(), (0, 0));
    assert!(!pool.controller.is_watching());
}

/// Under random loads trials do not make it worse than it was by more than they may cost.
#[test]
fn no_load_is_made_worse() {
    for seed in 0..20 {
        let workers = [2, 4, 16, 64][seed as usize % 4];
        let mut pool = Pool::new(workers, vec![1.0; workers.min(16)], seed);
        for seat in 0..pool.shares.len() {
            pool.shares[seat] = pool.random().powi(4);
        }
        let sum: f64 = pool.shares.iter().sum();
        pool.shares.iter_mut().for_each(|share| *share /= sum);
        pool.some_serve = 0.7 + 0.6 * pool.random();
        let before = pool.rate();
        pool.run(100 * SECOND);
        // A trial may be under way.
        let rates: Vec<f64> = (0..5)
            .map(|_| {
                pool.run(SECOND);
                pool.rate()
            })
            .collect();
        let best = rates.iter().copied().fold(0.0, f64::max);
        assert!(best > 0.94 * before, "seed {seed}: {best} after {before}");
    }
}

/// Some windows, of which one is good, are no ruin, and nothing to keep either.
#[test]
fn few_uneven_windows_decide_nothing() {
    let before = Rates::of([1.0; 10].into_iter());
    let with = |rates: &[f64]| Trial {
        kind: Kind::Gather,
        before,
        moves: Vec::new(),
        undo: Vec::new(),
        servers: Vec::new(),
        windows: SETTLING,
        settled: SETTLING,
        rates: rates.to_vec(),
    };
    assert!(with(&[0.3, 0.29, 0.99]).effect().is_none() && with(&[0.1, 0.9, 0.9]).effect().is_none());
    assert!(with(&[0.3, 0.31, 0.29]).effect().is_some_and(|after| after.differ_from(&before, SURE)));
    assert!(with(&[1.0, 1.02, 0.99, 1.01]).effect().is_none());
    assert!(with(&[1.5, 1.52, 1.49, 1.51]).effect().is_some_and(|after| after.differ_from(&before, SURE)));
}

#[test]
fn rates_of_few_requests_tell_of_no_other_load() {
    for (rate, tells) in [(1e3, false), (1e6, true)] {
        let mut controller = Controller::new(2, 2);
        controller.rates = vec![rate; WINDOWS_MIN].into();
        let found = [0.5, 1.8, 0.5].map(|part| controller.is_other_load(part * rate, WINDOW.as_secs_f64()));
        assert_eq!(found, [false, false, tells], "{rate}");
    }
}

/// Trustees that cannot go where they are asked to leave the workers that serve as they were.
#[test]
fn a_trial_that_moves_nothing_is_over() {
    let mut pool = Pool::new(2, vec![1.0; 2], 9);
    pool.stays = true;
    pool.run(SECOND);
    let (trials, undone) = pool.controller.trials();
    assert!(trials == 1 && undone == 1, "{undone} of {trials}");
    let to: Vec<usize> = pool.moves.iter().map(|(_, to)| to.to).collect();
    assert_eq!(to, [1, 0], "asked to stay, as it may still go");
    assert_eq!((pool.places.as_slice(), pool.controller.servers()), ([0, 1].as_slice(), [0, 1].as_slice()));
}
