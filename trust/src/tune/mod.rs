//! Which worker of a tuned pool runs which trustee: decided by trials.
//!
//! Here: the decision, a function of two samples and of what was tried before; no clock, no thread, no pool. The thread
//! that takes the samples and asks for the moves: `tuner.rs`. The moves themselves: `runtime/seats`.
//!
//! A *window* lies between two samples. The rate of a window is the number of requests that all trustees have served in
//! it, per second. Where the workers' load is uneven, a trial moves trustees, and the rates after are compared with
//! those before: a loss of more than [`LOSS`] and of two deviations is undone, and that kind of trial blocked, for
//! longer each time. A trial that brings less than that stays, and is followed by [`QUIET`] without any: so a steady
//! load sees a move in ten seconds at most.
//!
//! Kinds of trials: [`Balance`](Kind::Balance) moves one trustee from a busy worker to an idle one;
//! [`Gather`](Kind::Gather) halves the number of workers that serve, [`Spread`](Kind::Spread) doubles it. The workers
//! that serve are the last ones; where not all serve, new fibers avoid those that do.

mod plan;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod tuner;

use std::collections::VecDeque;
use std::time::Duration;

/// Windows that the rates before and after a trial are taken from.
const WINDOWS: usize = 10;
/// Windows after a move that do not count: caches fill, queues empty.
const SETTLING: usize = 2;
/// Part of the rate that a trial may cost.
const LOSS: f64 = 0.03;
/// Part of the time from which a worker counts as busy, and up to which it counts as idle.
const BUSY: f64 = 0.9;
const IDLE: f64 = 0.6;
/// Servers that are busy for a smaller part of the time are too many.
const TOO_MANY: f64 = 0.5;
/// Time without trials after one that brought little.
const QUIET: Duration = Duration::from_secs(10);
/// Time for which a kind of trial is blocked after it was undone, at first and at most.
const BLOCKED: Duration = Duration::from_secs(1);
const BLOCKED_MAX: Duration = Duration::from_secs(60);
/// Another load: a rate that differs by this factor, for some windows in a row, ends the time without trials; and a
/// block, if it differs from the rate before that.
const OTHER_LOAD: f64 = 1.3;
const OTHER_WINDOWS: usize = 3;
/// Weight of the last window in the means of loads.
const NEWS: f64 = 0.25;
/// Smallest share of a worker's time for which a trustee is moved.
const SHARE_MIN: f64 = 0.02;

/// State of a pool at one time. Sums since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    /// Time that each worker has slept, or polled for nothing.
    pub(crate) idle: Vec<Duration>,
    pub(crate) seats: Vec<SeatSample>,
}

/// One trustee in a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeatSample {
    pub(crate) served: u64,
    pub(crate) worker: usize,
    /// It cannot move.
    pub(crate) is_bound: bool,
}

/// Move of a trustee to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(crate) seat: usize,
    pub(crate) to: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Balance,
    Gather,
    Spread,
}

/// Mean of some rates, and the variance of that mean.
#[derive(Clone, Copy, Debug)]
struct Rates {
    mean: f64,
    variance: f64,
}

impl Rates {
    fn of(rates: impl ExactSizeIterator<Item = f64> + Clone) -> Rates {
        let count = rates.len() as f64;
        let mean = rates.clone().sum::<f64>() / count;
        let variance = rates.map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / (count - 1.0) / count;
        Rates { mean, variance }
    }

    /// Are these rates lower than those, by more than is by chance?
    fn are_a_loss_from(&self, before: &Rates) -> bool {
        let loss = before.mean - self.mean;
        loss > LOSS * before.mean && loss > 2.0 * (self.variance + before.variance).sqrt()
    }
}

/// A trial under way.
#[derive(Debug)]
struct Trial {
    kind: Kind,
    before: Rates,
    /// Moves that undo it, and the number of serving workers before.
    undo: Vec<Move>,
    serving: usize,
    settling: usize,
    rates: Vec<f64>,
}

/// A kind of trial that is not tried.
#[derive(Clone, Copy, Default, Debug)]
struct Block {
    until: Duration,
    /// Its length the last time; 0 after a trial that was kept.
    length: Duration,
    /// Rate before the trial that was undone.
    rate: f64,
}

/// Are these the rates of different loads?
fn differ(one: f64, other: f64) -> bool {
    one > OTHER_LOAD * other || other > OTHER_LOAD * one
}

/// Decides about one pool.
#[derive(Debug)]
pub(crate) struct Controller {
    workers: usize,
    /// Number of workers, the last ones, that serve.
    serving: usize,
    /// Rates of the last windows, up to [`WINDOWS`], since the last trial.
    rates: VecDeque<f64>,
    /// Windows up to the last one in which the load was another one.
    other: usize,
    /// Means: part of the time that each worker is busy, rate of each trustee.
    busy: Vec<f64>,
    seat_rates: Vec<f64>,
    trial: Option<Trial>,
    quiet_until: Duration,
    blocks: [Block; 3],
    trials: u64,
    undone: u64,
}

impl Controller {
    /// For a pool of so many workers, all of which serve, and trustees.
    pub(crate) fn new(workers: usize, seats: usize) -> Controller {
        Controller {
            workers,
            serving: workers,
            rates: VecDeque::new(),
            other: 0,
            busy: vec![0.0; workers],
            seat_rates: vec![0.0; seats],
            trial: None,
            quiet_until: Duration::ZERO,
            blocks: Default::default(),
            trials: 0,
            undone: 0,
        }
    }

    /// Number of workers, the last ones, that serve.
    pub(crate) fn serving(&self) -> usize {
        self.serving
    }

