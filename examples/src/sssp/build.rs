//! The graph into the shards: each edge goes to the shards of both its ends, each shard sorts what it has.

use std::mem;
use std::path::Path;
use std::time::Duration;

use gossamer::Trust;
use graph::shard::{Size, both_ways};
use graph::{Edge, Kronecker, Listing, Ranges, Shard, Vertex};
use indicatif::ProgressBar;

use super::options::Options;
use super::team::{Member, Team};
use crate::progress;

/// Edges that go to a shard at once. What is sent here is a bulk of data, not requests; larger pieces need fewer copies.
const EDGES_AT_ONCE: usize = 4096;
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// A graph, ready to be searched.
pub struct Built {
    /// Its shards.
    pub team: Team,
    /// Its edges, self-loops and repeated ones included.
    pub edges: u64,
    /// The number that its file has for the first vertex.
    pub first: Vertex,
}

/// Makes the graph.
///
/// # Errors
/// A file that is no graph; a worker that did not do its part.
pub fn build(options: &Options) -> anyhow::Result<Built> {
    let built = match &options.graph {
        Some(path) => read(path, options)?,
        None => generate(options.kronecker(), options)?,
    };
    let delta = options.delta;
    let sizes = built.team.on_each(|member| member.own().apply(Shard::index))?;
    let all = sizes.into_iter().fold(Size::default(), Size::and);
    built.team.on_each(move |member| {
        for (owner, answers) in member.ask(|shard, wanted: Vec<Vertex>| shard.answer(&wanted)) {
            member.own().apply_with(
                |shard, (owner, answers): (usize, Vec<u32>)| shard.learn(owner, &answers),
                (owner, answers),
            );
        }
        member.own().apply(move |shard| shard.finish(all, delta));
    })?;
    Ok(built)
}

/// Reads the whole file here, on the first machine, and deals its edges to the shards.
fn read(path: &Path, options: &Options) -> anyhow::Result<Built> {
    let bar = progress::bar(0, "{msg} {human_pos} edges {per_sec}", options.progress_on.as_deref());
    bar.set_message("reading");
    let Listing { vertices, first, edges } = graph::file::read(path, |edges| bar.set_position(edges))?;
    bar.finish_and_clear();
    let team = Team::new(vertices);
    let mut dealer = Dealer::new(team.shards.clone(), team.ranges, options.levels);
    let count = edges.len() as u64;
    edges.into_iter().for_each(|edge| dealer.deal(edge));
    dealer.finish();
    Ok(Built { team, edges: count, first })
}

/// Each worker makes a part of the edges.
fn generate(graph: Kronecker, options: &Options) -> anyhow::Result<Built> {
    let team = Team::new(graph.vertices());
    let (edges, ranges, levels) = (graph.edges(), team.ranges, options.levels);
    let bar = progress::bar(edges, progress::NUMBERS, options.progress_on.as_deref());
    bar.set_message("generating");
    let made = gossamer::entrust(Made { edges: 0, is_over: false });
    let drawer = (!bar.is_hidden()).then(|| draw(made.clone(), bar));
    let (counter, team_size) = (made.clone(), team.shards.len() as u64);
    team.on_each(move |member: Member| {
        let part = |own: usize| (u128::from(edges) * own as u128 / u128::from(team_size)) as u64;
        let (mut start, end) = (part(member.own), part(member.own + 1));
        let mut dealer = Dealer::new(member.shards, ranges, levels);
        while start < end {
            let numbers = start..end.min(start + EDGES_AT_ONCE as u64);
            let length = numbers.end - start;
            start = numbers.end;
            graph.generate(numbers).for_each(|edge| dealer.deal(edge));
            counter.apply_then(move |made| made.edges += length, |()| ());
            gossamer::yield_now(); // others' edges for this worker's shard
        }
        dealer.finish();
    })?;
    made.apply(|made| made.is_over = true);
    if let Some(drawer) = drawer {
        drawer.join().map_err(|_| anyhow::anyhow!("the progress bar has panicked"))?;
    }
    Ok(Built { team, edges, first: 0 })
}

/// How far the generator is.
struct Made {
    edges: u64,
    is_over: bool,
}

/// A fiber of this machine that moves the bar until the work is over.
fn draw(made: Trust<Made>, bar: ProgressBar) -> gossamer::JoinHandle<()> {
    gossamer::spawn(move || {
        while let Some(edges) = made.apply(|made| (!made.is_over).then_some(made.edges)) {
            bar.set_position(edges);
            gossamer::sleep(DRAW_INTERVAL);
        }
        bar.finish_and_clear();
    })
}

/// Edges on their way to the shards of their ends.
struct Dealer {
    shards: Vec<Trust<Shard>>,
    ranges: Ranges,
    /// Whether each edge is to have the length 1.
    levels: bool,
    piles: Vec<Vec<Edge>>,
}

impl Dealer {
    fn new(shards: Vec<Trust<Shard>>, ranges: Ranges, levels: bool) -> Dealer {
        let piles = vec![Vec::with_capacity(EDGES_AT_ONCE); shards.len()];
        Dealer { shards, ranges, levels, piles }
    }

    fn deal(&mut self, edge: Edge) {
        let edge = if self.levels { edge.of_length_1() } else { edge };
        for edge in both_ways(edge) {
            let owner = self.ranges.owner(edge.from);
            self.piles[owner].push(edge);
            if self.piles[owner].len() == EDGES_AT_ONCE {
                self.send(owner);
            }
        }
    }

    fn send(&mut self, owner: usize) {
        let pile = mem::replace(&mut self.piles[owner], Vec::with_capacity(EDGES_AT_ONCE));
        self.shards[owner].apply_with_then(|shard, edges: Vec<Edge>| shard.add(&edges), pile, |()| ());
    }

    /// Returns when all edges are with their shards.
    fn finish(mut self) {
        (0..self.shards.len()).for_each(|owner| self.send(owner));
        gossamer::wait_all();
    }
}
