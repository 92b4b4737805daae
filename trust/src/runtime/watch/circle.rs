//! What waits, circles of it, and what machines tell each other of it. Who waits for whom: `graph.rs`, and through
//! other machines `paths.rs`.

use serde::{Deserialize, Serialize};

use crate::ids::TrusteeId;

/// What waits, and in which of its waits it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Node {
    /// Of this worker, with this number, in the wait with that number.
    Fiber(#[serde(with = "as_bits")] TrusteeId, u64, u64),
    /// For this client and token, in the line of this trustee's property.
    Gather(#[serde(with = "as_bits")] TrusteeId, u64, #[serde(with = "as_bits")] TrusteeId, usize),
}

/// How an id travels.
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

/// Those that wait for each other, each for the next one, the last one for the first; the least comes first.
pub(crate) type Cycle = Vec<Node>;

/// What a fiber comes to, as its client awaits it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(with = "as_bits")]
    pub(crate) client: TrusteeId,
    pub(crate) token: u64,
}

/// One that waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) node: Node,
    /// For how long, on its machine's clock.
    pub(crate) waited_ms: u64,
    pub(crate) can_leave: bool,
    /// Who it is and what it waits for, if that was asked.
    pub(crate) words: [String; 2],
}

/// Those of one machine of whom each waits for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Path {
    /// What the first one is to give.
    pub(crate) from: Answer,
    /// What the last one waits for.
    pub(crate) to: Answer,
    pub(crate) steps: Vec<Step>,
}

impl Path {
    pub(crate) fn nodes(&self) -> Cycle {
        self.steps.iter().map(|step| step.node).collect()
    }
}

/// What each of a circle waits for: who, and what.
pub(super) fn sentence(of: impl Iterator<Item = [String; 2]>) -> String {
    let mut text = String::new();
    for (at, [who, what]) in of.enumerate() {
        let which = if at == 0 { "" } else { ", which" };
        text += &format!("{who}{which} waits for {what} ");
    }
    text + "the first"
}

/// The circles of a graph in which each has at most one edge, each of them from where it was met first.
pub(super) fn rings(next: &[Option<usize>]) -> Vec<Vec<usize>> {
    // In which walk each was met.
    let mut met = vec![0; next.len()];
    let mut rings = Vec::new();
    for start in 0..next.len() {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(entry) = at.filter(|&entry| met[entry] == 0) {
            met[entry] = walk;
            at = next[entry];
        }
        // It has come back to a place of its own.
        if let Some(first) = at.filter(|&entry| met[entry] == walk) {
            rings.push(chain(next, first).collect());
        }
    }
    rings
}

/// From there along the edges, each once.
pub(super) fn chain(next: &[Option<usize>], start: usize) -> impl Iterator<Item = usize> {
    let step = move |&at: &usize| next[at].filter(|&at| at != start);
    // Who comes into a circle from outside would walk on for ever.
    std::iter::successors(Some(start), step).take(next.len())
}

/// Starts with the least.
pub(super) fn rotated(mut cycle: Cycle) -> Cycle {
    let least = cycle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
    cycle.rotate_left(least);
    cycle
}
