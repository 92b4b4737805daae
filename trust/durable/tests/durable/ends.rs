//! Handles that are sent elsewhere, and the end of handles, threads, trustees and pools, in any order.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};

use trust::Threadpool;
use trust_durable::{Durable, Error, PVec, Prc};

use super::faults::{child, child_folder};
use super::{Bank, accounts, open};

#[test]
fn dropping_the_last_handle_keeps_what_was_done_and_frees_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    for round in 0..20 {
        let bank = open(&pool, folder.path()).unwrap();
        assert_eq!(bank.peek(|bank| bank.accounts[1]), round, "one that is closing is waited for");
        bank.apply_then(|bank, _| bank.accounts[1] += 1, |()| ());
        // In order behind it; nothing waits for the disk.
        bank.peek(|_| ());
        drop(bank);
    }
}

#[test]
fn handles_travel_and_every_thread_and_fiber_may_call() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(2);
    let bank = open(&pool, folder.path()).unwrap();
    let holder = pool.entrust(None);
    let given = bank.clone();
    holder.apply_with(|holder, bank: Durable<Bank<'static>>| *holder = Some(bank), given);
    let fibers: Vec<_> = (0..40)
        .map(|_| {
            let bank = bank.clone();
            pool.spawn(move || (0..20).for_each(|_| bank.apply(|bank, _| bank.accounts[1] += 1)))
        })
        .collect();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let bank = bank.clone();
            std::thread::spawn(move || (0..20).for_each(|_| bank.apply(|bank, _| bank.accounts[1] += 1)))
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(accounts(&bank).1, 43 * 20);
}

#[test]
fn threads_and_pools_end_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    // A client thread that ends with results held.
    let client = bank.clone();
    std::thread::spawn(move || (0..100).for_each(|_| client.apply_then(|bank, _| bank.accounts[1] += 1, |()| ())))
        .join()
        .unwrap();
    while bank.peek(|bank| bank.accounts[1]) < 100 {
        trust::yield_now();
    }
    // The trustee ends while results are held here.
    let told = Rc::new(Cell::new(0));
    for _ in 0..100 {
        let told = Rc::clone(&told);
        bank.call().apply(|bank, _| bank.accounts[1] += 1).then(move |_| told.set(told.get() + 1));
    }
    drop(pool);
    assert!(matches!(bank.sync(), Err(Error::Gone)));
    assert!(matches!(bank.call().apply(|_, _| ()).wait(), Err(Error::Gone)));
    trust::yield_now();
    assert_eq!(told.get(), 100, "each is told, one way or the other");
    drop(bank);
    let pool = Threadpool::new(1);
    assert_eq!(accounts(&open(&pool, folder.path()).unwrap()).1, 200);
}

#[test]
fn a_volatile_pointer_outlives_its_pool_and_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let open = || {
        Durable::<PVec<Prc<u64>>>::open(pool.trustees()[0], folder.path(), |tx| PVec::of([Prc::new(7, tx)], tx))
            .unwrap()
    };
    let vec = open();
    let name = vec.apply(|vec, tx| vec[0].demote(tx));
    assert_eq!(vec.apply(move |_, tx| name.promote(tx).map(|value| *value)), Some(7));
    vec.close().unwrap();
    assert_eq!(open().apply(move |_, tx| name.promote(tx).map(|value| *value)), None);
}

#[test]
fn init_that_panics_makes_no_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let failed = Durable::<Bank>::open(pool.trustees()[0], folder.path(), |_| panic!("no root"));
    assert!(matches!(failed, Err(Error::Panicked { panic, .. }) if panic == "no root"));
    drop(open(&pool, folder.path()).unwrap());
}

#[test]
fn calls_on_a_closed_pool_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    let other = bank.clone();
    bank.close().unwrap();
    assert!(matches!(other.call().apply(|_, _| ()).wait(), Err(Error::Closed)));
    assert!(matches!(other.sync(), Err(Error::Closed)));
    assert!(other.close().is_err());
}

#[test]
fn calls_whose_trustee_is_gone_give_errors() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    // A result that is held while the trustee ends.
    let future = bank.call().apply(|bank, _| bank.accounts[1] += 1).into_future();
    bank.peek(|_| ());
    drop(pool);
    let mut future = std::pin::pin!(future);
    let outcome = loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => break outcome,
            Poll::Pending => trust::yield_now(),
        }
    };
    assert!(matches!(outcome, Ok(()) | Err(Error::Gone)), "not lost: {outcome:?}");
    assert!(matches!(bank.call().apply(|_, _| ()).wait(), Err(Error::Gone)));
    assert!(matches!(bank.call().apply(|_, _| panic!("not run")).wait(), Err(Error::Gone)));
    assert!(matches!(bank.sync(), Err(Error::Gone)));
    assert!(matches!(bank.stats(), Err(Error::Gone)));
    assert!(matches!(bank.snapshot(folder.path().join("copy")), Err(Error::Gone)));
    assert!(matches!(bank.close(), Err(Error::Gone)));
}

#[test]
fn all_who_close_at_once_return_when_the_folder_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    for round in 0..30 {
        let bank = open(&pool, folder.path()).unwrap();
        assert_eq!(accounts(&bank).1, round);
        bank.apply_then(|bank, _| bank.accounts[1] += 1, |()| ());
        bank.peek(|_| ());
        let start = Barrier::new(3);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let closers: Vec<_> = (0..3)
                .map(|_| {
                    let (bank, start, folder) = (bank.clone(), &start, folder.path());
                    scope.spawn(move || {
                        start.wait();
                        let outcome = bank.close();
                        // Free: the first opener gets it, and nobody waits for a pool that is closing.
                        let lock = std::fs::File::open(folder).unwrap();
                        let is_free = lock.try_lock_shared().is_ok();
                        (outcome, is_free)
                    })
                })
                .collect();
            closers.into_iter().map(|closer| closer.join().unwrap()).collect()
        });
        for (outcome, is_free) in &outcomes {
            assert!(*is_free && matches!(outcome, Ok(()) | Err(Error::Closed)), "{outcomes:?}");
        }
        assert!(outcomes.iter().any(|(outcome, _)| outcome.is_ok()));
    }
}

/// The error says all: nothing is reported of the pool's own requests.
#[test]
fn a_pool_whose_trustee_is_gone_writes_nothing_to_standard_error() {
    const TEST: &str = "ends::a_pool_whose_trustee_is_gone_writes_nothing_to_standard_error";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        if let Some(said) = child(TEST, "", folder.path()) {
            assert!(said.contains("the pool is gone") && !said.contains("does not run"), "{said}");
        }
        return;
    };
    let pool = Threadpool::new(1);
    let bank = open(&pool, &folder).unwrap();
    drop(pool);
    // A thread that the pool does not know yet.
    let told = std::thread::spawn(move || bank.call().apply(|_, _| ()).wait()).join().unwrap();
    assert!(matches!(told, Err(Error::Gone)), "{told:?}");
    println!("the pool is gone");
}
