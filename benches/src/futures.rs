//! `async`: one counter for the tasks of an async runtime: `apply_async` beside an actor (a task behind tokio's mpsc
//! and oneshot), tokio's `Mutex` and std's.
//!
//! Each contender has the same runtime and the same tasks, each of which awaits one increment after the other; a
//! trustee has a thread of its own besides. A run is verified by the counter at its end, and by each task seeing it
//! grow.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use trust::Threadpool;

use crate::{
    machine::Machine,
    options::Timed,
    report::{median, spread},
    rounds::{Compared, Skipped, interleaved},
    verdict::{conclude, ratio, verdict_at_least},
};

/// Messages that an actor's channel holds.
const MAILBOX: usize = 1024;

/// Options of `async`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Futures {
    /// Numbers of tasks: a series each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    pub tasks: Vec<usize>,
    /// Threads of the runtime.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Options of such commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// All runs of one contender with one number of tasks.
#[derive(Clone, Debug, Serialize)]
struct Series {
    contender: &'static str,
    tasks: usize,
    median_mops: f64,
    samples: Vec<f64>,
}

/// How many increments a run made, and in which time.
type Ran = Result<(u64, Duration)>;
/// One run of a contender with so many tasks.
type Contender = (&'static str, fn(&Futures, usize) -> Ran);

const CONTENDERS: [Contender; 4] =
    [("apply-async", apply_async), ("actor", actor), ("tokio-mutex", tokio_mutex), ("std-mutex", std_mutex)];

/// Runs it.
///
/// # Errors
/// A counter that is wrong; with `--strict`, a target that is missed.
pub fn command(mut options: Futures) -> Result<()> {
    options.timed.prepare(20)?;
    ensure!(
        options.threads > 0 && !options.tasks.is_empty() && !options.tasks.contains(&0),
        "--tasks, --threads: at least one"
    );
    let machine = Machine::here();
    println!("{machine}");
    let runs: Vec<(Contender, usize)> =
        options.tasks.iter().flat_map(|&tasks| CONTENDERS.map(|contender| (contender, tasks))).collect();
    let mut samples = vec![Vec::new(); runs.len()];
    interleaved(options.timed.comparison.rounds, runs.len(), options.timed.seed, |_, index| {
        let ((name, run), tasks) = runs[index];
        let (made, elapsed) = run(&options, tasks).map_err(|error| anyhow!("{name}, {tasks} tasks: {error}"))?;
        samples[index].push(made as f64 / elapsed.as_secs_f64() / 1e6);
        Ok(())
    })?;
    let series: Vec<Series> = runs
        .iter()
        .zip(samples)
        .map(|(&((contender, _), tasks), samples)| Series { contender, tasks, median_mops: median(&samples), samples })
        .collect();
    let of = |name: &str, tasks: usize| {
        let of_it = series.iter().find(|series| series.contender == name && series.tasks == tasks);
        of_it.map(|series| series.median_mops)
    };
    let ratio = |name: &str, to: &str, tasks| ratio(of(name, tasks), of(to, tasks));
    println!(
        "\nasync, {} threads\n  {:<14} {:>6} {:>9} {:>9} {:>9} {:>8}",
        options.threads, "Mops/s", "tasks", "median", "min", "max", "/actor"
    );
    for Series { contender, tasks, median_mops, samples } in &series {
        let (low, high) = spread(samples.iter().copied());
        let to_actor = ratio(contender, "actor", *tasks).unwrap_or(f64::NAN);
        println!("  {contender:<14} {tasks:>6} {median_mops:>9.3} {low:>9.3} {high:>9.3} {to_actor:>8.2}");
    }
    let targets = vec![
        verdict_at_least("64 tasks: apply_async over an actor", 1.5, ratio("apply-async", "actor", 64)),
        verdict_at_least("64 tasks: apply_async over tokio's Mutex", 1.0, ratio("apply-async", "tokio-mutex", 64)),
        verdict_at_least("one task: apply_async over an actor", 0.8, ratio("apply-async", "actor", 1)),
    ];
    let measured = Compared { series: &series, skipped: &Skipped::default() };
    let json = options.timed.comparison.json.as_deref();
    conclude("async", &machine, &options, measured, targets, json, options.timed.strict)
}

fn runtime(options: &Futures) -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(options.threads).build()?)
}