    /// Trials so far, and those that were undone.
    pub(crate) fn trials(&self) -> (u64, u64) {
        (self.trials, self.undone)
    }

    /// Is it waiting for the outcome of a trial, or for more windows to begin one?
    pub(crate) fn is_watching(&self) -> bool {
        self.trial.is_some() || self.rates.len() < WINDOWS || self.other > 0
    }

    /// Returns the moves to make after this window.
    pub(crate) fn decide(&mut self, before: &Sample, after: &Sample) -> Vec<Move> {
        let seconds = after.at.saturating_sub(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return Vec::new();
        }
        let rate = self.note_loads(before, after, seconds);
        if self.trial.is_some() {
            return self.go_on(rate, after.at);
        }
        if self.is_other_load(rate) {
            self.rates.clear();
            self.other = 0;
            self.quiet_until = Duration::ZERO;
        }
        self.rates.push_back(rate);
        if self.rates.len() > WINDOWS {
            self.rates.pop_front();
        }
        if self.rates.len() < WINDOWS || after.at < self.quiet_until {
            return Vec::new();
        }
        let before = Rates::of(self.rates.iter().copied());
        let kinds = [Kind::Balance, Kind::Gather, Kind::Spread];
        let trial = kinds.into_iter().find_map(|kind| {
            let (moves, serving) = self.propose(kind, &before, after)?;
            (!moves.is_empty()).then_some((kind, moves, serving))
        });
        let Some((kind, moves, serving)) = trial else { return Vec::new() };
        let undo = moves.iter().map(|to| Move { seat: to.seat, to: after.seats[to.seat].worker }).collect();
        let serving_before = std::mem::replace(&mut self.serving, serving);
        self.trial = Some(Trial { kind, before, undo, serving: serving_before, settling: SETTLING, rates: Vec::new() });
        self.trials += 1;
        moves
    }

    /// Notes whether the rate differs from that of the last windows. True if it does for some time now.
    fn is_other_load(&mut self, rate: f64) -> bool {
        let differs = self.rates.len() == WINDOWS && differ(rate, Rates::of(self.rates.iter().copied()).mean);
        self.other = if differs { self.other + 1 } else { 0 };
        self.other == OTHER_WINDOWS
    }

    /// Updates the means. Returns the rate of the window.
    fn note_loads(&mut self, before: &Sample, after: &Sample, seconds: f64) -> f64 {
        for (busy, (before, after)) in self.busy.iter_mut().zip(before.idle.iter().zip(&after.idle)) {
            let idle = (after.saturating_sub(*before).as_secs_f64() / seconds).min(1.0);
            *busy += NEWS * (1.0 - idle - *busy);
        }
        let mut sum = 0.0;
        for (mean, (before, after)) in self.seat_rates.iter_mut().zip(before.seats.iter().zip(&after.seats)) {
            let rate = after.served.wrapping_sub(before.served) as f64 / seconds;
            *mean += NEWS * (rate - *mean);
            sum += rate;
        }
        sum
    }

    /// Takes the rate of a window into the trial. Returns the moves that undo it, if it is over and has cost too much.
    fn go_on(&mut self, rate: f64, at: Duration) -> Vec<Move> {
        let Some(trial) = &mut self.trial else { return Vec::new() };
        if trial.settling > 0 {
            trial.settling -= 1;
            return Vec::new();
        }
        trial.rates.push(rate);
        if trial.rates.len() < WINDOWS {
            return Vec::new();
        }
        let after = Rates::of(trial.rates.iter().copied());
        let Some(Trial { kind, before, undo, serving, .. }) = self.trial.take() else { return Vec::new() };
        self.rates.clear();
        let block = &mut self.blocks[kind as usize];
        if after.are_a_loss_from(&before) {
            let length = (2 * block.length).clamp(BLOCKED, BLOCKED_MAX);
            *block = Block { until: at.saturating_add(length), length, rate: before.mean };
            self.serving = serving;
            self.undone += 1;
            return undo;
        }
        *block = Block::default();
        if after.mean < (1.0 + LOSS) * before.mean {
            self.quiet_until = at.saturating_add(QUIET);
        }
        Vec::new()
    }

    /// The moves of a trial of this kind and the number of workers that serve then, if there is reason for it and it is
    /// not blocked.
    fn propose(&self, kind: Kind, rates: &Rates, now: &Sample) -> Option<(Vec<Move>, usize)> {
        let block = &self.blocks[kind as usize];
        if now.at < block.until && !differ(rates.mean, block.rate) || rates.mean <= 0.0 {
            return None;
        }
        let first = self.workers - self.serving;
        let mean = |busy: &[f64]| busy.iter().sum::<f64>() / busy.len().max(1) as f64;
        let (clients, servers) = self.busy.split_at(first);
        let all_serve = clients.is_empty();
        match kind {
            Kind::Balance => {
                plan::balance(first, &self.busy, &self.seat_rates, &now.seats).map(|to| (vec![to], self.serving))
            }
            Kind::Gather => {
                let too_many = if all_serve { mean(servers) > BUSY } else { mean(servers) < TOO_MANY };
                let has_reason = too_many && self.serving > 1 && (all_serve || mean(clients) > BUSY);
                has_reason.then(|| self.serve_with(self.serving / 2, now))
            }
            Kind::Spread => {
                let has_reason = !all_serve && mean(servers) > BUSY && mean(clients) < BUSY;
                has_reason.then(|| self.serve_with((2 * self.serving).min(self.workers), now))
            }
        }
    }

    fn serve_with(&self, serving: usize, now: &Sample) -> (Vec<Move>, usize) {
        (plan::share_out(self.workers - serving..self.workers, &self.seat_rates, &now.seats), serving)
    }
}
