//! Several objects at once: transfers between accounts that are entrusted to different workers.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin accounts
//! cargo run -p gossamer-examples --bin accounts -- --seconds 60
//! ```

use std::time::{Duration, Instant};

use clap::Parser;
use rand::rngs::SmallRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};
use trust::{Latch, Threadpool, Trust, together};

/// Transfers among accounts of several workers: one of a random set of two to five accounts pays all others of it.
#[derive(Parser, Clone, Copy)]
#[command(name = "accounts", version)]
struct Options {
    /// Accounts, spread over the workers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(5..))]
    accounts: u32,

    /// Workers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,

    /// Fibers that transfer, over all workers
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    fibers: u32,

    /// Transfers of each fiber
    #[arg(long, value_name = "N", default_value_t = 500)]
    transfers: u64,

    /// Goes on for so many seconds, however many transfers that makes
    #[arg(long, value_name = "SECONDS", conflicts_with = "transfers")]
    seconds: Option<u64>,

    /// Seed of the random sets and amounts
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
}

const OPENING: i64 = 1000;

/// Work of one fiber.
#[derive(Default)]
struct Done {
    transfers: u64,
    refused: u64,
    longest: Duration,
}

fn main() {
    let options = Options::parse();
    let pool = Threadpool::new(options.workers.into());

    // Each account is a property of its own, with one of the workers. Values that several closures want at once lie in
    // a `Latch`: its holder has it alone.
    let accounts: Vec<_> = (0..options.accounts).map(|_| pool.entrust(Latch::new(OPENING))).collect();

    let fibers: Vec<_> = (0..options.fibers)
        .map(|fiber| {
            let accounts = accounts.clone();
            pool.spawn(move || transfers(&accounts, options, fiber))
        })
        .collect();
    let done: Vec<Done> = fibers.into_iter().map(|fiber| fiber.join().expect("nothing panics in it")).collect();

    // All of them at once: a sum that is true at one moment, beside all other transfers.
    let sum = together(&accounts[..], |balances| balances.iter().map(|balance| **balance).sum::<i64>());
    let total = |count: fn(&Done) -> u64| done.iter().map(count).sum::<u64>();
    let (transfers, refused) = (total(|done| done.transfers), total(|done| done.refused));
    println!("{} accounts hold {sum}; {refused} transfers were refused for lack of money", accounts.len());
    if options.seconds.is_some() {
        let fewest = done.iter().map(|done| done.transfers).min().unwrap_or(0);
        let longest = done.iter().map(|done| done.longest).max().unwrap_or_default();
        println!("{transfers} transfers, {fewest} at least of each fiber; the longest took {longest:.1?}");
    }
    assert_eq!(sum, OPENING * i64::from(options.accounts));
}

/// The transfers of one fiber.
fn transfers(accounts: &[Trust<Latch<i64>>], options: Options, fiber: u32) -> Done {
    let mut random = SmallRng::seed_from_u64(options.seed << 32 | u64::from(fiber));
    let (began, mut done) = (Instant::now(), Done::default());
    let mut now = began;
    loop {
        let is_over = match options.seconds {
            Some(seconds) => now - began >= Duration::from_secs(seconds),
            None => done.transfers == options.transfers,
        };
        if is_over {
            return done;
        }
        // In any order, each once: an account twice would be an error.
        let (count, amount) = (random.random_range(2..=5), random.random_range(1..100));
        let set: Vec<_> = sample(&mut random, accounts.len(), count).iter().map(|at| &accounts[at]).collect();
        // All values come together and go back together; nobody sees one changed without the others. The order of the
        // names does not matter: transfers in both directions do not block each other for ever.
        let is_done = together(&set[..], move |mut balances| {
            let all = amount * (balances.len() as i64 - 1);
            let is_enough = *balances[0] >= all;
            if is_enough {
                *balances[0] -= all;
                balances[1..].iter_mut().for_each(|balance| **balance += amount);
            }
            is_enough
        });
        done.transfers += 1;
        done.refused += u64::from(!is_done);
        let before = std::mem::replace(&mut now, Instant::now());
        done.longest = done.longest.max(now - before);
    }
}
