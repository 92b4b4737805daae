//! The command line of `gossamer-launch`: arguments, help, and what is printed at the end. No launching here.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gossamer::bootstrap::FabricChoice;

use crate::fate::Bounds;
use crate::launch::{self, LaunchConfig, MAX_LOCAL_MACHINES};
use crate::outcome::{FAILURE_STATUS, USAGE_STATUS};

/// Starts a program on a rack of machines, and ends all of it when one of them dies.
#[derive(Debug, Parser)]
#[command(name = "gossamer-launch", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a program and gives its exit status back
    #[command(after_long_help = RUN_HELP)]
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// How many machines (processes) to start on this host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_LOCAL_MACHINES)))]
    local: u16,

    /// Workers in all machines together, at least N; without it the program decides
    #[arg(long, value_name = "T")]
    threads: Option<u32>,

    /// How bytes get from machine to machine: `auto` (shared memory between the machines of a host), `shm`, `tcp` or
    /// `verbs`
    #[arg(long, value_name = "FABRIC", default_value = "auto")]
    fabric: FabricChoice,

    /// As if the machines were on H hosts, which share no memory: to try what `auto` does on a rack
    #[arg(long, value_name = "H", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pretend_hosts: u16,

    /// Do not put the machine's name (`m0 | `) before each line of output
    #[arg(long)]
    no_prefix: bool,

    /// The program, a path or a name to be found in PATH, and its arguments, passed on as they are
    #[arg(value_names = ["PROGRAM", "ARGS"], num_args = 1.., required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

const RUN_HELP: &str = "\
Examples:
  gossamer-launch run --local 2 ./wordcount docs/
      two machines on this host
  gossamer-launch run --local 4 --threads 8 ./wordcount --top 10 docs/
      four machines with two workers each; options after the program's name are the program's
  gossamer-launch run --local 2 --no-prefix ./wordcount docs/ > counts.txt
      output as the program wrote it, line by line

Streams:
  Lines of stdout go to stdout, lines of stderr to stderr, never mixed within a line (longer than 1 MiB: in pieces of
  that length, each a line), after the machine's name. A single machine writes to stdout and stderr itself. Standard
  input goes to machine 0; the others read an end of file.

End:
  The program ends when the main function of machine 0 has returned. When a machine dies before that, all the others
  are ended within a second, and the machine, its process id and the cause are named. Ctrl-C, SIGTERM, SIGHUP and
  SIGQUIT are passed on to all machines; what is left after 3 seconds, or at a second signal, is killed. When
  gossamer-launch itself is killed, the machines end too.

Exit status:
  of machine 0      the program has finished
  of the dead one   a machine exited too early: its status (101 after a panic), or 70 where that is 0;
                    killed by signal S: 128 + S
  128 + S           gossamer-launch was told to end by signal S (130: Ctrl-C)
  70                any other failure, of a machine or of gossamer-launch
  127               PROGRAM was not found or cannot be executed
  2                 the command line is wrong";

/// Runs `gossamer-launch` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let Command::Run(run) = Cli::parse().command; // exits with status 2 and the usage where they are wrong
    let mut words = run.program.into_iter();
    let Some(program) = words.next() else { unreachable!("clap asks for at least one") };
    if let Some(threads) = run.threads.filter(|threads| *threads < u32::from(run.local)) {
        complain(format_args!(
            "--threads {threads} is not enough for --local {}: each machine needs at least one worker",
            run.local
        ));
        return ExitCode::from(USAGE_STATUS);
    }
    let config = LaunchConfig {
        program,
        args: words.collect(),
        machines: run.local,
        threads: run.threads,
        fabric: run.fabric,
        pretended_hosts: run.pretend_hosts,
        prefix: !run.no_prefix,
        bounds: Bounds::default(),
    };
    match launch::run(&config) {
        Ok(outcome) => {
            if let Some(message) = outcome.message() {
                complain(format_args!("{message}"));
            }
            ExitCode::from(outcome.status())
        }
        Err(error) => {
            complain(format_args!("{error}"));
            ExitCode::from(error.status().unwrap_or(FAILURE_STATUS))
        }
    }
}

fn complain(message: std::fmt::Arguments<'_>) {
    let line = format!("gossamer-launch: {message}\n");
    let _ = std::io::stderr().write_all(line.as_bytes()); // nobody reads it: the status still tells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Run, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| {
            let Command::Run(run) = cli.command;
            run
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
        assert_eq!((run.local, run.threads, run.no_prefix), (2, None, false));
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
        assert!(parse("gossamer-launch run prog").is_err());
        assert!(parse("gossamer-launch run --local 2 --thread 3 prog").is_err(), "an unknown option is no program");
        assert!(parse("gossamer-launch run --local 2").is_err());
    }
}
