//! `gossamer-launch drain` and `resume`: hosts that take no new programs, and hosts that take them again.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comm::secure::Keys;

use super::ask::{Ask, Status, code};
use super::console::{plain, print};
use super::{complain, size};
use crate::config::{Host, RackConfig};
use crate::rack::ask::ask;
use crate::rack::plan::owner;
use crate::wire::{HostStatus, Request};

/// Pause between two looks at hosts that are waited for.
const PAUSE: Duration = Duration::from_millis(500);

/// Hosts of a rack, by name: none are taken for all.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// The hosts of the rack [default: $GOSSAMER_RACK, ./rack.yaml, and so on]
    #[arg(long, value_name = "FILE")]
    rack: Option<PathBuf>,

    /// Names of the hosts
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct Drain {
    #[command(flatten)]
    named: Named,

    /// Wait until no program runs there any more
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(super) struct Resume {
    #[command(flatten)]
    named: Named,
}

const HELP: &str = "\
Example:
  gossamer-launch drain --wait beta      new programs are refused there, or run elsewhere (run --any)
  ssh beta apt-get dist-upgrade          nothing of the rack runs there
  gossamer-launch resume beta
Programs that run on a drained host go on; those that wait for room there (run --wait) are refused, too. `status` and
`check` name drained hosts. A daemon that is restarted takes programs again.";

impl Named {
    /// Returns the rack, its keys, and the hosts.
    pub(super) fn whom(&self) -> Result<(RackConfig, Keys, Vec<Host>), ExitCode> {
        Ask { rack: self.rack.clone(), hosts: self.hosts.clone(), json: false }.whom()
    }

    /// Asks the hosts for something that their status answers; lets `show` tell of each. Returns the status of those
    /// that answer, and whether all do.
    fn of_each(&self, request: &Request, show: impl Fn(&str, &HostStatus) -> io::Result<()>) -> Answered {
        let (rack, keys, hosts) = match self.whom() {
            Ok(whom) => whom,
            Err(code) => return Ok(Err(code)),
        };
        let mut all = (Vec::new(), true);
        for status in ask(&rack, &hosts, &keys, request).into_iter().map(Status::of) {
            match status.host {
                Ok((_, host)) => {
                    show(&status.name, &host)?;
                    all.0.push((status.name, host));
                }
                Err(error) => {
                    complain(format_args!("host {}: {}", status.name, error.reason));
                    all.1 = false;
                }
            }
        }
        Ok(Ok(all))
    }
}

/// Status of the hosts that have answered, by name, and whether all have; or the exit status of this program.
type Answered = io::Result<Result<(Vec<(String, HostStatus)>, bool), ExitCode>>;

impl Drain {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let asked = self.named.of_each(&Request::Drain { is_on: true, who: owner() }, |name, host| {
            print(&format!("{name} is drained; {}", running(host)))
        })?;
        match asked {
            Ok((_, are_all)) if self.wait => self.until_idle(are_all),
            Ok((_, are_all)) => Ok(code(are_all)),
            Err(code) => Ok(code),
        }
    }

    /// Waits until the hosts are idle, or one of them cannot be waited for.
    fn until_idle(&self, mut are_all: bool) -> io::Result<ExitCode> {
        while are_all {
            let (hosts, have_all_answered) = match self.named.of_each(&Request::Status, |_, _| Ok(()))? {
                Ok(answered) => answered,
                Err(code) => return Ok(code),
            };
            are_all = have_all_answered;
            for (name, _) in hosts.iter().filter(|(_, host)| host.drained_by.is_none()) {
                complain(format_args!("host {name}: it is drained no more: somebody has resumed it, or restarted it"));
                are_all = false;
            }
            if are_all && hosts.iter().all(|(_, host)| is_idle(host)) {
                print("no program runs there any more")?;
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(code(false))
    }
}

fn is_idle(host: &HostStatus) -> bool {
    host.programs.is_empty() && host.coming == 0
}

/// Returns the programs that still run on a host, in words.
fn running(host: &HostStatus) -> String {
    if is_idle(host) {
        return "no program runs there".to_owned();
    }
    let each = host.programs.iter().map(|program| {
        let (id, owner) = (plain(&program.id), plain(&program.owner));
        format!("{id} of {owner} for {}", size::seconds(program.seconds))
    });
    let coming = (host.coming > 0).then(|| format!("{} that are about to start", host.coming));
    format!("programs run there: {}", each.chain(coming).collect::<Vec<_>>().join(", "))
}

impl Resume {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let request = Request::Drain { is_on: false, who: owner() };
        let asked = self.named.of_each(&request, |name, _| print(&format!("{name} takes programs")))?;
        Ok(asked.map_or_else(|code| code, |(_, are_all)| code(are_all)))
    }
}
