//! Choice of the threads that go to other machines by themselves (`--move self`). Pure: it is told the time and the
//! loads of all machines, and decides the same for the same. Not here: how these are known, and how a thread moves
//! (`spread.rs`).
//!
//! A host with more runnable threads than cores sends threads to hosts with idle cores: the busiest ones, as many as
//! there are too many here and cores there. Nothing moves by a load that comes and goes: of the source the least load
//! of the last second counts, of the target the most; and a thread stays ten seconds before it goes to an idle core
//! again. A second after its move a thread is judged by its progress, and that of all threads of both hosts: where it
//! is slower than before, it goes back, and stays away for a second, twice as long each time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::reason::Reason;

/// Time over which loads have to last, and after which a move is judged.
const SECOND: Duration = Duration::from_secs(1);
/// The least part of it that is known before anything moves.
const KNOWN: Duration = Duration::from_millis(900);
/// Time before a thread goes to an idle core again.
const STAY: Duration = Duration::from_secs(10);
/// Time after a move that is not judged: pages follow.
const SETTLE: Duration = Duration::from_millis(200);
/// Longest time for which a machine gets a thread not again that came back from it.
const BLOCK_MAX: Duration = Duration::from_secs(60);
/// Load beyond the cores from which a host has too much, and below them from which it has an idle core.
const HALF: f64 = 0.5;
/// Progress below which a thread counts as slower, with two deviations.
const WORSE: f64 = 0.97;

/// A thread of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    /// Part of the time for which it computed, and for which it wanted to.
    pub(crate) busy: f64,
    pub(crate) wants: f64,
    pub(crate) may_move: bool,
}

/// Load of a machine since the last time.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) machine: u16,
    /// Number of its host: machines of one host have the same cores.
    pub(crate) host: usize,
    /// Cores of the host that the program can have.
    pub(crate) cores: f64,
    pub(crate) threads: Vec<Seen>,
}

/// A thread that is to go to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) thread: u64,
    pub(crate) to: u16,
    pub(crate) reason: Reason,
}

/// Move that is to be judged.
#[derive(Debug)]
struct Trial {
    from: u16,
    to: u16,
    at: Duration,
    /// Progress before: its own, and that of these threads of both hosts.
    own: Progress,
    all: Progress,
    threads: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    until: Duration,
    time: Duration,
}

/// Parts of the time for which threads computed: mean and variance.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    mean: f64,
    variance: f64,
}

impl Progress {
    fn of(values: &[f64]) -> Option<Progress> {
        let count = values.len() as f64;
        if values.len() < 3 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Progress { mean, variance: variance / count })
    }

    /// Whether `self` is less than `before`, beyond chance.
    fn is_worse_than(&self, before: &Progress) -> bool {
        let deviations = 2.0 * (self.variance + before.variance).sqrt();
        self.mean < before.mean * WORSE && before.mean - self.mean > deviations
    }
}

/// Load and cores of all hosts at one time.
type Hosts = BTreeMap<usize, (f64, f64)>;
/// Busy parts of all threads at one time.
type Parts = BTreeMap<u64, f64>;

/// The policy of a program.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    /// Loads and cores by host, and parts by thread, of the last seconds.
    hosts: VecDeque<(Duration, Hosts)>,
    parts: VecDeque<(Duration, Parts)>,
    moved: BTreeMap<u64, Duration>,
    trials: BTreeMap<u64, Trial>,
    blocks: BTreeMap<(u64, u16), Block>,
}

impl Balance {
    /// Decides, with the loads since the last time.
    pub(crate) fn decide(&mut self, now: Duration, loads: &[Load]) -> Vec<Move> {
        self.observe(now, loads);
        let mut moves = self.judge(now, loads);
        if moves.is_empty() {
            self.spread(now, loads, &mut moves);
        }
        moves
    }

    /// A thread that was to go has not: it is not sent there again for a while.
    pub(crate) fn has_stayed(&mut self, now: Duration, thread: u64, to: u16) {
        self.trials.remove(&thread);
        self.block(now, thread, to);
    }

