//! The command line of `wordcount`: arguments and help. Nothing is done here.

use std::path::{Path, PathBuf};

use clap::Parser;

use super::files::Wanted;

/// Default number of machines that `wordcount` starts.
const LOCAL_MACHINES: u16 = 2;

/// Counts the words of all texts under a folder, with the counts entrusted across the workers of several processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "wordcount", version, after_long_help = HELP)]
pub struct Options {
    /// The folder (or one file); without it the documentation of this project
    pub folder: Option<PathBuf>,

    /// Files to count, by the endings of their names, large or small; a file that is named instead of a folder is
    /// counted with any ending
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_values = ["md", "txt"])]
    pub only: Vec<String>,

    /// Count all files
    #[arg(long, conflicts_with = "only")]
    pub all: bool,

    /// Number of processes to start on this host, each a machine of the rack; 1 starts none: all in this process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub local: Option<u16>,

    /// Workers in all processes together; without it as many as there are cores
    #[arg(long, value_name = "T", value_parser = at_least_one)]
    pub threads: Option<usize>,

    /// Number of the most frequent words to print
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Count on a single thread, without delegation, to compare with
    #[arg(long, conflicts_with_all = ["local", "threads", "verify"])]
    pub single: bool,

    /// Count on a single thread too, and compare word by word; exit status 1 if the counts differ
    #[arg(long)]
    pub verify: bool,

    /// Keep the counts in this folder, as one process: run again after any end, each file counts once, and the counts
    /// are those of all runs
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["local", "single"])]
    pub durable: Option<PathBuf>,

    /// The terminal for the progress bar: passed to machine 0, since its own standard error is a pipe
    #[arg(long, hide = true, value_name = "TTY")]
    pub progress_on: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  wordcount
      the documentation of this project, over two processes
  wordcount --local 4 --top 20 --verify some/folder
      four processes; check the counts against those of a single thread
  wordcount --local 1 --all some/folder
      one process, without a launcher; all files, not only documents
  wordcount --durable counts some/folder
      one process whose counts survive: kill it, and run it again to go on
  gossamer-launch run --local 3 wordcount some/folder
      started by a launcher: as many processes as that says

What is counted:
  Documents: files whose names end in .md or .txt, unless --only or --all says something else. Words as Unicode has
  them, in lower case. Files with zero bytes in them are no texts. What cannot be read and bytes that are not UTF-8 are
  reported on standard error and skipped; symbolic links are not followed.

Exit status:
  0  counted, even if something was skipped
  1  the folder cannot be read, or --verify found a difference
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

impl Options {
    /// The files to count.
    pub fn folder(&self) -> PathBuf {
        match (&self.folder, Path::new(env!("CARGO_MANIFEST_DIR")).parent()) {
            (Some(folder), _) => folder.clone(),
            (None, Some(workspace)) => workspace.join("docs"),
            (None, None) => PathBuf::from("docs"),
        }
    }

    /// Which files to count.
    pub fn wanted(&self) -> Wanted {
        if self.all { Wanted::All } else { Wanted::Endings(self.only.clone()) }
    }

    /// Returns the number of processes to start, if this one is not a machine already.
    pub fn machines(&self) -> u16 {
        self.local.unwrap_or(LOCAL_MACHINES)
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("give at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}: give a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn what_is_not_given_has_a_default() {
        let options = parse("wordcount").unwrap();
        assert_eq!((options.machines(), options.threads, options.top), (2, None, 10));
        assert_eq!(options.wanted(), Wanted::Endings(vec!["md".into(), "txt".into()]));
        assert!(options.folder().join("ARCHITECTURE.md").exists(), "{:?}", options.folder());
    }

    #[test]
    fn impossible_wishes_are_refused() {
        for line in [
            "--local 0",
            "--local 129",
            "--threads 0",
            "--threads x",
            "--top -1",
            "--single --verify",
            "--single --durable a",
            "--local 2 --durable a",
            "--all --only md",
            "a b",
        ] {
            assert_eq!(parse(&format!("wordcount {line}")).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
