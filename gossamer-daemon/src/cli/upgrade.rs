//! `gossamer-launch upgrade`: daemons execute their new executables, one host after the other.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::ask::code;
use super::complain;
use super::console::{plain, print};
use super::drain::Named;
use crate::rack::ask::ask_within;
use crate::rack::plan::owner;
use crate::wire::{Reply, Request};

/// Longer than a daemon tries.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct Upgrade {
    #[command(flatten)]
    named: Named,
}

const HELP: &str = "\
Example:
  scp gossamer-daemon beta:/usr/local/bin/new && ssh beta mv /usr/local/bin/new /usr/local/bin/gossamer-daemon
  gossamer-launch upgrade beta
The daemon of each host executes the file at the path that it was started from, in its own place, and reads its
rack.yaml anew; this sends no code. Programs run on. Where the new executable cannot take over, the old daemon goes on,
and the hosts after that one are left as they are. `kill -USR2` on the host does the same.";

impl Upgrade {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let (rack, keys, hosts) = match self.named.whom() {
            Ok(whom) => whom,
            Err(code) => return Ok(code),
        };
        for (number, host) in hosts.iter().enumerate() {
            let request = Request::Upgrade { who: owner() };
            let answers = ask_within(&rack, std::slice::from_ref(host), &keys, &request, LIMIT);
            let outcome = answers.into_iter().next().map(|answer| answer.outcome.map_err(|error| error.reason));
            let reason = match outcome {
                Some(Ok((_, Reply::Upgraded { release, programs }))) => {
                    print(&format!("{} runs {}; {programs} programs have gone on", host.name, plain(&release)))?;
                    continue;
                }
                Some(Err(reason)) => reason,
                Some(Ok(_)) | None => "it answers what was not asked".to_owned(),
            };
            complain(format_args!("host {}: {reason}", host.name));
            let left: Vec<&str> = hosts[number + 1..].iter().map(|host| host.name.as_str()).collect();
            if !left.is_empty() {
                complain(format_args!("not upgraded: {}", left.join(", ")));
            }
            return Ok(code(false));
        }
        Ok(ExitCode::SUCCESS)
    }
}
