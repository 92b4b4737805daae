//! Crash points: a pool on a simulated disk, cut at each operation, reopened, compared with its acknowledgements.
//!
//! The oracle: the root is a vector; each transaction changes two of its places and a counter. So half a transaction
//! shows, and the state gives the number of transactions before it.

#![allow(unsafe_code)]

mod bytes;
mod changed;
mod crashes;
mod migration;

use std::convert::Infallible;

use super::named::Files;
use super::recover::{self, Opened};
use super::sim::Sim;
use super::store::{Identity, Store};
use crate::error::Result;
use crate::group;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::tx::Ended;
use crate::walk::Walk;
use crate::{PBox, PVec, Persist, Tx};

const LIMIT: usize = 1 << 20;
const PLACES: u64 = 600;

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Root<'p> {
    count: u64,
    places: PVec<'p, u64>,
    last: Option<PBox<'p, [u64; 9]>>,
    /// An allocation that stays unwritten at first.
    late: PVec<'p, u64>,
}

/// Returns the root's places after `count` transactions.
fn expected(count: u64) -> Vec<u64> {
    let mut places = vec![0; PLACES as usize];
    for n in 1..=count {
        places[(n * 7 % PLACES) as usize] += n;
        places[(n * 131 % PLACES) as usize] += n;
    }
    places
}

fn step<'p>(root: &mut Root<'p>, tx: &Tx<'p>) {
    root.count += 1;
    let n = root.count;
    root.places[(n * 7 % PLACES) as usize] += n;
    root.places[(n * 131 % PLACES) as usize] += n;
    root.last = (!n.is_multiple_of(3)).then(|| PBox::new([n; 9], tx));
    root.late = PVec::with_capacity(8, tx);
    (0..8).for_each(|_| root.late.push(n, tx));
}

/// Allocates and writes the same slots as the next step, with the same bytes; it is undone.
fn undone_step<'p>(root: &mut Root<'p>, tx: &Tx<'p>) {
    let n = root.count + 1;
    let mut random = random(n);
    while random() {
        std::mem::forget(PBox::new([n; 8], tx));
    }
    root.count = 0;
}

struct Pool {
    memory: Memory,
    store: Store,
    group: u64,
    /// Transactions of the groups acknowledged as durable.
    told: u64,
    count: u64,
}

impl Pool {
    fn create(disk: &Sim) -> Result<Pool> {
        let memory = Memory::reserve(LIMIT).expect("room");
        let init = memory.init::<Root>(|tx| Root {
            count: 0,
            places: PVec::of((0..PLACES).map(|_| 0), tx),
            last: None,
            late: PVec::new(),
        });
        assert!(init.is_ok());
        let mut bytes = Vec::new();
        memory.copy_out(0, memory.high_water(), &mut bytes);
        memory.take_changes();
        let layout = serde_json::to_string(&Layout::of::<Root>()).expect("it is data");
        let store = Store::create(Files::of(disk.clone()), Identity { pool: 7, seed: 1, layout }, &bytes)?;
        Ok(Pool { memory, store, group: 1, told: 0, count: 0 })
    }

    fn step(&mut self) {
        // SAFETY: the pool was created with a `Root`.
        let ended = unsafe {
            self.memory.run::<Root, (), ()>(|root, tx| {
                undone_step(root, tx);
                Err(())
            })
        };
        assert!(matches!(ended, Ended::Refused(())));
        // SAFETY: as above.
        let ended = unsafe {
            self.memory.run::<Root, (), Infallible>(|root, tx| {
                step(root, tx);
                Ok(())
            })
        };
        assert!(matches!(ended, Ended::Done(())));
        self.count += 1;
    }

    fn commit(&mut self) -> Result<()> {
        let Some(mut record) = group::close(&self.memory, self.group, Vec::new()) else { return Ok(()) };
        self.group += 1;
        self.store.commit(&mut record)?;
        self.told = self.count;
        Ok(())
    }

    fn slices(&mut self, from: usize) -> Result<()> {
        let mut bytes = Vec::new();
        self.memory.copy_out(from, self.memory.high_water() - from, &mut bytes);
        self.store.slice(&bytes)
    }

    /// Makes some groups, with a new generation in the middle. `told` has the acknowledged transactions even if it
    /// fails.
    fn work(&mut self) -> Result<()> {
        for round in 0..6 {
            for _ in 0..1 + round % 3 {
                self.step();
            }
            if round == 2 {
                let len = self.memory.high_water() as u64;
                self.store.begin_generation(self.group, len)?;
            }
            if round == 3 {
                // Copied while the open group has changes.
                self.slices(0)?;
                let end = self.group;
                self.commit()?;
                self.store.end_generation(end)?;
            }
            self.commit()?;
        }
        Ok(())
    }
}

fn open(disk: &Sim) -> Result<Option<Opened>> {
    let opened =
        recover::open(Files::of(disk.clone()), &Layout::of::<Root>(), LIMIT, |memory| Walk::all::<Root>(memory))?;
    Ok(opened.ok())
}

/// Returns the number of transactions before the state of an opened pool, and checks that the state is consistent.
fn count(memory: &Memory) -> u64 {
    // SAFETY: the pool was opened or created with a `Root`.
    let looked = unsafe {
        memory.look::<Root, _>(|root| {
            (root.count, root.places.to_vec(), root.last.as_deref().copied(), root.late.to_vec())
        })
    };
    let (count, places, last, late) = looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert_eq!(places, expected(count), "half a transaction");
    assert_eq!(last, (!count.is_multiple_of(3)).then_some([count; 9]));
    assert_eq!(late, vec![count; if count == 0 { 0 } else { 8 }]);
    count
}

fn random(seed: u64) -> impl FnMut() -> bool {
    let mut random = fastrand::Rng::with_seed(seed);
    move || random.bool()
}
