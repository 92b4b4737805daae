//! Paths of several machines, against the graph of all of them at once, and against a world that changes while it is
//! asked.

use super::*;
use crate::fiber::record::{Awaited, Doing, Seen, Wait, Whom};
use crate::ids::worker_id;
use crate::registry::report::Report;
use crate::runtime::watch::graph::Graph;

/// A fiber's state in these tests.
#[derive(Clone, Copy, Debug)]
struct Fiber {
    machine: u16,
    /// The fiber that it waits for, and the number of the wait.
    waits: Option<(usize, u64)>,
}

/// The reports of one machine with one worker. A wait for a fiber of the same machine is a place in line for a value
/// which that fiber holds; a wait for a fiber of another machine is for its answer. `None` if two would have launched
/// the same fiber.
fn reports(fibers: &[Fiber]) -> Option<Vec<Report>> {
    let id = |at: usize| worker_id(fibers[at].machine, 0);
    let mut whom = vec![Whom::Nobody; fibers.len()];
    for (at, fiber) in fibers.iter().enumerate() {
        if let Some((of, _)) = fiber.waits.filter(|&(of, _)| id(of) != id(at)) {
            if whom[of] != Whom::Nobody {
                return None;
            }
            whom[of] = Whom::Client(id(at), at as u64);
        }
    }
    let seen = |(at, fiber): (usize, &Fiber)| {
        let awaited = |of| {
            if id(of) == id(at) {
                Awaited::Value { property: 16 * (of + 1), on: "u8" }
            } else {
                Awaited::Result(at as u64)
            }
        };
        let wait = fiber.waits.map(|(of, number)| Wait { awaited: awaited(of), number, since_ms: number });
        let doing = if wait.is_some() { Doing::Waits } else { Doing::Ready };
        let holds = 16 * (at + 1);
        (fiber.machine, Seen { id: at as u64, whom: whom[at], doing, wait, holds, name: format!("fiber {at}") })
    };
    let all: Vec<_> = fibers.iter().enumerate().map(seen).collect();
    let report = |machine| Report {
        worker: worker_id(machine, 0),
        thread: String::new(),
        fibers: all.iter().filter(|(of, _)| *of == machine).map(|(_, seen)| seen.clone()).collect(),
        root: None,
        has_timers: false,
        gathered: Vec::new(),
    };
    Some((0..3).map(report).collect())
}

fn paths(report: &Report) -> Vec<Path> {
    Graph::new(std::slice::from_ref(report)).paths(100, true)
}

fn machines_of(cycle: &Cycle) -> HashSet<u16> {
    let machine = |node: &Node| match node {
        Node::Fiber(worker, ..) => worker.machine(),
        Node::Gather(..) => unreachable!("there is none"),
    };
    cycle.iter().map(machine).collect()
}

/// All ways in which four fibers on three machines can wait: paths give exactly the cycles of the graph of all reports
/// that go through more than one machine.
#[test]
fn paths_make_the_circles_of_the_whole_graph() {
    const FIBERS: usize = 4;
    let (mut found, mut looked_at) = (0, 0);
    for code in 0..(FIBERS + 1).pow(FIBERS as u32) * 3usize.pow(FIBERS as u32) {
        if cfg!(miri) && !code.is_multiple_of(997) {
            continue;
        }
        let mut rest = code;
        let mut digit = |base: usize| {
            let digit = rest % base;
            rest /= base;
            digit
        };
        let fibers: Vec<Fiber> = (0..FIBERS)
            .map(|at| {
                let (machine, of) = (digit(3) as u16, digit(FIBERS + 1));
                Fiber { machine, waits: Some((of, at as u64)).filter(|_| of < FIBERS) }
            })
            .collect();
        let Some(reports) = reports(&fibers) else { continue };
        looked_at += 1;
        let whole = Graph::new(&reports);
        let mut expected = whole.cycles();
        expected.retain(|cycle| machines_of(cycle).len() > 1);
        let paths: Vec<Path> = reports.iter().flat_map(paths).collect();
        let mut circles: Vec<Cycle> = circles(&paths).iter().map(Circle::cycle).collect();
        expected.sort();
        circles.sort();
        assert_eq!(circles, expected, "{fibers:?}");
        for circle in super::circles(&paths) {
            found += 1;
            // All clocks are one here: the same fiber is named, in the same words apart from the starting point.
            assert_eq!(circle.last_comer(), whole.last_comer(&circle.cycle()), "{fibers:?}");
            assert_eq!(circle.describe().len(), whole.describe(&circle.cycle()).len());
        }
    }
    if !cfg!(miri) {
        assert!(looked_at > 10_000 && found > 1_000, "{looked_at} {found}");
    }
}

