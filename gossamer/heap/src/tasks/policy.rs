//! Choice of the tasks that go to other machines, and where. Pure: it is told the time and the loads, and decides the
//! same for the same. Not here: how these are known (`registry.rs`), and how a task moves (`run.rs`).
//!
//! Three reasons for a move. *Idle*: here are more runnable tasks than cores, there is an idle core; so many go that
//! both are as crowded, the cheapest first. *Data*: the task spends much of its time on reads from there. *Undone*: the
//! task is slower than where it came from.
//!
//! Nothing moves by a load that comes and goes: of the other machines the worst of the last second counts, of this one
//! the best. And a task stays for ten seconds before it goes to an idle core again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::task_id::TaskId;

/// Time over which loads have to last.
const HISTORY: Duration = Duration::from_secs(1);
/// One report is seen again and again, at the same time but for so much.
const SAME: Duration = Duration::from_millis(2);
/// A machine with an older report gets no tasks.
const OLD: Duration = Duration::from_millis(300);
/// A task that was sent so long before a report, or later, may not be in it.
const ON_THE_WAY: Duration = Duration::from_millis(20);
/// Least time for which a task stays after a move: before it goes to its data, and before it goes to an idle core.
const STAY: Duration = Duration::from_secs(1);
const STAY_LONG: Duration = Duration::from_secs(10);
/// Time for which a machine gets no tasks from here after one came back from it: at first, and at most.
const BLOCK: Duration = Duration::from_secs(1);
const BLOCK_MAX: Duration = Duration::from_secs(60);
/// Load beyond the cores from which a machine has too much, and below them from which it has an idle core.
const HALF: f64 = 0.5;
/// A move has to be worth this factor in tasks a core.
const GAIN: f64 = 1.2;
/// Cost of a move in seconds, and for each byte: 25 us, and 1 GB/s.
const MOVE_S: f64 = 25e-6;
const BYTE_S: f64 = 1e-9;

/// Reason for a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Idle,
    Data,
    Undone,
    /// Its own.
    Asked,
}

impl Reason {
    /// All of them, by their numbers.
    pub(super) const ALL: [Reason; 4] = [Reason::Idle, Reason::Data, Reason::Undone, Reason::Asked];

    pub(super) fn of(number: u32) -> Reason {
        Reason::ALL[(number as usize).min(Reason::ALL.len() - 1)]
    }

    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Idle => "idle core",
            Reason::Data => "its data",
            Reason::Undone => "undone",
            Reason::Asked => "asked",
        }
    }
}

/// Load of a machine, as it was at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) at: Duration,
    /// Cores that its workers can have.
    pub(super) cores: f64,
    /// Those that they use for other work than tasks.
    pub(super) others: f64,
    /// Runnable tasks.
    pub(super) tasks: u32,
}

/// A task of this machine that may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: TaskId,
    /// Part of the time for which it computes.
    pub(super) busy: f64,
    /// Bytes that travel with it, or that it would fetch again.
    pub(super) bytes: u64,
    pub(super) moves: u32,
    /// Time since it came here.
    pub(super) stayed: Duration,
    /// Machine from which it reads for much of its time.
    pub(super) reads_from: Option<u16>,
    /// Machine that it came from, if it was faster there.
    pub(super) was_faster_at: Option<u16>,
}

impl Candidate {
    /// Work a second of moving.
    fn worth(&self) -> f64 {
        self.busy / (MOVE_S + self.bytes as f64 * BYTE_S)
    }

    fn may_move(&self, after: Duration) -> bool {
        self.moves == 0 || self.stayed >= after
    }
}

/// A task that is to go to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) task: TaskId,
    pub(super) to: u16,
    pub(super) reason: Reason,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    until: Duration,
    time: Duration,
}

/// Load that counts in a decision.
#[derive(Clone, Copy, Debug)]
struct Load {
    machine: u16,
    cores: f64,
    load: f64,
}

impl Load {
    /// Work for each core, with so many tasks more.
    fn crowd(&self, more: u32) -> f64 {
        (self.load + f64::from(more)) / self.cores.max(0.01)
    }

    fn is_idle(&self) -> bool {
        self.load + HALF <= self.cores
    }

    fn has_too_much(&self) -> bool {
        self.load >= self.cores + HALF
    }
}

/// The policy of a machine.
#[derive(Debug)]
pub(super) struct Policy {
    own: u16,
    /// Reports of each machine in the last second.
    seen: BTreeMap<u16, VecDeque<Report>>,
    /// Tasks that were sent, and when, as long as reports may not have them.
    sent: Vec<(Duration, u16)>,
    blocks: BTreeMap<u16, Block>,
    /// Had this machine too much at the last decision?
    had_too_much: bool,
    random: u64,
}

