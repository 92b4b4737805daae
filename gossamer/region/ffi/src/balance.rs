//! Choice of the threads that go to other machines by themselves (`--move self`). Pure: it is told the time and the
//! loads of all machines, and decides the same for the same. Not here: how these are known, and how a thread moves
//! (`spread.rs`).
//!
//! A host with more runnable threads than cores sends threads to hosts with idle cores: the busiest ones, as many as
//! there are too many here and cores there. Nothing moves by a load that comes and goes: of the source the least excess
//! of the last second counts, of the target the fewest idle cores. A thread that waits for the pages of one machine
//! goes to them (`away.rs`), if all threads there and this one have cores once nobody waits for pages; where there are
//! none, two threads that wait crosswise change places (`exchange.rs`).
//!
//! A thread stays ten seconds before it goes again. A second after its move it is judged by its progress, and that of
//! all threads of both hosts: where it is slower than before, it goes back, and stays away for a second, twice as long
//! each time. One that did not go, as something tied it, is tried again as rarely: ties pass.
//!
//! Two that change places are judged together, and both are asked to go back, or none. One of them that does not go
//! back is asked again, ever more rarely: until then the other one's host has a thread too many. Where nothing is
//! better they do not change places again for two minutes.

mod away;
mod exchange;
mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::away::Away;
use self::room::Hosts;
use crate::reason::Reason;

/// Time over which loads have to last, and after which a move is judged.
const SECOND: Duration = Duration::from_secs(1);
/// The least part of it that is known before anything moves.
const KNOWN: Duration = Duration::from_millis(900);
/// Time before a thread goes again.
const STAY: Duration = Duration::from_secs(10);
/// Time after a move that is not judged: pages follow.
const SETTLE: Duration = Duration::from_millis(200);
/// Time after which a thread that is still where it was is not on its way any more.
const LATE: Duration = Duration::from_secs(3);
/// Longest time for which a machine gets a thread not again that came back from it, or a thread is not tried again.
const BLOCK_MAX: Duration = Duration::from_secs(60);
/// Load beyond the cores from which a host has too much, and below them from which it has an idle core.
const HALF: f64 = 0.5;
/// Progress below which a thread counts as slower, with two deviations.
const WORSE: f64 = 0.97;

/// A thread of a machine, since the last time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    /// Part of the time for which it computed, and for which it wanted to.
    pub(crate) busy: f64,
    pub(crate) wants: f64,
    pub(crate) pages: Pages,
    pub(crate) may_move: bool,
}

/// Pages for which a thread waited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pages {
    /// Part of the time for which it waited.
    pub(crate) waited: f64,
    /// Bytes that came, by the machine that gave them.
    pub(crate) from: Vec<(u16, u64)>,
    /// Some of those that came.
    pub(crate) sample: Sample,
}

/// The least numbers of the pages for which a thread waited. Threads that wait for the same pages mostly
/// have the same.
pub(crate) type Sample = BTreeSet<u64>;

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
    asked: Duration,
    /// Last time at which it had not gone.
    at: Duration,
    /// Progress before: its own, and that of these threads of both hosts.
    own: Progress,
    all: Progress,
    threads: Vec<u64>,
    /// The thread with which it changes places, and whether that one has stayed.
    partner: Option<u64>,
    is_alone: bool,
}

/// Way back of a thread that has changed places, or was to.
#[derive(Debug)]
struct Return {
    from: u16,
    to: u16,
    /// Time at which it is asked again, once it has stayed.
    again: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Worse,
    Same,
    Better,
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

/// All threads at one time: the busy part, and the pages.
type Parts = BTreeMap<u64, (f64, Pages)>;

/// The policy of a program.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    /// Hosts, and threads, of the last seconds.
    hosts: VecDeque<(Duration, Hosts)>,
    parts: VecDeque<(Duration, Parts)>,
    moved: BTreeMap<u64, Duration>,
    trials: BTreeMap<u64, Trial>,
    returns: BTreeMap<u64, Return>,
    /// Threads that do not go to a machine for a while; without one: to any.
    blocks: BTreeMap<(u64, Option<u16>), Block>,
}

