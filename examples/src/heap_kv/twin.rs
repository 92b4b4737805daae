//! The store in one process of plain Rust.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bucket::{Bucket, Kind};
use super::load::{Load, Stream};
use super::table::{Answer, Table, bucket_of};
use crate::heaps::twin;

/// Values and further buckets are in a `Box`.
#[derive(Debug)]
pub enum Boxed {}

impl Kind for Boxed {
    type Value = Box<[u64]>;
    type Next = Box<Bucket<Boxed>>;

    fn next(bucket: Bucket<Boxed>) -> Box<Bucket<Boxed>> {
        Box::new(bucket)
    }
}

struct Store {
    buckets: Vec<Mutex<Bucket<Boxed>>>,
}

impl Store {
    fn lock(&self, key: u64) -> MutexGuard<'_, Bucket<Boxed>> {
        // A panic under a lock ends the twin.
        self.buckets[bucket_of(key, self.buckets.len())].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table for &Store {
    fn get<R>(&self, key: u64, f: impl FnOnce(u64, &[u64]) -> R) -> Option<R> {
        self.lock(key).get(key, f)
    }

    fn put(&self, key: u64, words: usize, word: impl Fn(u64, usize) -> u64) {
        self.lock(key).put(key, words, word);
    }
}

/// Runs the whole load on so many threads; returns the contents of the store and the time.
pub fn run(load: Load, buckets: usize, threads: usize) -> (Answer, Duration) {
    let store = Store { buckets: (0..buckets).map(|_| Mutex::default()).collect() };
    // Each thread has the streams that the fibers of a worker have.
    let prepare = |thread: usize| {
        let first = (thread * load.fibers) as u64;
        load.fill(&&store, thread as u64, threads as u64);
        (first..first + load.fibers as u64).map(|number| Stream::new(load, number)).collect::<Vec<_>>()
    };
    let work = |mut own: Vec<Stream>| own.iter_mut().for_each(|stream| stream.work(&&store, |_| ()));
    let (_, time) = twin::run(threads, prepare, work);
    let mut answer = Answer::default();
    for bucket in store.buckets {
        let bucket = bucket.into_inner().unwrap_or_else(PoisonError::into_inner);
        bucket.each(&mut |key, version, value| answer.note(key, version, value));
    }
    (answer, time)
}
