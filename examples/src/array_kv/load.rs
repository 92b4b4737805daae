//! Gets and puts of keys by many fibers at all places, as YCSB has them, with a check of the values found.
//!
//! Each value says which put it is of: the fiber and its how-manieth. A fiber that finds a value of its own must find
//! the last one that it has put there, and of another fiber none older than it has found there before. The rest of the
//! value follows from the key and the put, so that no piece of another value goes unnoticed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gossamer::sync::Barrier;
use gossamer::{JoinHandle, Trust};
use graph::random::mix;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::store::{Client, Store};
use crate::progress::Count;

/// Operations between two that are told to the progress bar; others of the worker get their turn.
const TOLD_AT_ONCE: u64 = 4096;

/// The load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of a value, 8 at least.
    pub value_bytes: usize,
    /// The share of gets; the others are puts.
    pub gets: f64,
    /// The exponent of the keys' frequencies; `None` if all are alike.
    pub zipf: Option<f64>,
    /// Number of operations of each fiber.
    pub operations: u64,
    /// Number of fibers at each place.
    pub fibers: usize,
    /// Seed of the choice of keys.
    pub seed: u64,
    /// Check the values found.
    pub verify: bool,
}

/// Result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Gets and puts, those that fill the store left out.
    pub operations: u64,
    /// Gets that found nothing, or a wrong value.
    pub wrong: u64,
    /// Puts for which there was no room.
    pub refused: u64,
}

impl Load {
    /// Fills the store and does all of it. How long it took, filling left out.
    ///
    /// # Panics
    /// If a fiber does.
    pub fn run(self, store: &Store, told: &Trust<Count>) -> (Done, Duration) {
        let places = gossamer::rack().places();
        let all = gossamer::rack().workers() * self.fibers;
        let everyone = Barrier::new(all + 1);
        let start = |(number, place)| {
            let (store, everyone, told) = (store.clone(), everyone.clone(), told.clone());
            gossamer::spawn_on(place, move || {
                let mut fiber = Fiber::new(self, number as u64, store.client());
                fiber.fill(all as u64);
                let picks = fiber.pick();
                everyone.wait();
                fiber.work(&picks, &told);
                everyone.wait();
                fiber.check();
                fiber.done
            })
        };
        let of_all = places.flat_map(|place| std::iter::repeat_n(place, self.fibers)).enumerate();
        let fibers: Vec<JoinHandle<Done>> = of_all.map(start).collect();
        everyone.wait();
        let start = Instant::now();
        everyone.wait();
        let time = start.elapsed();
        let mut done = Done::default();
        for fiber in fibers {
            let part = fiber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.operations += part.operations;
            done.wrong += part.wrong;
            done.refused += part.refused;
        }
        (done, time)
    }
}

/// A put, by the fiber and how many that one had done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    fiber: u64,
    number: u64,
}

struct Fiber {
    load: Load,
    number: u64,
    client: Client,
    puts: u64,
    /// Last value put by this fiber for each key, and the last found of each other fiber.
    last: HashMap<(u64, u64), u64>,
    random: StdRng,
    done: Done,
}

impl Fiber {
    fn new(load: Load, number: u64, client: Client) -> Fiber {
        let random = StdRng::seed_from_u64(mix(load.seed ^ mix(number)));
        Fiber { load, number, client, puts: 0, last: HashMap::new(), random, done: Done::default() }
    }

    /// Puts its share of the keys.
    fn fill(&mut self, fibers: u64) {
        (self.number..self.load.keys).step_by(fibers as usize).for_each(|key| self.put(key));
    }

    /// The keys of all operations, to be chosen before the clock runs.
    fn pick(&mut self) -> Vec<u64> {
        let keys = self.load.keys;
        let zipf = self.load.zipf.and_then(|exponent| Zipf::new(keys as f64, exponent).ok());
        let one = |_| match &zipf {
            // Frequent ones lie anywhere among the others.
            Some(zipf) => mix(zipf.sample(&mut self.random) as u64) % keys,
            None => self.random.random_range(0..keys),
        };
        (0..self.load.operations).map(one).collect()
    }

    fn work(&mut self, picks: &[u64], told: &Trust<Count>) {
        for picks in picks.chunks(TOLD_AT_ONCE as usize) {
            for &key in picks {
                if self.random.random_bool(self.load.gets) { self.get(key) } else { self.put(key) }
            }
            let done = picks.len() as u64;
            self.done.operations += done;
            told.apply_then(move |count| count.add(done), |()| ());
            gossamer::yield_now();
        }
    }

    /// Checks the values once nobody puts any more.
    fn check(&mut self) {
        if self.load.verify {
            let mut keys: Vec<u64> = self.last.keys().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter().for_each(|key| self.get(key));
        }
    }

    fn put(&mut self, key: u64) {
        self.puts += 1;
        let version = Version { fiber: self.number, number: self.puts };
        let value = value(key, version, self.load.value_bytes);
        match self.client.put(&name(key), &value) {
            Ok(()) if self.load.verify => _ = self.last.insert((key, self.number), self.puts),
            Ok(()) => {}
            Err(_) => self.done.refused += 1,
        }
    }

    fn get(&mut self, key: u64) {
        let found = self.client.get(&name(key));
        if self.load.verify {
            self.done.wrong += u64::from(!found.is_some_and(|found| self.is_right(key, &found)));
        }
    }

    fn is_right(&mut self, key: u64, found: &[u8]) -> bool {
        let Some(version) = version(found) else { return false };
        if found != value(key, version, self.load.value_bytes) {
            return false;
        }
        let last = self.last.entry((key, version.fiber)).or_insert(0);
        if version.fiber == self.number {
            return version.number == *last;
        }
        let is_right = version.number >= *last;
        *last = version.number;
        is_right
    }
}

fn name(key: u64) -> Vec<u8> {
    format!("user{:016x}", mix(key)).into_bytes()
}

/// The fiber in the upper 24 bits of the first word, the put in the rest; the other words follow from both and the key.
fn value(key: u64, version: Version, bytes: usize) -> Vec<u8> {
    let first = version.fiber << 40 | version.number;
    let words = std::iter::successors(Some(first), |word| Some(mix(word ^ key)));
    let mut value: Vec<u8> = words.take(bytes.div_ceil(8)).flat_map(u64::to_le_bytes).collect();
    value.truncate(bytes);
    value
}

fn version(value: &[u8]) -> Option<Version> {
    let first = u64::from_le_bytes(*value.first_chunk()?);
    Some(Version { fiber: first >> 40, number: first & ((1 << 40) - 1) })
}