impl Policy {
    pub(super) fn new(own: u16) -> Policy {
        Policy {
            own,
            seen: BTreeMap::new(),
            sent: Vec::new(),
            blocks: BTreeMap::new(),
            had_too_much: false,
            // Other numbers on each machine (splitmix, G. Steele 2014).
            random: (u64::from(own) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Takes the last reports of all living machines.
    pub(super) fn observe(&mut self, now: Duration, reports: impl IntoIterator<Item = (u16, Report)>) {
        let mut living = vec![self.own];
        for (machine, report) in reports {
            living.push(machine);
            let seen = self.seen.entry(machine).or_default();
            if seen.back().is_none_or(|last| report.at > last.at.saturating_add(SAME)) {
                seen.push_back(report);
            }
            while seen.len() > 1 && seen[0].at.saturating_add(HISTORY) < now {
                seen.pop_front();
            }
        }
        self.seen.retain(|machine, _| living.contains(machine));
        let last = self.seen.values().filter_map(|seen| seen.back()).map(|last| last.at).min().unwrap_or_default();
        self.sent.retain(|(at, _)| at.saturating_add(HISTORY) > now && at.saturating_add(ON_THE_WAY) > last);
    }

    /// A task was sent to that machine.
    pub(super) fn sent(&mut self, now: Duration, to: u16) {
        self.sent.push((now, to));
    }

    /// A task has come back from that machine, where it was slower: none goes there for a while, longer each time.
    pub(super) fn came_back(&mut self, now: Duration, from: u16) {
        let time = match self.blocks.get(&from) {
            Some(block) if now < block.until.saturating_add(block.time.saturating_mul(2)) => {
                block.time.saturating_mul(2).min(BLOCK_MAX)
            }
            _ => BLOCK,
        };
        self.blocks.insert(from, Block { until: now.saturating_add(time), time });
    }

    /// Decides, with so many runnable tasks here.
    pub(super) fn decide(&mut self, now: Duration, tasks_here: u32, candidates: &[Candidate]) -> Vec<Move> {
        let mut here = self.here(tasks_here);
        let has_reason = |task: &Candidate| task.was_faster_at.is_some() || task.reads_from.is_some();
        if !here.has_too_much() && !candidates.iter().any(has_reason) {
            self.had_too_much = false;
            return Vec::new();
        }
        let mut others = self.others(now);
        let mut moves = Vec::new();
        for task in candidates {
            let find = |machine: Option<u16>| others.iter().position(|other| Some(other.machine) == machine);
            let (at, reason) = match (find(task.was_faster_at), find(task.reads_from)) {
                (Some(at), _) => (at, Reason::Undone),
                (None, Some(at)) if task.may_move(STAY) && self.may_get(&others[at], now) => {
                    if !others[at].is_idle() && others[at].crowd(1) > here.crowd(0) {
                        continue;
                    }
                    (at, Reason::Data)
                }
                _ => continue,
            };
            moves.push(Move { task: task.id, to: others[at].machine, reason });
            (here.load, others[at].load) = (here.load - 1.0, others[at].load + 1.0);
        }
        let has_too_much = here.has_too_much();
        if has_too_much && std::mem::replace(&mut self.had_too_much, has_too_much) {
            self.share(now, here, &others, candidates, &mut moves);
        }
        self.had_too_much = has_too_much;
        moves
    }

    /// Sends tasks to machines with idle cores.
    fn share(
        &mut self,
        now: Duration,
        mut here: Load,
        others: &[Load],
        candidates: &[Candidate],
        moves: &mut Vec<Move>,
    ) {
        let sharers = 1 + others.iter().filter(|other| other.has_too_much()).count();
        let (load, cores) =
            others.iter().fold((here.load, here.cores), |sum, one| (sum.0 + one.load, sum.1 + one.cores));
        // Each machine with too much sends its part of those that are missing there: by chance, where that is no whole
        // number.
        let mut targets = Vec::new();
        for other in others {
            if !other.is_idle() || !self.may_get(other, now) {
                continue;
            }
            let missing = (load / cores * other.cores - other.load).max(1.0) / sharers as f64;
            let quota = missing.floor() + f64::from(u8::from(self.random() < missing.fract()));
            targets.push((*other, quota as u32));
        }
        let is_free = |task: &&Candidate| task.may_move(STAY_LONG) && moves.iter().all(|one| one.task != task.id);
        let mut tasks: Vec<Candidate> = candidates.iter().filter(is_free).copied().collect();
        tasks.sort_by(|one, other| other.worth().total_cmp(&one.worth()).then(one.id.cmp(&other.id)));
        for task in tasks {
            targets.retain(|(target, quota)| *quota > 0 && target.crowd(1) * GAIN < here.crowd(0));
            let Some((target, quota)) =
                targets.iter_mut().min_by(|(one, _), (other, _)| one.crowd(1).total_cmp(&other.crowd(1)))
            else {
                return;
            };
            moves.push(Move { task: task.id, to: target.machine, reason: Reason::Idle });
            (here.load, target.load, *quota) = (here.load - 1.0, target.load + 1.0, *quota - 1);
        }
    }

    /// Load of this machine: the best of the last second.
    fn here(&self, tasks: u32) -> Load {
        let seen = self.seen.get(&self.own).into_iter().flatten();
        let (cores, others) = seen.fold((0.0, f64::INFINITY), |(cores, others), report| {
            (f64::max(cores, report.cores), f64::min(others, report.others))
        });
        // Without a report nothing is too much.
        let cores = if others.is_finite() { cores } else { f64::INFINITY };
        Load { machine: self.own, cores, load: f64::from(tasks) + if others.is_finite() { others } else { 0.0 } }
    }

    /// Loads of the others with fresh reports: the worst of the last second.
    fn others(&self, now: Duration) -> Vec<Load> {
        let load = |(machine, seen): (&u16, &VecDeque<Report>)| {
            let last = seen.back().filter(|last| *machine != self.own && last.at.saturating_add(OLD) > now)?;
            let cores = seen.iter().map(|report| report.cores).fold(f64::INFINITY, f64::min);
            let others = seen.iter().map(|report| report.others).fold(0.0, f64::max);
            let is_on_the_way = |(at, to): &&(Duration, u16)| to == machine && at.saturating_add(ON_THE_WAY) > last.at;
            let tasks = last.tasks as usize + self.sent.iter().filter(is_on_the_way).count();
            Some(Load { machine: *machine, cores, load: tasks as f64 + others })
        };
        self.seen.iter().filter_map(load).collect()
    }

    fn may_get(&self, machine: &Load, now: Duration) -> bool {
        self.blocks.get(&machine.machine).is_none_or(|block| block.until <= now)
    }

    /// Returns a number from 0 to 1 (xorshift, G. Marsaglia 2003).
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Report of two cores.
    fn report(at: Duration, tasks: u32) -> Report {
        Report { at, cores: 2.0, others: 0.0, tasks }
    }

    fn candidates(count: u64) -> Vec<Candidate> {
        let id = |number| TaskId::of(0, number);
        let of = |number| Candidate {
            id: id(number),
            busy: 0.5,
            bytes: 100,
            moves: 0,
            stayed: ms(0),
            reads_from: None,
            was_faster_at: None,
        };
        (0..count).map(of).collect()
    }

    /// Machine 0 of `tasks.len()`, at 10 s, with this many tasks on each, as of all reports of a second.
    fn machine_0(tasks: &[u32]) -> Policy {
        let mut policy = Policy::new(0);
        for at in (9_000..=10_000).step_by(100).map(ms) {
            policy.observe(at, (0..).zip(tasks).map(|(machine, tasks)| (machine, report(at, *tasks))));
        }
        policy
    }

    /// Decides twice: the first time is only the first of two.
    fn decided(policy: &mut Policy, tasks: u32, candidates: &[Candidate]) -> Vec<Move> {
        assert!(policy.decide(ms(10_000), tasks, candidates).iter().all(|one| one.reason != Reason::Idle));
        policy.decide(ms(10_005), tasks, candidates)
    }

    #[test]
    fn tasks_go_to_idle_cores_until_both_are_as_crowded() {
        let moves = decided(&mut machine_0(&[64, 0]), 64, &candidates(64));
        assert!((28..=32).contains(&moves.len()), "{}", moves.len());
        assert!(moves.iter().all(|one| (one.to, one.reason) == (1, Reason::Idle)));
        let moves = decided(&mut machine_0(&[64, 0, 0, 0]), 64, &candidates(64));
        for machine in 1..4 {
            let count = moves.iter().filter(|one| one.to == machine).count();
            assert!((12..=16).contains(&count), "{count} to {machine}");
        }
    }

    #[test]
    fn none_goes_without_too_much_here_or_without_an_idle_core_there() {
        for (here, there) in [(2, 0), (0, 0), (64, 2), (64, 60), (3, 2)] {
            let moves = decided(&mut machine_0(&[here, there]), here, &candidates(here.into()));
            assert_eq!(moves, [], "{here} here, {there} there");
        }
        assert_eq!(decided(&mut machine_0(&[3, 0]), 3, &candidates(3)).len(), 1);
        assert_eq!(decided(&mut machine_0(&[3]), 3, &candidates(3)), [], "there is no other");
    }

    #[test]
    fn before_the_first_report_none_goes() {
        assert_eq!(decided(&mut Policy::new(0), 64, &candidates(64)), []);
    }

    #[test]
    fn the_cheapest_for_their_work_go_first() {
        let mut tasks = candidates(3);
        tasks[0].bytes = 1 << 20;
        tasks[1].busy = 0.01;
        let moves = decided(&mut machine_0(&[3, 0]), 3, &tasks);
        assert_eq!(moves.iter().map(|one| one.task).collect::<Vec<_>>(), [tasks[2].id]);
    }

    #[test]
    fn a_silent_machine_gets_none() {
        let mut policy = machine_0(&[64, 0, 0]);
        for at in [ms(10_100), ms(10_200), ms(10_300), ms(10_400)] {
            policy.observe(at, [(0, report(at, 64)), (2, report(at, 0))]);
            let moves = policy.decide(at, 64, &candidates(64));
            assert!(at < ms(10_300) || moves.iter().all(|one| one.to == 2), "{moves:?}");
        }
    }

    #[test]
    fn a_load_that_comes_and_goes_moves_nothing() {
        let mut policy = machine_0(&[64, 0]);
        let busy = Report { others: 2.0, ..report(ms(9_950), 0) };
        policy.seen.get_mut(&1).unwrap().push_front(busy);
        assert_eq!(decided(&mut policy, 64, &candidates(64)), [], "others computed there a moment ago");
        let mut policy = machine_0(&[2, 0]);
        policy.observe(ms(10_000), [(0, Report { cores: 0.5, ..report(ms(10_000), 2) })]);
        assert_eq!(decided(&mut policy, 2, &candidates(2)), [], "others have come here just now");
    }

    #[test]
    fn tasks_on_the_way_are_there_already() {
        let mut policy = machine_0(&[64, 0]);
        policy.sent(ms(10_000), 1);
        policy.sent(ms(10_000), 1);
        assert_eq!(decided(&mut policy, 62, &candidates(62)), []);
        policy.observe(ms(10_100), [(0, report(ms(10_100), 62)), (1, report(ms(10_100), 0))]);
        assert!(!policy.decide(ms(10_110), 62, &candidates(62)).is_empty(), "they have ended");
    }

    #[test]
    fn several_machines_with_too_much_share_an_idle_one() {
        let mut all = 0;
        for own in 0..20 {
            let mut policy = Policy::new(own);
            let tasks = |machine| if machine == 20 { 0 } else { 4 };
            policy.observe(ms(0), (0..21).map(|machine| (machine, report(ms(0), tasks(machine)))));
            policy.decide(ms(5), 4, &candidates(4));
            all += policy.decide(ms(10), 4, &candidates(4)).len();
        }
        assert!((1..=8).contains(&all), "about the four that are missing there: {all}");
    }

    #[test]
    fn a_task_goes_to_its_data_where_there_is_room() {
        let mut tasks = candidates(1);
        tasks[0].reads_from = Some(1);
        let to_data = [Move { task: tasks[0].id, to: 1, reason: Reason::Data }];
        assert_eq!(machine_0(&[1, 1]).decide(ms(10_000), 1, &tasks), to_data);
        assert_eq!(machine_0(&[1, 5]).decide(ms(10_000), 1, &tasks), []);
        assert_eq!(machine_0(&[9, 5]).decide(ms(10_000), 9, &tasks), to_data, "no more crowded than here");
        tasks[0].moves = 1;
        assert_eq!(machine_0(&[1, 1]).decide(ms(10_000), 1, &tasks), [], "it has just come");
        tasks[0].stayed = STAY;
        assert_eq!(machine_0(&[1, 1]).decide(ms(10_000), 1, &tasks), to_data);
    }

    #[test]
    fn a_task_that_was_faster_elsewhere_goes_back_and_blocks_the_way() {
        let mut tasks = candidates(1);
        (tasks[0].was_faster_at, tasks[0].moves) = (Some(1), 1);
        let back = [Move { task: tasks[0].id, to: 1, reason: Reason::Undone }];
        assert_eq!(machine_0(&[1, 9]).decide(ms(10_000), 1, &tasks), back);

        let mut policy = machine_0(&[64, 0]);
        let blocked_until = |policy: &Policy| policy.blocks[&1].until;
        policy.came_back(ms(9_000), 1);
        assert_eq!(blocked_until(&policy), ms(10_000));
        policy.came_back(ms(10_000), 1);
        assert_eq!(blocked_until(&policy), ms(12_000), "twice as long");
        assert_eq!(decided(&mut policy, 64, &candidates(64)), []);
        policy.came_back(ms(100_000), 1);
        assert_eq!(blocked_until(&policy), ms(101_000), "that was long ago");
        (0..20).for_each(|_| policy.came_back(ms(100_000), 1));
        assert_eq!(blocked_until(&policy), ms(160_000));
    }
}
