//! The part of the command lines that is the same. Nothing is done here.

use std::ffi::{OsStr, OsString};

use clap::Args;

use crate::machines::RackOptions;

/// Arguments that all have.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Run the twin, in one process of plain Rust, and compare; exit status 1 if the answers differ
    #[arg(long)]
    pub verify: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// The rack
    #[command(flatten)]
    pub rack: RackOptions,
}

/// The end of each help text.
pub const STATUS_HELP: &str = "\
Memory:
  The heap of each process may take half of the host's memory divided by the processes there, or what GOSSAMER_HEAP \
  says, such as 8G.

Exit status:
  0  all was done, and the twin's answer is the same if that was to be verified
  1  what was asked for cannot be done, or --verify found another answer
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

/// Options for the starter of the machines alone. Each has a value.
const OF_THE_START: [&str; 3] = ["--local", "--threads", "--fabric"];

/// The arguments for a machine: those of this process, without the ones for the start.
pub fn machine_args() -> Vec<OsString> {
    for_machines(std::env::args_os().skip(1))
}

fn for_machines(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.peekable();
    let mut left = Vec::new();
    while let Some(arg) = args.next() {
        let bytes = arg.as_encoded_bytes();
        let is = |name: &str| bytes.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='));
        if OF_THE_START.iter().any(|name| arg.as_os_str() == OsStr::new(name)) {
            args.next();
        } else if !OF_THE_START.iter().any(|name| is(name)) {
            left.push(arg);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_get_what_was_asked_for_but_for_the_start() {
        let line = "--keys 9 --local 2 --verify --threads=4 --localities 3 --fabric tcp --json";
        let left = for_machines(line.split(' ').map(OsString::from));
        assert_eq!(left, ["--keys", "9", "--verify", "--localities", "3", "--json"]);
        assert!(for_machines(["--local".into()].into_iter()).is_empty());
    }
}
