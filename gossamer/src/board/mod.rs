//! Board: the load of all machines, reported every 100 ms while somebody places work by it (DRust, 4.2.2).
//!
//! Here: the fibers placed by it, the reports, and their way. Not here: the cores that a machine can have (`meter.rs`),
//! the choice of a machine (`choice.rs`).
//!
//! The first call asks machine 0, which starts a thread on each machine. That thread reports to machine 0 the cores
//! that its workers can have, and how many fibers were placed from there on which machines; machine 0 answers with the
//! loads of all. A program that places nothing by load has no such threads. The crates above add the use of a machine
//! that they know: how full its memory for objects is, and its tasks, which go by the loads too (`loads`).
//!
//! Each machine knows its own placed fibers exactly, those of others as of their last report: so a thousand fibers that
//! one machine starts at once are dealt by the machines' cores, and not all to one that was idle. A fiber counts until
//! its result has arrived at the machine that placed it, and was taken there by a fiber.
//!
//! Invariant: all messages are posts to service threads, so nobody waits for them: neither the end of the program, nor
//! a thread that computes.

mod choice;
mod meter;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use comm::MachineId;
use serde::{Deserialize, Serialize};
use trust::{JoinHandle, NoRef};

use crate::codec;
use crate::complain::complain;
use crate::rack::{Machine, Place, Program, Rack, program};
use crate::remote::connections;
use crate::spawn::{self as start, spawn_on_holding};
use choice::{Candidate, choose};
use meter::Meter;

/// Time between the reports of a machine.
const EVERY: Duration = Duration::from_millis(100);
/// A machine whose last report is older gets no fibers.
const OLD: Duration = Duration::from_millis(300);
/// Fibers wait for the first reports up to so long after the first call, and a machine reports more often up to so long
/// after its first report.
const FIRST: Duration = Duration::from_millis(250);
const FIRST_EVERY: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(1);
/// The most bytes of a message.
const BYTES_MAX: usize = 1 << 24;

/// Use of a machine, as the crates above know it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineUse {
    /// Its memory for objects in use, in thousandths.
    pub fill: u16,
    /// Tasks there that could run: [`loads`](crate::link::loads).
    pub tasks: u32,
    /// Time that all tasks have computed there until now, in nanoseconds.
    pub tasks_busy_ns: u64,
    /// Worker there with the fewest tasks.
    pub worker: u16,
}

/// Load of a machine, as of its last report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineLoad {
    /// Number of the machine.
    pub machine: u16,
    /// Cores that its workers can have, beside other programs.
    pub cores: f32,
    /// Cores that its workers use for other work than tasks, at least one for each fiber that was placed there.
    pub others: f32,
    /// Tasks there that could run.
    pub tasks: u32,
    /// Worker there with the fewest tasks.
    pub worker: u16,
    /// Time since the report.
    pub age: Duration,
}

/// Report of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Report {
    /// Cores that its workers can have, beside other programs.
    cores: f32,
    /// Cores that its workers have used since the last report.
    used: f32,
    /// Those of them that tasks have used.
    used_by_tasks: f32,
    /// Tasks that could run.
    tasks: u32,
    /// Worker with the fewest of them.
    worker: u16,
    /// Its memory for objects in use, in thousandths.
    fill: u16,
    /// Fibers that were placed from there and have not ended, by the machine where they run.
    placed: Vec<(u16, u32)>,
}

/// Load of a machine, as machine 0 answers a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Load {
    machine: u16,
    cores: f32,
    used: f32,
    used_by_tasks: f32,
    tasks: u32,
    worker: u16,
    fill: u16,
    /// Fibers there that others than the reporting machine have placed.
    of_others: u32,
    /// Age of its report, in microseconds.
    age_us: u64,
}

impl Load {
    /// Fibers that were placed there, and run or are on the way.
    fn placed(&self) -> u32 {
        placed_on(self.machine).now.load(Ordering::Relaxed).saturating_add(self.of_others)
    }
}

/// On machine 0: the last report of each machine, and when it arrived.
static REPORTS: Mutex<BTreeMap<u16, (Instant, Report)>> = Mutex::new(BTreeMap::new());
/// The last answer, and when it arrived.
static LOADS: Mutex<Option<(Instant, Arc<[Load]>)>> = Mutex::new(None);
/// The first call on this machine.
static FIRST_CALL: OnceLock<Instant> = OnceLock::new();
/// Does this machine report?
static IS_REPORTING: AtomicBool = AtomicBool::new(false);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fibers that this machine has placed on a machine.
#[derive(Default)]
struct Placed {
    /// Those that have not ended.
    now: AtomicU32,
    /// All of them: the machine's workers get them in turn.
    total: AtomicUsize,
}

fn placed_on(machine: u16) -> &'static Placed {
    &placed()[usize::from(machine)]
}

