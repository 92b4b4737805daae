//! `transfers`: amounts moved between two accounts at a time, atomically: `together` beside launches inside launches,
//! locks, and plain `apply`s, which are not atomic.
//!
//! Each contender runs the same fibers (locks: as many threads as there are workers) on the same accounts. A run is
//! verified by the sum of all accounts, which stays.

use crate::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use trust::{Latch, Threadpool, Trust, together};

/// Accounts, spread over the workers.
const ACCOUNTS: usize = 16;
/// Fibers that transfer, over all workers.
const FIBERS: usize = 64;
/// First balance of each account.
const OPENING: i64 = 1_000_000;

/// Options of `transfers`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Transfers {
    /// Workers of the pool; threads, where there are locks.
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
    /// Options of such commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// How many transfers a run made, and in which time.
type Ran = Result<(u64, Duration)>;
/// One run of a contender.
type Contender = (&'static str, fn(&Transfers) -> Ran);

/// Contenders: their calls, and whether all accounts are at one trustee.
const CONTENDERS: [Contender; 6] = [
    ("together", |options| latched(options, false, two_together)),
    ("together-one-trustee", |options| latched(options, true, two_together)),
    ("apply-one-trustee", apply_one),
    ("nested-launches", |options| latched(options, false, nested_launches)),
    ("apply-twice", |options| latched(options, false, apply_twice)),
    ("std-mutex", std_mutex),
];

pub fn command(mut options: Transfers) -> Result<()> {
    options.timed.prepare(20)?;
    ensure!(options.workers > 0, "--workers 0: at least one is needed");
    let bench = Bench::begin("transfers", &mut options.timed.comparison)?;
    let samples = bench.rounds(&CONTENDERS, |(name, _)| (*name).to_owned(), |(_, run), _| mops(run(&options)?))?;
    let mut figures = Figures::default();
    for ((name, _), samples) in CONTENDERS.iter().zip(samples) {
        figures.add("", name, "M/s", samples);
    }
    figures.print(&format!("transfers, {ACCOUNTS} accounts, {} workers, {FIBERS} fibers", options.workers));
    let over = |one: &str, other: &str| figures.over("", one, other);
    let targets = [
        at_least("together over launches inside launches", 5.0, over("together", "nested-launches")),
        at_least("together over two plain applies, not atomic", 0.35, over("together", "apply-twice")),
        at_least(
            "together on one trustee over one apply there",
            0.7,
            over("together-one-trustee", "apply-one-trustee"),
        ),
    ];
    bench.conclude(&options, json!({"series": figures}), &targets)
}

pub fn mops((made, elapsed): (u64, Duration)) -> Result<f64> {
    Ok(made as f64 / elapsed.as_secs_f64() / 1e6)
}

/// The repeated work of one fiber.
type Transfer = fn(&[Trust<Latch<i64>>], &mut SmallRng);

/// Transfers between latched accounts by fibers of a pool.
fn latched(options: &Transfers, is_at_one: bool, transfer: Transfer) -> Ran {
    let pool = Threadpool::new(options.workers);
    let at = |account: usize| if is_at_one { 0 } else { account % options.workers };
    let accounts: Vec<_> =
        (0..ACCOUNTS).map(|account| pool.trustees()[at(account)].entrust(Latch::new(OPENING))).collect();
    let ran = fibers(options, &pool, {
        let accounts = accounts.clone();
        move |rng| transfer(&accounts, rng)
    })?;
    verified(accounts.iter().map(|account| account.launch(|balance| *balance)), ran)
}

/// Runs `transfer` in all fibers until the time is over.
fn fibers(options: &Transfers, pool: &Threadpool, transfer: impl Fn(&mut SmallRng) + Clone + Send + 'static) -> Ran {
    let time = Duration::from_millis(options.timed.millis);
    let began = Instant::now();
    let fibers: Vec<_> = (0..FIBERS)
        .map(|fiber| {
            let transfer = transfer.clone();
            pool.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(fiber as u64);
                let mut made = 0;
                while made % 16 != 0 || began.elapsed() < time {
                    transfer(&mut rng);
                    made += 1;
                }
                made
            })
        })
        .collect();
    let made = fibers.into_iter().map(|fiber| fiber.join().map_err(|_| anyhow!("a fiber panicked")));
    let made = made.sum::<Result<u64>>()?;
    Ok((made, began.elapsed()))
}