    fn observe(&mut self, now: Duration, loads: &[Load]) {
        let (mut hosts, mut parts) = (Hosts::new(), Parts::new());
        for load in loads {
            let (all, cores) = hosts.entry(load.host).or_default();
            *all += load.threads.iter().map(|thread| thread.wants).sum::<f64>();
            *cores = load.cores;
            parts.extend(load.threads.iter().map(|thread| (thread.id, thread.busy)));
        }
        self.moved.retain(|thread, _| parts.contains_key(thread));
        self.hosts.push_back((now, hosts));
        self.parts.push_back((now, parts));
        let is_old = |at: &Duration, most: Duration| at.saturating_add(most) < now;
        while self.hosts.len() > 1 && is_old(&self.hosts[0].0, SECOND) {
            self.hosts.pop_front();
        }
        while self.parts.len() > 1 && is_old(&self.parts[0].0, SECOND.saturating_mul(2)) {
            self.parts.pop_front();
        }
    }

    /// Returns the progress of a thread, or of several, in a time.
    fn progress(&self, threads: &[u64], from: Duration, to: Duration) -> Option<Progress> {
        let within = self.parts.iter().filter(|(at, _)| (from..=to).contains(at));
        let sum = |(_, parts): &(Duration, Parts)| threads.iter().filter_map(|thread| parts.get(thread)).sum::<f64>();
        Progress::of(&within.map(sum).collect::<Vec<f64>>())
    }

    fn judge(&mut self, now: Duration, loads: &[Load]) -> Vec<Move> {
        let machine_of = |thread: u64| {
            loads.iter().find(|load| load.threads.iter().any(|seen| seen.id == thread)).map(|load| load.machine)
        };
        let due = |(_, trial): &(&u64, &Trial)| trial.at.saturating_add(SECOND) <= now;
        let due: Vec<u64> = self.trials.iter().filter(due).map(|(thread, _)| *thread).collect();
        let mut moves = Vec::new();
        for thread in due {
            let Some(trial) = self.trials.remove(&thread) else { continue };
            if machine_of(thread) != Some(trial.to) {
                continue; // it has ended, or has gone on by itself
            }
            let since = trial.at.saturating_add(SETTLE);
            let (Some(own), Some(all)) =
                (self.progress(&[thread], since, now), self.progress(&trial.threads, since, now))
            else {
                continue;
            };
            if own.is_worse_than(&trial.own) || all.is_worse_than(&trial.all) {
                self.block(now, thread, trial.to);
                self.moved.insert(thread, now);
                moves.push(Move { thread, to: trial.from, reason: Reason::Undone });
            }
        }
        moves
    }

    fn block(&mut self, now: Duration, thread: u64, machine: u16) {
        let time = match self.blocks.get(&(thread, machine)) {
            Some(block) => block.time.saturating_mul(2).min(BLOCK_MAX),
            None => SECOND,
        };
        self.blocks.insert((thread, machine), Block { until: now.saturating_add(time), time });
    }

