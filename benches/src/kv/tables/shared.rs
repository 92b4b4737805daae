//! Tables in shared memory: each client looks its keys up itself. One trait, and the loop that all of them share.

use std::{cell::RefCell, thread, time::Instant};

use anyhow::Result;

use super::ledger::{Answers, Ledger};
use crate::{
    budget::Budget,
    contender::{ClientRun, Contender, Kind, Run, Workload},
    contenders::threads::together,
    kv::record::{Stamps, Value, key_of},
    pick::{MARK, Picks},
};

/// A concurrent table.
pub trait Table: Sync + Sized + 'static {
    /// The handle that a client asks through; made anew for each stretch of operations.
    type Handle<'a>: Handle;

    /// An empty table that will hold so many keys.
    fn with_capacity(keys: usize) -> Self;

    /// The handle of a stretch of operations.
    fn handle(&self) -> Self::Handle<'_>;
}

/// A client's way to a table.
pub trait Handle {
    /// The value of the key.
    fn get(&self, key: u64) -> Option<Value>;

    /// Gives the key a value and returns the one before.
    fn set(&self, key: u64, value: Value) -> Option<Value>;
}

/// The contender for a type of table.
pub struct SharedTable<T> {
    name: &'static str,
    kind: Kind,
    operations: Picks,
    /// The table, filled once it is needed, and its history since.
    built: RefCell<Option<(T, Ledger)>>,
}

impl<T: Table> SharedTable<T> {
    /// The contender for tables of type `T`; marked operations are writes.
    pub fn boxed(name: &'static str, kind: Kind, operations: &Picks) -> Box<dyn Contender> {
        Box::new(Self { name, kind, operations: operations.clone(), built: RefCell::default() })
    }
}

impl<T: Table> Contender for SharedTable<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn run(&self, workload: &Workload) -> Result<Run> {
        let mut built = self.built.borrow_mut();
        let (table, ledger) =
            built.get_or_insert_with(|| (filled(workload.objects), Ledger::new(workload.objects, workload.threads)));
        let (table, asked, written) = (&*table, &self.operations, &*ledger);
        let budget = Budget::new(workload, workload.threads, 1, thread::sleep);
        let clients = together(workload.threads, workload.pin, |thread, start| {
            let (mut stamps, mut answers, mut ops) = (written.stamps(thread), Answers::default(), 0);
            start.wait();
            let begun = Instant::now();
            for claim in budget.claims(thread) {
                ops += claim.end - claim.start;
                stretch(&table.handle(), asked.slice(thread, &claim), &mut stamps, &mut answers);
            }
            (ClientRun { start: begun, end: Instant::now(), ops, fetched: 0 }, stamps, answers)
        });
        ledger.enter(clients)
    }

    fn finish(&self) -> Result<()> {
        let built = self.built.borrow();
        let Some((table, ledger)) = &*built else { return Ok(()) };
        let handle = table.handle();
        ledger.check((0..ledger.keys()).map(|object| (object, handle.get(key_of(object)))))
    }
}

fn filled<T: Table>(keys: usize) -> T {
    let table = T::with_capacity(keys);
    for object in 0..keys as u32 {
        let key = key_of(object);
        table.handle().set(key, Value::first(key));
    }
    table
}

#[inline(always)]
fn stretch(table: &impl Handle, operations: &[u32], stamps: &mut Stamps, answers: &mut Answers) {
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
