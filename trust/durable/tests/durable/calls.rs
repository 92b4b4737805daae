//! Calls: results, their time and their order.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trust::Threadpool;
use trust_durable::{Durable, Error, PBox, PMap, PString, PVec, Persist, Tx};

use super::{Bank, Transfer, accounts, open};

#[test]
fn the_example_of_the_design() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(2);
    let bank = open(&pool, folder.path()).unwrap();
    let left = bank.apply(|bank, tx| {
        bank.accounts[0] -= 30;
        bank.accounts[1] += 30;
        bank.last = Some(PBox::new(Transfer { from: 0, to: 1, amount: 30 }, tx));
        bank.accounts[0]
    });
    assert_eq!(left, 70);
    let no = bank
        .call()
        .apply(|bank, _| {
            bank.accounts[0] = 0;
            assert!(bank.accounts[1] > 99, "too poor");
        })
        .wait();
    assert!(matches!(no, Err(Error::Panicked { panic, .. }) if panic.contains("too poor")), "the text is told");
    assert_eq!(accounts(&bank), (70, 30), "undone, not poisoned");
    let refused = bank.attempt(|bank, _| {
        bank.accounts[0] = 1;
        if bank.accounts[1] < 1000 { Err(bank.accounts[1]) } else { Ok(()) }
    });
    assert_eq!(refused, Err(30));
    assert_eq!(bank.peek(|bank| bank.accounts[0]), left);
    let stats = bank.stats().unwrap();
    assert_eq!((stats.undone, stats.groups), (2, 1));
    bank.close().unwrap();

    let bank = open(&pool, folder.path()).unwrap();
    assert_eq!(accounts(&bank), (70, 30));
    let last = bank.apply(|bank, _| bank.last.as_ref().map(|last| (last.from, last.to, last.amount)));
    assert_eq!(last, Some((0, 1, 30)));
    assert_eq!(bank.stats().unwrap().groups_replayed, 1);
}

#[test]
fn what_comes_while_the_disk_is_busy_shares_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    let done = Rc::new(Cell::new(0));
    for n in 1..=20_000u64 {
        let done = Rc::clone(&done);
        bank.apply_then(
            move |bank, _| {
                bank.accounts[0] += 1;
                n
            },
            move |number| {
                assert_eq!(done.replace(number) + 1, number, "callbacks come in order");
            },
        );
    }
    bank.sync().unwrap();
    assert_eq!(done.get(), 20_000);
    let stats = bank.stats().unwrap();
    assert!(stats.groups < 10_000, "{stats:?}");
    assert!(stats.written_bytes <= stats.groups * 4096 + stats.lines * 64 * 13 / 10, "{stats:?}");
    assert_eq!(accounts(&bank).0, 20_100);
}

#[test]
fn no_result_before_it_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    for n in 1..=50 {
        bank.apply_then(|bank, _| bank.accounts[0] += 1, |()| ());
        // A read, which sees changes that are not durable yet.
        let seen = bank.apply(|bank, _| bank.accounts[0]);
        assert_eq!(seen, 100 + n);
        // The state that a crash now would leave.
        let copy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let left = open(&pool, copy.path()).unwrap();
        assert!(left.peek(|bank| bank.accounts[0]) >= seen);
        left.close().unwrap();
    }
}

#[test]
fn callbacks_may_not_wait_and_one_that_panics_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = |what: &'static str| {
        let seen = Rc::clone(&seen);
        move |()| seen.borrow_mut().push(what)
    };
    bank.apply_then(|bank, _| bank.accounts[0] += 1, note("first"));
    let again = bank.clone();
    bank.apply_then(|bank, _| bank.accounts[0] += 1, move |()| again.apply(|bank, _| bank.accounts[0] += 1000));
    let (again, last) = (bank.clone(), note("from a callback"));
    bank.apply_then(|bank, _| bank.accounts[0] += 1, move |()| again.apply_then(|bank, _| bank.accounts[1] = 7, last));
    bank.apply_then(|bank, _| bank.accounts[0] += 1, note("last"));
    bank.sync().unwrap();
    bank.sync().unwrap();
    assert_eq!(*seen.borrow(), ["first", "last", "from a callback"]);
    assert_eq!(accounts(&bank), (104, 7));
}

#[test]
fn waiting_or_nesting_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    let inner = bank.clone();
    let (nested, line) = (bank.call().apply(move |_, _| inner.apply(|bank, _| bank.accounts[0])).wait(), line!());
    let named = format!("`apply` at {}:{line}:", file!());
    assert!(matches!(&nested, Err(Error::Panicked { panic, .. }) if panic.contains(&named)), "no {named}: {nested:?}");
    // A call posted from inside runs afterwards.
    let inner = bank.clone();
    bank.apply(move |bank, _| {
        inner.apply_then(|bank, _| bank.accounts[1] += bank.accounts[0], |()| ());
        bank.accounts[0] = 5;
    });
    bank.sync().unwrap();
    assert_eq!(accounts(&bank), (5, 5));
}

