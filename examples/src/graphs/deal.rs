//! Edges to the workers that want them: from a file, which the first machine reads, or from the generator, of which
//! each worker runs a part.

use std::mem;
use std::path::Path;

use gossamer::{NoRef, Trust};
use graph::{Edge, Kronecker, Listing};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::team::{Member, Team};
use crate::progress::{self, Meter};

/// Edges that go to a worker at once. They are a bulk of data, not requests; larger pieces need fewer copies.
const EDGES_AT_ONCE: usize = 4096;

/// A property that edges are dealt to.
pub trait Take: 'static {
    /// An edge, as far as it is wanted.
    type Edge: Clone + Serialize + DeserializeOwned + 'static;

    /// Takes some.
    fn take(&mut self, edges: Vec<Self::Edge>);
}

/// Edges on their way.
pub struct Dealer<S: Take> {
    shards: Vec<Trust<S>>,
    piles: Vec<Vec<S::Edge>>,
}

impl<S: Take> Dealer<S> {
    fn new(shards: Vec<Trust<S>>) -> Dealer<S> {
        let piles = vec![Vec::with_capacity(EDGES_AT_ONCE); shards.len()];
        Dealer { shards, piles }
    }

    /// Deals an edge to the worker of this number.
    pub fn deal(&mut self, owner: usize, edge: S::Edge) {
        self.piles[owner].push(edge);
        if self.piles[owner].len() == EDGES_AT_ONCE {
            self.send(owner);
        }
    }

    fn send(&mut self, owner: usize) {
        let pile = mem::replace(&mut self.piles[owner], Vec::with_capacity(EDGES_AT_ONCE));
        self.shards[owner]
            .call()
            .with(pile)
            .apply(|shard, edges: Vec<S::Edge>| shard.take(edges))
            .then(|result| result.unwrap());
    }

    /// Returns when all edges are where they belong.
    fn finish(mut self) {
        (0..self.shards.len()).for_each(|owner| self.send(owner));
        gossamer::wait_all();
    }
}

/// Reads a file, with a bar that counts its edges.
///
/// # Errors
/// A file that is no graph.
pub fn read(path: &Path, terminal: Option<&Path>) -> anyhow::Result<Listing> {
    let bar = progress::bar(0, "{msg} {human_pos} edges {per_sec}", terminal);
    bar.set_message("reading");
    let listing = graph::file::read(path, |edges| bar.set_position(edges))?;
    bar.finish_and_clear();
    Ok(listing)
}

/// Deals these edges; `deal` names the worker of each.
pub fn deal<S: Take>(team: &Team<S>, edges: Vec<Edge>, mut deal: impl FnMut(Edge, &mut Dealer<S>)) {
    let mut dealer = Dealer::new(team.shards.clone());
    edges.into_iter().for_each(|edge| deal(edge, &mut dealer));
    dealer.finish();
}

/// Each worker makes a part of the edges and deals it; `rule` is called there and makes the function that names the
/// worker of each edge.
///
/// # Errors
/// A worker that did not do its part.
pub fn generate<S, D, F>(team: &Team<S>, graph: Kronecker, terminal: Option<&Path>, rule: F) -> anyhow::Result<()>
where
    S: Take,
    F: FnOnce() -> D + NoRef + Clone + Send + 'static,
    D: FnMut(Edge, &mut Dealer<S>),
{
    let edges = graph.edges();
    let bar = progress::bar(edges, progress::NUMBERS, terminal);
    bar.set_message("generating");
    let meter = Meter::new(bar);
    let (count, team_size) = (meter.count(), team.shards.len() as u64);
    let ended = team.on_each(move |member: Member<S>| {
        let part = |own: usize| (u128::from(edges) * own as u128 / u128::from(team_size)) as u64;
        let (mut start, end) = (part(member.own), part(member.own + 1));
        let (mut dealer, mut deal) = (Dealer::new(member.shards), rule());
        while start < end {
            let numbers = start..end.min(start + EDGES_AT_ONCE as u64);
            let length = numbers.end - start;
            start = numbers.end;
            graph.generate(numbers).for_each(|edge| deal(edge, &mut dealer));
            count.apply_then(move |count| count.add(length), |()| ());
            gossamer::yield_now(); // others' edges for this worker
        }
        dealer.finish();
    });
    meter.finish()?;
    ended.map(|_| ())
}
