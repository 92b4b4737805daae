//! Command line of `gossamer-daemon`. No work here.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::console;
use crate::config::RackConfig;
use crate::daemon::log::{LastLines, LogFormat};
use crate::daemon::{self, Settings};
use crate::descriptors;
use crate::dispositions;
use crate::outcome::FAILURE_STATUS;
use crate::part;

/// Runs on each host of a rack, and starts programs there for gossamer-launch.
#[derive(Debug, Parser)]
#[command(name = "gossamer-daemon", version, about, after_long_help = HELP)]
struct Cli {
    /// The hosts of the rack [default: $GOSSAMER_RACK, ./rack.yaml, ~/.config/gossamer/rack.yaml,
    /// /etc/gossamer/rack.yaml]
    #[arg(long, value_name = "FILE")]
    rack: Option<PathBuf>,

    /// Name of this host in rack.yaml [default: the entry with this host's name, or else with an address of this host]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// User of the programs, where the daemon runs as root [default: `user` in rack.yaml]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Folder for programs sent by gossamer-launch [default: /var/cache/gossamer, or ~/.cache/gossamer]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,

    /// Format of the log on standard error
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The process between daemon and machines; started by the daemon
    #[command(hide = true)]
    Part,
    /// Says whether this executable can take over from a daemon; asked by that one
    #[command(hide = true)]
    TakeOverCheck {
        /// Versions of the other daemon
        #[arg(long)]
        versions: String,
        /// Address at which it listens
        #[arg(long)]
        listening: SocketAddr,
    },
}

const HELP: &str = "\
Examples:
  gossamer-daemon --rack rack.yaml
      the daemon of this host, in the foreground; Ctrl-C ends it, and the programs on this host
  gossamer-daemon --rack rack.yaml --host alpha
      where several entries of rack.yaml are addresses of this host
  systemctl enable --now gossamer-daemon
      at each start of the host: docs/gossamer-daemon.service is the unit

It reads rack.yaml at its start, and at SIGUSR2 or `gossamer-launch upgrade`, when it executes its executable anew in
its own place, while programs run. A changed key file counts at once.
`gossamer-launch check`, on any host, says what is wrong with each of them.";

/// Runs `gossamer-daemon` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) = descriptors::mark_inherited() {
        return fail(format_args!("cannot keep the descriptors that it was started with from programs: {error}"));
    }
    let handover = match daemon::take_over() {
        Ok(handover) => handover,
        Err(error) => return fail(format_args!("cannot take over from the former daemon: {error}")),
    };
    // In an upgrade, signals wait until they are handled.
    if handover.is_none()
        && let Err(error) = dispositions::unblock()
    {
        return fail(format_args!("cannot unblock signals: {error}"));
    }
    let cli: Cli = match console::parse("gossamer-daemon") {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if let Some(Command::Part) = cli.command {
        return part::main();
    }
    let found = RackConfig::find(cli.rack.as_deref());
    let settings = |rack| Settings { rack, host: cli.host, user: cli.user, cache: cli.cache };
    if let Some(Command::TakeOverCheck { versions, listening }) = cli.command {
        let checked = found.map_err(|error| error.to_string());
        return match checked.and_then(|rack| daemon::check_take_over(settings(rack), &versions, listening)) {
            Ok(consent) => print(&consent),
            Err(reason) => fail(format_args!("{reason}")),
        };
    }
    let log = match LastLines::start(cli.log_format) {
        Ok(log) => log,
        Err(error) => return fail(format_args!("no thread for the log: {error}")),
    };
    let outcome = found.map_err(Into::into).map(settings);
    let ended = outcome.and_then(|settings| daemon::run(settings, log.last.clone(), handover));
    drop(log);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(format_args!("{error}")),
    }
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILURE_STATUS),
    }
}

fn fail(what: std::fmt::Arguments<'_>) -> ExitCode {
    // Where nobody reads standard error, the status still reports the error.
    let _ = writeln!(std::io::stderr(), "gossamer-daemon: {what}");
    ExitCode::from(FAILURE_STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
