//! A key-value store with values of 100 bytes: that on two arrays (the example `array-kv`) beside a map at each place,
//! by `apply_then`.
//!
//! A value tells its key and which put it is of, at both ends, so that one that is torn or of another key is seen by
//! each get. When the clock has stopped, each key has the last put of one of its writers, whole.

use super::alone::Means;
use super::rack::{IN_FLIGHT_MAX, Part, team};
use crate::machines::{InFlight, Shards};
use crate::prelude::*;
use exchange::array::{Job, Outcome, Work};
use exchange::now_ns;
use foldhash::fast::FixedState;
use gossamer_examples::array_kv::slabs::Slabs;
use gossamer_examples::array_kv::store::{Client, Store};
use std::collections::HashMap;

/// Fibers of each worker, where a get may wait.
const FIBERS: usize = 8;
/// One of so many operations is a put, in `puts`.
const PUT_EVERY: usize = 20;
/// Words of a block beside its value.
const WORDS_BESIDE_VALUE: usize = 6;
/// Words of the slabs that a place takes at once.
const SLAB: usize = 512;
const WORD: usize = size_of::<u64>();
const VALUE: usize = 100;

type Value = [u8; VALUE];
type Map = HashMap<u64, Value, FixedState>;

/// Runs the job, on machine 0.
pub fn measure(contender: Means, job: Job) -> Result<Outcome> {
    match contender {
        Means::Array => on_arrays(job),
        Means::Trusts => on_maps(job),
        other => bail!("{other:?} has no part in {}", job.work),
    }
}

/// The put of a key that fills the store.
const FIRST: u64 = 1;

/// The put that operation `number` of a worker is, if it is one. Operations are dealt to fibers in turn, each a writer
/// of its own.
fn put(job: &Job, own: usize, number: usize) -> Option<u64> {
    let is_put = job.work == Work::Puts && number % PUT_EVERY == PUT_EVERY - 1;
    is_put.then(|| ((own + 1) as u64) << 40 | (number + 2) as u64)
}

fn value(key: u64, put: u64) -> Value {
    let mut value = [(put ^ key) as u8; VALUE];
    value[..WORD].copy_from_slice(&key.to_le_bytes());
    value[WORD..2 * WORD].copy_from_slice(&put.to_le_bytes());
    value[VALUE - WORD..].copy_from_slice(&(!put).to_le_bytes());
    value
}

/// The put that a value is of, where its ends agree.
fn put_of(key: u64, value: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_le_bytes(value.get(at..at + WORD)?.try_into().ok()?));
    let put = word(WORD)?;
    (value.len() == VALUE && word(0)? == key && word(VALUE - WORD)? == !put).then_some(put)
}

/// The keys that a worker fills, and looks at when all is over.
fn own_keys(job: &Job, workers: usize, own: usize) -> impl Iterator<Item = u64> {
    (own..job.elements).step_by(workers).map(|key| key as u64)
}

/// How many of a worker's keys have not the last value that one of their writers has put.
fn wrong_keys(job: &Job, workers: usize, own: usize, mut get: impl FnMut(u64) -> Option<Value>) -> u64 {
    let mut last: HashMap<u64, Vec<(usize, u64)>> = HashMap::new();
    for worker in 0..workers {
        for (number, key) in job.picks(worker).into_iter().map(u64::from).enumerate() {
            if let Some(put) = put(job, worker, number).filter(|_| key as usize % workers == own) {
                let (writer, puts) = (worker * FIBERS + number % FIBERS, last.entry(key).or_default());
                match puts.iter_mut().find(|(by, _)| *by == writer) {
                    Some(known) => known.1 = put,
                    None => puts.push((writer, put)),
                }
            }
        }
    }
    let is_wrong = |key: &u64| {
        let Some((found, put)) = get(*key).and_then(|found| Some((found, put_of(*key, &found)?))) else { return true };
        let is_last = last.get(key).map_or(put == FIRST, |puts| puts.iter().any(|known| known.1 == put));
        !is_last || found != value(*key, put)
    };
    own_keys(job, workers, own).filter(is_wrong).count() as u64
}

