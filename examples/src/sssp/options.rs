//! The command line of `sssp`: arguments and help. Nothing is done here.

use std::ffi::OsString;

use clap::{Args, Parser};
use graph::Vertex;

use crate::graphs::options::Source;
use crate::machines::RackOptions;

/// Finds the shortest paths from some vertices of a graph to all others, over the workers of several processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "sssp", version, after_long_help = HELP)]
pub struct Sssp {
    /// Its arguments.
    #[command(flatten)]
    pub options: Options,
}

/// Arguments of `sssp`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The graph
    #[command(flatten)]
    pub source: Source,

    /// Number of vertices to search from, one after the other
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub roots: usize,

    /// Search from this vertex, numbered as in the file (from 0 where the graph is generated); may be repeated
    #[arg(long, value_name = "VERTEX", conflicts_with = "roots")]
    pub root: Vec<Vertex>,

    /// Give each edge the length 1: distances are then levels, and the search goes breadth first
    #[arg(long)]
    pub levels: bool,

    /// Find the connected components instead of paths
    #[arg(long, conflicts_with_all = ["roots", "root", "levels", "validate", "delta"])]
    pub components: bool,

    /// Check each result by the five rules of Graph500; exit status 1 if one is wrong
    #[arg(long)]
    pub validate: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// The rack
    #[command(flatten)]
    pub rack: RackOptions,

    /// Width of the buckets of distances; the nearest power of two is taken. Without it, by the graph's degrees and
    /// weights
    #[arg(long, value_name = "WIDTH", value_parser = width)]
    pub delta: Option<f64>,

    /// Search with Dijkstra's algorithm on a single thread, without delegation, to compare with
    #[arg(long, conflicts_with_all = ["local", "threads", "delta", "validate"])]
    pub single: bool,
}

const HELP: &str = "\
Examples:
  sssp --scale 18 --validate
      a generated graph with 262,144 vertices and 16 times as many edges, in one process
  sssp --scale 18 --local 4 --fabric tcp
      over four processes, joined by TCP
  sssp --scale 18 --levels --validate
      breadth-first search in the same graph
  sssp --scale 18 --components
      how many connected parts it has
  sssp --graph USA-road-d.NY.gr.gz --root 1
      a road network from the file, from its vertex 1
  gossamer-launch run --rack rack.yaml sssp --scale 24
      on the hosts of a rack

What is searched:
  Graphs are undirected: each line of a file is an edge both ways. Generated graphs are Graph500's Kronecker graphs (A \
  .57,
  B .19, C .19), with weights uniform in [0, 1); the same seed gives the same graph over any number of workers.

What is printed:
  TEPS are traversed edges a second as Graph500 counts them: the edges of the graph in the component of the root, each \
  once,
  over the time of the search. The checksum is equal where all distances are equal.

Exit status:
  0  searched, and right if it was to be validated
  1  the file is no graph, a root has no edge, or --validate found a wrong result
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

impl Options {
    /// The arguments for a machine: those of this process, without the ones for the start.
    pub fn machine_args(&self) -> Vec<OsString> {
        let mut args = self.source.machine_args();
        let mut add = |name: &str, value: String| args.extend([name.into(), value.into()]);
        if self.root.is_empty() && !self.components {
            add("--roots", self.roots.to_string());
        }
        self.root.iter().for_each(|root| add("--root", root.to_string()));
        self.delta.iter().for_each(|delta| add("--delta", delta.to_string()));
        args.extend(self.components.then(|| "--components".into()));
        args.extend(self.levels.then(|| "--levels".into()));
        args.extend(self.validate.then(|| "--validate".into()));
        args.extend(self.json.then(|| "--json".into()));
        args
    }
}

fn width(text: &str) -> Result<f64, String> {
    let width: f64 = text.parse().map_err(|error| format!("{error}: give a number"))?;
    if width.is_normal() && width > 0.0 { Ok(width) } else { Err("give a number over 0".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Sssp::try_parse_from(line.split_whitespace()).map(|sssp| sssp.options)
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Sssp::command().debug_assert();
    }

    #[test]
    fn impossible_wishes_are_refused() {
        for line in [
            "--scale 32",
            "--scale -1",
            "--local 0",
            "--threads 0",
            "--delta 0",
            "--delta inf",
            "--delta x",
            "--graph a --scale 4",
            "--root 1 --roots 2",
            "--single --local 2",
            "--fabric carrier-pigeon",
        ] {
            assert_eq!(parse(&format!("sssp {line}")).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn machines_get_what_was_asked_for() {
        for line in [
            "sssp --scale 9 --edgefactor 3 --seed 7 --roots 2 --levels --validate --json --delta 0.25 --local 3 \
             --fabric tcp",
            "sssp --scale 9 --components --threads 2",
            "sssp --graph -odd --root 5 --root 7 --threads 4",
        ] {
            let asked = parse(&line.replace("--graph -odd", "--graph=-odd")).unwrap();
            let args: Vec<OsString> = [OsString::from("sssp")].into_iter().chain(asked.machine_args()).collect();
            let told = Sssp::try_parse_from(&args).unwrap().options;
            assert_eq!(told.machine_args(), asked.machine_args());
            assert_eq!((told.rack.local, told.rack.threads, &told.root), (None, None, &asked.root));
            assert_eq!((&told.source.graph, told.source.scale), (&asked.source.graph, asked.source.scale));
            assert_eq!((told.source.edgefactor, told.delta), (asked.source.edgefactor, asked.delta));
            assert_eq!((told.levels, told.components), (asked.levels, asked.components));
        }
    }
}
