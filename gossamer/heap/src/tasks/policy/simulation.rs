//! The policy of 64 machines, simulated by seed: reports every 100 ms, decisions every 20 ms, tasks that never end.

use std::collections::BTreeMap;

use super::*;

const MACHINES: u16 = 64;
const CORES: f64 = 2.0;

struct Task {
    at: usize,
    since: Duration,
    moves: Vec<Duration>,
}

struct Simulation {
    now: Duration,
    policies: Vec<Policy>,
    tasks: BTreeMap<TaskId, Task>,
    /// Cores that other programs use on each machine, and until when.
    others: Vec<(f64, Duration)>,
    reports: Vec<Report>,
    random: fastrand::Rng,
}

impl Simulation {
    /// With this many tasks on each machine.
    fn new(seed: u64, tasks: impl Fn(u16) -> u64) -> Simulation {
        let idle = Report { at: Duration::ZERO, cores: CORES, others: 0.0, tasks: 0 };
        let made = |machine: u16| (0..tasks(machine)).map(move |number| (TaskId::of(machine, number), machine.into()));
        let of = |at| Task { at, since: Duration::ZERO, moves: Vec::new() };
        Simulation {
            now: Duration::ZERO,
            policies: (0..MACHINES).map(Policy::new).collect(),
            tasks: (0..MACHINES).flat_map(made).map(|(id, at)| (id, of(at))).collect(),
            others: vec![(0.0, Duration::MAX); MACHINES.into()],
            reports: vec![idle; MACHINES.into()],
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn tasks_at(&self, machine: usize) -> u32 {
        self.tasks.values().filter(|task| task.at == machine).count() as u32
    }

    /// Runs for some time. Loads of others come and go, each for a time up to `dwell`.
    fn run(&mut self, time: Duration, dwell: Option<Duration>) {
        let end = self.now + time;
        while self.now < end {
            for machine in 0..usize::from(MACHINES) {
                self.step(machine, dwell);
            }
            self.now += Duration::from_millis(20);
        }
    }

    fn step(&mut self, machine: usize, dwell: Option<Duration>) {
        let now = self.now;
        if let Some(dwell) = dwell
            && (self.others[machine].1 == Duration::MAX || self.others[machine].1 <= now)
        {
            let used = self.random.f64() * 2.0 * CORES;
            let time = dwell.mul_f64(self.random.f64());
            self.others[machine] = (if used > CORES { 0.0 } else { used }, now + time);
        }
        // Not all at the same time.
        if (now.as_millis() as usize / 20 + machine).is_multiple_of(5) {
            let cores = (CORES - self.others[machine].0).max(CORES / 2.0);
            self.reports[machine] = Report { at: now, cores, others: 0.0, tasks: self.tasks_at(machine) };
        }
        let candidate = |(id, task): (&TaskId, &Task)| Candidate {
            id: *id,
            busy: 0.5,
            bytes: 1000,
            moves: task.moves.len() as u32,
            stayed: now - task.since,
            reads_from: None,
            was_faster_at: None,
        };
        let candidates: Vec<_> = self.tasks.iter().filter(|(_, task)| task.at == machine).map(candidate).collect();
        let policy = &mut self.policies[machine];
        policy.observe(now, (0..).zip(self.reports.iter().copied()));
        for one in policy.decide(now, candidates.len() as u32, &candidates) {
            policy.sent(now, one.to);
            let task = self.tasks.get_mut(&one.task).unwrap();
            (task.at, task.since) = (one.to.into(), now);
            task.moves.push(now);
        }
    }

    fn moves(&self) -> usize {
        self.tasks.values().map(|task| task.moves.len()).sum()
    }
}

const SEEDS: std::ops::Range<u64> = 0..2;

#[test]
fn tasks_of_one_machine_spread_and_stay() {
    for seed in SEEDS {
        let mut all = Simulation::new(seed, |machine| if machine == 0 { 128 } else { 0 });
        all.run(Duration::from_secs(3), None);
        let most = (0..64).map(|machine| all.tasks_at(machine)).max().unwrap();
        assert!(most <= 4, "seed {seed}: {most} on two cores, where two are the mean");
        let before = all.moves();
        assert!(before <= 2 * 128, "seed {seed}: {before} moves");
        all.run(Duration::from_secs(3), None);
        assert_eq!(all.moves(), before, "seed {seed}: and no more moves");
    }
}

#[test]
fn a_load_that_flaps_moves_a_task_once_in_ten_seconds_at_most() {
    for (seed, dwell_ms) in SEEDS.flat_map(|seed| [200, 1000, 5000].map(|dwell_ms| (seed, dwell_ms))) {
        let mut all = Simulation::new(seed, |machine| u64::from(machine % 4));
        all.run(Duration::from_secs(15), Some(Duration::from_millis(dwell_ms)));
        for (id, task) in &all.tasks {
            let stays = task.moves.iter().zip(task.moves.iter().skip(1)).map(|(one, next)| *next - *one);
            let is_calm = stays.min().is_none_or(|stay| stay >= Duration::from_secs(10));
            assert!(is_calm, "seed {seed}, {dwell_ms} ms: task {id} moved at {:?}", task.moves);
        }
        let a_task = all.moves() as f64 / all.tasks.len() as f64;
        let is_fast = dwell_ms == 200;
        assert!(!is_fast || a_task <= 1.0, "seed {seed}: {a_task} moves a task in 15 s, by a load that flaps fast");
    }
}

#[test]
fn many_machines_with_too_much_do_not_flood_an_idle_one() {
    for seed in SEEDS {
        let mut all = Simulation::new(seed, |machine| if machine == 63 { 0 } else { 4 });
        all.run(Duration::from_secs(2), None);
        let there = all.tasks_at(63);
        assert!((1..=16).contains(&there), "seed {seed}: {there} on two cores");
    }
}

/// Time until so many tasks, all made on machine 0, have computed for these times on machines of one core each.
fn time_of_all(machines: u16, times: &[Duration]) -> Duration {
    const TICK: Duration = Duration::from_millis(5);
    let mut policies: Vec<_> = (0..machines).map(Policy::new).collect();
    let mut tasks: BTreeMap<TaskId, (Task, Duration)> = BTreeMap::new();
    for (number, time) in (0..).zip(times) {
        let task = Task { at: 0, since: Duration::ZERO, moves: Vec::new() };
        tasks.insert(TaskId::of(0, number), (task, *time));
    }
    let mut reports = vec![Report { at: Duration::ZERO, cores: 1.0, others: 0.0, tasks: 0 }; machines.into()];
    let mut now = Duration::ZERO;
    while !tasks.is_empty() {
        for machine in 0..usize::from(machines) {
            let here = tasks.values().filter(|(task, _)| task.at == machine).count() as u32;
            for (task, left) in tasks.values_mut() {
                if task.at == machine {
                    *left = left.saturating_sub(TICK / here);
                }
            }
            tasks.retain(|_, (_, left)| *left > Duration::ZERO);
            let is_due =
                now < Duration::from_millis(250) || (now.as_millis() as usize / 5 + machine).is_multiple_of(20);
            let here: Vec<Candidate> = tasks
                .iter()
                .filter(|(_, (task, _))| task.at == machine)
                .map(|(id, (task, _))| Candidate {
                    id: *id,
                    busy: 1.0 / f64::from(here),
                    bytes: 100,
                    moves: task.moves.len() as u32,
                    stayed: now - task.since,
                    reads_from: None,
                    was_faster_at: None,
                })
                .collect();
            if is_due {
                reports[machine] = Report { at: now, cores: 1.0, others: 0.0, tasks: here.len() as u32 };
            }
            let policy = &mut policies[machine];
            policy.observe(now, (0..).zip(reports.iter().copied()));
            for one in policy.decide(now, here.len() as u32, &here) {
                policy.sent(now, one.to);
                let (task, _) = tasks.get_mut(&one.task).unwrap();
                (task.at, task.since) = (one.to.into(), now);
                task.moves.push(now);
            }
        }
        now += TICK;
    }
    now
}

/// 64 tasks of which few take long, as `gossamer-bench heap` has them.
#[test]
fn uneven_tasks_end_nearly_as_soon_as_placed_by_hand() {
    for machines in [2, 4] {
        let times: Vec<_> = (0..64).map(|number| Duration::from_millis(500) / (1 + number % 16)).collect();
        let at_best = times.iter().sum::<Duration>() / u32::from(machines);
        let took = time_of_all(machines, &times);
        let part = at_best.as_secs_f64() / took.as_secs_f64();
        assert!(part >= 0.9, "{machines} machines: {part:.2} of the best ({took:?})");
    }
}
