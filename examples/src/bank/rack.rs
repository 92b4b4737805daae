//! The bank on several machines: the pool is at the last one, and each has a client that uses it by its handle.
//!
//! Each machine prints its process id for the torture, which kills one; the others end by themselves then, as the rack
//! promises.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gossamer::{Place, Trust};
use serde::{Deserialize, Serialize};

use super::{Handle, Options, PROGRAM, open, report, transfers};
use crate::machines::{self, Machines};

/// Parameters of each machine.
#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    folder: PathBuf,
    accounts: u64,
    outstanding: u64,
    seconds: u64,
    tell: bool,
}

/// Starts the machines, and waits for their end.
pub(super) fn launch(options: &Options) -> anyhow::Result<ExitCode> {
    let mut args = vec![options.folder.clone().into()];
    let numbers =
        [("--accounts", options.accounts), ("--outstanding", options.outstanding), ("--seconds", options.seconds)];
    args.extend(numbers.into_iter().flat_map(|(name, number)| [name.into(), number.to_string().into()]));
    args.extend(options.tell.then(|| "--tell".into()));
    let machines = options.machines;
    machines::launch(&Machines { machines, threads: Some(machines.into()), args, ..Machines::of(PROGRAM) })
}

/// One of them.
pub(super) fn machine(options: Options) -> ExitCode {
    PROGRAM.on_rack(0, move || run(options))
}

/// As the first fiber of the first machine.
fn run(options: Options) -> anyhow::Result<bool> {
    let Options { folder, accounts, outstanding, seconds, tell, .. } = options;
    // Every process has its own current folder.
    let plan = Plan { folder: std::path::absolute(folder)?, accounts, outstanding, seconds, tell };
    let plan = gossamer::local_trustee().entrust(plan);
    let machines = 0..gossamer::rack().machines().len() as u16;
    let opens = plan.clone();
    let bank = at(machines.end - 1, move || open_here(&opens))?;
    let began = Instant::now();
    let clients: Vec<_> = machines
        .map(|machine| {
            let (bank, plan) = (bank.clone(), plan.clone());
            gossamer::spawn_on(Place::of(machine, 0), move || client(&bank, &plan, machine))
        })
        .collect();
    let mut made = 0;
    for client in clients {
        made += client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
    }
    report(bank, made, began.elapsed()).map(|()| true)
}

fn at<R: Send + gossamer::NoRef + 'static>(
    machine: u16,
    f: impl FnOnce() -> R + gossamer::NoRef + Send + 'static,
) -> anyhow::Result<R> {
    gossamer::spawn_on(Place::of(machine, 0), f).join().map_err(|_| anyhow::anyhow!("machine {machine} panicked"))
}

/// The panic has the fault: a text cannot travel in a result of this kind.
fn open_here(plan: &Trust<Plan>) -> Handle {
    let Plan { folder, accounts, .. } = plan.apply_with(|plan, ()| plan.clone(), ());
    open(gossamer::local_trustee(), &folder, accounts).unwrap_or_else(|error| panic!("{error}"))
}

/// The client of this machine.
fn client(bank: &Handle, plan: &Trust<Plan>, machine: u16) -> u64 {
    let Plan { outstanding, seconds, tell, .. } = plan.apply_with(|plan, ()| plan.clone(), ());
    if tell {
        let line = format!("process {}\n", std::process::id());
        let _ = std::io::stdout().lock().write_all(line.as_bytes()); // nobody reads it: then nobody kills us
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    transfers(bank, machine.into(), outstanding, end, tell).unwrap_or_else(|error| panic!("{error}"))
}
