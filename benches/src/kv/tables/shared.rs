//! Tables in shared memory: each client looks its keys up itself. One trait, and the loop that all of them share.

use super::ledger::{Answers, Ledger};
use crate::kv::record::{Stamps, Value, key_of};
use crate::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::thread;

/// A concurrent table.
pub trait Table: Sync + Sized + 'static {
    fn with_capacity(keys: usize) -> Self;

    fn get(&self, key: u64) -> Option<Value>;

    /// Gives the key a value and returns the one before.
    fn set(&self, key: u64, value: Value) -> Option<Value>;
}

/// The contender for tables of type `T`; marked operations are writes.
pub fn shared<T: Table>(name: &'static str, kind: Kind, operations: Picks) -> Contender {
    // The table, filled once it is needed, and its history since.
    let built: Rc<RefCell<Option<(T, Ledger)>>> = Rc::default();
    let kept = Rc::clone(&built);
    let contender = Contender::new(name, kind, 1, move |workload| {
        let mut built = built.borrow_mut();
        let (table, ledger) =
            built.get_or_insert_with(|| (filled(workload.objects), Ledger::new(workload.objects, workload.threads)));
        let (table, asked, written) = (&*table, &operations, &*ledger);
        let budget = Budget::new(workload, workload.threads, 1, thread::sleep);
        let clients = together(workload.threads, workload.pin, |thread, start| {
            let (mut stamps, mut answers, mut ops) = (written.stamps(thread), Answers::default(), 0);
            start.wait();
            let begun = Instant::now();
            for claim in budget.claims(thread) {
                ops += claim.end - claim.start;
                stretch(table, asked.slice(thread, &claim), &mut stamps, &mut answers);
            }
            (ClientRun { start: begun, end: Instant::now(), ops, fetched: 0 }, stamps, answers)
        });
        ledger.enter(clients)
    });
    contender.with_finish(move || match &*kept.borrow() {
        Some((table, ledger)) => ledger.check((0..ledger.keys()).map(|object| (object, table.get(key_of(object))))),
        None => Ok(()),
    })
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
