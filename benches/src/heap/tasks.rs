//! `heap-tasks`: tasks of the heap on two machines of one worker each; for `heap`. A task that goes from one machine to
//! the other after each step beside requests that are answered before the next, with as many bytes. And 64 uneven tasks
//! that are all made on one machine, beside the same on the machines where they are best dealt by hand.

use crate::machines::over_rack;
use crate::prelude::*;
use gossamer::bootstrap::FabricChoice;
use gossamer::{JoinHandle, Place};
use gossamer_heap::{Step, Task, link};
use std::cmp::Reverse;

/// Options of `heap-tasks`.
#[derive(Clone, Debug, Args)]
pub struct HeapTasks {
    /// The fabric between the processes: shm or tcp.
    #[arg(long)]
    pub fabric: FabricChoice,
    /// Rounds.
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// Moves and requests of a run.
    #[arg(long, default_value_t = 1 << 12)]
    pub turns: u64,
    /// Steps of the longest of the uneven tasks, about half a millisecond each.
    #[arg(long, default_value_t = 1 << 8)]
    pub steps: u64,
}

/// Names of the works, without the fabric, and of their ways.
pub const MOVE: &str = "256 B to the other machine";
pub const UNEVEN: &str = "64 uneven tasks";
pub const TASKS: &str = "heap::Task";
pub const ECHO: &str = "request and answer";
pub const BY_HAND: &str = "placed by hand";

/// Nanoseconds a turn, and a step, by work and way.
pub type Told = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

/// Words that travel.
type Words = [u64; 32];

/// Operations of a step: about half a millisecond.
const OPERATIONS: u64 = 400_000;
const UNEVEN_TASKS: u64 = 64;

/// Runs it, or starts its machines.
pub fn command(options: HeapTasks) -> Result<()> {
    if let Some(told) = over_rack(2, 2, options.fabric, move || measure(&options))? {
        println!("{}", serde_json::to_string(&told)?);
    }
    Ok(())
}

/// A work, a way, and one run of it.
type Run = (&'static str, &'static str, fn(&HeapTasks) -> Result<f64>);

fn measure(options: &HeapTasks) -> Result<Told> {
    let runs: [Run; 4] =
        [(MOVE, TASKS, moves), (MOVE, ECHO, requests), (UNEVEN, TASKS, spread), (UNEVEN, BY_HAND, dealt)];
    let mut told = Told::new();
    interleaved(options.rounds, runs.len(), 1, |_, index| {
        let (work, way, run) = runs[index];
        let ns = run(options)?;
        told.entry(work.to_owned()).or_default().entry(way.to_owned()).or_default().push(ns);
        Ok(())
    })?;
    Ok(told)
}

fn moves(options: &HeapTasks) -> Result<f64> {
    let turns = options.turns;
    let began = Instant::now();
    let task = Task::new((0, [0; 32]), move |(turn, words): &mut (u64, Words)| {
        // It is on the one machine after an even number of moves, and on the other one after an odd one.
        let is_right = u64::from(gossamer::here().machine) == *turn % 2 && *words == [*turn; 32];
        if !is_right || *turn == turns {
            return Step::Done(is_right);
        }
        *turn += 1;
        words.fill(*turn);
        link::go_after_step((*turn % 2) as u16);
        Step::Next
    });
    let is_right = task.join().map_err(|_| anyhow!("the task failed"))?;
    ensure!(is_right, "the task is on another machine, or has other words");
    Ok(began.elapsed().as_nanos() as f64 / turns as f64)
}

fn requests(options: &HeapTasks) -> Result<f64> {
    let there = gossamer::entrust_on(Place::of(1, 0), [0; 32]);
    let began = Instant::now();
    for turn in 0..options.turns {
        let words: Words = [turn; 32];
        let before: Words = there.apply(move |stored| std::mem::replace(stored, words));
        ensure!(before == [turn.saturating_sub(1); 32], "request {turn} has another answer");
    }
    Ok(began.elapsed().as_nanos() as f64 / options.turns as f64)
}

fn operate(number: u64) -> u64 {
    (0..OPERATIONS).fold(number, |hash, one| (hash ^ one).wrapping_mul(0x0100_0000_01b3).rotate_left(5))
}

/// Steps of a task: of few one the most, of many one few.
fn steps(task: u64, most: u64) -> u64 {
    (most / (1 + task % 16)).max(1)
}

fn spread(options: &HeapTasks) -> Result<f64> {
    let most = options.steps;
    let begin = |task| {
        Task::new((steps(task, most), task), |(left, number)| {
            *number = operate(*number);
            *left -= 1;
            if *left > 0 { Step::Next } else { Step::Done(*number) }
        })
    };
    let join = |task: Task<u64>| task.join().map_err(|_| anyhow!("a task failed"));
    run(most, || (0..UNEVEN_TASKS).map(begin).collect::<Vec<_>>().into_iter().map(join).collect())
}

/// The longest first, each where the least work is; one after the other there.
fn dealt(options: &HeapTasks) -> Result<f64> {
    let most = options.steps;
    let mut longest_first: Vec<u64> = (0..UNEVEN_TASKS).collect();
    longest_first.sort_by_key(|task| Reverse(steps(*task, most)));
    let mut work = [0; 2];
    let mut place_of = [0; UNEVEN_TASKS as usize];
    for task in longest_first {
        let machine = usize::from(work[1] < work[0]);
        work[machine] += steps(task, most);
        place_of[task as usize] = machine as u16;
    }
    let begin = |task: u64| {
        let place = Place::of(place_of[task as usize], 0);
        gossamer::spawn_on(place, move || (0..steps(task, most)).fold(task, |number, _| operate(number)))
    };
    let join = |fiber: JoinHandle<u64>| fiber.join().map_err(|_| anyhow!("a fiber failed"));
    run(most, || (0..UNEVEN_TASKS).map(begin).collect::<Vec<_>>().into_iter().map(join).collect())
}

/// Nanoseconds for each step of all tasks, some of whose results are computed again.
fn run(most: u64, results: impl FnOnce() -> Result<Vec<u64>>) -> Result<f64> {
    let began = Instant::now();
    let results = results()?;
    let ns = began.elapsed().as_nanos() as f64;
    for task in [0, 15, 16, UNEVEN_TASKS - 1] {
        let wanted = (0..steps(task, most)).fold(task, |number, _| operate(number));
        ensure!(results[task as usize] == wanted, "task {task} has another result");
    }
    Ok(ns / (0..UNEVEN_TASKS).map(|task| steps(task, most)).sum::<u64>() as f64)
}
