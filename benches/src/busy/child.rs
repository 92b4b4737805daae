//! One run in a process of its own: its knowledge of the machine is gathered under the condition, and it can be put
//! into a cgroup before it starts. The measuring process writes a [`Task`] to the child's standard input and reads the
//! result from its standard output, both as JSON.

use super::conditions::Condition;
use super::points::Spec;
use super::quota::Quota;
use super::samples::Sample;
use super::strangers::{Strangers, can_be_real_time};
use crate::contenders::pool;
use crate::machine;
use crate::prelude::*;
use crate::process::Process;
use crate::programs::own;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use std::fs;
use std::io::{Read, stdin, stdout};
use std::process::{self, Command, Stdio};

/// The subcommand of the child.
const COMMAND: &str = "busy-run";
/// A child that takes longer than this beyond the time it measures hangs.
const LONGEST_BEYOND: Duration = Duration::from_secs(100);

/// `busy-run` has no options: its task comes on standard input.
#[derive(Debug, Args)]
pub struct BusyRun {}

/// Task of a child.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    Run(Spec),
    /// Measures the processor time of an idle pool.
    Idle {
        /// For how long, in milliseconds.
        millis: u64,
    },
}

impl Task {
    fn millis(&self) -> u64 {
        match self {
            Task::Run(spec) => spec.millis,
            Task::Idle { millis } => *millis,
        }
    }
}

/// Input of a child.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    parent: u32,
    task: Task,
}

/// A condition that is available, with its means.
#[derive(Debug)]
pub struct Prepared {
    pub condition: Condition,
    quota: Option<Quota>,
}

/// Whether a condition can be had on this machine, else why not.
pub fn prepare(condition: Condition) -> Found<Prepared> {
    let cores = machine::cores().len();
    let mut quota = None;
    match condition {
        _ if cores < 2 => return Err("delegation needs 2 cores".to_owned()),
        Condition::HalfWorkers if cores < 4 => {
            return Err(format!("half of {cores} cores are too few to delegate to each other"));
        }
        Condition::Quota => quota = Some(Quota::new(condition.cores_left(cores))?),
        Condition::RealTime => can_be_real_time()?,
        _ => {}
    }
    Ok(Prepared { condition, quota })
}

/// Makes one run in a child process under the condition.
pub fn measure(prepared: &Prepared, spec: Spec) -> Result<Sample> {
    hand_over(Task::Run(spec), |process| {
        prepared.quota.as_ref().map_or(Ok(()), |quota| quota.admit(process)).context("the cgroup does not let it in")
    })
}

/// The share of one core that a pool as wide as the machine uses with nothing to do; `None` where the kernel does not
/// say.
pub fn measure_idle(millis: u64) -> Result<Option<f64>> {
    hand_over(Task::Idle { millis }, |_| Ok(()))
}

fn hand_over<T: DeserializeOwned>(task: Task, prepare: impl FnOnce(u32) -> Result<()>) -> Result<T> {
    let limit = LONGEST_BEYOND + Duration::from_millis(task.millis());
    let mut command = Command::new(own()?);
    let mut process = Process::start(command.arg(COMMAND).stdin(Stdio::piped()), limit)?;
    prepare(process.id())?;
    process.tell(&serde_json::to_vec(&Order { parent: process::id(), task })?)?;
    let output = process.output().with_context(|| format!("{task:?}"))?;
    serde_json::from_str(&output).context("the process that measured said something else than a sample")
}

/// The child: makes the run that is asked for, or none.
pub fn command(_: BusyRun) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("the signal for the parent's end")?;
    let mut order = String::new();
    stdin().read_to_string(&mut order)?;
    if order.is_empty() {
        return Ok(());
    }
    let Order { parent, task } = serde_json::from_str(&order).context("this is no task")?;
    // A parent that was gone before sends no signal.
    ensure!(getppid().is_some_and(|pid| pid.as_raw_pid() as u32 == parent), "the process that wanted this is gone");
    match task {
        Task::Run(spec) => serde_json::to_writer(stdout(), &run(&spec)?)?,
        Task::Idle { millis } => serde_json::to_writer(stdout(), &idle(Duration::from_millis(millis))?)?,
    }
    Ok(())
}

fn run(spec: &Spec) -> Result<Sample> {
    let cores = machine::cores().len();
    let strangers = Strangers::start(spec.condition, spec.round)?;
    let (contender, workload) = spec.stage(cores, strangers.split());
    let run = contender.run(&workload)?;
    run.verify(run.ops)?;
    contender.finish()?;
    Ok(Sample::new(spec.round, &run))
}

fn idle(lasts: Duration) -> Result<Option<f64>> {
    /// A worker that has just worked polls for a moment.
    const SETTLING: Duration = Duration::from_millis(200);
    let cores = machine::cores().len();
    let pool = pool::pool(&Workload::of(cores, cores, Picks::new(Dist::Uniform, 1, 1, 1)), 0);
    for worker in 0..cores {
        pool.trustees()[worker].entrust(0).apply(|counter| *counter += 1);
    }
    thread::sleep(SETTLING);
    let before = ran_ns()?;
    // This is the time that is measured.
    thread::sleep(lasts);
    let share = |(after, before): (u64, u64)| (after - before) as f64 / lasts.as_nanos() as f64;
    Ok(ran_ns()?.zip(before).map(share))
}

/// Time that the threads of this process have run, in nanoseconds; `None` where the kernel does not say.
fn ran_ns() -> Result<Option<u64>> {
    let ran = |text: String| text.split_whitespace().next().and_then(|ran| ran.parse::<u64>().ok());
    let mut sum = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let Some(ran) = fs::read_to_string(thread?.path().join("schedstat")).ok().and_then(ran) else {
            return Ok(None);
        };
        sum += ran;
    }
    Ok(Some(sum))
}