fn placed() -> &'static [Placed] {
    static PLACED: OnceLock<Box<[Placed]>> = OnceLock::new();
    PLACED.get_or_init(|| program().rack.machines.iter().map(|_| Placed::default()).collect())
}

/// Counts a fiber until it is dropped.
struct Counted(u16);

impl Counted {
    fn begin(machine: u16) -> Counted {
        // Relaxed, here and below: counts alone.
        placed_on(machine).now.fetch_add(1, Ordering::Relaxed);
        Counted(machine)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        placed_on(self.0).now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a fiber on the less loaded of two machines, picked at random; `measure` returns the use of its machine.
#[track_caller]
pub(crate) fn spawn<F, R, M>(f: F, measure: M) -> JoinHandle<R>
where
    F: FnOnce() -> R + NoRef + Send + 'static,
    R: NoRef + Send + 'static,
    M: MeasureUse,
{
    let program = program();
    if program.rack.machines.len() == 1 {
        return start::spawn(f);
    }
    begin(program, measure);
    wait_for_first(program);
    let own = program.rack.machine;
    let chosen = choose(&candidates(program), own, fastrand::usize);
    // A thread that is no worker of the program does not reach other machines.
    let machine = if connections::to(MachineId(chosen)).is_some() { chosen } else { own };
    let counted = Counted::begin(machine);
    let turn = placed_on(machine).total.fetch_add(1, Ordering::Relaxed);
    let workers = program.rack.machines[usize::from(machine)].workers;
    spawn_on_holding(Place::of(machine, (turn % usize::from(workers)) as u16), f, counted)
}

/// Returns the loads of the living machines as they are known here, this one included: none before the first reports,
/// which the first call asks for. Does not wait.
pub(crate) fn loads_of_all(measure: impl MeasureUse) -> Vec<MachineLoad> {
    let program = program();
    begin(program, measure);
    let Some((arrived, loads)) = lock(&LOADS).clone() else { return Vec::new() };
    let since = arrived.elapsed();
    let of_machine = |load: &Load| MachineLoad {
        machine: load.machine,
        cores: load.cores,
        others: (load.used - load.used_by_tasks).max(load.placed() as f32),
        tasks: load.tasks,
        worker: load.worker,
        age: since.saturating_add(Duration::from_micros(load.age_us)),
    };
    loads.iter().filter(|load| !program.rack.is_lost(load.machine)).map(of_machine).collect()
}

/// Function that returns the use of the machine that calls it.
pub trait MeasureUse: Fn() -> MachineUse + NoRef + Copy + Send + 'static {}

impl<M: Fn() -> MachineUse + NoRef + Copy + Send + 'static> MeasureUse for M {}

/// Asks for the reports, once.
fn begin(program: &Program, measure: impl MeasureUse) {
    FIRST_CALL.get_or_init(|| {
        trust::link::post(program.rack.service(0), move |_| begin_everywhere(measure), &[]);
        Instant::now()
    });
}

/// Waits for the first reports where it may.
fn wait_for_first(program: &Program) {
    let Some(first) = FIRST_CALL.get() else { return };
    while first.elapsed() < FIRST && !is_complete(&program.rack) && trust::may_wait() {
        trust::sleep(PAUSE);
    }
}

/// On machine 0's service thread: starts the reports of all machines.
fn begin_everywhere(measure: impl MeasureUse) {
    let rack = &program().rack;
    for machine in living(rack) {
        trust::link::post(rack.service(machine), move |_| begin_here(measure), &[]);
    }
}

/// On a machine's service thread: starts its reports.
fn begin_here(measure: impl MeasureUse) {
    if IS_REPORTING.swap(true, Ordering::Relaxed) {
        return;
    }
    let begun = thread::Builder::new().name("gossamer-board".to_owned()).spawn(move || report_each(measure));
    if let Err(error) = begun {
        complain(format_args!("machine {} does not report its load: {error}", program().rack.machine));
    }
}

/// Reports until the program ends.
fn report_each(measure: impl MeasureUse) {
    let program = program();
    let rack = &program.rack;
    let mut meter = Meter::begin(&program.trustees);
    let mut last = (Instant::now(), measure().tasks_busy_ns);
    thread::sleep(EVERY);
    let begun = Instant::now();
    while trust::link::thread_id(rack.service(rack.machine)).is_some() {
        let (cores, used) = meter.measure();
        let now = (Instant::now(), measure().tasks_busy_ns);
        let past = std::mem::replace(&mut last, now);
        let used_by_tasks = now.1.saturating_sub(past.1) as f32 / now.0.duration_since(past.0).as_nanos().max(1) as f32;
        loop {
            let MachineUse { fill, tasks, worker, .. } = measure();
            let report = Report { cores, used, used_by_tasks, tasks, worker, fill, placed: placed_now() };
            trust::link::post(rack.service(0), note, &codec::encode(&(rack.machine, report)));
            if is_complete(rack) || begun.elapsed() > FIRST {
                break;
            }
            thread::sleep(FIRST_EVERY);
        }
        thread::sleep(EVERY);
    }
}

fn placed_now() -> Vec<(u16, u32)> {
    let counts = placed().iter().map(|placed| placed.now.load(Ordering::Relaxed));
    (0..).zip(counts).filter(|(_, count)| *count > 0).collect()
}

/// On machine 0's service thread: notes a report, and answers with the loads of all machines.
fn note(report: &[u8]) {
    let Ok((from, report)) = codec::decode::<(u16, Report), BYTES_MAX>(report) else { return };
    let rack = &program().rack;
    let mut reports = lock(&REPORTS);
    reports.insert(from, (Instant::now(), report));
    reports.retain(|machine, _| !rack.is_lost(*machine));
    let loads = codec::encode(&loads(&reports, from));
    drop(reports);
    if !rack.is_lost(from) {
        trust::link::post(rack.service(from), take, &loads);
    }
}

/// Returns the loads of all machines, for this one.
fn loads(reports: &BTreeMap<u16, (Instant, Report)>, asker: u16) -> Vec<Load> {
    let mut of_others = BTreeMap::<u16, u32>::new();
    for (_, (_, report)) in reports.iter().filter(|(machine, _)| **machine != asker) {
        for (machine, fibers) in &report.placed {
            let sum = of_others.entry(*machine).or_default();
            *sum = sum.saturating_add(*fibers);
        }
    }
    let load = |(machine, (arrived, report)): (&u16, &(Instant, Report))| Load {
        machine: *machine,
        cores: report.cores,
        used: report.used,
        used_by_tasks: report.used_by_tasks,
        tasks: report.tasks,
        worker: report.worker,
        fill: report.fill,
        of_others: of_others.get(machine).copied().unwrap_or_default(),
        age_us: arrived.elapsed().as_micros() as u64,
    };
    reports.iter().map(load).collect()
}

/// On a machine's service thread: takes machine 0's answer.
fn take(loads: &[u8]) {
    if let Ok(loads) = codec::decode::<Vec<Load>, BYTES_MAX>(loads) {
        *lock(&LOADS) = Some((Instant::now(), loads.into()));
    }
}

fn living(rack: &Rack) -> impl Iterator<Item = u16> {
    (0..rack.machines.len() as u16).filter(|machine| !rack.is_lost(*machine))
}

/// Is the load of every living machine known?
fn is_complete(rack: &Rack) -> bool {
    let loads = lock(&LOADS).clone();
    loads.is_some_and(|(_, loads)| living(rack).all(|machine| loads.iter().any(|load| load.machine == machine)))
}

/// Returns the machines that may get a fiber: those whose report is fresh. If none is, this machine's own thread is
/// late: then those whose report was fresh in the last answer. Without any answer: all living ones, by their workers.
fn candidates(program: &Program) -> Vec<Candidate> {
    let rack = &program.rack;
    let Some((arrived, loads)) = lock(&LOADS).clone() else {
        let idle = |(machine, at): (u16, &Machine)| Candidate {
            machine,
            cores: f32::from(at.workers),
            fibers: placed_on(machine).now.load(Ordering::Relaxed),
            fill: 0,
        };
        return (0..).zip(&rack.machines).filter(|(machine, _)| !rack.is_lost(*machine)).map(idle).collect();
    };
    let since = arrived.elapsed();
    let candidate = |load: &Load| {
        // Its workers may compute what nobody placed.
        let fibers = load.placed().saturating_add(load.tasks).max(load.used.round() as u32);
        Candidate { machine: load.machine, cores: load.cores, fibers, fill: load.fill }
    };
    let fresh = |since: Duration| -> Vec<Candidate> {
        let is_fresh = |load: &&Load| since.saturating_add(Duration::from_micros(load.age_us)) < OLD;
        loads.iter().filter(is_fresh).filter(|load| !rack.is_lost(load.machine)).map(candidate).collect()
    };
    let now = fresh(since);
    if now.is_empty() { fresh(Duration::ZERO) } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_learns_of_the_fibers_that_others_have_placed() {
        let report =
            |placed| Report { cores: 2.0, used: 0.5, used_by_tasks: 0.0, tasks: 0, worker: 0, fill: 7, placed };
        let reports = [(0, vec![(0, 1), (2, 10)]), (1, vec![(2, 5)]), (2, vec![(0, u32::MAX)])];
        let reports: BTreeMap<_, _> =
            reports.map(|(machine, placed)| (machine, (Instant::now(), report(placed)))).into_iter().collect();
        let of_others = |asker| loads(&reports, asker).iter().map(|load| load.of_others).collect::<Vec<_>>();
        assert_eq!(of_others(0), [u32::MAX, 0, 5]);
        assert_eq!(of_others(1), [u32::MAX, 0, 10]);
        assert_eq!(of_others(2), [1, 0, 15]);
    }
}
