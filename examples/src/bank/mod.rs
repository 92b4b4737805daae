//! A bank: random transfers between accounts of a durable trust, and the proof that they survive `kill -9`.
//!
//! Here: the command line and the work. On several machines: `rack.rs`. The torture, which starts this program again
//! and again and kills it: `torture.rs`.
//!
//! Each client numbers its transfers. The pool keeps, for each client, the number of its last one, and moves the money
//! in the same transaction; the client prints a number once its result has come. So a pool that is opened again is
//! right if the sum of all accounts is unchanged, and no printed number is above the kept one.

mod rack;
mod torture;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use graph::random::mix;
use trust::{Threadpool, TrusteeReference};
use trust_durable::{Durable, PVec, Persist};

use crate::program::{Program, is_machine};

/// Transfers between accounts that survive any end of the program.
#[derive(Parser)]
#[command(name = "bank", version)]
struct Options {
    /// The folder of the bank, made if it is not there
    folder: PathBuf,

    /// Accounts, of a new bank
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(2..10_000_000))]
    accounts: u64,

    /// Transfers that each of the clients has under way
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..10_000))]
    outstanding: u64,

    /// Seconds to run
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,

    /// Processes, each a machine of a rack on this host: the pool is at the last one, a client at each
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=CLIENTS as i64))]
    machines: u16,

    /// Start itself this many times, kill it each time after 50 to 500 ms, and check the pool
    #[arg(long, value_name = "KILLS")]
    torture: Option<u32>,

    /// Seed of the times of the kills
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Prints the number of each transfer that was acknowledged
    #[arg(long, hide = true)]
    tell: bool,
}

/// Threads that transfer.
const CLIENTS: usize = 2;
const MONEY: u64 = 1000;
const PROGRAM: Program = Program("bank");

/// The root of the pool.
#[derive(Persist)]
#[repr(C)]
pub struct Bank<'p> {
    accounts: PVec<'p, u64>,
    /// The last transfer of each client.
    done: [u64; CLIENTS],
}

type Handle = Durable<Bank<'static>>;

/// Runs the program.
pub fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match options.torture {
        _ if is_machine() => Ok(rack::machine(options)),
        Some(kills) => torture::run(&options, kills).map(|()| ExitCode::SUCCESS),
        None if options.machines > 1 => rack::launch(&options),
        None => work(&options).map(|()| ExitCode::SUCCESS),
    };
    PROGRAM.end(outcome)
}

fn open(trustee: TrusteeReference, folder: &Path, accounts: u64) -> Result<Handle, trust_durable::Error> {
    Durable::<Bank>::open(trustee, folder, move |tx| Bank {
        accounts: PVec::of((0..accounts).map(|_| MONEY), tx),
        done: [0; CLIENTS],
    })
}

/// The accounts of a client's transfer by its number.
fn ends(client: usize, number: u64, accounts: u64) -> (usize, usize) {
    let mixed = mix(number << 1 | client as u64);
    let from = (mixed >> 32) % accounts;
    (from as usize, ((from + 1 + (mixed & 0xffff_ffff) % (accounts - 1)) % accounts) as usize)
}

/// One transfer: of one, if it is there. Gives its number.
///
/// All that it does stands, so it looks before it changes anything but the number. A transfer that finds out later that
/// it cannot be returns `Err`, and is run by `attempt`, which undoes it then; `apply` would commit it.
fn transfer(bank: &mut Bank<'_>, client: usize) -> u64 {
    bank.done[client] += 1;
    let number = bank.done[client];
    let (from, to) = ends(client, number, bank.accounts.len() as u64);
    if bank.accounts[from] > 0 {
        bank.accounts[from] -= 1;
        bank.accounts[to] += 1;
    }
    number
}

fn work(options: &Options) -> anyhow::Result<()> {
    let pool = Threadpool::new(1);
    let bank = open(pool.trustees()[0], &options.folder, options.accounts)?;
    let before = bank.stats()?;
    eprintln!("opened: {} groups replayed, {} bytes of a torn one cut off", before.groups_replayed, before.bytes_cut);
    let (outstanding, tell) = (options.outstanding, options.tell);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let bank = bank.clone();
            std::thread::spawn(move || transfers(&bank, client, outstanding, end, tell))
        })
        .collect();
    let mut made = 0;
    for client in clients {
        made += client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    report(bank, made, began.elapsed())
}

/// Closes the bank, and prints its work.
fn report(bank: Handle, made: u64, took: Duration) -> anyhow::Result<()> {
    let sum = bank.apply(|bank, _| bank.accounts.iter().sum::<u64>());
    let stats = bank.stats()?;
    bank.close()?;
    eprintln!(
        "{made} transfers in {:.1} s, {:.0} a second; {} groups of {:.1} lines, {:.3} ms a group; {} bytes logged; the \
         sum is {sum}",
        took.as_secs_f64(),
        made as f64 / took.as_secs_f64(),
        stats.groups,
        stats.lines as f64 / stats.groups.max(1) as f64,
        stats.sync_ns as f64 / stats.groups.max(1) as f64 / 1e6,
        stats.written_bytes,
    );
    Ok(())
}

/// One client's transfers, in fibers; each waits for its own.
fn transfers(bank: &Handle, client: usize, outstanding: u64, end: Instant, tell: bool) -> anyhow::Result<u64> {
    let fibers: Vec<_> = (0..outstanding)
        .map(|_| {
            let bank = bank.clone();
            trust::spawn(move || -> Result<u64, trust_durable::Error> {
                let mut made = 0;
                while Instant::now() < end {
                    let number = bank.call().apply(move |bank, _| transfer(bank, client)).wait()?;
                    made += 1;
                    if tell {
                        let line = format!("{client} {number}\n");
                        // The reader was killed with us, or kills us now.
                        let _ = std::io::stdout().lock().write_all(line.as_bytes());
                    }
                }
                Ok(made)
            })
        })
        .collect();
    let mut made = 0;
    for fiber in fibers {
        made += fiber.join().map_err(|_| anyhow::anyhow!("a transfer panicked"))??;
    }
    Ok(made)
}
