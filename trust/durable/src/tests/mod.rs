//! Values in a pool without files: the effects of transactions, undoing, and the walk. These tests also run under Miri.

#![allow(unsafe_code)]

mod btree;
mod btree_faults;
mod pages;
mod transactions;
mod types;

use std::convert::Infallible;

use crate::memory::Memory;
use crate::tx::Ended;
use crate::walk::{Damage, Walk};
use crate::*;

const LIMIT: usize = 1 << 20;

/// A pool in memory with a root of type `T`.
struct Pool<T> {
    memory: Memory,
    root: std::marker::PhantomData<T>,
}

impl<T: Persist + 'static> Pool<T> {
    fn new(init: impl for<'p> FnOnce(&Tx<'p>) -> T::At<'p>) -> Self {
        let memory = Memory::reserve(LIMIT).expect("room");
        memory.set_number(7);
        assert!(memory.init::<T>(init).is_ok());
        Pool { memory, root: std::marker::PhantomData }
    }

    fn apply<U>(&self, f: impl for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> U) -> U {
        // SAFETY: `init` made a `T`.
        match unsafe { self.memory.run::<T, U, Infallible>(|root, tx| Ok(f(root, tx))) } {
            Ended::Done(value) => value,
            Ended::Panicked(panic) => std::panic::resume_unwind(panic),
            Ended::Refused(never) => match never {},
        }
    }

    /// Runs a transaction that is undone.
    fn undone(&self, f: impl for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>)) {
        // SAFETY: as above.
        let ended = unsafe {
            self.memory.run::<T, (), ()>(|root, tx| {
                f(root, tx);
                Err(())
            })
        };
        assert!(matches!(ended, Ended::Refused(())));
    }

    fn panics(&self, f: impl for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>)) {
        // SAFETY: as above.
        let ended = unsafe {
            self.memory.run::<T, (), Infallible>(|root, tx| {
                f(root, tx);
                Ok(())
            })
        };
        assert!(matches!(ended, Ended::Panicked(_)));
    }

    /// Opens a pool from a copy of this one's bytes.
    fn reopened(&self) -> Result<Pool<T>, Damage> {
        self.reopened_with(|_| ())
    }

    fn reopened_with(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<Pool<T>, Damage> {
        let mut bytes = Vec::new();
        self.memory.copy_out(0, self.memory.high_water(), &mut bytes);
        change(&mut bytes);
        let memory = Memory::reserve(LIMIT).expect("room");
        assert!(memory.copy_in(0, &bytes));
        Walk::all::<T::At<'static>>(&memory)?;
        Ok(Pool { memory, root: std::marker::PhantomData })
    }

    fn taken(&self) -> usize {
        self.memory.allocated_bytes()
    }

    fn changed(&self) -> usize {
        let before = self.memory.changed_lines();
        self.memory.take_changes();
        before
    }
}

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Node<'p> {
    key: u64,
    next: Option<PBox<'p, Node<'p>>>,
}

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct List<'p> {
    head: Option<PBox<'p, Node<'p>>>,
    len: u64,
}

impl<'p> List<'p> {
    fn push(&mut self, key: u64, tx: &Tx<'p>) {
        let next = self.head.take();
        self.head = Some(PBox::new(Node { key, next }, tx));
        self.len += 1;
    }

    fn keys(&self) -> Vec<u64> {
        std::iter::successors(self.head.as_deref(), |node| node.next.as_deref()).map(|node| node.key).collect()
    }
}

fn list() -> Pool<List<'static>> {
    Pool::new(|_| List { head: None, len: 0 })
}

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Shared<'p> {
    value: PCell<'p, u64>,
    other: PRefCell<'p, Option<Prc<'p, Shared<'p>>>>,
}

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Shares<'p> {
    strong: PVec<'p, Prc<'p, Shared<'p>>>,
    weak: Option<PWeak<'p, Shared<'p>>>,
}

fn shares() -> Pool<Shares<'static>> {
    Pool::new(|tx| {
        let one = Prc::new(Shared { value: PCell::new(1), other: PRefCell::new(None) }, tx);
        Shares { weak: Some(one.downgrade(tx)), strong: PVec::of([one.pclone(tx), one], tx) }
    })
}
