//! Which graph: the part of the command line that is the same for all programs. Nothing is done here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use graph::Kronecker;

/// Arguments that say which graph.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// Generate a graph with 2^N vertices
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(Kronecker::SCALE_MAX)))]
    pub scale: u32,

    /// Edges for each vertex of the generated graph
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub edgefactor: u32,

    /// Seed of the generated graph, and of choices in it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Read the graph from a file: DIMACS, Matrix Market or an edge list, plain or gzip
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scale", "edgefactor"])]
    pub graph: Option<PathBuf>,
}

impl Source {
    /// The graph to generate, if it does not come from a file.
    pub fn kronecker(&self) -> Kronecker {
        Kronecker { scale: self.scale, edge_factor: self.edgefactor, seed: self.seed }
    }

    /// The same arguments, for a machine.
    pub fn machine_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["--seed".into(), self.seed.to_string().into()];
        match &self.graph {
            Some(graph) => {
                let mut arg = OsString::from("--graph=");
                arg.push(graph);
                args.push(arg);
            }
            None => args.extend(
                ["--scale".to_owned(), self.scale.to_string(), "--edgefactor".to_owned(), self.edgefactor.to_string()]
                    .map(OsString::from),
            ),
        }
        args
    }
}
