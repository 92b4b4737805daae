//! Command line of `gossamer-launch`: its subcommands. Each has its arguments in its own file; no work here.

mod address;
mod ask;
mod check;
mod console;
pub mod daemon;
mod detach;
mod drain;
mod key;
mod movers;
mod output;
mod run;
pub(crate) mod size;
mod target;
mod threads;
mod top;
mod upgrade;
pub(crate) mod view;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use console::complain;

use crate::core_dump;
use crate::descriptors;
use crate::dispositions;
use crate::outcome::FAILURE_STATUS;

/// Starts a program on a rack of machines, and ends the whole program when one machine dies.
#[derive(Debug, Parser)]
#[command(name = "gossamer-launch", version, about, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a program and exits with its status
    #[command(after_long_help = run::HELP)]
    Run(run::Run),
    /// Lists the programs that run on the rack
    Ps(ask::Ask),
    /// Ends a program, on all hosts, or sends it a signal
    Kill(ask::Kill),
    /// Shows which hosts are up, and the programs and memory of each
    Status(ask::Ask),
    /// Checks rack.yaml and each host, and lists the problems
    Check(ask::Ask),
    /// Shows the last lines of the daemons' logs, or those about a program, or the program's output
    Logs(ask::Logs),
    /// Shows the activity of a program's workers each second, as `top` does for processes
    Top(top::Top),
    /// Lists the threads of a C program over several machines (--region)
    Threads(threads::Threads),
    /// Asks a thread of such a program to go to another machine (--move)
    Move(threads::Move),
    /// Shows where each fiber of a program waits
    Dump(view::Dump),
    /// Records a program's workers for some seconds, for Perfetto and chrome://tracing
    Trace(view::Trace),
    /// Serves a page about a running program, and its metrics for Prometheus
    View(view::View),
    /// Makes a key for a rack
    Keygen(ask::Keygen),
    /// Replaces the key of a rack while its daemons and programs run
    Key(key::KeyArgs),
    /// Has hosts take no new programs, while those that run there go on
    Drain(drain::Drain),
    /// Has drained hosts take programs again
    Resume(drain::Resume),
    /// Has daemons execute their new executables in place, while programs run
    Upgrade(upgrade::Upgrade),
}

const HELP: &str = "\
Examples:
  gossamer-launch run --local 2 ./wordcount docs/       two machines on this host: no daemon, no file needed
  gossamer-launch check                                 is each host of rack.yaml ready?
  gossamer-launch run ./wordcount /data/docs            on all hosts of rack.yaml
  gossamer-launch ps                                    what runs there
`gossamer-launch help run` says more.";

/// Runs `gossamer-launch` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) = descriptors::mark_inherited() {
        complain(format_args!("cannot keep the descriptors that it was started with from programs: {error}"));
        return ExitCode::from(FAILURE_STATUS);
    }
    if let Err(error) = dispositions::unblock() {
        complain(format_args!("cannot unblock signals: {error}"));
        return ExitCode::from(FAILURE_STATUS);
    }
    let cli: Cli = match console::parse("gossamer-launch") {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if let Err(error) = core_dump::forbid() {
        complain(format_args!("cannot forbid core dumps: {error}"));
        return ExitCode::from(FAILURE_STATUS);
    }
    let done = match cli.command {
        Command::Run(run) => run.main(),
        Command::Ps(ask) => ask.show(ask::Ask::ps),
        Command::Kill(kill) => kill.main(),
        Command::Status(ask) => ask.show(ask::Ask::status),
        Command::Check(ask) => check::main(&ask),
        Command::Logs(logs) => logs.main(),
        Command::Top(top) => top.main(),
        Command::Threads(threads) => threads.main(),
        Command::Move(one) => one.main(),
        Command::Dump(dump) => dump.main(),
        Command::Trace(trace) => trace.main(),
        Command::View(view) => view.main(),
        Command::Keygen(keygen) => keygen.main(),
        Command::Key(key) => key.main(),
        Command::Drain(drain) => drain.main(),
        Command::Resume(resume) => resume.main(),
        Command::Upgrade(upgrade) => upgrade.main(),
    };
    console::status("gossamer-launch", done)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::outcome::USAGE_STATUS;

    fn parse(line: &str) -> Result<run::Run, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| match cli.command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn options_after_the_program_are_the_programs() {
        let run = parse("gossamer-launch run --local 2 prog --threads 9 -x -- y").unwrap();
        assert_eq!((run.local, run.options.threads, run.options.no_prefix), (Some(2), None, false));
        assert_eq!(run.program, ["prog", "--threads", "9", "-x", "--", "y"]);
        assert_eq!(parse("gossamer-launch run --local 1 -- -odd --help").unwrap().program, ["-odd", "--help"]);
    }

    #[test]
    fn impossible_numbers_of_machines_are_refused() {
        for local in ["0", "-1", "129", "70000", "two"] {
            let error = parse(&format!("gossamer-launch run --local {local} prog")).unwrap_err();
            assert_eq!(error.exit_code(), i32::from(USAGE_STATUS), "{error}");
        }
        assert!(parse("gossamer-launch run --local 128 prog").is_ok());
        assert!(parse("gossamer-launch run --local 2 --hosts a prog").is_err(), "this host or others");
        assert!(parse("gossamer-launch run --local 2 --thread 3 prog").is_err(), "an unknown option is no program");
        assert!(parse("gossamer-launch run --local 2").is_err());
    }
}
