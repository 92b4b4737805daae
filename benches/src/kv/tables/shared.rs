//! Tables in shared memory: each client looks its keys up itself. One trait, and the loop that all of them share.

use super::ledger::{Answers, Client, Stamps, contender};
use crate::contender::Stats;
use crate::kv::record::{Value, key_of};
use crate::prelude::*;

/// A concurrent table.
pub trait Table: Sync + Sized + 'static {
    fn with_capacity(keys: usize) -> Self;

    fn get(&self, key: u64) -> Option<Value>;

    /// Gives the key a value and returns the one before.
    fn set(&self, key: u64, value: Value) -> Option<Value>;
}

/// The contender for tables of type `T`; marked operations are writes.
pub fn shared<T: Table + Send>(name: &'static str, kind: Kind, operations: Picks) -> Contender {
    let run = move |table: &mut T, workload: &Workload, stamps: &[Stamps]| {
        let budget = Budget::new(workload, workload.threads, 1, thread::sleep);
        let table = &*table;
        let clients = together(workload.threads, workload.pin, |thread, start| -> Client {
            let (mut stamps, mut answers, mut ops) = (stamps[thread], Answers::default(), 0);
            start.wait();
            let begun = Instant::now();
            for claim in budget.claims(thread) {
                ops += claim.end - claim.start;
                stretch(table, operations.slice(thread, &claim), &mut stamps, &mut answers);
            }
            (ClientRun { start: begun, end: Instant::now(), ops, fetched: 0 }, stamps, answers)
        });
        (clients, Stats::new())
    };
    let values = |table: &T, keys| (0..keys).map(|object| table.get(key_of(object))).collect();
    contender(name, kind, 1, |workload| filled::<T>(workload.objects), run, values)
}

fn filled<T: Table>(keys: usize) -> T {
    let table = T::with_capacity(keys);
    for object in 0..keys as u32 {
        let key = key_of(object);
        table.set(key, Value::first(key));
    }
    table
}

#[inline(always)]
fn stretch(table: &impl Table, operations: &[u32], stamps: &mut Stamps, answers: &mut Answers) {
    for &operation in operations {
        let key = key_of(operation & !MARK);
        if operation & MARK == 0 {
            answers.read(key, table.get(key));
        } else {
            let value = Value::new(key, stamps.next());
            answers.wrote(key, table.set(key, value));
        }
    }
}
