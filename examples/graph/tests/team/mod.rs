//! All shards of a graph in one loop: the order of things that `sssp` and `benches/mpi` bring about by messages.

use graph::search::Found;
use graph::shard::{Size, both_ways};
use graph::{Edge, Ranges, Report, Shard, Verdict, Vertex};

pub struct Team(pub Vec<Shard>);

impl Team {
    pub fn new(vertices: u32, edges: &[Edge], shards: usize, delta: Option<f64>) -> Team {
        let ranges = Ranges::new(vertices, shards);
        let mut team: Vec<Shard> = (0..shards).map(|own| Shard::new(ranges, own)).collect();
        for edge in edges.iter().copied().flat_map(both_ways) {
            team[ranges.owner(edge.from)].add(&[edge]);
        }
        let all = team.iter_mut().map(Shard::index).fold(Size::default(), Size::and);
        for own in 0..shards {
            for owner in (0..shards).filter(|owner| *owner != own) {
                let answers = team[owner].answer(&team[own].wanted(owner));
                team[own].learn(owner, &answers);
            }
        }
        team.iter_mut().for_each(|shard| shard.finish(all, delta));
        Team(team)
    }

    fn report(&self) -> Report {
        self.0.iter().map(Shard::report).fold(Report::NONE, Report::and)
    }

    pub fn search(&mut self, root: Vertex, budget: u64) -> Found {
        self.0.iter_mut().for_each(Shard::reset);
        let first = self.0.iter_mut().find(|shard| shard.has(root)).expect("some shard has the root");
        first.start(root);
        let mut report = self.report();
        while let Some(bucket) = report.next() {
            self.0.iter_mut().for_each(|shard| shard.open(bucket, report.core));
            loop {
                for own in 0..self.0.len() {
                    let (sent, _) = self.0[own].work(budget);
                    for sent in sent {
                        self.0[usize::from(sent.owner)].receive(sent.relax);
                    }
                }
                if self.report().is_done(bucket) {
                    break;
                }
            }
            self.0.iter_mut().for_each(Shard::close);
            report = self.report();
        }
        self.0.iter().map(Shard::found).fold(Found::default(), Found::and)
    }

    fn ask<T>(&self, own: usize, answer: impl Fn(usize, &[Vertex]) -> Vec<T>) -> Vec<(usize, Vec<T>)> {
        let others = (0..self.0.len()).filter(|owner| *owner != own);
        others.map(|owner| (owner, answer(owner, &self.0[own].wanted(owner)))).collect()
    }

    pub fn validate(&mut self, root: Vertex) -> Verdict {
        for own in 0..self.0.len() {
            let ghosts = self.ask(own, |owner, wanted| self.0[owner].distances(wanted));
            self.0[own].validate(root, &ghosts);
        }
        let mut changed = 1;
        while changed > 0 {
            changed = 0;
            for own in 0..self.0.len() {
                let grounded = self.ask(own, |owner, wanted| self.0[owner].grounded(wanted));
                changed += self.0[own].ground(&grounded);
            }
        }
        self.0.iter_mut().map(Shard::check).fold(Verdict::default(), Verdict::and)
    }

    pub fn distance(&self, vertex: Vertex) -> f64 {
        let shard = self.0.iter().find(|shard| shard.has(vertex)).expect("some shard has the vertex");
        shard.distances(&[vertex])[0]
    }
}
