//! [`Store`]: the buckets over the places of the rack.

use std::ops::Deref;

use gossamer_heap::{Global, Mutex, MutexGuard, Shared};

use super::bucket::{Bucket, Kind};
use super::table::{Answer, Table, bucket_of};
use crate::heaps::spread::{Reader, Spread};

/// Values and further buckets are objects of the heap.
#[derive(Debug)]
pub enum OnHeap {}

impl Kind for OnHeap {
    type Value = Global<[u64]>;
    type Next = Global<Bucket<OnHeap>>;

    fn next(bucket: Bucket<OnHeap>) -> Global<Bucket<OnHeap>> {
        Global::new(bucket)
    }
}

type Buckets = [Mutex<Bucket<OnHeap>>];

/// The store, for closures that travel.
#[derive(Clone)]
pub struct Store(Spread<Mutex<Bucket<OnHeap>>>);

/// The store, for one fiber: it has the lists of buckets at hand.
pub struct Client<'a>(Reader<'a, Mutex<Bucket<OnHeap>>>);

impl Store {
    /// Makes a store with `buckets` buckets.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(buckets: usize) -> anyhow::Result<Store> {
        let make = |own: std::ops::Range<usize>| own.map(|_| Mutex::new(Bucket::default())).collect();
        Ok(Store(Spread::new(buckets, make)?))
    }

    /// The lists of buckets by place, to be read by a fiber.
    pub fn parts(&self) -> impl Deref<Target = [Shared<Buckets>]> {
        self.0.parts()
    }
}

impl Client<'_> {
    /// Makes a client for the fiber that reads these parts.
    pub fn new(parts: &[Shared<Buckets>]) -> Client<'_> {
        Client(Reader::new(parts))
    }

    fn lock(&self, bucket: usize) -> MutexGuard<'_, Bucket<OnHeap>> {
        self.0.get(bucket).lock().unwrap_or_else(|poisoned| panic!("bucket {bucket}: {poisoned}"))
    }

    /// Contents of the store.
    pub fn answer(&self) -> Answer {
        let mut answer = Answer::default();
        for bucket in 0..self.0.len() {
            self.lock(bucket).each(&mut |key, version, value| answer.note(key, version, value));
        }
        answer
    }
}

impl Table for Client<'_> {
    fn get<R>(&self, key: u64, f: impl FnOnce(u64, &[u64]) -> R) -> Option<R> {
        self.lock(bucket_of(key, self.0.len())).get(key, f)
    }

    fn put(&self, key: u64, words: usize, word: impl Fn(u64, usize) -> u64) {
        self.lock(bucket_of(key, self.0.len())).put(key, words, word);
    }
}