#[test]
fn at_the_calling_threads_own_trustee() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Durable::<Bank>::open(trust::local_trustee(), folder.path(), |tx| Bank {
        accounts: PVec::of([0, 0], tx),
        last: None,
    });
    let bank = bank.unwrap();
    let seen = Rc::new(Cell::new(0));
    let see = Rc::clone(&seen);
    bank.apply_then(
        |bank, _| {
            bank.accounts[0] += 1;
            bank.accounts[0]
        },
        move |value| see.set(value),
    );
    assert_eq!(seen.get(), 0, "not yet durable");
    assert_eq!(bank.apply(|bank, _| bank.accounts[0]), 1);
    assert_eq!(seen.get(), 1);
    bank.close().unwrap();
}

#[test]
fn serialised_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let map = Durable::<PMap<PString, PString>>::open(pool.trustees()[0], folder.path(), |_| PMap::new()).unwrap();
    let put = |key: &str, value: &str| {
        map.apply_with(
            |map, tx, (key, value): (String, String)| {
                map.insert(PString::of(&key, tx), PString::of(&value, tx), tx).map(|old| old.as_str().to_owned())
            },
            (key.to_owned(), value.to_owned()),
        )
    };
    assert_eq!((put("one", "1"), put("one", "2")), (None, Some("1".into())));
    // Export, and import into another pool.
    let all: Vec<(String, String)> =
        map.apply_with(|map, _, ()| map.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect(), ());
    assert_eq!(all, [("one".into(), "2".into())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let (pool, bank) = tokio::task::spawn_blocking(move || {
        let pool = Threadpool::new(1);
        let bank = open(&pool, &path).unwrap();
        (pool, bank)
    })
    .await
    .unwrap();
    let mut futures: Vec<_> = (0..100)
        .map(|_| {
            bank.call()
                .apply(|bank, _| {
                    bank.accounts[1] += 1;
                    bank.accounts[1]
                })
                .into_future()
        })
        .collect();
    for (n, future) in futures.drain(..).enumerate() {
        assert_eq!(future.await.unwrap(), n as u64 + 1);
    }
    let panicked = bank.call().apply(|_, _| assert!(std::hint::black_box(false), "no")).await;
    assert!(matches!(panicked, Err(Error::Panicked { panic, .. }) if panic == "no"));
    drop(bank.call().apply(|bank, _| bank.accounts[1] = 7).into_future());
    assert_eq!(bank.call().apply(|bank, _| bank.accounts[1]).await.unwrap(), 7);
    tokio::task::spawn_blocking(move || drop((bank, pool))).await.unwrap();
}

#[test]
fn within_tells_at_once_and_makes_durable_soon() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let builder = Durable::<Bank>::builder().within(Duration::from_millis(50));
    let bank = builder
        .open(pool.trustees()[0], folder.path(), |tx| Bank { accounts: PVec::of([0, 0], tx), last: None })
        .unwrap();
    let began = Instant::now();
    for _ in 0..3000 {
        bank.apply(|bank, _| bank.accounts[0] += 1);
    }
    let stats = bank.stats().unwrap();
    assert!(stats.groups < 40 + began.elapsed().as_millis() as u64 / 10, "{stats:?}");
    bank.sync().unwrap();
    let stats = bank.stats().unwrap();
    assert!(stats.groups > 0);
    bank.close().unwrap();
    assert_eq!(accounts(&open(&pool, folder.path()).unwrap()).0, 3000);
}

/// Copies the files of a pool that runs. A file that goes meanwhile is of an earlier generation: then all are copied
/// anew.
fn copy_of(folder: &std::path::Path) -> tempfile::TempDir {
    let copy = || {
        let copy = tempfile::tempdir()?;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            std::fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
        }
        Ok(copy)
    };
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let tries = (0..100).map(|_| copy()).find(|copied| !copied.as_ref().is_err_and(is_gone));
    tries.expect("files do not go all the time").unwrap()
}

#[test]
fn a_crash_loses_whole_last_groups() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let open = |folder: &std::path::Path| {
        let builder = Durable::<Bank>::builder().within(Duration::from_millis(4));
        builder
            .open(pool.trustees()[0], folder, |tx| Bank { accounts: PVec::of([100_000, 0], tx), last: None })
            .unwrap()
    };
    let bank = open(folder.path());
    let mut last = 0;
    for made in 1..=4000u64 {
        bank.apply(|bank, _| {
            bank.accounts[0] -= 1;
            bank.accounts[1] += 1;
        });
        if made % 200 == 0 {
            // The state that a crash now would leave.
            let copy = copy_of(folder.path());
            let left = open(copy.path());
            let (from, to) = left.peek(|bank| [bank.accounts[0], bank.accounts[1]]).into();
            assert!(from + to == 100_000 && (last..=made).contains(&to), "{from} and {to} after {made}, {last} before");
            last = to;
            left.close().unwrap();
        }
    }
    assert!(last > 0, "some of it was durable");
}

