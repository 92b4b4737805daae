//! The proof that a table did its work: every read found a whole value of its key, every write replaced one, and in the
//! end nothing was lost or kept twice: the table holds exactly the values that were written and not returned as
//! replaced.

use crate::contender::Stats;
use crate::kv::record::{Value, key_of};
use crate::prelude::*;
use std::num::NonZeroU64;

/// The stamps of one client's writes: no two alike, over all clients.
#[derive(Clone, Copy, Debug)]
pub struct Stamps(NonZeroU64);

impl Stamps {
    pub fn of(client: usize) -> Self {
        Self(NonZeroU64::MIN.saturating_add((client as u64 + 1) << 48))
    }

    /// All stamps from here until those that are left, summed.
    pub fn sum_until(self, left: Stamps) -> u64 {
        let (first, last) = (u128::from(self.0.get()) + 1, u128::from(left.0.get()));
        ((first + last) * (last + 1 - first) / 2) as u64
    }

    #[inline(always)]
    pub fn next(&mut self) -> NonZeroU64 {
        self.0 = self.0.saturating_add(1);
        self.0
    }
}

/// Answers to one client in one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Answers that were a whole value of the key that was asked for.
    pub right: u64,
    pub wrong: u64,
    /// Stamps of the values that writes replaced, summed.
    pub replaced: u64,
}

impl Answers {
    /// The value that a read found.
    #[inline(always)]
    pub fn read(&mut self, key: u64, found: Option<Value>) {
        match found {
            Some(value) if value.belongs_to(key) => self.right += 1,
            _ => self.wrong += 1,
        }
    }

    /// The value that a write replaced.
    #[inline(always)]
    pub fn wrote(&mut self, key: u64, replaced: Option<Value>) {
        self.read(key, replaced);
        self.replaced = self.replaced.wrapping_add(replaced.map_or(0, Value::stamp));
    }
}

/// A client's times in a run, the stamps it has left, and the answers it got.
pub type Client = (ClientRun, Stamps, Answers);

/// The contender whose table is filled once, before the first run, and looked through after the last.
pub fn contender<T: 'static>(
    name: &'static str,
    kind: Kind,
    least_threads: usize,
    fill: impl Fn(&Workload) -> T + 'static,
    run: impl Fn(&mut T, &Workload, &[Stamps]) -> (Vec<Client>, Stats) + 'static,
    values: impl Fn(&T, u32) -> Vec<Option<Value>> + 'static,
) -> Contender {
    let built: Rc<RefCell<Option<(T, Ledger)>>> = Rc::default();
    let kept = Rc::clone(&built);
    let contender = Contender::new(name, kind, least_threads, move |workload| {
        let mut built = built.borrow_mut();
        let (table, ledger) =
            built.get_or_insert_with(|| (fill(workload), Ledger::new(workload.objects, workload.threads)));
        let (clients, stats) = run(table, workload, &ledger.stamps);
        Ok(Run { stats, ..ledger.enter(clients)? })
    });
    contender.with_finish(move || match &*kept.borrow() {
        Some((table, ledger)) => ledger.check(values(table, ledger.keys)),
        None => Ok(()),
    })
}

/// History of a table since it was filled.
#[derive(Debug)]
struct Ledger {
    keys: u32,
    /// For each client, the stamps it has left.
    stamps: Vec<Stamps>,
    /// Stamps of the values that were written and not replaced since, summed.
    held: u64,
}

impl Ledger {
    /// Of a table that holds the first value of so many keys, for so many clients.
    fn new(keys: usize, clients: usize) -> Self {
        Self { keys: keys as u32, stamps: (0..clients).map(Stamps::of).collect(), held: keys as u64 }
    }

    fn enter(&mut self, clients: Vec<Client>) -> Result<Run> {
        let mut right = 0;
        for (client, (run, stamps, answers)) in clients.iter().enumerate() {
            ensure!(
                answers.wrong == 0 && answers.right == run.ops,
                "of {} answers to client {client} {} were right and {} were no value, or a torn one, or another key's",
                run.ops,
                answers.right,
                answers.wrong
            );
            right += answers.right;
            let written = self.stamps[client].sum_until(*stamps);
            self.held = self.held.wrapping_add(written).wrapping_sub(answers.replaced);
            self.stamps[client] = *stamps;
        }
        let runs: Vec<ClientRun> = clients.into_iter().map(|(run, ..)| run).collect();
        Ok(fold(&runs, Tally { total: right, fetched: 0 }))
    }

    /// Compares with the table's contents: the value of each object.
    fn check(&self, values: Vec<Option<Value>>) -> Result<()> {
        ensure!(values.len() == self.keys as usize, "{} keys of {} were looked at", values.len(), self.keys);
        let mut held = 0u64;
        for (object, value) in (0..).zip(values) {
            let value = value.filter(|value| value.belongs_to(key_of(object)));
            let value = value.with_context(|| format!("the table holds no value of key {object}, or another key's"))?;
            held = held.wrapping_add(value.stamp());
        }
        ensure!(
            held == self.held,
            "the table's values do not add up to what was written and not replaced: writes were lost or made twice"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_added_up() {
        let first = Stamps::of(0);
        let mut stamps = first;
        let sum = stamps.next().get() + stamps.next().get();
        assert_eq!((first.sum_until(stamps), stamps.sum_until(stamps)), (sum, 0));
        assert_ne!(Stamps::of(0).next(), Stamps::of(1).next());
    }

    fn run(ledger: &mut Ledger, ops: u64, stamps: Stamps, answers: Answers) -> Result<Run> {
        let now = Instant::now();
        ledger.enter(vec![(ClientRun { start: now, end: now, ops, fetched: 0 }, stamps, answers)])
    }

    /// Two keys; the second is written twice and read once.
    fn story() -> (Ledger, [Option<Value>; 2]) {
        let mut ledger = Ledger::new(2, 1);
        let (mut stamps, mut answers) = (ledger.stamps[0], Answers::default());
        let mut table = [0, 1].map(|object| Some(Value::first(key_of(object))));
        for _ in 0..2 {
            let replaced = table[1].replace(Value::new(key_of(1), stamps.next()));
            answers.wrote(key_of(1), replaced);
        }
        answers.read(key_of(1), table[1]);
        run(&mut ledger, 3, stamps, answers).unwrap().verify(3).unwrap();
        (ledger, table)
    }

    #[test]
    fn a_table_that_did_what_it_was_asked_passes() {
        let (ledger, table) = story();
        ledger.check(table.to_vec()).unwrap();
    }

    #[test]
    fn lost_writes_missing_keys_and_strange_values_are_found() {
        let (ledger, table) = story();
        let faults =
            [[table[0], Some(Value::first(key_of(1)))], [table[0], None], [table[0], Some(Value::first(key_of(0)))]];
        for fault in faults {
            assert!(ledger.check(fault.to_vec()).is_err());
        }
        assert!(ledger.check(vec![table[0]]).is_err());
    }

    #[test]
    fn wrong_answers_fail_their_run() {
        let mut ledger = Ledger::new(2, 1);
        let stamps = ledger.stamps[0];
        let mut answers = Answers::default();
        answers.read(key_of(1), Some(Value::first(key_of(0))));
        assert!(run(&mut ledger, 1, stamps, answers).is_err());
        assert!(run(&mut ledger, 1, stamps, Answers::default()).is_err(), "an answer is missing");
    }
}