    /// Returns the least and the most load of a host in the last second, and the fewest and most cores.
    fn bounds(&self, host: usize) -> Option<[(f64, f64); 2]> {
        let values: Vec<(f64, f64)> = self.hosts.iter().filter_map(|(_, hosts)| hosts.get(&host).copied()).collect();
        let fold = |of: fn(&(f64, f64)) -> f64| {
            values.iter().map(of).fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)))
        };
        (values.len() == self.hosts.len()).then(|| [fold(|value| value.0), fold(|value| value.1)])
    }

    fn spread(&mut self, now: Duration, loads: &[Load], moves: &mut Vec<Move>) {
        let first = self.hosts.front().map_or(now, |(at, _)| *at);
        if now.saturating_sub(first) < KNOWN {
            return;
        }
        let hosts: Vec<usize> = self.hosts.back().map_or_else(Vec::new, |(_, hosts)| hosts.keys().copied().collect());
        let bounds: BTreeMap<usize, _> = hosts.iter().filter_map(|host| Some((*host, self.bounds(*host)?))).collect();
        // The least excess, and the least of idle cores.
        let excess = |host: &usize| bounds.get(host).map_or(0.0, |[load, cores]| load.0 - cores.1);
        let idle = |host: &usize| bounds.get(host).map_or(0.0, |[load, cores]| cores.0 - load.1);
        let mut room: BTreeMap<usize, f64> =
            hosts.iter().map(|host| (*host, idle(host))).filter(|(_, idle)| *idle >= HALF).collect();
        for source in hosts.iter().filter(|host| excess(host) >= HALF) {
            let mut left = excess(source);
            let mut threads: Vec<(u16, Seen)> = loads
                .iter()
                .filter(|load| load.host == *source)
                .flat_map(|load| load.threads.iter().map(|seen| (load.machine, *seen)))
                .collect();
            threads.retain(|(_, seen)| self.is_free(now, seen));
            threads.sort_by(|(_, one), (_, other)| other.wants.total_cmp(&one.wants).then(one.id.cmp(&other.id)));
            for (from, seen) in threads {
                let Some((host, most)) = room.iter_mut().max_by(|one, other| one.1.total_cmp(other.1)) else { return };
                if left < HALF || *most < HALF {
                    break;
                }
                let Some(to) = self.machine_on(now, *host, seen.id, loads) else { continue };
                let threads = loads.iter().filter(|load| [*source, *host].contains(&load.host));
                let threads: Vec<u64> = threads.flat_map(|load| load.threads.iter().map(|seen| seen.id)).collect();
                let before = now.saturating_sub(SECOND);
                let (own, all) = (self.progress(&[seen.id], before, now), self.progress(&threads, before, now));
                let (own, all) = (own.unwrap_or_default(), all.unwrap_or_default());
                self.trials.insert(seen.id, Trial { from, to, at: now, own, all, threads });
                self.moved.insert(seen.id, now);
                moves.push(Move { thread: seen.id, to, reason: Reason::Idle });
                (left, *most) = (left - 1.0, *most - 1.0);
            }
        }
        if !moves.is_empty() {
            // The loads until now say nothing about the next second.
            self.hosts.clear();
        }
    }

    fn is_free(&self, now: Duration, seen: &Seen) -> bool {
        let stayed = self.moved.get(&seen.id).is_none_or(|at| at.saturating_add(STAY) <= now);
        seen.may_move && seen.wants >= HALF && stayed && !self.trials.contains_key(&seen.id)
    }

    /// Returns the machine of a host with the fewest threads that may get this one.
    fn machine_on(&self, now: Duration, host: usize, thread: u64, loads: &[Load]) -> Option<u16> {
        let may = |load: &&Load| self.blocks.get(&(thread, load.machine)).is_none_or(|block| block.until <= now);
        let of_host = loads.iter().filter(|load| load.host == host).filter(may);
        of_host.min_by_key(|load| load.threads.len()).map(|load| load.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// Machines on hosts of their own, with their threads, which compute as there are cores; others' load comes and
    /// goes.
    struct Simulation {
        now: Duration,
        policy: Balance,
        /// Machine of each thread, its moves, and the factor of its progress on each machine.
        threads: Vec<(usize, Vec<Duration>)>,
        speed: fn(usize, usize) -> f64,
        cores: Vec<f64>,
        others: Vec<f64>,
        random: fastrand::Rng,
    }

    impl Simulation {
        fn new(seed: u64, cores: &[f64], threads: &[usize]) -> Simulation {
            Simulation {
                now: Duration::ZERO,
                policy: Balance::default(),
                threads: threads.iter().map(|machine| (*machine, Vec::new())).collect(),
                speed: |_, _| 1.0,
                cores: cores.to_vec(),
                others: vec![0.0; cores.len()],
                random: fastrand::Rng::with_seed(seed),
            }
        }

        fn on(&self, machine: usize) -> usize {
            self.threads.iter().filter(|(at, _)| *at == machine).count()
        }

        fn run(&mut self, time: Duration, mut change: impl FnMut(&mut Simulation)) {
            let end = self.now + time;
            while self.now < end {
                change(self);
                let load = |machine: usize| {
                    let cores = (self.cores[machine] - self.others[machine]).max(self.cores[machine] / 2.0);
                    let share = (cores / self.on(machine).max(1) as f64).min(1.0);
                    let of = self.threads.iter().enumerate().filter(|(_, (at, _))| *at == machine);
                    let seen = |(thread, _): (usize, &(usize, Vec<Duration>))| Seen {
                        id: thread as u64,
                        busy: share * (self.speed)(thread, machine) * (1.0 - 0.02 * self.noise(thread)),
                        wants: 1.0,
                        may_move: true,
                    };
                    Load { machine: machine as u16, host: machine, cores, threads: of.map(seen).collect() }
                };
                let loads: Vec<Load> = (0..self.cores.len()).map(load).collect();
                self.random.u64(..);
                for Move { thread, to, .. } in self.policy.decide(self.now, &loads) {
                    let (at, moves) = &mut self.threads[thread as usize];
                    *at = to.into();
                    moves.push(self.now);
                }
                self.now += STEP;
            }
        }

        fn noise(&self, thread: usize) -> f64 {
            fastrand::Rng::with_seed(self.random.get_seed() ^ thread as u64).f64()
        }

        fn moves(&self) -> usize {
            self.threads.iter().map(|(_, moves)| moves.len()).sum()
        }
    }

    const SEEDS: std::ops::Range<u64> = 0..20;

    #[test]
    fn threads_of_one_machine_spread_and_stay() {
        for seed in SEEDS {
            let mut all = Simulation::new(seed, &[2.0, 2.0, 2.0], &[0; 6]);
            all.run(Duration::from_secs(20), |_| ());
            assert_eq!(([0, 1, 2].map(|machine| all.on(machine)), all.moves()), ([2, 2, 2], 4), "seed {seed}");
            let mut few = Simulation::new(seed, &[2.0, 2.0], &[0, 0]);
            few.run(Duration::from_secs(5), |_| ());
            assert_eq!(few.moves(), 0, "there is a core for each");
        }
    }

    #[test]
    fn sixty_four_machines_share_what_began_on_one() {
        for seed in 0..3 {
            let mut all = Simulation::new(seed, &[2.0; 64], &[0; 128]);
            all.run(Duration::from_secs(15), |_| ());
            let most = (0..64).map(|machine| all.on(machine)).max();
            assert_eq!((most, all.moves()), (Some(2), 126), "seed {seed}");
        }
    }

    #[test]
    fn a_load_that_flaps_moves_a_thread_once_in_ten_seconds_at_most() {
        for (seed, dwell) in SEEDS.flat_map(|seed| [2, 7, 30].map(|dwell| (seed, dwell))) {
            let mut all = Simulation::new(seed, &[2.0, 2.0, 2.0, 2.0], &[0, 0, 0, 1, 1, 2]);
            let mut step = 0;
            all.run(Duration::from_secs(30), |all| {
                step += 1;
                if step % dwell == 0 {
                    let machine = all.random.usize(..4);
                    all.others[machine] = 2.0 * f64::from(u8::from(all.random.bool()));
                }
            });
            for (_, moves) in &all.threads {
                let too_soon = moves.windows(2).any(|two| two[1] - two[0] < STAY);
                assert!(!too_soon, "seed {seed}, {dwell} steps: {moves:?}");
            }
        }
    }

    #[test]
    fn a_thread_that_is_slower_goes_back_and_stays_away_longer_each_time() {
        for seed in SEEDS {
            let mut all = Simulation::new(seed, &[1.0, 1.0], &[0, 0]);
            // Away from its pages a thread hardly computes.
            all.speed = |_, machine| if machine == 0 { 1.0 } else { 0.1 };
            all.run(Duration::from_secs(60), |_| ());
            assert_eq!(all.on(0), 2, "seed {seed}");
            for (_, moves) in &all.threads {
                assert!(moves.len().is_multiple_of(2) && moves.len() <= 12, "seed {seed}: {moves:?}");
                let trials = moves.chunks_exact(2).all(|pair| pair[1] - pair[0] <= Duration::from_millis(1200));
                assert!(trials, "judged after a second: {moves:?}");
            }
        }
    }

    #[test]
    fn one_that_has_stayed_is_not_sent_again_at_once() {
        let mut policy = Balance::default();
        let seen = |id| Seen { id, busy: 0.5, wants: 1.0, may_move: true };
        let of = |machine, threads| Load { machine, host: machine.into(), cores: 1.0, threads };
        let loads = [of(0, vec![seen(1), seen(2)]), of(1, Vec::new())];
        let first = (0..20).find_map(|step| {
            let now = STEP * step;
            policy.decide(now, &loads).first().map(|one| (now, *one))
        });
        let (at, Move { thread, to, .. }) = first.expect("one has to go");
        policy.has_stayed(at, thread, to);
        let next = (1..60).find_map(|step| policy.decide(at + STEP * step, &loads).first().copied());
        assert_eq!(next.map(|one| one.thread), Some(3 - thread), "the other one, when the second is over");
    }
}
