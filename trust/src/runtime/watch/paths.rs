//! Cycles that go through several machines, and when one is believed. Pure: paths in, cycles out.
//!
//! Only one kind of wait leaves a machine: for the answer of a closure that runs in a fiber of another one. So of all
//! waits on a machine others need to know only the *paths* through it: from a fiber that runs for another machine,
//! along the certain edges of its graph ([`graph`](super::graph)), to a fiber that waits for an answer which comes from
//! elsewhere. An answer belongs to one fiber of the whole rack, so each path has at most one next one.
//!
//! One machine coordinates ([`CycleSearch`]): it asks all others for their paths, in up to three rounds, each begun
//! when the one before is complete. As within a machine, a cycle is believed that has the same fibers in the same waits
//! each time. A machine that does not answer in time has no paths, so no cycle through it is believed.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::circle::{Answer, Cycle, Node, Path, Step, rings, rotated, sentence};

/// A cycle of paths.
struct Circle<'a>(Vec<&'a Path>);

impl Circle<'_> {
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.0.iter().flat_map(|path| &path.steps)
    }

    fn cycle(&self) -> Cycle {
        rotated(self.steps().map(|step| step.node).collect())
    }

    /// Returns the last comer, as far as the clocks of several machines tell, among the waiters whose wait can be cut
    /// short.
    fn last_comer(&self) -> Option<Node> {
        let can_leave = self.steps().filter(|step| step.can_leave);
        can_leave.min_by_key(|step| (step.waited_ms, step.node)).map(|step| step.node)
    }

    fn describe(&self) -> String {
        sentence(self.steps().map(|step| step.words.clone()))
    }
}

fn circles(paths: &[Path]) -> Vec<Circle<'_>> {
    let by_answer: HashMap<Answer, usize> = paths.iter().enumerate().map(|(at, path)| (path.from, at)).collect();
    let next: Vec<Option<usize>> = paths.iter().map(|path| by_answer.get(&path.to).copied()).collect();
    rings(&next).into_iter().map(|ring| Circle(ring.into_iter().map(|at| &paths[at]).collect())).collect()
}

/// Question of the coordinating machine to all others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) round: u64,
    /// Limit to the paths that begin with one of these.
    pub(crate) only: Option<Vec<Answer>>,
    pub(crate) with_names: bool,
}

impl Question {
    pub(crate) fn is_about(&self, path: &Path) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&path.from))
    }
}

/// A fiber to be taken out of its wait, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) on: Node,
    pub(crate) why: String,
}

/// Result of one round.
#[derive(Debug)]
#[must_use]
pub(crate) enum Next {
    /// Another round is needed.
    Ask(Question),
    /// No further round.
    Over(Vec<Verdict>),
}

/// Rounds that a cycle must appear in.
const ROUNDS: u32 = 3;

/// Rounds of asking all machines.
#[derive(Default)]
pub(crate) struct CycleSearch {
    /// Number of the last question; none is used again.
    round: u64,
    /// Rounds that were complete.
    done: u32,
    awaited: BTreeSet<u16>,
    paths: Vec<Path>,
    /// Cycles that all rounds so far have had.
    suspects: HashSet<Cycle>,
}

impl CycleSearch {
    /// Begins the first round, with these machines.
    pub(crate) fn begin(&mut self, machines: impl Iterator<Item = u16>) -> Question {
        self.done = 0;
        self.suspects.clear();
        self.ask(machines, None)
    }

    fn ask(&mut self, machines: impl Iterator<Item = u16>, only: Option<Vec<Answer>>) -> Question {
        self.round += 1;
        self.awaited = machines.collect();
        self.paths.clear();
        Question { round: self.round, only, with_names: self.done + 1 == ROUNDS }
    }

    /// Takes a machine's answer. Answers to other rounds are late and ignored.
    pub(crate) fn receive(&mut self, machine: u16, round: u64, paths: Vec<Path>) {
        if round == self.round && self.awaited.remove(&machine) {
            self.paths.extend(paths);
        }
    }

    /// Have all machines answered?
    pub(crate) fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Closes the round: all have answered, or the time is up.
    pub(crate) fn close(&mut self, machines: impl Iterator<Item = u16>) -> Next {
        let paths = std::mem::take(&mut self.paths);
        let mut found = circles(&paths);
        if self.done > 0 {
            found.retain(|circle| self.suspects.contains(&circle.cycle()));
        }
        self.done += 1;
        if self.done == ROUNDS {
            let verdict = |circle: &Circle<'_>| Some(Verdict { on: circle.last_comer()?, why: circle.describe() });
            return Next::Over(found.iter().filter_map(verdict).collect());
        }
        self.suspects = found.iter().map(Circle::cycle).collect();
        if found.is_empty() {
            return Next::Over(Vec::new());
        }
        let only = found.iter().flat_map(|circle| &circle.0).map(|path| path.from).collect();
        Next::Ask(self.ask(machines, Some(only)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
