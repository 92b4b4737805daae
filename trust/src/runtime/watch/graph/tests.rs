//! Reports in, cycles out.

use super::*;
use crate::ids::worker_id;

fn wait(awaited: Awaited, number: u64) -> Option<Wait> {
    Some(Wait { awaited, number, since_ms: number })
}

fn fiber(id: u64, whom: Whom, wait: Option<Wait>, holds: usize) -> Seen {
    let doing = if wait.is_some() { Doing::Waits } else { Doing::Ready };
    Seen { id, whom, doing, wait, holds, name: format!("fiber {id}") }
}

fn report(index: u16, fibers: Vec<Seen>, gathered: Vec<(usize, Gathered)>) -> Report {
    Report { worker: worker_id(0, index), thread: String::new(), fibers, root: None, has_timers: false, gathered }
}

fn value(property: usize) -> Awaited {
    Awaited::Value { property, on: "u8" }
}

/// Two fibers, each with a value and a launched fiber in the line of the other's value.
fn crossing() -> [Report; 2] {
    let [here, there] = [0, 1].map(|index| worker_id(0, index));
    let mine = vec![
        fiber(1, Whom::Client(here, 90), wait(Awaited::Result(7), 5), 16),
        fiber(2, Whom::Client(there, 8), wait(value(16), 6), 0),
    ];
    let yours = vec![
        fiber(1, Whom::Client(there, 91), wait(Awaited::Result(8), 9), 32),
        fiber(2, Whom::Client(here, 7), wait(value(32), 8), 0),
    ];
    [report(0, mine, Vec::new()), report(1, yours, Vec::new())]
}

#[test]
fn a_circle_of_launches_is_found_and_the_last_one_in_a_line_is_told() {
    let reports = crossing();
    let graph = Graph::new(&reports);
    let cycles = graph.cycles();
    assert_eq!(cycles.len(), 1);
    assert_eq!(cycles[0].len(), 4);
    // Not a waiter for an answer: a request cannot be taken back.
    assert_eq!(graph.last_comer(&cycles[0]), Some(Node::Fiber(worker_id(0, 1), 2, 8)));
    let text = graph.describe(&cycles[0]);
    for part in [
        "fiber 1 of m0w0 waits for",
        "which runs in fiber 2 of m0w1",
        "which is with fiber 1 of m0w1",
        "with the first",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    // In either order of the answers.
    let [one, two] = crossing();
    assert_eq!(Graph::new(&[two, one]).cycles(), cycles);
}

#[test]
fn what_is_not_certain_is_no_circle() {
    let none = |reports: &[Report]| assert_eq!(Graph::new(reports).cycles(), Vec::<Cycle>::new());
    // A fiber that can go on.
    let mut reports = crossing();
    reports[0].fibers[1].doing = Doing::Ready;
    none(&reports);
    // A second fiber that has the value, whether it waits or not.
    for wait in [None, wait(Awaited::Time, 70)] {
        let mut reports = crossing();
        reports[0].fibers.push(fiber(3, Whom::Nobody, wait, 16));
        none(&reports);
    }
    // A value without a holder, one of another trustee, or a fiber that waits for something else.
    let mut reports = crossing();
    reports[0].fibers[0].holds = 0;
    none(&reports);
    let mut reports = crossing();
    let moved = reports[0].fibers.remove(1);
    reports[1].fibers.push(moved);
    none(&reports);
    let mut reports = crossing();
    reports[0].fibers[0].wait = wait(Awaited::Promise("u8"), 5);
    none(&reports);
    // A worker that has not answered.
    none(&crossing()[..1]);
}

#[test]
fn a_call_of_together_is_a_part_of_a_circle_where_it_stands_in_a_line() {
    let [here, there] = [0, 1].map(|index| worker_id(0, index));
    let gathered = Gathered { client: there, token: 3, has: vec![(here, 16)], on: "u8" };
    // Holds value 32 of `there`, and waits for value 16 of here.
    let waits = fiber(2, Whom::Client(there, 8), wait(value(16), 6), 0);
    let has = fiber(1, Whom::Client(there, 91), wait(Awaited::Result(8), 9), 32);
    let reports = [report(0, vec![waits], Vec::new()), report(1, vec![has], vec![(32, gathered.clone())])];
    let graph = Graph::new(&reports);
    let cycles = graph.cycles();
    assert_eq!(cycles.len(), 1);
    assert!(cycles[0].contains(&Node::Gather(there, 3, there, 32)));
    assert_eq!(graph.last_comer(&cycles[0]), Some(Node::Fiber(here, 2, 6)));
    // A call on its way stands in no line and is part of no cycle.
    let mut reports = reports;
    reports[1].gathered.clear();
    assert!(Graph::new(&reports).cycles().is_empty());
}

/// Random graphs, against a walk from each node that looks whether it comes back.
#[test]
fn random_graphs_have_the_circles_that_a_walk_finds() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut below = |n: usize| random.usize(..n);
    let mut found = 0;
    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
        let count = 1 + below(12);
        // Node that each waits for, perhaps none.
        let next: Vec<Option<usize>> = (0..count).map(|_| Some(below(count + 2)).filter(|&at| at < count)).collect();
        let mut reports: Vec<Report> = (0..3).map(|index| report(index, Vec::new(), Vec::new())).collect();
        for (at, next) in next.iter().enumerate() {
            let awaited = next.map_or(Awaited::Time, |next| Awaited::End(100 + next as u64));
            let seen = fiber(at as u64, Whom::Handle(100 + at as u64), wait(awaited, at as u64), 0);
            reports[below(3)].fibers.push(seen);
        }
        let on_circle = |start: usize| {
            let mut at = start;
            (0..count).any(|_| {
                at = next[at].unwrap_or(at);
                at == start && next[start].is_some()
            })
        };
        let mut expected: Vec<u64> = (0..count).filter(|&at| on_circle(at)).map(|at| at as u64).collect();
        let cycles = Graph::new(&reports).cycles();
        let ids = cycles.iter().flatten().map(|node| match node {
            Node::Fiber(_, id, _) => *id,
            Node::Gather(..) => unreachable!("there is none"),
        });
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected, "{next:?}");
        found += cycles.len();
    }
    assert!(found > 0);
}