fn on_arrays(job: Job) -> Result<Outcome> {
    let block = Slabs::block_words(WORDS_BESIDE_VALUE + VALUE.div_ceil(WORD));
    // Half as much again as the values need, and a few slabs for each place.
    let words = job.elements * block * 3 / 2 + gossamer::rack().workers() * 8 * SLAB;
    let store = Store::new(job.elements, words)?;
    team(job, move |barrier, places, own, picks| {
        let (workers, client, picks) = (places.len(), store.client(), Arc::<[u32]>::from(picks));
        let mut wrong = 0;
        for key in own_keys(&job, workers, own) {
            wrong += u64::from(client.put(&key.to_le_bytes(), &value(key, FIRST)).is_err());
        }
        barrier.wait();
        let start_ns = now_ns();
        let fibers: Vec<_> = (0..FIBERS)
            .map(|fiber| {
                let (store, picks) = (store.clone(), Arc::clone(&picks));
                trust::spawn(move || work(&job, own, fiber, &picks, &store.client()))
            })
            .collect();
        // A fiber that panicked has done nothing right.
        wrong += fibers.into_iter().map(|fiber| fiber.join().unwrap_or(1)).sum::<u64>();
        let end_ns = now_ns();
        barrier.wait();
        let get = |key: u64| client.get(&key.to_le_bytes())?.try_into().ok();
        wrong += wrong_keys(&job, workers, own, get);
        Part { ops: picks.len() as u64, start_ns, end_ns, wrong }
    })
}

/// The operations of one fiber; how many went wrong.
fn work(job: &Job, own: usize, fiber: usize, picks: &[u32], client: &Client) -> u64 {
    let mut wrong = 0;
    for (number, key) in picks.iter().enumerate().skip(fiber).step_by(FIBERS) {
        let key = u64::from(*key);
        let is_good = match put(job, own, number) {
            Some(put) => client.put(&key.to_le_bytes(), &value(key, put)).is_ok(),
            None => client.get_with(&key.to_le_bytes(), |found| put_of(key, found).is_some()) == Some(true),
        };
        wrong += u64::from(!is_good);
    }
    wrong
}

fn on_maps(job: Job) -> Result<Outcome> {
    let workers = gossamer::rack().workers();
    let maps =
        Shards::new(|own| move || own_keys(&job, workers, own).map(|key| (key, value(key, FIRST))).collect::<Map>())?;
    team(job, move |barrier, _, own, picks| {
        let (start_ns, in_flight) = (now_ns(), Rc::new(InFlight::default()));
        for (number, key) in picks.iter().map(|key| u64::from(*key)).enumerate() {
            in_flight.begin(IN_FLIGHT_MAX);
            let (done, map) = (Rc::clone(&in_flight), maps.at(key as usize % workers));
            match put(&job, own, number) {
                Some(put) => {
                    let value = value(key, put);
                    map.apply_then(move |map| _ = map.insert(key, value), move |()| done.end(true));
                }
                None => map.apply_then(
                    move |map| map.get(&key).copied(),
                    move |found| done.end(found.is_some_and(|found| put_of(key, &found).is_some())),
                ),
            }
        }
        in_flight.wait_for(0);
        let end_ns = now_ns();
        barrier.wait();
        let count = move |map: &mut Map| wrong_keys(&job, workers, own, |key| map.get(&key).copied());
        let wrong = in_flight.wrong() + maps.at(own).apply(count);
        Part { ops: picks.len() as u64, start_ns, end_ns, wrong }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job { work: Work::Puts, elements: 1 << 10, ops: 4000, per_chunk: 1, seed: 1 };

    #[test]
    fn a_value_tells_its_put_only_where_it_is_whole() {
        let (old, new) = (value(7, FIRST), value(7, 5));
        assert_eq!((put_of(7, &old), put_of(7, &new), put_of(8, &new)), (Some(FIRST), Some(5), None));
        let torn = [&new[..50], &old[50..]].concat();
        assert_eq!((put_of(7, &torn), put_of(7, &new[1..]), put_of(7, &[])), (None, None, None));
    }

    #[test]
    fn the_last_put_of_any_writer_is_right() {
        let mut store: HashMap<u64, Value> = (0..1 << 10).map(|key| (key, value(key, FIRST))).collect();
        let mut first_put = None;
        for own in [1, 0] {
            for (number, key) in JOB.picks(own).into_iter().map(u64::from).enumerate() {
                if let Some(put) = put(&JOB, own, number) {
                    first_put = first_put.or(Some((key, put)));
                    store.insert(key, value(key, put));
                }
            }
        }
        let count = |store: &HashMap<u64, Value>| {
            (0..2).map(|own| wrong_keys(&JOB, 2, own, |key| store.get(&key).copied())).sum::<u64>()
        };
        assert_eq!(count(&store), 0);
        // A put is lost; a value is torn in its middle; a key is gone.
        let (key, put) = first_put.expect("there are puts");
        let mut wrong = store.clone();
        wrong.insert(key, value(key, FIRST));
        assert_eq!(count(&wrong), 1, "put {put}");
        wrong.clone_from(&store);
        wrong.get_mut(&key).unwrap()[50] ^= 1;
        assert_eq!(count(&wrong), 1);
        wrong.remove(&key);
        assert_eq!(count(&wrong), 1);
    }
}
