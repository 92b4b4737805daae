//! The wait-for graph and its cycles. Pure: reports in, cycles out.
//!
//! A fiber waits for one thing at a time, so each node has at most one edge:
//! - a wait for the result of a launched closure or for the end of a fiber leads to that fiber;
//! - a wait for a latched value leads to its holder: a launched fiber, or a `together` that stands in another line;
//! - a wait in `together` leads to the call, which stands in a line.
//!
//! Everything else has no edge, nor has anything uncertain: a value that has no holder or two (the latch was replaced
//! while its value was out), a fiber that is not in the reports.

use std::collections::HashMap;

use super::circle::{Answer, Cycle, Node, Path, Step, chain, rings, rotated, sentence};
use crate::fiber::record::{Awaited, Doing, Seen, Wait, Whom};
use crate::ids::TrusteeId;
use crate::registry::report::{Gathered, Report};

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

    /// Can its wait be cut short? Not a wait for an answer: a request cannot be taken back.
    fn can_leave(&self) -> bool {
        matches!(self, Entry::Fiber(_, _, wait) if matches!(wait.awaited, Awaited::Value { .. } | Awaited::End(_)))
    }

    /// Name of the waiter, and of its wait up to the name of the node that it waits for.
    fn words(&self) -> [String; 2] {
        match self {
            Entry::Gather(at, _, gathered) => {
                let who = format!("a `together` that {:?} has called", gathered.client);
                [who, format!("a value of type `{}` of {at:?}, which is with", gathered.on)]
            }
            Entry::Fiber(worker, seen, wait) => {
                [format!("{} of {worker:?}", seen.name), format!("{}, {}", wait.awaited, link_of(wait.awaited))]
            }
        }
    }
}

/// All waiters and their edges.
pub(crate) struct Graph<'a> {
    entries: Vec<Entry<'a>>,
    next: Vec<Option<usize>>,
}

/// Words that join an awaited thing to its holder.
fn link_of(awaited: Awaited) -> &'static str {
    match awaited {
        Awaited::Result(_) => "which runs in",
        Awaited::Value { .. } => "which is with",
        _ => "which is",
    }
}

/// Holder of a value.
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
                    // A holder that does not wait here holds the value all the same.
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

    /// Are there no waits that may close a cycle later?
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn cycles(&self) -> Vec<Cycle> {
        let nodes = |ring: Vec<usize>| rotated(ring.into_iter().map(|entry| self.entries[entry].node()).collect());
        rings(&self.next).into_iter().map(nodes).collect()
    }

    /// Returns the paths through this machine: from a fiber that another machine has launched here to one that waits
    /// for an answer which comes from no fiber of this machine. A path that is certain here stays certain: only its
    /// last waiter depends on another machine.
    pub(crate) fn paths(&self, at_ms: u64, with_names: bool) -> Vec<Path> {
        let paths = self.entries.iter().enumerate().filter_map(|(start, entry)| {
            let Entry::Fiber(here, Seen { whom: Whom::Client(client, token), .. }, _) = entry else { return None };
            let from = Answer { client: *client, token: *token };
            let all: Vec<usize> = chain(&self.next, start).collect();
            let last = all.last().copied()?;
            let Entry::Fiber(worker, _, Wait { awaited: Awaited::Result(token), .. }) = self.entries[last] else {
                return None;
            };
            let leaves = client.machine() != here.machine() && self.next[last].is_none();
            let step = |entry: usize| self.entries[entry].step(at_ms, with_names);
            let to = Answer { client: worker, token };
            leaves.then(|| Path { from, to, steps: all.into_iter().map(step).collect() })
        });
        paths.collect()
    }

    /// Returns the last comer of the cycle among the waiters whose wait can be cut short.
    pub(crate) fn last_comer(&self, cycle: &Cycle) -> Option<Node> {
        let of_cycle = self.entries.iter().filter(|entry| cycle.contains(&entry.node()) && entry.can_leave());
        let since = |entry: &&Entry<'_>| match entry {
            Entry::Fiber(_, _, wait) => (wait.since_ms, wait.number),
            Entry::Gather(..) => unreachable!("it cannot leave"),
        };
        of_cycle.max_by_key(since).map(Entry::node)
    }

    /// Describes in words the wait of each node.
    pub(crate) fn describe(&self, cycle: &Cycle) -> String {
        let entries = cycle.iter().filter_map(|node| self.entries.iter().find(|entry| entry.node() == *node));
        sentence(entries.map(Entry::words))
    }
}

impl Entry<'_> {
    fn step(&self, at_ms: u64, with_names: bool) -> Step {
        let waited_ms = match self {
            Entry::Fiber(_, _, wait) => at_ms.saturating_sub(wait.since_ms),
            Entry::Gather(..) => 0,
        };
        let words = if with_names { self.words() } else { Default::default() };
        Step { node: self.node(), waited_ms, can_leave: self.can_leave(), words }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
