//! [`Report`]: the result, as text and as JSON. No work here.

use std::fmt;
use std::time::Duration;

use graph::components::Components;
use indicatif::HumanCount;
use serde_json::{Map, Value, json};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Vertices of the graph.
    pub vertices: usize,
    /// Its edges, self-loops and repeated ones included.
    pub edges: u64,
    /// Processes.
    pub machines: usize,
    /// Their workers, all together.
    pub workers: usize,
    /// Time from the first edge to the graph that is ready.
    pub build_time: Duration,
    /// Number of rounds.
    pub rounds: u32,
    /// Time of all rounds.
    pub time: Duration,
    /// The result.
    pub found: Found,
    /// The difference from the result of one thread, if that was asked.
    pub verdict: Option<Verdict>,
}

/// The result.
#[derive(Clone, Debug)]
pub enum Found {
    /// The highest ranks, each with its page as the file numbers it.
    Ranks(Vec<(usize, f64)>),
    /// Components, and how many vertices the largest has.
    Components(Components, u64),
}

/// Compared with one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The sum of all differences of ranks, and the largest, as a share of the rank.
    Ranks {
        /// Sum of all.
        sum: f64,
        /// Largest of one.
        largest: f64,
    },
    /// Number of vertices with another label.
    Labels(usize),
}

/// A share loses up to 2^-24 of itself as `f32`, anew in each round: one rank may differ by that for each round.
const TOLERANCE: f64 = 1e-5;

impl Verdict {
    /// Is it as on one thread?
    pub fn is_good(self) -> bool {
        match self {
            Verdict::Ranks { sum, largest } => sum <= TOLERANCE && largest <= TOLERANCE, // not where it is no number
            Verdict::Labels(others) => others == 0,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = if self.is_good() { "as on one thread" } else { "NOT as on one thread" };
        match self {
            Verdict::Ranks { sum, largest } => {
                write!(f, "{is}: ranks differ by {sum:.1e} in all, one by {largest:.1e} of it at most")
            }
            Verdict::Labels(0) => f.write_str(is),
            Verdict::Labels(others) => write!(f, "{is}: {others} vertices have other labels"),
        }
    }
}

impl Report {
    /// False if a result was found to be wrong.
    pub fn is_good(&self) -> bool {
        self.verdict.is_none_or(Verdict::is_good)
    }

    /// Ranks: each round uses each edge. Components: each edge once, however many rounds it takes.
    pub fn edges_a_second(&self) -> f64 {
        let uses = if matches!(self.found, Found::Ranks(_)) { u64::from(self.rounds) } else { 1 };
        (self.edges * uses) as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Returns the report as JSON. Times are in seconds.
    pub fn json(&self) -> Value {
        let mut all = Map::new();
        let mut add = |name: &str, value: Value| all.insert(name.to_owned(), value);
        add("vertices", self.vertices.into());
        add("edges", self.edges.into());
        add("machines", self.machines.into());
        add("workers", self.workers.into());
        add("build_s", self.build_time.as_secs_f64().into());
        add("rounds", self.rounds.into());
        add("time_s", self.time.as_secs_f64().into());
        add("edges_a_second", self.edges_a_second().into());
        match &self.found {
            Found::Ranks(top) => {
                add("top", top.iter().map(|(page, rank)| json!({"page": page, "rank": rank})).collect());
            }
            Found::Components(found, largest) => {
                add("components", found.count.into());
                add("largest", (*largest).into());
                add("checksum", format!("{:016x}", found.checksum).into());
            }
        }
        add("verified", self.verdict.map(Verdict::is_good).into());
        match self.verdict {
            Some(Verdict::Ranks { sum, largest }) => add("difference", json!({"sum": sum, "largest": largest})),
            Some(Verdict::Labels(others)) => add("difference", others.into()),
            None => None,
        };
        all.into()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vertices, edges) = (HumanCount(self.vertices as u64), HumanCount(self.edges));
        writeln!(f, "{vertices} vertices, {edges} edges, made in {:.3} s", self.build_time.as_secs_f64())?;
        let many = |count: usize, ending| if count == 1 { "" } else { ending };
        let (machines, workers) = (self.machines, self.workers);
        let (es, s) = (many(machines, "es"), many(workers, "s"));
        writeln!(f, "{machines} process{es} with {workers} worker{s} in all")?;
        let (time, speed, s) = (self.time.as_secs_f64(), self.edges_a_second() / 1e6, many(self.rounds as usize, "s"));
        writeln!(f, "{} round{s}, {time:.4} s, {speed:.1} million edges a second", self.rounds)?;
        match &self.found {
            Found::Ranks(top) => {
                for (place, (page, rank)) in top.iter().enumerate() {
                    writeln!(f, "{}. vertex {page}: {rank:.3e}", place + 1)?;
                }
            }
            Found::Components(found, largest) => {
                let (count, largest) = (HumanCount(found.count), HumanCount(*largest));
                writeln!(
                    f,
                    "{count} components of vertices with edges, the largest of {largest}, checksum {:016x}",
                    found.checksum
                )?;
            }
        }
        match self.verdict {
            Some(verdict) => writeln!(f, "{verdict}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(found: Found, verdict: Verdict) -> Report {
        Report {
            vertices: 1024,
            edges: 4_000_000,
            machines: 2,
            workers: 4,
            build_time: Duration::from_secs(1),
            rounds: 10,
            time: Duration::from_millis(500),
            found,
            verdict: Some(verdict),
        }
    }

    #[test]
    fn the_text_has_all_figures() {
        let ranks = report(Found::Ranks(vec![(7, 0.25)]), Verdict::Ranks { sum: 2e-15, largest: 3e-14 });
        let expected = "1,024 vertices, 4,000,000 edges, made in 1.000 s
2 processes with 4 workers in all
10 rounds, 0.5000 s, 80.0 million edges a second
1. vertex 7: 2.500e-1
as on one thread: ranks differ by 2.0e-15 in all, one by 3.0e-14 of it at most
";
        assert_eq!(ranks.to_string(), expected);
        let components = Components { count: 3, sent: 0, checksum: 0xabc };
        let components = report(Found::Components(components, 1000), Verdict::Labels(0));
        let expected = "10 rounds, 0.5000 s, 8.0 million edges a second
3 components of vertices with edges, the largest of 1,000, checksum 0000000000000abc
as on one thread
";
        assert!(components.to_string().ends_with(expected), "{components}");
    }

    #[test]
    fn a_wrong_result_shows() {
        let nan = f64::NAN;
        for (sum, largest) in [(1e-4, 0.0), (0.0, 1e-4), (nan, 0.0), (0.0, nan)] {
            let wrong = report(Found::Ranks(Vec::new()), Verdict::Ranks { sum, largest });
            assert!(!wrong.is_good() && wrong.to_string().contains("NOT as on one thread"), "{wrong}");
            assert_eq!(wrong.json()["verified"], false);
        }
        let wrong = report(Found::Components(Components::default(), 0), Verdict::Labels(2));
        assert!(!wrong.is_good() && wrong.to_string().ends_with("2 vertices have other labels\n"), "{wrong}");
    }
}
