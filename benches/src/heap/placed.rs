//! `heap-placed`: a thousand jobs on two machines of one worker each, beside one of which another program uses half of
//! its core; for `heap`. Dealt by `heap::spawn`, and by fixed shares. Each job returns a number that depends on all of
//! its work.

use crate::machines::{at, over_rack};
use crate::prelude::*;
use core_affinity::CoreId;
use gossamer::bootstrap::FabricChoice;
use gossamer::{JoinHandle, Place};
use gossamer_heap as heap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Options of `heap-placed`.
#[derive(Clone, Debug, Args)]
pub struct HeapPlaced {
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Jobs of a run.
    #[arg(long, default_value_t = 1000)]
    pub jobs: u64,
}

/// Steps of a job: about half a millisecond.
const STEPS: u64 = 400_000;
/// The other program computes for so long, and sleeps for as long.
const TURN: Duration = Duration::from_millis(5);
/// Jobs in a hundred that go to the machine with half a core.
pub const SHARES: [u64; 6] = [20, 25, 30, 33, 40, 50];
/// Name of the way by `heap::spawn`.
pub const BY_LOAD: &str = "heap::spawn";

/// Name of the way by a fixed share.
pub fn share(percent: u64) -> String {
    format!("{percent}%")
}

/// Nanoseconds a job by way.
pub type Told = BTreeMap<String, Vec<f64>>;

/// Runs it, or starts its machines.
pub fn command(options: HeapPlaced) -> Result<()> {
    if let Some(told) = over_rack(2, 2, FabricChoice::Shm, move || measure(&options))? {
        println!("{}", serde_json::to_string(&told)?);
    }
    Ok(())
}

fn measure(options: &HeapPlaced) -> Result<Told> {
    let jobs = options.jobs;
    let (here, there) = (Place::of(0, 0), Place::of(1, 0));
    let core = at(there, || core_affinity::get_core_ids().and_then(|cores| Some(cores.first()?.id)))?;
    let core = CoreId { id: core.context("the other machine's core is unknown")? };
    let stop = Arc::new(AtomicBool::new(false));
    let hog = thread::spawn({
        let stop = Arc::clone(&stop);
        move || half_a_core(core, &stop)
    });
    let mut told = Told::new();
    interleaved(options.rounds, SHARES.len() + 1, 1, |_, index| {
        let (way, ns) = match SHARES.get(index) {
            None => (BY_LOAD.to_owned(), run(jobs, |n| heap::spawn(move || job(n)))?),
            Some(&share) => {
                // Evenly spread: of each hundred jobs so many.
                let goes_there = move |n: u64| n * share / 100 != (n + 1) * share / 100;
                let place = move |n| if goes_there(n) { there } else { here };
                (self::share(share), run(jobs, |n| gossamer::spawn_on(place(n), move || job(n)))?)
            }
        };
        told.entry(way).or_default().push(ns);
        Ok(())
    })?;
    stop.store(true, Ordering::Relaxed);
    hog.join().map_err(|_| anyhow!("the other program failed"))?;
    Ok(told)
}

/// Nanoseconds for each of so many jobs, all of which are started at once.
fn run(jobs: u64, start: impl Fn(u64) -> JoinHandle<u64>) -> Result<f64> {
    let began = Instant::now();
    let started: Vec<JoinHandle<u64>> = (0..jobs).map(start).collect();
    let mut results = Vec::new();
    for job in started {
        results.push(job.join().map_err(|_| anyhow!("a job failed"))?);
    }
    let ns = began.elapsed().as_nanos() as f64 / jobs as f64;
    let is_right = results.iter().zip(0..).all(|(result, n)| n % 100 != 0 || *result == job(n));
    ensure!(is_right, "a job's number is another one");
    Ok(ns)
}

fn job(n: u64) -> u64 {
    (0..STEPS).fold(n, |hash, step| (hash ^ step).wrapping_mul(0x0100_0000_01b3).rotate_left(5))
}

fn half_a_core(core: CoreId, stop: &AtomicBool) {
    core_affinity::set_for_current(core);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        while began.elapsed() < TURN {
            std::hint::spin_loop();
        }
        thread::sleep(TURN);
    }
}
