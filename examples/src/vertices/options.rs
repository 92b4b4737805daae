//! The command lines of `pagerank` and `components`: arguments and help. Nothing is done here.

use std::ffi::OsString;

use clap::{Args, Parser};

use crate::graphs::options::Source;
use crate::machines::RackOptions;

/// Ranks the pages of a graph by the links between them, with the ranks in arrays over the workers of several
/// processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "pagerank", version, after_long_help = PAGERANK_HELP)]
pub struct PageRank {
    /// Number of rounds in which ranks pass along links
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rounds: u32,

    /// Options of both programs.
    #[command(flatten)]
    pub common: Common,
}

/// Finds the connected parts of a graph, with the labels of its vertices in an array over the workers of several
/// processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "components", version, after_long_help = COMPONENTS_HELP)]
pub struct Components {
    /// Options of both programs.
    #[command(flatten)]
    pub common: Common,
}

/// Arguments of both.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The graph
    #[command(flatten)]
    pub source: Source,

    /// Do the same on one thread and compare; exit status 1 if the results differ
    #[arg(long)]
    pub verify: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// The rack
    #[command(flatten)]
    pub rack: RackOptions,
}

const PAGERANK_HELP: &str = "\
Examples:
  pagerank --scale 18 --verify
      a generated graph with 262,144 pages and 16 times as many links, in one process
  pagerank --scale 18 --local 4 --fabric tcp
      over four processes, joined by TCP
  pagerank --graph web-Google.txt.gz --rounds 50
      links from a file, each line one from the first page to the second
  gossamer-launch run --rack rack.yaml pagerank --scale 24
      on the hosts of a rack

What is computed:
  Ranks that sum up to 1. In a round a page passes its rank on along its links, in equal parts; of all that 0.85 \
  arrive, and the
  rest, with the ranks of pages without links, goes to all pages alike. Repeated links count as often as they are there.

Exit status:
  0  ranked, and as on one thread if that was to be verified
  1  the file is no graph, there is no memory, or --verify found another rank
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

const COMPONENTS_HELP: &str = "\
Examples:
  components --scale 18 --edgefactor 1 --verify
      a generated graph with 262,144 vertices and as many edges, in one process
  components --scale 18 --local 4 --fabric tcp
      over four processes, joined by TCP
  components --graph roadNet-CA.txt.gz
      a graph from a file, each line an edge

What is printed:
  Components of vertices with edges; those without are in none. The checksum is that of sssp --components.

Exit status:
  0  found, and as on one thread if that was to be verified
  1  the file is no graph, there is no memory, or --verify found another component
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

impl Common {
    fn machine_args(&self) -> Vec<OsString> {
        let mut args = self.source.machine_args();
        args.extend(self.verify.then(|| "--verify".into()));
        args.extend(self.json.then(|| "--json".into()));
        args
    }
}

impl PageRank {
    /// The arguments for a machine: those of this process, without the ones for the start.
    pub fn machine_args(&self) -> Vec<OsString> {
        let rounds = ["--rounds".into(), self.rounds.to_string().into()];
        rounds.into_iter().chain(self.common.machine_args()).collect()
    }
}

impl Components {
    /// The arguments for a machine: those of this process, without the ones for the start.
    pub fn machine_args(&self) -> Vec<OsString> {
        self.common.machine_args()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_lines_are_consistent() {
        PageRank::command().debug_assert();
        Components::command().debug_assert();
    }

    #[test]
    fn machines_get_what_was_asked_for() {
        for line in [
            "pagerank --scale 9 --edgefactor 3 --seed 7 --rounds 4 --verify --json --local 3 --fabric tcp",
            "pagerank --graph=-odd --threads 4",
        ] {
            let asked = PageRank::try_parse_from(line.split_whitespace()).unwrap();
            let args: Vec<OsString> = [OsString::from("pagerank")].into_iter().chain(asked.machine_args()).collect();
            let told = PageRank::try_parse_from(&args).unwrap();
            assert_eq!(told.machine_args(), asked.machine_args());
            assert_eq!(
                (told.rounds, told.common.verify, told.common.json),
                (asked.rounds, asked.common.verify, asked.common.json)
            );
            assert_eq!((told.common.rack.local, &told.common.source.graph), (None, &asked.common.source.graph));
        }
        assert_eq!(Components::try_parse_from(["components", "--rounds", "3"]).unwrap_err().exit_code(), 2);
    }
}