/// Tasks that increment until the time is over, each by a `handle` of its own.
async fn increments<H, F, I>(options: &Futures, tasks: usize, handle: H, increment: F) -> Ran
where
    H: Clone + Send + 'static,
    F: Fn(H, Instant, Duration) -> I,
    I: Future<Output = Result<u64>> + Send + 'static,
{
    let (began, time) = (Instant::now(), Duration::from_millis(options.timed.millis));
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(increment(handle.clone(), began, time))).collect();
    let mut made = 0;
    for task in tasks {
        made += task.await??;
    }
    Ok((made, began.elapsed()))
}

/// One task's loop around the future that `$increment` awaits. A macro, so that no contender pays for a boxed future.
macro_rules! until_over {
    ($began:ident, $time:ident, $increment:expr) => {{
        let (mut made, mut last) = (0u64, 0u64);
        while made % 16 != 0 || $began.elapsed() < $time {
            let count: u64 = $increment;
            ensure!(count > last, "the counter fell from {last} to {count}");
            (made, last) = (made + 1, count);
        }
        Ok(made)
    }};
}

/// The counter is as large as there were increments.
fn verified(ran: (u64, Duration), count: u64) -> Ran {
    ensure!(ran.0 == count && count > 0, "{} increments, and the counter is {count}", ran.0);
    Ok(ran)
}

fn apply_async(options: &Futures, tasks: usize) -> Ran {
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let counter = pool.entrust(0u64);
    runtime(options)?.block_on(async {
        let ran = increments(options, tasks, counter.clone(), |counter, began, time| async move {
            until_over!(began, time, {
                let count = counter.apply_async(|count| {
                    *count += 1;
                    *count
                });
                count.await
            })
        });
        verified(ran.await?, counter.apply_async(|count| *count).await)
    })
}

fn actor(options: &Futures, tasks: usize) -> Ran {
    runtime(options)?.block_on(async {
        let (asks, mut asked) = mpsc::channel::<oneshot::Sender<u64>>(MAILBOX);
        let actor = tokio::spawn(async move {
            let mut count = 0;
            while let Some(answer) = asked.recv().await {
                count += 1;
                // The task that asked waits for it.
                let _ = answer.send(count);
            }
            count
        });
        let ran = increments(options, tasks, asks, |asks, began, time| async move {
            until_over!(began, time, {
                let (answer, count) = oneshot::channel();
                asks.send(answer).await?;
                count.await?
            })
        });
        verified(ran.await?, actor.await?)
    })
}

fn tokio_mutex(options: &Futures, tasks: usize) -> Ran {
    let counter = Arc::new(tokio::sync::Mutex::new(0u64));
    runtime(options)?.block_on(async {
        let ran = increments(options, tasks, Arc::clone(&counter), |counter, began, time| async move {
            until_over!(began, time, {
                let mut count = counter.lock().await;
                *count += 1;
                *count
            })
        });
        verified(ran.await?, *counter.lock().await)
    })
}

fn std_mutex(options: &Futures, tasks: usize) -> Ran {
    let counter = Arc::new(Mutex::new(0u64));
    let locked = |counter: &Mutex<u64>, by: u64| {
        let mut count = counter.lock().unwrap_or_else(PoisonError::into_inner);
        *count += by;
        *count
    };
    runtime(options)?.block_on(async {
        let ran = increments(options, tasks, Arc::clone(&counter), |counter, began, time| async move {
            until_over!(began, time, {
                // The lock never waits for the runtime: others have their turn nevertheless.
                let count = locked(&counter, 1);
                if count.is_multiple_of(64) {
                    tokio::task::yield_now().await;
                }
                count
            })
        });
        verified(ran.await?, locked(&counter, 0))
    })
}