/// The accounts add up.
fn verified(balances: impl Iterator<Item = i64>, ran: (u64, Duration)) -> Ran {
    let (sum, wanted) = (balances.sum::<i64>(), OPENING * ACCOUNTS as i64);
    ensure!(sum == wanted, "the accounts add up to {sum}, not {wanted}");
    ensure!(ran.0 > 0, "there was no transfer");
    Ok(ran)
}

/// Two accounts.
fn pick(rng: &mut SmallRng) -> [usize; 2] {
    let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS - 1));
    [from, to + usize::from(to >= from)]
}

fn two_together(accounts: &[Trust<Latch<i64>>], rng: &mut SmallRng) {
    let [from, to] = pick(rng);
    together((&accounts[from], &accounts[to]), |(from, to)| {
        *from -= 1;
        *to += 1;
    });
}

/// In the order of the accounts, or they would wait for each other for ever.
fn nested_launches(accounts: &[Trust<Latch<i64>>], rng: &mut SmallRng) {
    let [from, to] = pick(rng);
    let (first, second) = (accounts[from.min(to)].clone(), accounts[from.max(to)].clone());
    let amount = if from < to { 1 } else { -1 };
    first.launch(move |first| {
        *first -= amount;
        second.launch(move |second| *second += amount);
    });
}

fn apply_twice(accounts: &[Trust<Latch<i64>>], rng: &mut SmallRng) {
    let [from, to] = pick(rng);
    for (account, amount) in [(from, -1), (to, 1)] {
        accounts[account].apply(move |latch| {
            if let Some(mut balance) = latch.try_lock() {
                *balance += amount;
            }
        });
    }
}

/// All accounts are one property: the least that `together` could cost.
fn apply_one(options: &Transfers) -> Ran {
    let pool = Threadpool::new(options.workers);
    let accounts = pool.trustees()[0].entrust(vec![OPENING; ACCOUNTS]);
    let bank = accounts.clone();
    let ran = fibers(options, &pool, move |rng| {
        let [from, to] = pick(rng);
        bank.apply(move |accounts| {
            accounts[from] -= 1;
            accounts[to] += 1;
        });
    })?;
    verified(std::iter::once(accounts.apply(|accounts| accounts.iter().sum())), ran)
}

fn std_mutex(options: &Transfers) -> Ran {
    let accounts: Arc<Vec<Mutex<i64>>> = Arc::new((0..ACCOUNTS).map(|_| Mutex::new(OPENING)).collect());
    let is_over = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let threads: Vec<_> = (0..options.workers)
        .map(|number| {
            let (accounts, is_over) = (Arc::clone(&accounts), Arc::clone(&is_over));
            thread::spawn(move || {
                let mut rng = SmallRng::seed_from_u64(number as u64);
                let mut made = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let [from, to] = pick(&mut rng);
                    let lock = |account: usize| accounts[account].lock().unwrap_or_else(PoisonError::into_inner);
                    let (mut first, mut second) = (lock(from.min(to)), lock(from.max(to)));
                    *first -= 1;
                    *second += 1;
                    made += 1;
                }
                made
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(options.timed.millis));
    is_over.store(true, Ordering::Relaxed);
    let made = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")));
    let made = made.sum::<Result<u64>>()?;
    let ran = (made, began.elapsed());
    verified(accounts.iter().map(|account| *account.lock().unwrap_or_else(PoisonError::into_inner)), ran)
}
