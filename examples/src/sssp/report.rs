//! [`Report`]: the results of the searches, as text and as JSON. No searching here.

use std::fmt;
use std::time::Duration;

use graph::search::Found;
use graph::{Verdict, Vertex};
use indicatif::HumanCount;
use serde_json::{Value, json};

/// One search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Root, numbered as in the file.
    pub root: Vertex,
    /// Result of all shards together.
    pub found: Found,
    /// Time from the root to the last distance.
    pub time: Duration,
    /// `None` if it was not validated.
    pub verdict: Option<Verdict>,
}

/// The program that searched.
#[derive(Clone, Debug)]
pub enum Kind {
    /// All workers of a rack.
    Delegated {
        /// Processes.
        machines: usize,
        /// Their workers, all together.
        workers: usize,
        /// Width of the buckets.
        delta: f64,
    },
    /// Dijkstra's algorithm on one thread.
    Single,
}

/// The results.
#[derive(Clone, Debug)]
pub struct Report {
    /// Vertices of the graph.
    pub vertices: u32,
    /// Its edges, self-loops and repeated ones included.
    pub edges: u64,
    /// Time from the first edge to the graph that can be searched.
    pub build_time: Duration,
    /// Searches in order.
    pub searches: Vec<Search>,
    /// The program that searched.
    pub kind: Kind,
}

impl Search {
    /// Edges of the component of the root, self-loops and repeated ones included.
    pub fn edges(&self) -> u64 {
        self.found.ends / 2
    }

    /// Traversed edges a second, as Graph500 counts them.
    pub fn teps(&self) -> f64 {
        self.edges() as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

impl Report {
    /// False if a result was found to be wrong.
    pub fn is_valid(&self) -> bool {
        self.searches.iter().all(|search| search.verdict.is_none_or(|verdict| verdict.is_valid()))
    }

    /// The harmonic mean of all searches' TEPS.
    pub fn harmonic_teps(&self) -> f64 {
        let inverse: f64 = self.searches.iter().map(|search| search.teps().recip()).sum();
        if self.searches.is_empty() { 0.0 } else { self.searches.len() as f64 / inverse }
    }

    /// Returns the report as JSON. Times are in seconds.
    pub fn json(&self) -> Value {
        let (machines, workers, delta) = match self.kind {
            Kind::Delegated { machines, workers, delta } => (machines, workers, Some(delta)),
            Kind::Single => (1, 1, None),
        };
        let searches: Vec<Value> = self.searches.iter().map(Search::json).collect();
        json!({
            "algorithm": if delta.is_some() { "delta-stepping" } else { "dijkstra" },
            "machines": machines,
            "workers": workers,
            "delta": delta,
            "vertices": self.vertices,
            "edges": self.edges,
            "build_s": self.build_time.as_secs_f64(),
            "harmonic_teps": self.harmonic_teps(),
            "searches": searches,
        })
    }
}

impl Search {
    fn json(&self) -> Value {
        let Found { reached, relaxed, sent, checksum, .. } = self.found;
        json!({
            "root": self.root,
            "time_s": self.time.as_secs_f64(),
            "edges": self.edges(),
            "teps": self.teps(),
            "reached": reached,
            "relaxed": relaxed,
            "messages": sent,
            "checksum": format!("{checksum:016x}"),
            "verdict": self.verdict.map(|verdict| verdict.to_string()),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vertices, edges) = (HumanCount(u64::from(self.vertices)), HumanCount(self.edges));
        writeln!(f, "{vertices} vertices, {edges} edges, made in {:.3} s", self.build_time.as_secs_f64())?;
        match self.kind {
            Kind::Single => writeln!(f, "Dijkstra's algorithm on a single thread")?,
            Kind::Delegated { machines, workers, delta } => {
                let (many_machines, many_workers) =
                    (if machines == 1 { "" } else { "es" }, if workers == 1 { "" } else { "s" });
                writeln!(
                    f,
                    "{machines} process{many_machines} with {workers} worker{many_workers} in all, delta {delta}"
                )?;
            }
        }
        for search in &self.searches {
            let Found { reached, relaxed, sent, checksum, .. } = search.found;
            let (time, teps) = (search.time.as_secs_f64(), search.teps() / 1e6);
            let (reached, relaxed, sent) = (HumanCount(reached), HumanCount(relaxed), HumanCount(sent));
            write!(
                f,
                "root {}: {time:.4} s, {teps:.1} MTEPS, {reached} reached, {relaxed} edges relaxed, {sent} messages, \
                 checksum {checksum:016x}",
                search.root
            )?;
            match search.verdict {
                Some(verdict) => writeln!(f, ", {verdict}")?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "harmonic mean {:.1} MTEPS", self.harmonic_teps() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let found = Found { reached: 3, ends: 8_000_000, relaxed: 1234, sent: 5, checksum: 0xabc };
        let search =
            |millis| Search { root: 7, found, time: Duration::from_millis(millis), verdict: Some(Verdict::default()) };
        let kind = Kind::Delegated { machines: 2, workers: 2, delta: 0.5 };
        let build_time = Duration::from_secs(1);
        Report { vertices: 1024, edges: 4_000_000, build_time, searches: vec![search(1000), search(500)], kind }
    }

    #[test]
    fn the_text_has_all_figures() {
        let expected = "1,024 vertices, 4,000,000 edges, made in 1.000 s
2 processes with 2 workers in all, delta 0.5
root 7: 1.0000 s, 4.0 MTEPS, 3 reached, 1,234 edges relaxed, 5 messages, checksum 0000000000000abc, valid
root 7: 0.5000 s, 8.0 MTEPS, 3 reached, 1,234 edges relaxed, 5 messages, checksum 0000000000000abc, valid
harmonic mean 5.3 MTEPS
";
        assert_eq!(report().to_string(), expected);
    }

    #[test]
    fn a_wrong_result_shows() {
        let mut report = report();
        assert!(report.is_valid());
        let wrong = Verdict { violations: [0, 2, 0, 0, 0], examples: [0, 9, 0, 0, 0] };
        report.searches[1].verdict = Some(wrong);
        assert!(!report.is_valid());
        assert!(
            report
                .to_string()
                .contains("rule 2 (a vertex is as far as its parent and the edge between them) is violated 2")
        );
        let json = report.json();
        assert_eq!(
            (&json["searches"][0]["verdict"], &json["searches"][1]["edges"]),
            (&json!("valid"), &json!(4_000_000))
        );
    }
}
