//! `async`: one counter for the tasks of an async runtime: `apply_async` beside an actor (a task behind tokio's mpsc
//! and oneshot), tokio's `Mutex`.
//!
//! Each contender has the same runtime and the same tasks, each of which awaits one increment after the other; a
//! trustee has a thread of its own besides. A run is verified by the counter at its end, and by each task seeing it
//! grow.

use crate::prelude::*;
use crate::transfers::mops;
use std::future::Future;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use trust::Threadpool;

/// Messages that an actor's channel holds.
const MAILBOX: usize = 1024;

/// Numbers of tasks: a series each.
const TASKS: [usize; 2] = [1, 64];
/// Threads of the runtime.
const THREADS: usize = 2;

/// Options of `async`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Futures {
    /// Options of such commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// How many increments a run made, and in which time.
type Ran = Result<(u64, Duration)>;
/// One run of a contender with so many tasks.
type Contender = (&'static str, fn(&Futures, usize) -> Ran);

const CONTENDERS: [Contender; 3] = [("apply-async", apply_async), ("actor", actor), ("tokio-mutex", tokio_mutex)];

pub fn command(mut options: Futures) -> Result<()> {
    options.timed.prepare(20)?;
    let bench = Bench::begin("async", &mut options.timed.comparison)?;
    let runs: Vec<(Contender, usize)> =
        TASKS.into_iter().flat_map(|tasks| CONTENDERS.map(|contender| (contender, tasks))).collect();
    let group = |tasks: usize| format!("{tasks} tasks");
    let name = |((name, _), tasks): &(Contender, usize)| format!("{name}, {tasks} tasks");
    let samples = bench.rounds(&runs, name, |((_, run), tasks), _| mops(run(&options, *tasks)?))?;
    let mut figures = Figures::default();
    for (((name, _), tasks), samples) in runs.iter().zip(samples) {
        figures.add(&group(*tasks), name, "M/s", samples);
    }
    figures.print(&format!("async, {THREADS} threads"));
    let over = |tasks: usize, other: &str| figures.over(&group(tasks), "apply-async", other);
    let targets = [
        at_least("64 tasks: apply_async over an actor", 1.5, over(64, "actor")),
        at_least("64 tasks: apply_async over tokio's Mutex", 1.0, over(64, "tokio-mutex")),
        at_least("one task: apply_async over an actor", 0.8, over(1, "actor")),
    ];
    bench.conclude(&options, json!({"series": figures}), &targets)
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(THREADS).build()?)
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
    runtime()?.block_on(async {
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
    runtime()?.block_on(async {
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
    runtime()?.block_on(async {
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
