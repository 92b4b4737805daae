//! Gets and puts of keys by many fibers at all places, as YCSB has them, with a check of the values found.
//!
//! A value follows from its key and its version, which each put raises by one. So a check can tell whether a value
//! found is whole, and none older than one found before; and the final contents of the store follow from the puts, in
//! any order.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use gossamer::sync::Barrier;
use gossamer::{JoinHandle, Trust};
use graph::random::mix;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::store::{Client, Store};
use super::table::Table;
use crate::heaps::spread::{joined, on_each};
use crate::progress::Count;

/// Operations between two that are told to the progress bar; others of the worker get their turn.
const TOLD_AT_ONCE: usize = 4096;

/// The load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of keys.
    pub keys: u64,
    /// Words of 8 bytes of a value, 1 at least.
    pub words: usize,
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

impl Load {
    /// Fills the store and does all of it. Returns the number of gets with a wrong result, and the time without the
    /// filling.
    ///
    /// # Errors
    /// If a fiber panics, as where there is no memory.
    pub fn run(self, store: &Store, told: &Trust<Count>) -> anyhow::Result<(u64, Duration)> {
        let filled = store.clone();
        on_each(move |number, places| {
            let parts = filled.parts();
            self.fill(&Client::new(&parts), number as u64, places as u64);
        })?;
        let all = gossamer::rack().workers() * self.fibers;
        let everyone = Barrier::new(all + 1);
        let start = |(number, place)| {
            let (store, everyone, told) = (store.clone(), everyone.clone(), told.clone());
            gossamer::spawn_on(place, move || {
                let mut stream = Stream::new(self, number as u64);
                let parts = store.parts();
                let client = Client::new(&parts);
                everyone.wait();
                let tell = |done| {
                    told.apply_then(move |count| count.add(done), |()| ());
                    gossamer::yield_now();
                };
                stream.work(&client, tell);
                stream.wrong
            })
        };
        let of_all = gossamer::rack().places().flat_map(|place| std::iter::repeat_n(place, self.fibers)).enumerate();
        let fibers: Vec<JoinHandle<u64>> = of_all.map(start).collect();
        everyone.wait();
        let start = Instant::now();
        let wrong = joined(fibers)?;
        Ok((wrong.into_iter().sum(), start.elapsed()))
    }

    /// Puts the share of the keys that one of so many has.
    pub fn fill(&self, table: &impl Table, one: u64, of: u64) {
        (one..self.keys).step_by(of as usize).for_each(|key| self.put(table, key));
    }

    fn put(&self, table: &impl Table, key: u64) {
        table.put(key, self.words, |version, i| Load::word(key, version, i));
    }

    /// Word `i` of a value.
    fn word(key: u64, version: u64, i: usize) -> u64 {
        mix(mix(key) ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i as u64)
    }
}

/// Work of one fiber, or of a thread of the twin.
pub struct Stream {
    load: Load,
    /// Keys, and whether they are got.
    picks: Vec<(u64, bool)>,
    /// Last version found of each key.
    last: HashMap<u64, u64>,
    /// Gets that found nothing, or a wrong value.
    pub wrong: u64,
}

impl Stream {
    /// Chooses its keys, before the clock runs.
    pub fn new(load: Load, number: u64) -> Stream {
        let mut random = StdRng::seed_from_u64(mix(load.seed ^ mix(number)));
        let zipf = load.zipf.and_then(|exponent| Zipf::new(load.keys as f64, exponent).ok());
        let pick = |_| {
            let key = match &zipf {
                // Frequent ones lie anywhere among the others.
                Some(zipf) => mix(zipf.sample(&mut random) as u64) % load.keys,
                None => random.random_range(0..load.keys),
            };
            (key, random.random_bool(load.gets))
        };
        let picks = (0..load.operations).map(pick).collect();
        Stream { load, picks, last: HashMap::new(), wrong: 0 }
    }

    /// All operations. Tells how many are done, now and then.
    pub fn work(&mut self, table: &impl Table, tell: impl Fn(u64)) {
        let picks = std::mem::take(&mut self.picks);
        for picks in picks.chunks(TOLD_AT_ONCE) {
            for &(key, is_get) in picks {
                if is_get { self.get(table, key) } else { self.load.put(table, key) }
            }
            tell(picks.len() as u64);
        }
    }

    fn get(&mut self, table: &impl Table, key: u64) {
        if !self.load.verify {
            let sum = table.get(key, |_, value| value.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)));
            self.wrong += u64::from(black_box(sum).is_none());
            return;
        }
        let words = self.load.words;
        let found = table.get(key, |version, value| {
            let is_whole = value.len() == words && (0..words).all(|i| value[i] == Load::word(key, version, i));
            (version, is_whole)
        });
        let last = self.last.entry(key).or_default();
        let is_right = found.is_some_and(|(version, is_whole)| is_whole && version >= *last);
        *last = found.map_or(0, |(version, _)| version);
        self.wrong += u64::from(!is_right);
    }
}
