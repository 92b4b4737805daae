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
const WINDOWS: usize = 20;
/// Fewer windows are enough from this number on: before a trial where they are steady, after it where they tell.
const WINDOWS_MIN: usize = 4;
/// Deviation of a mean, as part of it, up to which rates are steady.
const STEADY: f64 = 0.015;
/// Deviation of a single rate, as part of the mean, at least: rates that follow each other are alike.
const NOISE: f64 = 0.02;
/// Deviations by which a trial has to change the rate.
const SURE: f64 = 2.0;
/// Deviations from which few windows tell a trial's effect.
const CLEAR: f64 = 4.0;
/// A trial is over after this many windows if each costs more than this part of the rate.
const RUIN: f64 = 0.3;
const RUIN_WINDOWS: usize = 3;
/// Windows after a move that do not count: caches fill, queues empty. More of them while most trustees have not moved
/// yet, up to the second number: a worker moves them when it has a core.
const SETTLING: usize = 2;
const SETTLING_MAX: usize = 6;
/// Part of the rate that a trial may cost.
const LOSS: f64 = 0.03;
/// Part of the time from which a worker counts as busy, and up to which it counts as idle.
const BUSY: f64 = 0.9;
const IDLE: f64 = 0.75;
/// Servers that are busy for a smaller part of the time are too many.
const TOO_MANY: f64 = 0.5;
/// Part of the time that a worker waits for its core: from the first one on others should serve, if they wait for less
/// than the second one.
const STOLEN: f64 = 0.2;
const OWN: f64 = 0.05;
/// A worker that is busy for a smaller part of the time tells nothing of its core.
const RESTING: f64 = 0.1;
/// Weight of the last window in the means of those waits.
const NEWS_OF_CORES: f64 = 0.05;
/// Time without trials after one that brought little.
const QUIET: Duration = Duration::from_secs(10);
/// Time for which a kind of trial is blocked after it was undone, at first and at most.
const BLOCKED: Duration = Duration::from_secs(5);
const BLOCKED_MAX: Duration = Duration::from_secs(60);
/// Another load: a rate that differs by this factor, for some windows in a row, ends the time without trials; and a
/// block, if it differs from the rate before that.
const OTHER_LOAD: f64 = 1.3;
const OTHER_WINDOWS: usize = 3;
/// Requests in a window, before or after, from which its rate may tell of another load: fewer vary by themselves.
const TELLING: f64 = 100.0;
/// Where all workers serve and are busy for more than this part of the time, fewer may be better. It is less than
/// [`BUSY`], as workers that wait for each other are idle meanwhile.
const IN_USE: f64 = 0.5;
/// The load has ended if workers are busy for a smaller part of the time.
const ENDED: f64 = 0.25;
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
    /// Part of the time that each worker has waited for a core that other threads had, lately.
    pub(crate) stolen: Vec<f64>,
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
            Kind::Balance => None,
            Kind::Leave => Some(Kind::Leave),
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
        let variance = rates.map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / (count - 1.0);
        Rates { mean, variance: variance.max((NOISE * mean).powi(2)) / count }
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
    moves: Vec<Move>,
    /// Moves that undo it, and the workers that served before.
    undo: Vec<Move>,
    servers: Vec<usize>,
    /// Windows so far, and those of them, up to [`SETTLING`], since most trustees have moved.
    windows: usize,
    settled: usize,
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
        let is_bad = |rate: &f64| *rate < (1.0 - RUIN) * self.before.mean;
        let is_ruin = self.rates.iter().all(is_bad) && after.differ_from(&self.before, SURE);
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
    /// Workers that serve, in order.
    servers: Vec<usize>,
    /// Rates of the last windows, up to [`WINDOWS`], since the last trial.
    rates: VecDeque<f64>,
    /// Rates of the latest windows in a row in which the load was another one.
    other: Vec<f64>,
    /// Windows to come that do not count, after a trial was undone.
    settling: usize,
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
            settling: 0,
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

    /// Workers that serve, in order.
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
            return self.go_on(rate, after);
        }
        if self.settling > 0 {
            self.settling -= 1;
            return Vec::new();
        }
        if self.is_other_load(rate, seconds) {
            // The load has changed within the first of these.
            self.rates = self.other.drain(..).skip(1).collect();
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
        self.trials += 1;
        let (asked, rates) = (moves.clone(), Vec::new());
        self.trial = Some(Trial { kind, before, moves: asked, undo, servers, windows: 0, settled: 0, rates });
        moves
    }

    /// Notes whether the rate differs from that of the last windows. True if it does for some time now.
    fn is_other_load(&mut self, rate: f64, seconds: f64) -> bool {
        let is_known = self.rates.len() >= WINDOWS_MIN;
        let known = if is_known { Rates::of(self.rates.iter().copied()).mean } else { rate };
        if differ(rate, known) && rate.max(known) * seconds >= TELLING {
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
        for (busy, (before, after)) in self.busy.iter_mut().zip(before.idle.iter().zip(&after.idle)) {
            let idle = (after.saturating_sub(*before).as_secs_f64() / seconds).min(1.0);
            *busy += news * (1.0 - idle - *busy);
        }
        let seen = self.stolen.iter_mut().zip(&after.stolen).zip(&self.busy);
        for ((mean, stolen), _) in seen.filter(|(_, busy)| **busy >= RESTING) {
            *mean += NEWS_OF_CORES * (stolen - *mean);
        }
        let mut sum = 0.0;
        for (mean, (before, after)) in self.seat_rates.iter_mut().zip(before.seats.iter().zip(&after.seats)) {
            let rate = after.served.wrapping_sub(before.served) as f64 / seconds;
            *mean += news * (rate - *mean);
            sum += rate;
        }
        sum
    }

    /// Takes the rate of a window into the trial. Returns the moves that undo it, if it is over and has cost too much,
    /// or came to nothing.
    fn go_on(&mut self, rate: f64, now: &Sample) -> Vec<Move> {
        let Some(trial) = &mut self.trial else { return Vec::new() };
        let (after, is_void) = if trial.settled < SETTLING {
            trial.windows += 1;
            let stayed = trial.moves.iter().filter(|to| now.seats[to.seat].worker != to.to).count();
            trial.settled = if 2 * stayed < trial.moves.len() { trial.settled + 1 } else { 0 };
            if trial.settled > 0 || trial.windows < SETTLING_MAX {
                return Vec::new();
            }
            (trial.before, true)
        } else {
            trial.rates.push(rate);
            let Some(after) = trial.effect() else { return Vec::new() };
            (after, self.busy.iter().sum::<f64>() < ENDED * self.workers as f64)
        };
        let Some(Trial { kind, before, undo, servers, .. }) = self.trial.take() else { return Vec::new() };
        self.rates.clear();
        let block = &mut self.blocks[kind as usize];
        if is_void || after.mean < before.mean && after.differ_from(&before, SURE) {
            // Where it tells nothing, it is tried again as soon as after the first time.
            let length = if is_void { BLOCKED } else { (2 * block.length).clamp(BLOCKED, BLOCKED_MAX) };
            *block =
                Block { until: now.at.saturating_add(length), length: length.max(block.length), rate: before.mean };
            self.servers = servers;
            self.settling = SETTLING_MAX;
            self.undone += 1;
            if is_void {
                // Those that have not moved yet may still do so.
                return undo;
            }
            return undo.into_iter().filter(|to| now.seats[to.seat].worker != to.to).collect();
        }
        *block = Block::default();
        let quiet_until = now.at.saturating_add(QUIET);
        if after.mean < before.mean || !after.differ_from(&before, SURE) {
            self.quiet_until = quiet_until;
        } else if let Some(reverse) = kind.reverse() {
            // It is known to be worse.
            let block = &mut self.blocks[reverse as usize];
            let length = block.length.max(BLOCKED);
            *block = Block { until: quiet_until.max(block.until), length, rate: after.mean };
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
        let of = |is_server: bool| (0..self.workers).filter(move |worker| self.serves(*worker) == is_server);
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

    fn serves(&self, worker: usize) -> bool {
        self.servers.binary_search(&worker).is_ok()
    }

    /// So many workers serve: first those that have their cores to themselves, of these those that serve now, and the
    /// last ones.
    fn serve_with(&self, serving: usize, now: &Sample) -> (Vec<Move>, Vec<usize>) {
        let mut workers: Vec<usize> = (0..self.workers).collect();
        workers.sort_by_key(|&worker| (self.stolen[worker] <= STOLEN, self.serves(worker)));
        let mut servers = workers.split_off(self.workers - serving);
        servers.sort_unstable();
        (plan::share_out(&servers, &self.seat_rates, &now.seats), servers)
    }
}
