//! Transactions: undoing, logging, freeing, and when destructors run.

use std::cell::Cell;

use super::{Pool, list};
use crate::*;

#[test]
fn an_undone_transaction_leaves_bytes_allocations_and_frees_as_they_were() {
    let pool = list();
    pool.apply(|list, tx| (0..5).for_each(|key| list.push(key, tx)));
    let before = (pool.taken(), pool.apply(|list, _| list.keys()));
    pool.undone(|list, tx| {
        list.push(9, tx);
        list.head.as_mut().unwrap().next.as_mut().unwrap().key = 77;
        drop(list.head.take());
        (0..100).for_each(|key| list.push(key, tx));
    });
    pool.panics(|list, tx| {
        list.push(10, tx);
        list.head = None;
        panic!("no");
    });
    assert_eq!((pool.taken(), pool.apply(|list, _| list.keys())), before);
    assert_eq!(pool.apply(|list, _| list.len), 5);
}

#[test]
fn what_does_not_change_is_not_logged() {
    if cfg!(miri) {
        return; // Under Miri every touched line counts as changed.
    }
    let pool = Pool::<PVec<u64>>::new(|tx| PVec::of(0..1000, tx));
    assert!(pool.changed() > 125);
    pool.apply(|vec, _| {
        vec[0] += 1;
        vec[0] -= 1;
        vec[500] = 500;
        vec.as_mut_slice();
    });
    assert_eq!(pool.changed(), 0);
    pool.apply(|vec, _| vec[1] = 7);
    pool.apply(|vec, _| vec[2] = 7);
    assert_eq!(pool.changed(), 1, "a line that changes twice in a group is in it once");
}

#[test]
fn freed_room_is_reused_after_its_transaction_and_not_in_it() {
    let pool = list();
    pool.apply(|list, tx| (0..50).for_each(|key| list.push(key, tx)));
    let taken = pool.taken();
    pool.apply(|list, tx| {
        list.head = None;
        list.len = 0;
        (0..50).for_each(|key| list.push(key + 100, tx));
    });
    assert_eq!(pool.taken(), taken);
    pool.undone(|list, _| list.head = None);
    assert_eq!(pool.apply(|list, _| list.keys()[0]), 149);
}

#[test]
fn long_lists_and_cycles() {
    let nodes = if cfg!(miri) { 200 } else { 20_000 };
    let pool = list();
    pool.apply(|list, tx| (0..nodes).for_each(|key| list.push(key, tx)));
    // Leaked: not reachable, and so free once the pool is opened again.
    pool.apply(|_, tx| std::mem::forget(PBox::new(1u64, tx)));
    if !cfg!(miri) {
        let taken = pool.taken();
        let pool = pool.reopened().expect("sound");
        assert_eq!(taken - pool.taken(), 16);
        pool.apply(|list, _| list.head = None);
        assert_eq!(pool.taken(), 0);
    }
    pool.apply(|list, _| list.head = None);
    assert_eq!(pool.taken(), 16);
}

