//! `gossamer-launch key rotate` and `key finish`: another key for a rack, while its daemons and programs run. Daemons
//! read their key file at each connection; copying it to the hosts is left to the user.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use comm::secure::Keys;

use super::ask::NOT_WELL;
use super::complain;
use super::console::print;
use crate::config::RackConfig;
use crate::outcome::FAILURE_STATUS;
use crate::rack::ask::ask;
use crate::wire::Request;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a new key; the old one stays valid beside it, in the same file
    Rotate(Rotate),
    /// Removes the old key, when all hosts have the new one
    Finish(Finish),
}

#[derive(Debug, Args)]
struct Rotate {
    /// The hosts of the rack, and its key file [default: $GOSSAMER_RACK, ./rack.yaml, and so on]
    #[arg(long, value_name = "FILE")]
    rack: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Finish {
    /// The hosts of the rack, and its key file [default: $GOSSAMER_RACK, ./rack.yaml, and so on]
    #[arg(long, value_name = "FILE")]
    rack: Option<PathBuf>,

    /// Also where a host does not answer, or lacks the new key: it is shut out until it gets the file
    #[arg(long)]
    force: bool,
}

/// Trouble of a host that lets this one in by the old key alone.
pub(super) const LACKS_NEW_KEY: &str = "it lacks the new key: copy the key file to it";

const HELP: &str = "\
Example:
  gossamer-launch key rotate
  scp -p /etc/gossamer/rack.key beta:/etc/gossamer/rack.key     to each host, and to each user who launches
  gossamer-launch check                                         names each host that lacks the new key
  gossamer-launch key finish
  scp -p /etc/gossamer/rack.key beta:/etc/gossamer/rack.key     again: from now on the old key is refused
Daemons take a changed key file at once. Nothing is restarted, and programs run on. The old key opens the rack until the
last step: if it has leaked, stop the daemons and make a key anew (keygen) instead.";

impl KeyArgs {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        match &self.command {
            Command::Rotate(rotate) => rotate.main(),
            Command::Finish(finish) => finish.main(),
        }
    }
}

/// Returns the rack, its key file, and its keys.
fn keys_of(rack: Option<&Path>) -> Result<(RackConfig, PathBuf, Keys), ExitCode> {
    let rack = RackConfig::find(rack).map_err(|error| failed(&error))?;
    let keys = rack.read_keys().map_err(|error| failed(&error))?;
    let file = std::path::absolute(rack.key_path()).unwrap_or_else(|_| rack.key_path());
    Ok((rack, file, keys))
}

fn failed(error: &dyn Display) -> ExitCode {
    complain(error);
    ExitCode::from(FAILURE_STATUS)
}

impl Rotate {
    fn main(&self) -> io::Result<ExitCode> {
        let (_, file, keys) = match keys_of(self.rack.as_deref()) {
            Ok(found) => found,
            Err(code) => return Ok(code),
        };
        if keys.old().is_some() {
            let shown = file.display();
            return Ok(failed(&format!(
                "{shown} holds a new key and an old one already: copy it to all hosts, then `gossamer-launch key \
                 finish`"
            )));
        }
        match keys.rotated().and_then(|keys| keys.replace(&file)) {
            Ok(()) => {
                print(&next_steps(&file))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Ok(failed(&error)),
        }
    }
}

fn next_steps(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} holds a new key, and the old one, which stays valid. These steps are left:\n  \
           1. copy the file to every host and to every user who launches (scp -p), in any order; daemons take it at \
              once\n  \
           2. gossamer-launch check         until it names no host that lacks the new key\n  \
           3. gossamer-launch key finish    then copy the file once more: the old key is refused where it has arrived"
    )
}

impl Finish {
    fn main(&self) -> io::Result<ExitCode> {
        let (rack, file, keys) = match keys_of(self.rack.as_deref()) {
            Ok(found) => found,
            Err(code) => return Ok(code),
        };
        let (shown, new) = (file.display(), keys.without_old());
        if keys.old().is_none() {
            return Ok(failed(&format!("{shown} holds one key: `gossamer-launch key rotate` makes a new one")));
        }
        let mut are_all_ready = true;
        for answer in ask(&rack, &rack.hosts, &keys, &Request::Status) {
            let trouble = match answer.outcome {
                Err(error) => error.reason,
                Ok(_) if answer.has_old_key => LACKS_NEW_KEY.to_owned(),
                Ok(_) => continue,
            };
            are_all_ready = false;
            complain(format_args!("host {}: {trouble}", answer.host));
        }
        if !are_all_ready && !self.force {
            complain(format_args!(
                "the old key stays in {shown}: copy that file to each host named above, or say --force to shut them out"
            ));
            return Ok(ExitCode::from(NOT_WELL));
        }
        if let Err(error) = new.replace(&file) {
            return Ok(failed(&error));
        }
        print(&format!(
            "{shown} holds the new key alone. Copy it to every host and to every user who launches (scp -p): a host \
             refuses the old key as soon as it has the file. `gossamer-launch check` names those that do not have it."
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