fn over(next: Next) -> Vec<Verdict> {
    match next {
        Next::Over(verdicts) => verdicts,
        Next::Ask(question) => panic!("one more is needed: {question:?}"),
    }
}

/// Crossing launches of three machines, each fiber with a value of its own and a fiber in line before it.
fn crossing() -> Vec<Report> {
    let waits = |machine: usize| {
        // 2 * machine has the value, 2 * machine + 1 stands in line for it.
        let has = Fiber { machine: machine as u16, waits: Some(((2 * machine + 3) % 6, machine as u64)) };
        [has, Fiber { machine: machine as u16, waits: Some((2 * machine, 9 - machine as u64)) }]
    };
    reports(&[0, 1, 2].map(waits).concat()).unwrap()
}

/// One round, in which these machines answer.
fn round(search: &mut CycleSearch, question: &Question, reports: &[Report]) {
    for report in reports {
        let mut paths = paths(report);
        paths.retain(|path| question.is_about(path));
        search.receive(report.worker.machine(), question.round, paths);
    }
}

#[test]
fn a_circle_that_three_rounds_have_is_believed() {
    let reports = crossing();
    let mut search = CycleSearch::default();
    let mut question = search.begin(0..3);
    assert!(question.only.is_none());
    for _ in 0..2 {
        round(&mut search, &question, &reports[..2]);
        assert!(!search.is_complete() && !question.with_names);
        round(&mut search, &question, &reports[2..]);
        assert!(search.is_complete());
        let Next::Ask(next) = search.close(0..3) else { panic!("it is believed too early") };
        assert!(next.round > question.round && next.only.as_ref().is_some_and(|only| only.len() == 3));
        question = next;
    }
    assert!(question.with_names);
    round(&mut search, &question, &reports);
    let verdicts = over(search.close(0..3));
    assert_eq!(verdicts.len(), 1);
    // The last comer among the fibers in lines.
    assert_eq!(verdicts[0].on, Node::Fiber(worker_id(0, 0), 1, 9));
    for machine in 0..3 {
        assert!(verdicts[0].why.contains(&format!(" of m{machine}w0, which waits for")), "{}", verdicts[0].why);
    }
}

#[test]
fn a_round_without_a_machine_believes_nothing_of_it() {
    let reports = crossing();
    for missing in 0..3 {
        let mut search = CycleSearch::default();
        let question = search.begin(0..3);
        let there: Vec<Report> = reports.iter().filter(|report| report.worker.machine() != missing).cloned().collect();
        round(&mut search, &question, &there);
        assert!(!search.is_complete());
        assert_eq!(over(search.close(0..3)), []);
        // Its answer comes late, in the next round, and is ignored.
        let late = &reports[usize::from(missing)];
        let next = search.begin(0..3);
        search.receive(missing, question.round, paths(late));
        round(&mut search, &next, &there);
        assert_eq!(over(search.close(0..3)), []);
        // A second answer of a machine and an answer of an unknown machine do not count either.
        let next = search.begin(0..3);
        round(&mut search, &next, &there);
        search.receive(77, next.round, paths(late));
        search.receive((missing + 1) % 3, next.round, paths(late));
        assert_eq!(over(search.close(0..3)), []);
    }
}