/// `DURABLE_NODES=10000000` makes it ten million nodes.
#[cfg(not(miri))]
#[test]
fn a_long_list_opens_and_drops_on_a_small_stack() {
    let nodes: u64 = std::env::var("DURABLE_NODES").map_or(200_000, |nodes| nodes.parse().expect("a number"));
    let small = std::thread::Builder::new().stack_size(96 << 10);
    let listed = small.spawn(move || {
        let memory = crate::memory::Memory::reserve((nodes as usize * 24).max(super::LIMIT)).expect("room");
        let pool = Pool { memory, root: std::marker::PhantomData::<super::List<'static>> };
        assert!(pool.memory.init::<super::List<'static>>(|_| super::List { head: None, len: 0 }).is_ok());
        pool.apply(|list, tx| (0..nodes).for_each(|key| list.push(key, tx)));
        let mut bytes = Vec::new();
        pool.memory.copy_out(0, pool.memory.high_water(), &mut bytes);
        let memory = crate::memory::Memory::reserve((nodes as usize * 24).max(super::LIMIT)).expect("room");
        assert!(memory.copy_in(0, &bytes));
        crate::walk::Walk::all::<super::List<'static>>(&memory).expect("sound");
        let pool = Pool { memory, root: std::marker::PhantomData::<super::List<'static>> };
        assert_eq!(pool.taken(), nodes as usize * 16);
        pool.apply(|list, _| list.head = None);
        assert_eq!(pool.taken(), 0);
    });
    listed.expect("a thread").join().expect("its stack is enough");
}

thread_local!(static DROPPED: Cell<u64> = const { Cell::new(0) });

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Loud {
    value: u64,
}

impl Drop for Loud {
    fn drop(&mut self) {
        self.value += 1;
        DROPPED.set(DROPPED.get() + 1);
        assert!(self.value != 14, "a destructor panics");
    }
}

#[test]
fn trap_destructors_run_at_the_end_and_their_panics_undo() {
    let pool = Pool::<PVec<PBox<Loud>>>::new(|tx| PVec::of((11..14).map(|value| PBox::new(Loud { value }, tx)), tx));
    let taken = pool.taken();
    DROPPED.set(0);
    pool.panics(|vec, _| {
        vec.clear();
        assert_eq!(DROPPED.get(), 0, "not before the end");
    });
    assert_eq!(pool.taken(), taken);
    // Writes of the destructors are undone as well.
    assert_eq!(pool.apply(|vec, _| vec.iter().map(|loud| loud.value).collect::<Vec<_>>()), [11, 12, 13]);
    DROPPED.set(0);
    pool.apply(|vec, _| drop((vec.swap_remove(0), vec.pop().map(|_| ()), ())));
    assert!(DROPPED.get() > 0);
}

#[test]
fn trap_fresh_and_old_room_in_one_line() {
    let pool = Pool::<PVec<PBox<u64>>>::new(|tx| PVec::of([PBox::new(1, tx)], tx));
    // In the same line as the existing box.
    pool.undone(|vec, tx| {
        let fresh = PBox::new(2, tx);
        *vec[0] = 9;
        drop(fresh);
    });
    assert_eq!(pool.apply(|vec, _| *vec[0]), 1);
    pool.apply(|vec, tx| {
        vec.push(PBox::new(3, tx), tx);
        *vec[0] = 4;
    });
    assert_eq!(pool.apply(|vec, _| (*vec[0], *vec[1])), (4, 3));
}

#[test]
fn trap_room_freed_reused_undone() {
    let pool = Pool::<PVec<PBox<u64>>>::new(|tx| PVec::of((0..4).map(|key| PBox::new(key, tx)), tx));
    for _ in 0..3 {
        pool.undone(|vec, tx| {
            vec.truncate(1);
            (10..14).for_each(|key| vec.push(PBox::new(key, tx), tx));
            vec.clear();
        });
        pool.apply(|vec, tx| {
            vec.truncate(2);
            vec.push(PBox::new(2, tx), tx);
            vec.push(PBox::new(3, tx), tx);
        });
    }
    assert_eq!(pool.apply(|vec, _| vec.iter().map(|key| **key).collect::<Vec<_>>()), [0, 1, 2, 3]);
}

/// Two values in one line, each touched while a reference to the other is in use.
#[test]
fn trap_a_line_is_saved_before_the_first_of_its_values_is_lent() {
    let pool = Pool::<PVec<PBox<[u64; 2]>>>::new(|tx| PVec::of((0..4).map(|key| PBox::new([key; 2], tx)), tx));
    let change = |vec: &mut PVec<'_, PBox<'_, [u64; 2]>>| {
        let [one, two, rest @ ..] = vec.as_mut_slice() else { panic!("four") };
        let first = &mut **one;
        first[0] = 70;
        let second = &mut **two;
        second[1] = 71;
        first[1] = second[1] + rest[0][0];
        second[0] = first[0];
    };
    pool.undone(|vec, _| change(vec));
    assert_eq!(pool.apply(|vec, _| [*vec[0], *vec[1]]), [[0, 0], [1, 1]]);
    pool.apply(|vec, _| change(vec));
    assert_eq!(pool.apply(|vec, _| [*vec[0], *vec[1], *vec[2]]), [[70, 73], [70, 71], [2, 2]]);
}

/// A value moved from its place to another, with two owners in the course of it: undoing puts each back.
#[test]
fn trap_a_value_that_was_moved_has_one_owner_after_undoing() {
    let pool = Pool::<PVec<Option<PBox<u64>>>>::new(|tx| PVec::of([Some(PBox::new(1, tx)), None], tx));
    let taken = pool.taken();
    pool.panics(|vec, tx| {
        let stashed = vec[0].take();
        vec.push(stashed, tx);
        vec.swap(1, 2);
        let stashed = vec[1].take();
        std::mem::forget(stashed);
        panic!("with the value in nobody's hands");
    });
    assert_eq!(pool.apply(|vec, _| (vec.len(), vec[0].as_deref().copied(), vec[1].is_none())), (2, Some(1), true));
    assert_eq!(pool.taken(), taken);
    pool.apply(|vec, _| vec.clear());
    assert_eq!(taken - pool.taken(), 16);
}

/// The parts of the old root are moved on, or dropped; a panic puts all of it back.
#[test]
fn trap_a_root_that_changes_its_type() {
    #[derive(Persist)]
    #[persist(crate = crate)]
    #[repr(C)]
    struct Keys<'p> {
        keys: PVec<'p, u64>,
        first: Option<PBox<'p, super::Node<'p>>>,
    }
    let pool = list();
    pool.apply(|list, tx| (0..5).for_each(|key| list.push(key, tx)));
    let before = (pool.taken(), pool.apply(|list, _| list.keys()));
    // SAFETY: the pool was made with a list.
    let failed = unsafe {
        pool.memory.change_type::<super::List<'static>, Keys<'static>>(|mut list, tx| {
            let keys = PVec::of(list.keys(), tx);
            list.push(9, tx);
            assert!(keys.is_empty(), "no");
            Keys { keys, first: list.head }
        })
    };
    assert!(failed.is_err());
    assert_eq!((pool.taken(), pool.apply(|list, _| list.keys())), before);
    // SAFETY: as above.
    let changed = unsafe {
        pool.memory.change_type::<super::List<'static>, Keys<'static>>(|mut list, tx| {
            let keys = PVec::of(list.keys(), tx);
            list.head.as_mut().unwrap().next = None;
            Keys { keys, first: list.head }
        })
    };
    assert!(changed.is_ok());
    let pool = Pool { memory: pool.memory, root: std::marker::PhantomData::<Keys<'static>> };
    let pool = if cfg!(miri) { pool } else { pool.reopened().expect("sound") };
    pool.apply(|root, _| {
        assert_eq!((root.keys.to_vec(), root.first.as_ref().map(|node| node.key)), (before.1, Some(4)));
        (root.keys, root.first) = (PVec::new(), None);
    });
    assert_eq!(pool.taken(), 0);
}

/// Destructors run at the end of the transaction, but not when the pool is closed, nor for values that opening frees.
#[test]
fn trap_destructors_do_not_run_for_what_nobody_drops() {
    let pool = Pool::<PVec<PBox<Loud>>>::new(|tx| PVec::of([PBox::new(Loud { value: 1 }, tx)], tx));
    DROPPED.set(0);
    pool.apply(|_, tx| std::mem::forget(PBox::new(Loud { value: 2 }, tx)));
    if cfg!(miri) {
        return drop(pool);
    }
    let again = pool.reopened().expect("sound");
    assert_eq!(pool.taken() - again.taken(), 16, "the forgotten one is free");
    drop((pool, again));
    assert_eq!(DROPPED.get(), 0);
}