impl Balance {
    /// Decides, with the loads since the last time.
    pub(crate) fn decide(&mut self, now: Duration, loads: &[Load]) -> Vec<Move> {
        self.observe(now, loads);
        let mut moves = self.judge(now, loads);
        if moves.is_empty() && self.hosts.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= KNOWN) {
            self.spread(now, loads, &mut moves);
            if moves.is_empty() {
                self.gather(now, loads, &mut moves);
            }
        }
        if !moves.is_empty() {
            // The loads until now say nothing about the next second.
            self.hosts.clear();
        }
        moves
    }

    /// A thread that was to go has not: for a while it is not sent again to this machine, or to any (`None`), where the
    /// reason is the thread's own.
    pub(crate) fn has_stayed(&mut self, now: Duration, thread: u64, to: Option<u16>) {
        if let Some(trial) = self.trials.remove(&thread) {
            self.moved.remove(&thread);
            if let Some(trial) = trial.partner.and_then(|partner| self.trials.get_mut(&partner)) {
                (trial.partner, trial.is_alone) = (None, true);
            }
        } // else it has gone, and was to go back
        self.block(now, thread, to);
        let again = self.blocks.get(&(thread, to)).map(|block| block.until);
        self.returns.entry(thread).and_modify(|one| one.again = again);
    }

    fn observe(&mut self, now: Duration, loads: &[Load]) {
        let (mut hosts, mut parts) = (Hosts::new(), Parts::new());
        for load in loads {
            let host = hosts.entry(load.host).or_default();
            host.cores = load.cores;
            for Seen { id, busy, wants, pages, .. } in &load.threads {
                host.wanted += wants;
                host.wanted_with_pages += (wants + pages.waited).min(1.0);
                parts.insert(*id, (*busy, pages.clone()));
            }
        }
        // Also of threads that no machine has seen this time: they are on their way.
        self.moved.retain(|_, at| at.saturating_add(STAY) > now);
        self.blocks.retain(|_, block| block.until.saturating_add(BLOCK_MAX) > now);
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
        let sum = |(_, parts): &(Duration, Parts)| {
            threads.iter().filter_map(|thread| parts.get(thread)).map(|(busy, _)| busy).sum::<f64>()
        };
        Progress::of(&within.map(sum).collect::<Vec<f64>>())
    }

    fn judge(&mut self, now: Duration, loads: &[Load]) -> Vec<Move> {
        let machines: BTreeMap<u64, u16> =
            loads.iter().flat_map(|load| load.threads.iter().map(|seen| (seen.id, load.machine))).collect();
        for (thread, trial) in &mut self.trials {
            if machines.get(thread) == Some(&trial.from) && now.saturating_sub(trial.asked) < LATE {
                trial.at = now; // it is on its way
            }
        }
        let is_there = |thread: &u64, trial: &Trial| machines.get(thread) == Some(&trial.to);
        let is_due = |thread: &u64, trial: &Trial| {
            trial.at.saturating_add(SECOND) <= now || trial.is_alone && is_there(thread, trial)
        };
        let are_due = |(thread, trial): &(&u64, &Trial)| {
            let partner = trial.partner.and_then(|partner| Some((partner, self.trials.get(&partner)?)));
            is_due(thread, trial) && partner.is_none_or(|(partner, trial)| is_due(&partner, trial))
        };
        let due: Vec<u64> = self.trials.iter().filter(are_due).map(|(thread, _)| *thread).collect();
        self.returns.retain(|thread, one| machines.get(thread) == Some(&one.from));
        let mut moves = Vec::new();
        for (thread, one) in &mut self.returns {
            if one.again.take_if(|again| *again <= now).is_some() {
                moves.push(Move { thread: *thread, to: one.to, reason: Reason::Undone });
            }
        }
        for thread in due {
            let partner = self.trials.get(&thread).and_then(|trial| trial.partner);
            let both = [Some(thread), partner].into_iter().flatten();
            let mut both: Vec<_> = both.filter_map(|thread| Some((thread, self.trials.remove(&thread)?))).collect();
            both.retain(|(thread, trial)| is_there(thread, trial)); // others have ended, or have gone on by themselves
            let at = both.iter().map(|(_, trial)| trial.at).max().unwrap_or(now); // from when on both were there
            both.iter_mut().for_each(|(_, trial)| trial.at = at);
            let verdicts: Vec<Option<Verdict>> =
                both.iter().map(|(thread, trial)| self.verdict(now, *thread, trial)).collect();
            for (thread, trial) in both {
                self.blocks.remove(&(thread, None)); // nothing ties it any more
                if verdicts.contains(&Some(Verdict::Worse)) {
                    self.block(now, thread, Some(trial.to));
                    self.moved.insert(thread, now);
                    moves.push(Move { thread, to: trial.from, reason: Reason::Undone });
                    if trial.partner.is_some() || trial.is_alone {
                        self.returns.insert(thread, Return { from: trial.to, to: trial.from, again: None });
                    }
                } else if trial.partner.is_some() && !verdicts.contains(&Some(Verdict::Better)) {
                    let until = now.saturating_add(BLOCK_MAX);
                    self.blocks.insert((thread, Some(trial.from)), Block { until, time: BLOCK_MAX });
                }
            }
        }
        moves
    }

    /// Returns what a move has brought, if that is known.
    fn verdict(&self, now: Duration, thread: u64, trial: &Trial) -> Option<Verdict> {
        if trial.is_alone {
            return Some(Verdict::Worse); // it has taken another one's core
        }
        let since = trial.at.saturating_add(SETTLE);
        let (own, all) = (self.progress(&[thread], since, now)?, self.progress(&trial.threads, since, now)?);
        if own.is_worse_than(&trial.own) || all.is_worse_than(&trial.all) {
            return Some(Verdict::Worse);
        }
        let is_better = trial.own.is_worse_than(&own) || trial.all.is_worse_than(&all);
        Some(if is_better { Verdict::Better } else { Verdict::Same })
    }

    fn block(&mut self, now: Duration, thread: u64, machine: Option<u16>) {
        let time = match self.blocks.get(&(thread, machine)) {
            Some(block) => block.time.saturating_mul(2).min(BLOCK_MAX),
            None => SECOND,
        };
        self.blocks.insert((thread, machine), Block { until: now.saturating_add(time), time });
    }

    /// Has threads go from crowded hosts to idle cores.
    fn spread(&mut self, now: Duration, loads: &[Load], moves: &mut Vec<Move>) {
        let mut room = self.room(loads, |host| host.wanted);
        room.retain(|_, idle| *idle >= HALF);
        let excess = self.excess(loads);
        for (source, mut left) in excess.into_iter().filter(|(_, excess)| *excess >= HALF) {
            let of_source = loads.iter().filter(|load| load.host == source);
            let mut threads: Vec<(u16, &Seen)> =
                of_source.flat_map(|load| load.threads.iter().map(|seen| (load.machine, seen))).collect();
            threads.retain(|(_, seen)| seen.wants >= HALF && self.is_free(now, seen));
            // Those that could not go, or came back, after the others.
            threads.sort_by(|(_, one), (_, other)| {
                let order = self.is_known_to_stay(one.id).cmp(&self.is_known_to_stay(other.id));
                order.then(other.wants.total_cmp(&one.wants)).then(one.id.cmp(&other.id))
            });
            for (from, seen) in threads {
                let Some((host, most)) = room.iter_mut().max_by(|one, other| one.1.total_cmp(other.1)) else { return };
                if left < HALF || *most < HALF {
                    break;
                }
                let Some(to) = self.machine_on(now, *host, seen.id, loads) else { continue };
                moves.push(self.begin(now, loads, (seen.id, from, to), Reason::Idle));
                (left, *most) = (left - 1.0, *most - 1.0);
            }
        }
    }

    /// Has threads go to the machines for whose pages they wait. Machines of one host have the same cores.
    fn gather(&mut self, now: Duration, loads: &[Load], moves: &mut Vec<Move>) {
        let all = loads.iter().flat_map(|load| load.threads.iter().map(move |seen| (load.machine, seen)));
        let away: Vec<Away> = all.filter_map(|(machine, seen)| self.away(now, machine, seen)).collect();
        if away.is_empty() {
            return;
        }
        let hosts: BTreeMap<u16, usize> = loads.iter().map(|load| (load.machine, load.host)).collect();
        let mut room = self.room(loads, |host| host.wanted_with_pages);
        let take_room = |(from, to): (u16, u16), wanted: usize, is_all_or_none: bool| {
            if hosts.get(&from) == hosts.get(&to) {
                return wanted;
            }
            let Some(room) = hosts.get(&to).and_then(|host| room.get_mut(host)) else { return 0 };
            let taken = wanted.min((*room + HALF).max(0.0) as usize);
            if is_all_or_none && taken < wanted {
                return 0;
            }
            *room -= taken as f64;
            taken
        };
        let under_way: Vec<(u16, u16)> = self.trials.values().map(|trial| (trial.from, trial.to)).collect();
        for Away { thread, from, to, .. } in away::chosen(away.clone(), &under_way, take_room) {
            moves.push(self.begin(now, loads, (thread, from, to), Reason::Pages));
        }
        if moves.is_empty() {
            let ends: Vec<_> = under_way.iter().flat_map(|(from, to)| [hosts.get(from), hosts.get(to)]).collect();
            let is_end = |machine: u16| ends.contains(&hosts.get(&machine));
            let may = |from, to| hosts.get(&from) != hosts.get(&to) && !is_end(from) && !is_end(to);
            let away: Vec<Away> = away
                .into_iter()
                .map(|one| Away { is_free: one.is_free && !self.is_known_to_stay(one.thread), ..one })
                .collect();
            for (one, other) in exchange::pairs(&away, may) {
                for (Away { thread, from, to, .. }, partner) in [(&one, &other), (&other, &one)] {
                    moves.push(self.begin(now, loads, (*thread, *from, *to), Reason::Pages));
                    let trial = self.trials.get_mut(thread);
                    trial.into_iter().for_each(|trial| trial.partner = Some(partner.thread));
                }
            }
        }
    }

    /// Returns a thread with the machine for whose pages it waits, if it does.
    fn away(&self, now: Duration, from: u16, seen: &Seen) -> Option<Away> {
        let last = self.parts.iter().filter(|(at, _)| at.saturating_add(SECOND) > now);
        let last: Option<Vec<&(f64, Pages)>> = last.map(|(_, parts)| parts.get(&seen.id)).collect();
        let last = last?;
        let (waited, to) = away::giver(&last)?;
        let sample = last.iter().flat_map(|(_, pages)| &pages.sample).copied().collect();
        let is_free = self.is_free(now, seen) && self.may_go(now, seen.id, to);
        (to != from).then_some(Away { thread: seen.id, from, to, is_free, waited, sample })
    }

    /// Begins a move, which will be judged by the progress of all threads of both hosts.
    fn begin(&mut self, now: Duration, loads: &[Load], (thread, from, to): (u64, u16, u16), reason: Reason) -> Move {
        let is_end = |machine: u16| machine == from || machine == to;
        let hosts: Vec<usize> = loads.iter().filter(|load| is_end(load.machine)).map(|load| load.host).collect();
        let of_both = loads.iter().filter(|load| hosts.contains(&load.host));
        let threads: Vec<u64> = of_both.flat_map(|load| load.threads.iter().map(|seen| seen.id)).collect();
        let before = now.saturating_sub(SECOND);
        let (own, all) = (self.progress(&[thread], before, now), self.progress(&threads, before, now));
        let (own, all) = (own.unwrap_or_default(), all.unwrap_or_default());
        let trial = Trial { from, to, asked: now, at: now, own, all, threads, partner: None, is_alone: false };
        self.trials.insert(thread, trial);
        self.returns.remove(&thread);
        self.moved.insert(thread, now);
        Move { thread, to, reason }
    }

    fn is_free(&self, now: Duration, seen: &Seen) -> bool {
        let stayed = self.moved.get(&seen.id).is_none_or(|at| at.saturating_add(STAY) <= now);
        seen.may_move && stayed && !self.trials.contains_key(&seen.id) && !self.is_blocked(now, seen.id, None)
    }

    fn is_blocked(&self, now: Duration, thread: u64, to: Option<u16>) -> bool {
        self.blocks.get(&(thread, to)).is_some_and(|block| block.until > now)
    }

    /// Whether a thread was blocked, for any machine, not long ago.
    fn is_known_to_stay(&self, thread: u64) -> bool {
        self.blocks.range((thread, None)..=(thread, Some(u16::MAX))).next().is_some()
    }

    fn may_go(&self, now: Duration, thread: u64, to: u16) -> bool {
        !self.is_blocked(now, thread, Some(to))
    }

    /// Returns the machine of a host with the fewest threads that may get this one.
    fn machine_on(&self, now: Duration, host: usize, thread: u64, loads: &[Load]) -> Option<u16> {
        let of_host = loads.iter().filter(|load| load.host == host && self.may_go(now, thread, load.machine));
        of_host.min_by_key(|load| load.threads.len()).map(|load| load.machine)
    }
}
