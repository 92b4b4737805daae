//! Which worker of a tuned pool runs which trustee: decided by trials.
//!
//! Here: the decision, a function of two samples and of what was tried before; no clock, no thread, no pool. The thread
//! that takes the samples and asks for the moves: `tuner.rs`. The moves themselves: `runtime/seats`.
//!
//! A *window* lies between two samples. The rate of a window is the number of requests that all trustees have served in
//! it, per second. Where the workers' load is uneven, a trial moves trustees, and the rates after are compared with
//! those before: a loss of more than [`LOSS`] and of two deviations is undone, and that kind of trial blocked, for
//! longer each time. A trial that brings less than that stays, and is followed by [`QUIET`] without any: so a steady
//! load sees a move in ten seconds at most. A trial that pays is followed by as long without its reverse. Where the
//! rates tell enough, fewer windows do (sequential testing): a pool spends its time in the better setting.
//!
//! Kinds of trials: [`Balance`](Kind::Balance) moves one trustee from a busy worker to an idle one;
//! [`Gather`](Kind::Gather) halves the number of workers that serve, [`Spread`](Kind::Spread) doubles it,
//! [`Leave`](Kind::Leave) exchanges those whose cores other threads use. The workers that serve are the last ones, but
//! for these; where not all serve, new fibers avoid those that do.

mod plan;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod tuner;

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Windows that the rates before and after a trial are taken from, at most.
const WINDOWS: usize = 10;
/// Fewer windows are enough from this number on: before a trial where they are steady, after it where they tell.
const WINDOWS_MIN: usize = 4;
/// Deviation of a mean, as part of it, up to which rates are steady.
const STEADY: f64 = 0.01;
/// Deviations from which few windows tell a trial's effect.
const CLEAR: f64 = 4.0;
/// A trial that costs more than this part of the rate is over after this many windows.
const RUIN: f64 = 0.3;
const RUIN_WINDOWS: usize = 2;
/// Windows after a move that do not count: caches fill, queues empty.
const SETTLING: usize = 2;
/// Part of the rate that a trial may cost.
const LOSS: f64 = 0.03;
/// Part of the time from which a worker counts as busy, and up to which it counts as idle.
const BUSY: f64 = 0.9;
const IDLE: f64 = 0.75;
/// Servers that are busy for a smaller part of the time are too many.
const TOO_MANY: f64 = 0.5;
/// Part of the time that a worker waits for its core, from which on others should serve, and up to which it may.
const STOLEN: f64 = 0.2;
const OWN: f64 = 0.05;
/// Time without trials after one that brought little.
const QUIET: Duration = Duration::from_secs(10);
/// Time for which a kind of trial is blocked after it was undone, at first and at most.
const BLOCKED: Duration = Duration::from_secs(5);
const BLOCKED_MAX: Duration = Duration::from_secs(60);
/// Another load: a rate that differs by this factor, for some windows in a row, ends the time without trials; and a
/// block, if it differs from the rate before that.
const OTHER_LOAD: f64 = 1.3;
const OTHER_WINDOWS: usize = 3;
/// Workers that all serve are worth a trial with fewer from this part of the time on, for which they are busy: also
/// where they wait for each other much, which fewer may not.
const IN_USE: f64 = 0.5;
/// Weight of the last window in the means of loads, at least.
const NEWS: f64 = 0.25;
/// Smallest share of a worker's time for which a trustee is moved.
const SHARE_MIN: f64 = 0.02;

/// State of a pool at one time. Sums since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    /// Time that each worker has slept, or polled for nothing.
    pub(crate) idle: Vec<Duration>,
    /// Time that each worker has waited for a core that other threads had.
    pub(crate) stolen: Vec<Duration>,
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
    Leave,
    Gather,
    Spread,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Balance, Kind::Leave, Kind::Gather, Kind::Spread];

    /// The kind of trial that would undo one of this kind.
    fn reverse(self) -> Option<Kind> {
        match self {
            Kind::Balance | Kind::Leave => None,
            Kind::Gather => Some(Kind::Spread),
            Kind::Spread => Some(Kind::Gather),
        }
    }
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

    /// Are they steady enough for a trial?
    fn are_steady(&self) -> bool {
        self.variance.sqrt() < STEADY * self.mean
    }

    /// Do these rates differ from those by more than [`LOSS`] and this number of deviations?
    fn differ_from(&self, before: &Rates, deviations: f64) -> bool {
        let difference = (self.mean - before.mean).abs();
        difference > LOSS * before.mean && difference > deviations * (self.variance + before.variance).sqrt()
    }
}

