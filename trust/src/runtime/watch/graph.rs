//! Who waits for whom, and circles of it. Pure: reports in, circles out.
//!
//! A fiber waits for one thing at a time, so each has at most one edge:
//! - who waits for the result of a launched closure or for the end of a fiber, waits for that fiber;
//! - who waits for a latched value, waits for the one that has it: a launched fiber, or a `together` that stands in another line;
//! - who waits in `together` waits for the call, which stands in a line.
//!
//! Everything else has no edge, nor has what is not certain: a value that nobody has, or that two have (the latch was replaced
//! while its value was out), a fiber that is not in the reports.

use std::collections::HashMap;

use crate::fiber::record::{Awaited, Doing, Seen, Wait, Whom};
use crate::ids::TrusteeId;
use crate::registry::report::{Gathered, Report};

/// What waits, and in which of its waits it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Node {
    /// Of this worker, with this number, in the wait with that number.
    Fiber(TrusteeId, u64, u64),
    /// For this client and token, in the line of this trustee's property.
    Gather(TrusteeId, u64, TrusteeId, usize),
}

/// Those that wait for each other, each for the next one, the last one for the first; the least comes first.
pub(crate) type Cycle = Vec<Node>;

enum Entry<'a> {
    Fiber(TrusteeId, &'a Seen, Wait),
    Gather(TrusteeId, usize, &'a Gathered),
}

impl Entry<'_> {
    fn node(&self) -> Node {
        match self {
            Entry::Fiber(worker, seen, wait) => Node::Fiber(*worker, seen.id, wait.number),
            Entry::Gather(at, property, gathered) => Node::Gather(gathered.client, gathered.token, *at, *property),
        }
    }
}

/// All that waits, and what it waits for.
pub(crate) struct Graph<'a> {
    entries: Vec<Entry<'a>>,
    next: Vec<Option<usize>>,
}

/// How what is awaited belongs to the one that is waited for.
fn link_of(awaited: Awaited) -> &'static str {
    match awaited {
        Awaited::Result(_) => "which runs in",
        Awaited::Value { .. } => "which is with",
        _ => "which is",
    }
}