#[test]
fn what_an_undone_transaction_left_in_free_room_is_not_taken_for_what_the_disk_has() {
    #[derive(Persist)]
    #[repr(C)]
    struct Root<'p> {
        boxed: Option<PBox<'p, [u64; 8]>>,
        list: PVec<'p, u64>,
    }
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let open = || {
        Durable::<Root>::open(pool.trustees()[0], folder.path(), |_| Root { boxed: None, list: PVec::new() }).unwrap()
    };
    let root = open();
    let refused: Result<(), u8> = root.attempt(|root, tx| {
        root.boxed = Some(PBox::new([7; 8], tx));
        Err(1)
    });
    assert_eq!(refused, Err(1));
    root.apply(|root, tx| {
        root.list = PVec::with_capacity(8, tx);
        (0..8).for_each(|_| root.list.push(7, tx));
    });
    root.close().unwrap();
    assert!(open().apply(|root, _| root.list.iter().eq(&[7; 8])));
}

#[test]
fn who_waits_does_not_wait_for_the_pause_of_within() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pool = Threadpool::new(1);
    let bank = Durable::<Bank>::builder().within(Duration::from_secs(3600));
    let bank =
        bank.open(pool.trustees()[0], folder.path(), |tx| Bank { accounts: PVec::of([0, 0], tx), last: None }).unwrap();
    let began = Instant::now();
    for _ in 0..3 {
        // The first group is written at once, later ones in its pause.
        bank.apply(|bank, _| bank.accounts[0] += 1);
        bank.sync().unwrap();
        bank.apply(|bank, _| bank.accounts[0] += 1);
    }
    bank.snapshot(other.path()).unwrap();
    bank.close().unwrap();
    assert!(began.elapsed() < limits::HANG, "{:?}", began.elapsed());
    assert_eq!(accounts(&open(&pool, folder.path()).unwrap()).0, 6);
}

#[test]
fn any_time_may_be_told_early() {
    let pool = Threadpool::new(1);
    for within in
        [Duration::MAX, Duration::MAX / 2, Duration::from_secs(1 << 62), Duration::ZERO, Duration::from_nanos(1)]
    {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let builder = Durable::<u64>::builder().within(within);
        let counter = builder.open(pool.trustees()[0], folder.path(), |_| 0).unwrap();
        // In the pause after a group, and while it is written.
        for round in 1..=3 {
            assert_eq!(
                counter.apply(|counter, _| {
                    *counter += 1;
                    *counter
                }),
                round
            );
            counter.sync().unwrap();
        }
        counter.apply_then(|counter, _| *counter += 1, |()| ());
        counter.snapshot(other.path()).unwrap();
        counter.close().unwrap();
        for folder in [folder, other] {
            let counter = Durable::<u64>::open(pool.trustees()[0], folder.path(), |_| 0).unwrap();
            assert_eq!(counter.peek(|counter| *counter), 4, "{within:?}");
        }
    }
}

#[test]
fn a_future_keeps_its_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    for round in 1..=20 {
        let bank = open(&pool, folder.path()).unwrap();
        let future = bank
            .call()
            .apply(|bank, _| {
                bank.accounts[1] += 1;
                bank.accounts[1]
            })
            .into_future();
        drop(bank);
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let value = loop {
            match future.as_mut().poll(&mut context) {
                std::task::Poll::Ready(value) => break value,
                std::task::Poll::Pending => trust::yield_now(),
            }
        };
        assert_eq!(value.unwrap(), round);
    }
}

#[test]
fn a_limited_wait_ends_and_its_closure_runs_all_the_same() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    let add = |bank: &mut Bank, _: &Tx| bank.accounts[1] += 1;
    bank.call().apply(add).timeout(limits::HANG).wait().unwrap();
    pool.entrust(()).apply_then(
        |_| {
            while !IS_OVER.load(Ordering::Relaxed) {
                std::thread::yield_now()
            }
        },
        |()| (),
    );
    let short = Duration::from_millis(1);
    assert!(matches!(bank.call().apply(add).timeout(short).wait(), Err(Error::TimedOut)));
    let add_more = |bank: &mut Bank, _: &Tx, more: u64| bank.accounts[1] += more;
    assert!(matches!(bank.call().with(10).apply(add_more).timeout(short).wait(), Err(Error::TimedOut)));
    IS_OVER.store(true, Ordering::Relaxed);
    bank.sync().unwrap();
    assert_eq!(accounts(&bank), (100, 12));
    let panicked = bank.call().apply(|_, _| assert!(std::hint::black_box(false), "no")).timeout(limits::HANG).wait();
    assert!(matches!(panicked, Err(Error::Panicked { panic, .. }) if panic == "no"));
}

#[test]
fn a_look_gives_its_errors_in_every_way() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    let look = || bank.call().peek(|bank| bank.accounts[0]);
    assert_eq!(look().wait().unwrap(), 100);
    assert_eq!(look().timeout(limits::HANG).wait().unwrap(), 100);
    let told = std::rc::Rc::new(std::cell::Cell::new(0));
    let tell = std::rc::Rc::clone(&told);
    look().then(move |seen| tell.set(seen.unwrap()));
    trust::wait_all();
    assert_eq!(told.get(), 100);
    let panicked = bank.call().peek(|bank| bank.accounts[9]).wait();
    assert!(matches!(panicked, Err(Error::Panicked { panic, .. }) if panic.contains("index")));
}