#[test]
fn who_has_begun_another_wait_is_in_another_circle() {
    let reports = crossing();
    let mut search = CycleSearch::default();
    let mut question = search.begin(0..3);
    for number in 20.. {
        let mut reports = reports.clone();
        for fiber in &mut reports[1].fibers {
            fiber.wait.as_mut().unwrap().number = number;
        }
        round(&mut search, &question, &reports);
        match search.close(0..3) {
            Next::Ask(next) if number == 20 => question = next,
            next => return assert_eq!(over(next), []),
        }
    }
}

/// Fibers of three machines, one of which acts at a time: it begins to wait for another one, or goes on because that
/// one runs.
struct World {
    fibers: Vec<Fiber>,
    next: u64,
}

impl World {
    fn step(&mut self, mut below: impl FnMut(usize) -> usize) {
        let at = below(self.fibers.len());
        match self.fibers[at].waits {
            // Only the other fiber can end its wait.
            Some((of, _)) if self.fibers[of].waits.is_none() => self.fibers[at].waits = None,
            Some(_) => {}
            None => {
                let of = below(self.fibers.len());
                self.next += 1;
                self.fibers[at].waits = Some((of, self.next));
                // A fiber has one launcher and never stands in its own line: either would only end the run early.
                if of == at || reports(&self.fibers).is_none() {
                    self.fibers[at].waits = None;
                }
            }
        }
    }

    /// Do these wait for each other now, in exactly these waits?
    fn has(&self, cycle: &Cycle) -> bool {
        let number = |node: &Node| match node {
            Node::Fiber(_, id, wait) => (*id as usize, *wait),
            Node::Gather(..) => unreachable!("there is none"),
        };
        let of = |at: usize| (at, self.fibers[at].waits.map_or(0, |(_, number)| number));
        let on: Vec<_> = cycle.iter().map(number).collect();
        let next = |at: usize| self.fibers[at].waits.map(|(of, _)| of);
        on.iter().all(|&(at, wait)| of(at) == (at, wait) && next(at).is_some_and(|next| on.contains(&of(next))))
    }
}

/// Machines are asked while fibers go on, in any order, and answers are late. Every cycle that is believed exists, and
/// some cycles that a single round finds do not.
#[test]
fn nothing_is_believed_that_is_not_so() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut below = |n: usize| random.usize(..n);
    let (mut believed, mut phantoms) = (0, 0);
    for _ in 0..if cfg!(miri) { 10 } else { 3_000 } {
        let fibers = (0..6).map(|at| Fiber { machine: at % 3, waits: None }).collect();
        let mut world = World { fibers, next: 0 };
        let mut search = CycleSearch::default();
        let mut question = search.begin(0..3);
        // One session may find nothing, so several run.
        for _ in 0..12 {
            let mut left: Vec<u16> = vec![0, 1, 2];
            while !left.is_empty() {
                for _ in 0..below(4) {
                    world.step(&mut below);
                }
                let machine = left.swap_remove(below(left.len()));
                let all = reports(&world.fibers).unwrap();
                let mut paths = paths(&all[usize::from(machine)]);
                paths.retain(|path| question.is_about(path));
                search.receive(machine, question.round, paths);
            }
            phantoms += circles(&search.paths).iter().filter(|circle| !world.has(&circle.cycle())).count();
            question = match search.close(0..3) {
                Next::Ask(next) => next,
                Next::Over(verdicts) => {
                    for verdict in verdicts {
                        believed += 1;
                        let Node::Fiber(worker, ..) = verdict.on else { unreachable!("there is no other") };
                        let all = reports(&world.fibers).unwrap();
                        let cycles = Graph::new(&all).cycles();
                        let cycle = cycles.iter().find(|cycle| cycle.contains(&verdict.on));
                        assert!(cycle.is_some_and(|cycle| world.has(cycle)), "{worker:?}: {}", verdict.why);
                    }
                    search.begin(0..3)
                }
            };
        }
    }
    if !cfg!(miri) {
        assert!(believed > 100 && phantoms > 20, "{believed} {phantoms}");
    }
}