/// Who has a value.
#[derive(Clone, Copy)]
enum Holder {
    One(Option<usize>),
    Several,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(reports: &'a [Report]) -> Self {
        let mut entries = Vec::new();
        let mut by_whom = HashMap::new();
        let mut holders: HashMap<(TrusteeId, usize), Holder> = HashMap::new();
        let mut holds = |of, entry| {
            holders.entry(of).and_modify(|holder| *holder = Holder::Several).or_insert(Holder::One(entry));
        };
        let mut lent = HashMap::new();
        for report in reports {
            for seen in &report.fibers {
                let wait = seen.wait.filter(|wait| seen.doing == Doing::Waits && wait.awaited.is_of_circles());
                if seen.holds != 0 {
                    // Who does not wait here has it all the same.
                    holds((report.worker, seen.holds), wait.map(|_| entries.len()));
                }
                if let Some(wait) = wait {
                    by_whom.insert(seen.whom, entries.len());
                    entries.push(Entry::Fiber(report.worker, seen, wait));
                }
            }
            for (property, gathered) in &report.gathered {
                // Calls may share a value: it is not back before each of them has gone on.
                lent.extend(gathered.has.iter().map(|&value| (value, entries.len())));
                entries.push(Entry::Gather(report.worker, *property, gathered));
            }
        }
        lent.into_iter().for_each(|(value, entry)| holds(value, Some(entry)));
        let mut gathers = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            if let Entry::Gather(_, _, gathered) = entry {
                gathers.insert((gathered.client, gathered.token), index);
            }
        }
        let holder = |of: (TrusteeId, usize)| match holders.get(&of) {
            Some(Holder::One(entry)) => *entry,
            _ => None,
        };
        let edge = |entry: &Entry<'_>| match *entry {
            Entry::Gather(at, property, _) => holder((at, property)),
            Entry::Fiber(worker, _, wait) => match wait.awaited {
                Awaited::Result(token) => by_whom.get(&Whom::Client(worker, token)).copied(),
                Awaited::Together(token) => gathers.get(&(worker, token)).copied(),
                Awaited::Value { property, .. } => holder((worker, property)),
                Awaited::End(of) => by_whom.get(&Whom::Handle(of)).copied(),
                _ => None,
            },
        };
        let next = entries.iter().map(edge).collect();
        Graph { entries, next }
    }

    /// Is there anything whose waiting may close a circle later?
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn cycles(&self) -> Vec<Cycle> {
        // In which walk each was met.
        let mut met = vec![0; self.entries.len()];
        let mut cycles = Vec::new();
        for start in 0..self.entries.len() {
            let walk = start + 1;
            let mut at = Some(start);
            while let Some(entry) = at.filter(|&entry| met[entry] == 0) {
                met[entry] = walk;
                at = self.next[entry];
            }
            // It has come back to a place of its own.
            if let Some(entry) = at.filter(|&entry| met[entry] == walk) {
                cycles.push(self.cycle_from(entry));
            }
        }
        cycles
    }

    fn cycle_from(&self, start: usize) -> Cycle {
        let mut cycle = vec![self.entries[start].node()];
        let mut at = self.next[start];
        while let Some(entry) = at.filter(|&entry| entry != start) {
            cycle.push(self.entries[entry].node());
            at = self.next[entry];
        }
        let least = cycle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
        cycle.rotate_left(least);
        cycle
    }

    /// Of these, the one that came last among those that can be told to wait no longer.
    pub(crate) fn last_comer(&self, cycle: &Cycle) -> Option<Node> {
        let of_cycle = self.entries.iter().filter(|entry| cycle.contains(&entry.node()));
        let can_leave = of_cycle.filter_map(|entry| match entry {
            Entry::Fiber(worker, seen, wait) if matches!(wait.awaited, Awaited::Value { .. } | Awaited::End(_)) => {
                Some(((wait.since_ms, wait.number), Node::Fiber(*worker, seen.id, wait.number)))
            }
            _ => None,
        });
        can_leave.max_by_key(|(since, _)| *since).map(|(_, node)| node)
    }

    /// What each waits for, in words.
    pub(crate) fn describe(&self, cycle: &Cycle) -> String {
        let mut text = String::new();
        for (at, node) in cycle.iter().enumerate() {
            let Some(entry) = self.entries.iter().find(|entry| entry.node() == *node) else { continue };
            let which = if at == 0 { "" } else { ", which" };
            let (who, what, link) = match entry {
                Entry::Gather(at, _, gathered) => (
                    format!("a `together` that {:?} has called", gathered.client),
                    format!("a value of type `{}` of {at:?}", gathered.on),
                    "which is with",
                ),
                Entry::Fiber(worker, seen, wait) => {
                    (format!("{} of {worker:?}", seen.name), wait.awaited.to_string(), link_of(wait.awaited))
                }
            };
            text += &format!("{who}{which} waits for {what}, {link} ");
        }
        text + "the first"
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
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
        Report { worker: worker_id(0, index), thread: String::new(), fibers, root: None, gathered }
    }

    fn value(property: usize) -> Awaited {
        Awaited::Value { property, on: "u8" }
    }

    /// Two fibers, each with a value, and each with a launched one in the line of the other.
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
        // Not who waits for an answer: nobody could take that back.
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
        // In whichever order they answer.
        let [one, two] = crossing();
        assert_eq!(Graph::new(&[two, one]).cycles(), cycles);
    }

    #[test]
    fn what_is_not_certain_is_no_circle() {
        let none = |reports: &[Report]| assert_eq!(Graph::new(reports).cycles(), Vec::<Cycle>::new());
        // Who can go on.
        let mut reports = crossing();
        reports[0].fibers[1].doing = Doing::Ready;
        none(&reports);
        // A second one that has the value, whether it waits or not.
        for wait in [None, wait(Awaited::Time, 70)] {
            let mut reports = crossing();
            reports[0].fibers.push(fiber(3, Whom::Nobody, wait, 16));
            none(&reports);
        }
        // A value that nobody has, of another trustee, or one that waits for something else.
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
        // Has 32 of there, and waits for 16 of here.
        let waits = fiber(2, Whom::Client(there, 8), wait(value(16), 6), 0);
        let has = fiber(1, Whom::Client(there, 91), wait(Awaited::Result(8), 9), 32);
        let reports = [report(0, vec![waits], Vec::new()), report(1, vec![has], vec![(32, gathered.clone())])];
        let graph = Graph::new(&reports);
        let cycles = graph.cycles();
        assert_eq!(cycles.len(), 1);
        assert!(cycles[0].contains(&Node::Gather(there, 3, there, 32)));
        assert_eq!(graph.last_comer(&cycles[0]), Some(Node::Fiber(here, 2, 6)));
        // On its way, that is in no line, it is no part of one.
        let mut reports = reports;
        reports[1].gathered.clear();
        assert!(Graph::new(&reports).cycles().is_empty());
    }

    /// Random joins, against a walk from each that looks whether it comes back.
    #[test]
    fn random_graphs_have_the_circles_that_a_walk_finds() {
        let mut random = 1u64;
        let mut below = |n: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) as usize % n
        };
        let mut found = 0;
        for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
            let count = 1 + below(12);
            // For whom each waits: perhaps for nobody.
            let next: Vec<Option<usize>> =
                (0..count).map(|_| Some(below(count + 2)).filter(|&at| at < count)).collect();
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
}
