//! The jobs of the project's own contenders on the workers of a rack: the array by all its calls, and shards by
//! `apply_then`.
//!
//! A run ends when all its operations can be seen by everyone: merged at home, or acknowledged. Each worker then looks
//! at the elements it owns, after the clock.

use super::alone::{Means, passes};
use crate::machines::{InFlight, Shards};
use crate::prelude::*;
use exchange::array::{Job, Outcome, Work, sum_of, value, wrong};
use exchange::now_ns;
use gossamer::sync::Barrier;
use gossamer::{NoRef, Place};
use gossamer_array::{Add, Array};

/// Requests that a worker keeps in flight, by `apply_then`.
pub const IN_FLIGHT_MAX: usize = 512;

/// Runs the job, on machine 0.
pub fn measure(contender: Means, job: Job) -> Result<Outcome> {
    if contender == Means::Trusts && matches!(job.work, Work::Zipf | Work::Uniform) {
        return increment_shards(job);
    }
    let reads = matches!(job.work, Work::Hits | Work::Sum | Work::Pass);
    let array = Array::new(job.elements, 0u64)?;
    if reads {
        let fill = array.clone();
        array.on_owners(move |own| {
            for range in own {
                fill.modify(range, |start, chunk| {
                    chunk.iter_mut().enumerate().for_each(|(at, element)| *element = value(start + at));
                });
            }
        });
    }
    match (contender, job.work) {
        (Means::Array, Work::Hits) => {
            passes(&job, &array, |array| (0..array.len()).fold(0u64, |sum, index| sum.wrapping_add(array.get(index))))
        }
        (Means::ArrayViews, Work::Sum) => passes(&job, &array, |array| sum_of_views(array, 0..array.len())),
        (Means::Array, Work::Pass) => {
            first_pass(&job, &array, |array| job.remote().fold(0u64, |sum, index| sum.wrapping_add(array.get(index))))
        }
        (Means::ArrayViews, Work::Pass) => first_pass(&job, &array, |array| sum_of_views(array, job.remote())),
        (Means::Array, Work::Zipf | Work::Uniform | Work::Dense) => on_array(job, array, |array, picks| {
            picks.iter().for_each(|&pick| array.apply(pick as usize, Add, 1));
        }),
        (Means::Array, Work::Sets) => on_array(job, array, |array, picks| {
            picks.iter().for_each(|&pick| array.set(pick as usize, value(pick as usize)));
        }),
        (Means::ArrayBulk, Work::Zipf | Work::Uniform | Work::Dense) => on_array(job, array, |array, picks| {
            array.apply_all(Add, picks.iter().map(|&pick| (pick as usize, 1)));
        }),
        (Means::ArrayLock, Work::Zipf) => on_array(job, array, |array, picks| {
            for &pick in picks {
                let element = array.write_lock(pick as usize);
                element.set(element.get() + 1);
            }
        }),
        (contender, work) => bail!("{contender:?} has no part in {work}"),
    }
}

fn sum_of_views(array: &Array<u64>, range: std::ops::Range<usize>) -> u64 {
    array.views(range).fold(0, |sum, chunk| chunk.iter().fold(sum, |sum, element| sum.wrapping_add(*element)))
}

/// Elements of the other of two workers, which this one has never seen.
fn first_pass(job: &Job, array: &Array<u64>, sum: impl Fn(&Array<u64>) -> u64) -> Result<Outcome> {
    let (range, here) = (job.remote(), gossamer::here());
    let near = [range.start, range.end - 1].map(|index| array.owner(index).machine).contains(&here.machine);
    ensure!(!near, "elements {range:?} are not all another machine's: two processes are needed");
    let (start, sum, end) = (now_ns(), sum(array), now_ns());
    ensure!(sum == sum_of(range.clone()), "the elements come to a wrong sum");
    Ok(Outcome::new(range.len() as u64, start, end))
}