/// A trial under way.
#[derive(Debug)]
struct Trial {
    kind: Kind,
    before: Rates,
    /// Moves that undo it, and the workers that served before.
    undo: Vec<Move>,
    servers: Vec<usize>,
    settling: usize,
    rates: Vec<f64>,
}

impl Trial {
    /// The rates of the trial, once they tell its effect.
    fn effect(&self) -> Option<Rates> {
        let count = self.rates.len();
        if count < RUIN_WINDOWS {
            return None;
        }
        let after = Rates::of(self.rates.iter().copied());
        let is_ruin = after.mean < (1.0 - RUIN) * self.before.mean;
        let is_clear = count >= WINDOWS_MIN && after.differ_from(&self.before, CLEAR);
        (is_ruin || is_clear || count >= WINDOWS).then_some(after)
    }
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
    /// Workers that serve.
    servers: Vec<usize>,
    /// Rates of the last windows, up to [`WINDOWS`], since the last trial.
    rates: VecDeque<f64>,
    /// Rates of the windows up to the last one in which the load was another one.
    other: Vec<f64>,
    /// Windows so far.
    windows: u32,
    /// Means: parts of the time that each worker is busy, and waits for its core; rate of each trustee.
    busy: Vec<f64>,
    stolen: Vec<f64>,
    seat_rates: Vec<f64>,
    trial: Option<Trial>,
    quiet_until: Duration,
    blocks: [Block; Kind::ALL.len()],
    trials: u64,
    undone: u64,
}

impl Controller {
    /// For a pool of so many workers, all of which serve, and trustees.
    pub(crate) fn new(workers: usize, seats: usize) -> Controller {
        Controller {
            workers,
            servers: (0..workers).collect(),
            rates: VecDeque::new(),
            other: Vec::new(),
            windows: 0,
            busy: vec![0.0; workers],
            stolen: vec![0.0; workers],
            seat_rates: vec![0.0; seats],
            trial: None,
            quiet_until: Duration::ZERO,
            blocks: Default::default(),
            trials: 0,
            undone: 0,
        }
    }

    /// Workers that serve.
    pub(crate) fn servers(&self) -> &[usize] {
        &self.servers
    }

    /// Trials so far, and those that were undone.
    pub(crate) fn trials(&self) -> (u64, u64) {
        (self.trials, self.undone)
    }

    /// Is it waiting for the outcome of a trial, or for more windows to begin one?
    pub(crate) fn is_watching(&self) -> bool {
        self.trial.is_some() || self.rates.len() < WINDOWS || !self.other.is_empty()
    }

