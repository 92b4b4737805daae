//! A durable trust whose machine is lost: a ledger at the last of three machines, which are processes of this host. The
//! program kills that one, opens the ledger's folder again on a machine that lives, and goes on. No deposit that was
//! acknowledged is lost, and none is made twice.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin ledger -- ledger-folder
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use gossamer::Place;
use gossamer_examples::heaps::options::machine_args;
use gossamer_examples::machines::{self, RackOptions};
use gossamer_examples::program::{Program, is_machine, print};
use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use trust_durable::{Durable, Error, Persist};

/// Makes deposits in a ledger on disk, whose machine is killed meanwhile.
#[derive(Parser)]
#[command(name = "ledger", version)]
struct Options {
    /// The folder of the ledger, made if it is not there
    folder: PathBuf,

    /// Deposits after the loss
    #[arg(long, value_name = "N", default_value_t = 100)]
    deposits: u64,

    /// Options that other programs have, too; three processes without `--local`
    #[command(flatten)]
    rack: RackOptions,
}

/// The root of the pool.
#[derive(Persist, Default)]
#[repr(C)]
struct Ledger {
    /// The number of the last deposit.
    last: u64,
    sum: u64,
}

/// Most time before the ledger's machine is killed.
const LIFE_MS: u64 = 500;

fn main() -> ExitCode {
    let program = Program("ledger");
    let mut options = Options::parse();
    if !is_machine() {
        options.rack.local.get_or_insert(3);
    }
    let rack = options.rack.clone();
    // Without this the loss of one machine would end them all.
    let builder = gossamer::builder().survives(1);
    program.end(machines::run_with(&builder, program, &rack, machine_args(), move || deposit(&options)))
}

/// Makes deposits at the ledger, through the loss of its machine.
fn deposit(options: &Options) -> anyhow::Result<bool> {
    let rack = gossamer::rack();
    let mut place = rack.places().last().context("a worker")?;
    ensure!(place.machine > 0, "the ledger would be at the machine that has to go on: start several, with --local");

    // 1. The ledger is opened by a fiber there. Its handle comes here, as it could go to any machine.
    let mut ledger = open_at(place)?;
    let (first, before) = ledger.apply(|ledger, _| (ledger.last, ledger.sum));

    // 2. Its machine is killed at some moment.
    kill_later(place.machine)?;

    // 3. Deposits, each with its number. A result comes when the deposit is on disk.
    let (mut number, mut opened_at, mut repeated) = (first, None, 0);
    while opened_at.is_none_or(|at| number < at + options.deposits) {
        number += 1;
        while let Err(error) = ledger.call().apply(move |ledger, _| ledger.deposit(number)).wait() {
            let Error::Gone = error else { bail!("deposit {number}: {error}") };
            ensure!(opened_at.is_none(), "the ledger is gone from {place}, too");

            // 4. The machine is lost, and its process has ended, so the folder is free. Another machine of the same
            //    host opens it: all others that the program has are on living machines.
            place = rack.living().last().context("a worker that lives")?;
            ledger = open_at(place)?;
            opened_at = Some(number);

            // 5. All that was acknowledged is there. The last deposit may have been made, or not: so it is made again,
            //    and its number keeps it from being made twice.
            let last = ledger.apply(|ledger, _| ledger.last);
            ensure!(last == number - 1 || last == number, "{} were acknowledged, {last} are there", number - 1);
            repeated += u64::from(last == number);
        }
    }

    let (last, sum) = ledger.apply(|ledger, _| (ledger.last, ledger.sum));
    ensure!(last == number && sum == before + (first + 1..=number).sum::<u64>(), "the ledger has {last}: {sum}");
    ledger.close()?;
    let lost = opened_at.context("nothing was lost")? - 1 - first;
    print(&format!(
        "{} deposits, {lost} of them before the loss of their machine; opened again at {place}; all are there, \
         {repeated} had been made without an answer\n",
        number - first
    ))?;
    Ok(true)
}

impl Ledger {
    /// Makes a deposit, once: not again what the ledger has already.
    fn deposit(&mut self, number: u64) {
        if number > self.last {
            self.last = number;
            self.sum += number;
        }
    }
}

/// Opens the ledger at a place. Each machine knows its folder by its own arguments.
fn open_at(place: Place) -> anyhow::Result<Durable<Ledger>> {
    let open = || {
        let Options { folder, .. } = Options::parse();
        let opened = Durable::<Ledger>::open(gossamer::local_trustee(), folder, |_| Ledger::default());
        opened.unwrap_or_else(|error| panic!("{error}"))
    };
    let opened = gossamer::spawn_on(place, open).join();
    opened.map_err(|panic| anyhow::anyhow!("at {place}: {}", gossamer::link::panic_text(&*panic)))
}

/// Kills the process of a machine after some time.
fn kill_later(machine: u16) -> anyhow::Result<()> {
    let process = gossamer::rack().machines()[usize::from(machine)].process;
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).context("the number of a process")?;
    let wait = Duration::from_millis(rand::rng().random_range(..LIFE_MS));
    std::thread::spawn(move || {
        std::thread::sleep(wait);
        kill_process(process, Signal::KILL)
    });
    Ok(())
}