/// Each worker does `act` to its picks; then all changes are brought home.
fn on_array(
    job: Job,
    array: Array<u64>,
    act: impl Fn(&Array<u64>, &[u32]) + Clone + NoRef + Send + 'static,
) -> Result<Outcome> {
    team(job, move |barrier, places, own, picks| {
        let workers = places.len();
        let start_ns = now_ns();
        act(&array, picks);
        barrier.wait();
        // A reader has everything merged.
        let ranges = array.owned(places[own]);
        ranges.for_each(|range| _ = std::hint::black_box(sum_of_views(&array, range)));
        let end_ns = now_ns();
        barrier.wait();
        let wrong = ranges.map(|range| {
            let mut elements = vec![0; range.len()];
            array.copy_to(range.start, &mut elements);
            wrong(&job.expected(workers, range), &elements)
        });
        Part { ops: picks.len() as u64, start_ns, end_ns, wrong: wrong.sum() }
    })
}

/// A worker's part of a run.
#[derive(Clone, Copy)]
pub struct Part {
    pub ops: u64,
    /// When its first one began.
    pub start_ns: u64,
    /// When its last one could be seen by everyone.
    pub end_ns: u64,
    /// Wrong elements or answers.
    pub wrong: u64,
}

/// Runs `act` at each place, with its picks, and puts the parts together.
pub fn team<A>(job: Job, act: A) -> Result<Outcome>
where
    A: Fn(&Barrier, &[Place], usize, &[u32]) -> Part + Clone + NoRef + Send + 'static,
{
    let places: Vec<Place> = gossamer::rack().places().collect();
    let barrier = Barrier::new(places.len());
    let fibers = places.iter().enumerate().map(|(own, &place)| {
        let (act, barrier) = (act.clone(), barrier.clone());
        gossamer::spawn_on(place, move || {
            let places: Vec<Place> = gossamer::rack().places().collect();
            let picks = job.picks(own);
            barrier.wait();
            act(&barrier, &places, own, &picks)
        })
    });
    // All are started before the first is waited for.
    let fibers: Vec<_> = fibers.collect();
    let parts = fibers.into_iter().map(|fiber| fiber.join().map_err(|_| anyhow!("a fiber panicked")));
    let parts = parts.collect::<Result<Vec<Part>>>()?;
    let (wrong, ops): (u64, u64) = (parts.iter().map(|part| part.wrong).sum(), parts.iter().map(|part| part.ops).sum());
    ensure!(wrong == 0, "{wrong} elements or answers are wrong");
    let start = parts.iter().map(|part| part.start_ns).min().unwrap_or_default();
    let end = parts.iter().map(|part| part.end_ns).max().unwrap_or_default();
    Ok(Outcome::new(ops, start, end))
}

/// A `Vec` at each place; `apply_then` increments its elements.
fn increment_shards(job: Job) -> Result<Outcome> {
    let places: Vec<Place> = gossamer::rack().places().collect();
    ensure!(places.len().is_power_of_two(), "{} workers do not share the elements evenly", places.len());
    let each = job.elements / places.len();
    let shards = Shards::new(|_| move || vec![0u64; each])?;
    team(job, move |barrier, places, own, picks| {
        let (start_ns, in_flight) = (now_ns(), Rc::new(InFlight::default()));
        for &pick in picks {
            let (owner, at) = (pick as usize / each, pick as usize % each);
            in_flight.begin(IN_FLIGHT_MAX);
            let done = Rc::clone(&in_flight);
            shards.at(owner).apply_then(move |shard| shard[at] += 1, move |()| done.end(true));
        }
        in_flight.wait_for(0);
        let end_ns = now_ns();
        barrier.wait();
        let workers = places.len();
        let count = move |shard: &mut Vec<u64>| wrong(&job.expected(workers, own * each..(own + 1) * each), &*shard);
        Part { ops: picks.len() as u64, start_ns, end_ns, wrong: shards.at(own).apply(count) }
    })
}
