//! Nodes and cycles of the wait-for graph, and the parts of it that machines exchange. The graph itself: `graph.rs`,
//! and through other machines `paths.rs`.

use serde::{Deserialize, Serialize};

use crate::ids::TrusteeId;

/// A waiter, and which of its waits it is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Node {
    /// A fiber: its worker, its number, and the number of the wait.
    Fiber(#[serde(with = "as_bits")] TrusteeId, u64, u64),
    /// A `together` call: its client and token, and the trustee and property in whose line it stands.
    Gather(#[serde(with = "as_bits")] TrusteeId, u64, #[serde(with = "as_bits")] TrusteeId, usize),
}

/// Serialises an id as its bits.
mod as_bits {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::ids::TrusteeId;

    pub(crate) fn serialize<S: Serializer>(id: &TrusteeId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(id.to_bits())
    }
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TrusteeId, D::Error> {
        u64::deserialize(from).map(TrusteeId::from_bits)
    }
}

/// Nodes of a cycle: each waits for the next one, the last for the first. The least comes first.
pub(crate) type Cycle = Vec<Node>;

/// Result of a fiber, as its client awaits it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(with = "as_bits")]
    pub(crate) client: TrusteeId,
    pub(crate) token: u64,
}

/// One waiter of a path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) node: Node,
    /// Time waited so far, on its machine's clock.
    pub(crate) waited_ms: u64,
    pub(crate) can_leave: bool,
    /// Name of the waiter and of its wait, if names were asked for.
    pub(crate) words: [String; 2],
}

/// Waiters of one machine, each of which waits for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Path {
    /// Answer that the first one is to give.
    pub(crate) from: Answer,
    /// Answer that the last one waits for.
    pub(crate) to: Answer,
    pub(crate) steps: Vec<Step>,
}

impl Path {
    pub(crate) fn nodes(&self) -> Cycle {
        self.steps.iter().map(|step| step.node).collect()
    }
}

/// Sentence that names each waiter of a cycle and its wait.
pub(super) fn sentence(of: impl Iterator<Item = [String; 2]>) -> String {
    let mut text = String::new();
    for (at, [who, what]) in of.enumerate() {
        let which = if at == 0 { "" } else { ", which" };
        text += &format!("{who}{which} waits for {what} ");
    }
    text + "the first"
}

/// Finds the cycles of a graph in which each node has at most one edge. Each starts at the node met first.
pub(super) fn rings(next: &[Option<usize>]) -> Vec<Vec<usize>> {
    // The walk in which each node was met.
    let mut met = vec![0; next.len()];
    let mut rings = Vec::new();
    for start in 0..next.len() {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(entry) = at.filter(|&entry| met[entry] == 0) {
            met[entry] = walk;
            at = next[entry];
        }
        // Back at a node of this same walk.
        if let Some(first) = at.filter(|&entry| met[entry] == walk) {
            rings.push(chain(next, first).collect());
        }
    }
    rings
}

/// Follows the edges from `start`, each once.
pub(super) fn chain(next: &[Option<usize>], start: usize) -> impl Iterator<Item = usize> {
    let step = move |&at: &usize| next[at].filter(|&at| at != start);
    // A walk that enters a cycle from outside would never end.
    std::iter::successors(Some(start), step).take(next.len())
}

/// Rotates the cycle so that the least comes first.
pub(super) fn rotated(mut cycle: Cycle) -> Cycle {
    let least = cycle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
    cycle.rotate_left(least);
    cycle
}