    /// Have trustees served requests in the last window?
    pub(crate) fn is_in_use(&self) -> bool {
        self.rates.back().is_some_and(|&rate| rate > 0.0)
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
            self.rates = mem::take(&mut self.other).into();
            self.quiet_until = Duration::ZERO;
        } else {
            self.rates.push_back(rate);
        }
        if self.rates.len() > WINDOWS {
            self.rates.pop_front();
        }
        if self.rates.len() < WINDOWS_MIN || after.at < self.quiet_until {
            return Vec::new();
        }
        let before = Rates::of(self.rates.iter().copied());
        if self.rates.len() < WINDOWS && !before.are_steady() {
            return Vec::new();
        }
        let trial = Kind::ALL.into_iter().find_map(|kind| {
            let (moves, servers) = self.propose(kind, &before, after)?;
            (!moves.is_empty()).then_some((kind, moves, servers))
        });
        let Some((kind, moves, servers)) = trial else { return Vec::new() };
        let undo = moves.iter().map(|to| Move { seat: to.seat, to: after.seats[to.seat].worker }).collect();
        let servers = mem::replace(&mut self.servers, servers);
        self.trial = Some(Trial { kind, before, undo, servers, settling: SETTLING, rates: Vec::new() });
        self.trials += 1;
        moves
    }

    /// Notes whether the rate differs from that of the last windows. True if it does for some time now.
    fn is_other_load(&mut self, rate: f64) -> bool {
        let is_known = self.rates.len() >= WINDOWS_MIN;
        if is_known && differ(rate, Rates::of(self.rates.iter().copied()).mean) {
            self.other.push(rate);
        } else {
            self.other.clear();
        }
        self.other.len() == OTHER_WINDOWS
    }

    /// Updates the means. Returns the rate of the window.
    fn note_loads(&mut self, before: &Sample, after: &Sample, seconds: f64) -> f64 {
        self.windows = self.windows.saturating_add(1);
        let news = NEWS.max(1.0 / f64::from(self.windows));
        let part =
            |before: &Duration, after: &Duration| (after.saturating_sub(*before).as_secs_f64() / seconds).min(1.0);
        for (busy, (before, after)) in self.busy.iter_mut().zip(before.idle.iter().zip(&after.idle)) {
            *busy += news * (1.0 - part(before, after) - *busy);
        }
        for (stolen, (before, after)) in self.stolen.iter_mut().zip(before.stolen.iter().zip(&after.stolen)) {
            *stolen += news * (part(before, after) - *stolen);
        }
        let mut sum = 0.0;
        for (mean, (before, after)) in self.seat_rates.iter_mut().zip(before.seats.iter().zip(&after.seats)) {
            let rate = after.served.wrapping_sub(before.served) as f64 / seconds;
            *mean += news * (rate - *mean);
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
        let Some(after) = trial.effect() else { return Vec::new() };
        let Some(Trial { kind, before, undo, servers, .. }) = self.trial.take() else { return Vec::new() };
        self.rates.clear();
        let block = &mut self.blocks[kind as usize];
        if after.mean < before.mean && after.differ_from(&before, 2.0) {
            let length = (2 * block.length).clamp(BLOCKED, BLOCKED_MAX);
            *block = Block { until: at.saturating_add(length), length, rate: before.mean };
            self.servers = servers;
            self.undone += 1;
            return undo;
        }
        *block = Block::default();
        let quiet_until = at.saturating_add(QUIET);
        if after.mean < (1.0 + LOSS) * before.mean {
            self.quiet_until = quiet_until;
        } else if let Some(reverse) = kind.reverse() {
            // It is known to be worse.
            self.blocks[reverse as usize] = Block { until: quiet_until, length: BLOCKED, rate: after.mean };
        }
        Vec::new()
    }

    /// The moves of a trial of this kind and the workers that serve then, if there is reason for it and it is not
    /// blocked.
    fn propose(&self, kind: Kind, rates: &Rates, now: &Sample) -> Option<(Vec<Move>, Vec<usize>)> {
        let block = &self.blocks[kind as usize];
        if now.at < block.until && !differ(rates.mean, block.rate) || rates.mean <= 0.0 {
            return None;
        }
        let serving = self.servers.len();
        let of = |is_server: bool| (0..self.workers).filter(move |worker| self.servers.contains(worker) == is_server);
        let mean = |workers: &mut dyn Iterator<Item = usize>| {
            let (count, sum) = workers.fold((0, 0.0), |(count, sum), worker| (count + 1, sum + self.busy[worker]));
            sum / f64::from(count.max(1))
        };
        let (clients, servers) = (mean(&mut of(false)), mean(&mut of(true)));
        let all_serve = serving == self.workers;
        match kind {
            Kind::Balance => {
                let to = plan::balance(&self.servers, &self.busy, &self.seat_rates, &now.seats)?;
                Some((vec![to], self.servers.clone()))
            }
            Kind::Leave => {
                let is_stolen = self.servers.iter().any(|&server| self.stolen[server] > STOLEN);
                let has_other = of(false).any(|worker| self.stolen[worker] < OWN);
                (is_stolen && has_other).then(|| self.serve_with(serving, now))
            }
            Kind::Gather => {
                let too_many = if all_serve { servers > IN_USE } else { servers < TOO_MANY };
                let has_reason = too_many && serving > 1 && (all_serve || clients > BUSY);
                has_reason.then(|| self.serve_with(serving / 2, now))
            }
            Kind::Spread => {
                let has_reason = !all_serve && servers > BUSY && clients < BUSY;
                has_reason.then(|| self.serve_with((2 * serving).min(self.workers), now))
            }
        }
    }

    /// So many workers serve: the last ones of those that have their cores to themselves, then of the others.
    fn serve_with(&self, serving: usize, now: &Sample) -> (Vec<Move>, Vec<usize>) {
        let mut workers: Vec<usize> = (0..self.workers).collect();
        workers.sort_by_key(|&worker| self.stolen[worker] <= STOLEN);
        let mut servers = workers.split_off(self.workers - serving);
        servers.sort_unstable();
        (plan::share_out(&servers, &self.seat_rates, &now.seats), servers)
    }
}
