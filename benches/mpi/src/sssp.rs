//! The search of `gossamer-bench sssp` over MPI (rsmpi): each rank has a shard.
//!
//! Graph and algorithm are those of the package `graph`, the same as in the example `sssp`: delta-stepping with delayed
//! edges and no useless message. Relaxations for another rank are gathered in buffers ([`Outbox`]), as the Graph500
//! reference does; a rank receives pending messages between any two pieces of its own work; ranks agree by one
//! collective operation.
//!
//! Here: how bytes get from rank to rank. Not here: the search.

use std::time::Instant;

use clap::Parser;
use echo_mpi::outbox::Outbox;
use graph::random::roots;
use graph::search::Found;
use graph::shard::{Size, both_ways};
use graph::{Kronecker, Ranges, Relax, Report, Shard, Vertex};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use serde_json::{Value, json};

/// Words of a relaxation, and of a buffer of gathered ones: 16 KiB, as in the Graph500 reference.
const RELAX_WORDS: usize = 2;
const GATHERED_WORDS: usize = 2048;
/// Edges that are relaxed before a rank looks for messages.
const EDGES_PER_TURN: u64 = 1 << 14;

#[derive(Parser)]
struct Options {
    /// The graph has 2^N vertices.
    #[arg(long)]
    scale: u32,
    /// Edges for each vertex.
    #[arg(long, default_value_t = 16)]
    edgefactor: u32,
    /// Seed of the graph and of the choice of roots.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// From how many vertices to search.
    #[arg(long, default_value_t = 8)]
    roots: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let universe = mpi::initialize().ok_or("MPI could not be started")?;
    let world = universe.world();
    let mut rank = Rank::new(&world, &options);
    let mut searches = Vec::new();
    for root in rank.roots(&options) {
        rank.world.barrier();
        let start = Instant::now();
        rank.search(root);
        rank.world.barrier();
        let time = start.elapsed().as_secs_f64();
        searches.push(rank.told(root, time));
    }
    rank.outbox.finish(rank.world);
    if world.rank() == 0 {
        println!("{}", json!({"searches": searches}));
    }
    Ok(())
}

struct Rank<'a> {
    world: &'a SimpleCommunicator,
    own: usize,
    ranges: Ranges,
    shard: Shard,
    outbox: Outbox,
    buffer: Vec<u64>,
}

impl<'a> Rank<'a> {
    /// Makes the rank's shard. Each rank makes all edges and keeps its own.
    fn new(world: &'a SimpleCommunicator, options: &Options) -> Self {
        let graph = Kronecker { scale: options.scale, edge_factor: options.edgefactor, seed: options.seed };
        let (own, size) = (world.rank() as usize, world.size() as usize);
        let ranges = Ranges::new(graph.vertices(), size);
        let mut shard = Shard::new(ranges, own);
        for edge in graph.generate(0..graph.edges()).flat_map(both_ways) {
            if shard.has(edge.from) {
                shard.add(&[edge]);
            }
        }
        let all = sum_sizes(world, shard.index());
        for owner in 0..size {
            learn(world, &mut shard, owner);
        }
        shard.finish(all, None);
        let outbox = Outbox::new(size, GATHERED_WORDS, RELAX_WORDS);
        Rank { world, own, ranges, shard, outbox, buffer: vec![0; GATHERED_WORDS] }
    }

    fn roots(&self, options: &Options) -> Vec<Vertex> {
        let has_edges = |vertex: Vertex| {
            let owner = self.ranges.owner(vertex);
            let mut degree = if owner == self.own { self.shard.degree(vertex) } else { 0 };
            self.world.process_at_rank(owner as i32).broadcast_into(&mut degree);
            degree > 0
        };
        roots(options.seed, self.ranges.vertices(), options.roots, has_edges)
    }

    fn search(&mut self, root: Vertex) {
        self.shard.reset();
        // Nobody may hear of a vertex before it has forgotten the last search.
        self.world.barrier();
        if self.shard.has(root) {
            self.shard.start(root);
        }
        let mut all = self.agree();
        while let Some(bucket) = all.next() {
            self.shard.open(bucket, all.core);
            loop {
                self.relax();
                if self.agree().is_done(bucket) {
                    break;
                }
            }
            self.shard.close();
            all = self.agree();
        }
    }

    fn relax(&mut self) {
        let mut is_more = true;
        while is_more {
            let (sent, rest) = self.shard.work(EDGES_PER_TURN);
            is_more = rest || !sent.is_empty();
            let world = self.world;
            for sent in sent {
                let Relax { slot, parent, distance } = sent.relax;
                self.outbox.add(world, usize::from(sent.owner), |words| {
                    words[0] = u64::from(parent) << 32 | u64::from(slot);
                    words[1] = distance.to_bits();
                });
            }
            is_more |= self.take();
        }
        self.outbox.flush(self.world);
        self.take();
    }

    /// Takes all buffers that have come.
    fn take(&mut self) -> bool {
        let mut has_come = false;
        while let Some(status) = self.world.any_process().immediate_probe() {
            has_come = true;
            let count = status.count(u64::equivalent_datatype()) as usize;
            self.world.process_at_rank(status.source_rank()).receive_into(&mut self.buffer[..count]);
            for words in self.buffer[..count].chunks_exact(RELAX_WORDS) {
                let (slot, parent, distance) = (words[0] as u32, (words[0] >> 32) as u32, f64::from_bits(words[1]));
                self.shard.receive(Relax { slot, parent, distance });
            }
        }
        self.outbox.reap();
        has_come
    }

    fn agree(&mut self) -> Report {
        let Report { next, sent, received, core } = self.shard.report();
        let mut all = vec![0u64; 4 * self.world.size() as usize];
        self.world.all_gather_into(&[next, sent, received, core][..], &mut all[..]);
        let reports = all.chunks_exact(4).map(|of| Report { next: of[0], sent: of[1], received: of[2], core: of[3] });
        reports.fold(Report::NONE, Report::and)
    }

    fn told(&self, root: Vertex, time: f64) -> Value {
        let Found { ends, relaxed, sent, checksum, .. } = self.shard.found();
        let mut sums = [0u64; 4];
        // Sums of `MPI_UINT64_T` wrap around, as the checksum's do.
        self.world.all_reduce_into(&[ends, relaxed, sent, checksum][..], &mut sums[..], SystemOperation::sum());
        let [ends, relaxed, sent, checksum] = sums;
        json!({
            "root": root, "time_s": time, "edges": ends / 2, "relaxed": relaxed, "messages": sent,
            "checksum": format!("{checksum:016x}"),
        })
    }
}

fn sum_sizes(world: &SimpleCommunicator, size: Size) -> Size {
    let mut sums = [0u64; 2];
    world.all_reduce_into(&[size.connected, size.edges][..], &mut sums[..], SystemOperation::sum());
    let mut heaviest = 0f32;
    world.all_reduce_into(&size.heaviest, &mut heaviest, SystemOperation::max());
    Size { connected: sums[0], edges: sums[1], heaviest }
}

/// Tells all other ranks the state of `owner`'s vertices.
fn learn(world: &SimpleCommunicator, shard: &mut Shard, owner: usize) {
    if world.rank() as usize != owner {
        let process = world.process_at_rank(owner as i32);
        process.send(&shard.wanted(owner)[..]);
        let (answers, _) = process.receive_vec::<u32>();
        return shard.learn(owner, &answers);
    }
    for other in (0..world.size()).filter(|other| *other as usize != owner) {
        let process = world.process_at_rank(other);
        let (wanted, _) = process.receive_vec::<u32>();
        process.send(&shard.answer(&wanted)[..]);
    }
}
