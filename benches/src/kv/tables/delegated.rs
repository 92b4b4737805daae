//! The delegated table: a shard a trustee; every operation is one `apply_then`.

use super::kinds::Map;
use super::ledger::{Answers, Client, Stamps, contender};
use crate::contenders::Mode;
use crate::contenders::pool::{Answered, Stage};
use crate::kv::record::{Hashing, Value, key_of, shard_of};
use crate::prelude::*;
use std::hash::BuildHasher;
use trust::Trust;

/// Shards on all workers, or on dedicated ones; marked operations are writes.
pub fn delegated(mode: Mode, operations: Picks) -> Contender {
    let name =
        mode.name(["apply_then", "apply_then-dedicated", "apply_then-lone", "apply_then-gathered", "apply_then-tuned"]);
    let fill = move |workload: &Workload| filled(workload, mode);
    let run = move |stage: &mut Stage<Map>, workload: &Workload, stamps: &[Stamps]| {
        let budget = Arc::new(Budget::new(workload, mode.clients(workload), 1, trust::sleep));
        let (shards, operations, stamps) = (stage.trusts(), operations.clone(), stamps.to_vec());
        stage.restart();
        let clients = stage.run(move |client| run_client(client, &shards, &budget, &operations, stamps[client]));
        (clients, stage.stats())
    };
    contender(name, Kind::Trust, mode.least_threads(), fill, run, values)
}

/// Each trustee fills its own shard.
fn filled(workload: &Workload, mode: Mode) -> Stage<Map> {
    let stage = Stage::of(workload, mode, None, Map::default);
    let (shards, keys) = (stage.trusts(), workload.objects as u32);
    for (index, shard) in shards.iter().enumerate() {
        let count = shards.len();
        shard.apply(move |map| {
            map.reserve(keys as usize / count);
            let own = (0..keys).map(key_of).filter(|&key| shard_of(hash(key), count) == index);
            map.extend(own.map(|key| (key, Value::first(key))));
        });
    }
    stage
}

/// The values of all keys, in the order of their objects.
fn values(stage: &Stage<Map>, keys: u32) -> Vec<Option<Value>> {
    stage.look(move |shards| {
        let values = Answered::new(RefCell::new(vec![None; keys as usize]));
        for object in 0..keys {
            let (key, values) = (key_of(object), values.clone());
            shards[shard_of(hash(key), shards.len())].apply_then(
                move |map| map.get(&key).copied(),
                move |value| values.borrow_mut()[object as usize] = value,
            );
        }
        values
    })
}

#[inline(always)]
fn hash(key: u64) -> u64 {
    Hashing::default().hash_one(key)
}

fn run_client(client: usize, shards: &[Trust<Map>], budget: &Budget, operations: &Picks, mut stamps: Stamps) -> Client {
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
