//! The delegated table: a shard a worker, entrusted to it; every operation is one `apply_then`.

use super::kinds::Map;
use super::ledger::{Answers, Ledger};
use crate::contenders::pool::{pool, stats, stats_since};
use crate::kv::record::{Hashing, Stamps, Value, key_of, shard_of};
use crate::prelude::*;
use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::panic;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use trust::{Threadpool, Trust};

/// Shards on all workers, or on dedicated ones; marked operations are writes.
pub fn delegated(dedicated: bool, operations: Picks) -> Contender {
    let (name, least_threads) = if dedicated { ("apply_then-dedicated", 2) } else { ("apply_then", 1) };
    // The table, filled once it is needed, and its history since.
    let built: Rc<RefCell<Option<(Table, Ledger)>>> = Rc::default();
    let kept = Rc::clone(&built);
    let contender = Contender::new(name, Kind::Trust, least_threads, move |workload| {
        let clients = if dedicated { workload.clients() } else { workload.threads };
        let mut built = built.borrow_mut();
        let fill = || (Table::filled(workload, dedicated), Ledger::new(workload.objects, clients));
        let (table, ledger) = built.get_or_insert_with(fill);
        let budget = Arc::new(Budget::new(workload, clients, 1, trust::sleep));
        let stamps = (0..clients).map(|client| ledger.stamps(client)).collect();
        let before = stats(&table.pool);
        let clients = table.run(&budget, &operations, stamps);
        let stats = stats_since(&table.pool, &before);
        Ok(Run { stats, ..ledger.enter(clients)? })
    });
    contender.with_finish(move || match &*kept.borrow() {
        Some((table, ledger)) => ledger.check((0..).zip(table.values(ledger.keys()))),
        None => Ok(()),
    })
}

struct Table {
    shards: Arc<[Trust<Map>]>,
    pool: Threadpool,
}

impl Table {
    fn filled(workload: &Workload, dedicated: bool) -> Self {
        let dedicated = if dedicated { workload.dedicated } else { 0 };
        let pool = pool(workload, dedicated);
        let serving = if dedicated > 0 { dedicated } else { workload.threads };
        let shards: Arc<[Trust<Map>]> = pool.trustees()[workload.threads - serving..]
            .iter()
            .map(|trustee| trustee.entrust(Map::default()))
            .collect();
        let (count, keys) = (shards.len(), workload.objects as u32);
        for (index, shard) in shards.iter().enumerate() {
            // Each trustee fills its own.
            shard.apply(move |map| {
                map.reserve(keys as usize / count);
                let own = (0..keys).map(key_of).filter(|&key| shard_of(hash(key), count) == index);
                map.extend(own.map(|key| (key, Value::first(key))));
            });
        }
        Self { shards, pool }
    }

    fn run(&self, budget: &Arc<Budget>, operations: &Picks, stamps: Vec<Stamps>) -> Vec<(ClientRun, Stamps, Answers)> {
        let start = Arc::new(Barrier::new(stamps.len()));
        let spawn = |(client, stamps): (usize, Stamps)| {
            let (start, shards, budget) = (start.clone(), self.shards.clone(), budget.clone());
            let operations = operations.clone();
            self.pool.spawn_on(client, move || {
                start.wait();
                run_client(client, &shards, &budget, &operations, stamps)
            })
        };
        let handles: Vec<_> = stamps.into_iter().enumerate().map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| panic::resume_unwind(panic))).collect()
    }

    /// The values of all keys, in the order of their objects.
    fn values(&self, keys: u32) -> Vec<Option<Value>> {
        let shards = self.shards.clone();
        let reader = self.pool.spawn_on(0, move || {
            let values = Rc::new(RefCell::new(vec![None; keys as usize]));
            for object in 0..keys {
                let (key, values) = (key_of(object), values.clone());
                shards[shard_of(hash(key), shards.len())].apply_then(
                    move |map| map.get(&key).copied(),
                    move |value| values.borrow_mut()[object as usize] = value,
                );
            }
            trust::wait_all();
            values.take()
        });
        reader.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

#[inline(always)]
fn hash(key: u64) -> u64 {
    Hashing::default().hash_one(key)
}

fn run_client(
    client: usize,
    shards: &[Trust<Map>],
    budget: &Budget,
    operations: &Picks,
    mut stamps: Stamps,
) -> (ClientRun, Stamps, Answers) {
    ANSWERS.set(Answers::default());
    let start = Instant::now();
    let mut ops = 0;
    for claim in budget.claims(client) {
        ops += claim.end - claim.start;
        for &operation in operations.slice(client, &claim) {
            let key = key_of(operation & !MARK);
            let shard = &shards[shard_of(hash(key), shards.len())];
            if operation & MARK == 0 {
                shard.apply_then(move |map| map.get(&key).copied(), move |found| answer(|to| to.read(key, found)));
            } else {
                let value = Value::new(key, stamps.next());
                shard.apply_then(move |map| map.insert(key, value), move |old| answer(|to| to.wrote(key, old)));
            }
        }
    }
    trust::wait_all();
    assert_eq!(ANSWERS.get().right + ANSWERS.get().wrong, ops, "answers came");
    (ClientRun { start, end: Instant::now(), ops, fetched: 0 }, stamps, ANSWERS.get())
}

thread_local! {
    /// Answers to this thread's client; callbacks run on its thread.
    static ANSWERS: Cell<Answers> = const { Cell::new(Answers { right: 0, wrong: 0, replaced: 0 }) };
}

#[inline(always)]
fn answer(enter: impl FnOnce(&mut Answers)) {
    let mut answers = ANSWERS.get();
    enter(&mut answers);
    ANSWERS.set(answers);
}
