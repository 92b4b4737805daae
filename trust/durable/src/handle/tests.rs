//! Tests of internals: records that clients keep, and handles with a changed number.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use trust::Threadpool;

use super::Durable;
use crate::error::Error;
use crate::service::client;
use crate::service::jobs::Job;

#[test]
fn no_record_of_a_pool_is_left_with_a_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Threadpool::new(1);
    for round in 0..10 {
        let number = Durable::<u64>::open(pool.trustees()[0], folder.path(), |_| 0).expect("it opens");
        assert_eq!(number.apply(|number, _| *number), round);
        number.apply_then(|number, _| *number += 1, |()| ());
        if round % 2 == 0 {
            number.close().expect("it closes");
        }
    }
    let end = Instant::now() + limits::HANG;
    while client::records() > 0 {
        assert!(Instant::now() < end, "{} records are left", client::records());
        trust::yield_now();
    }
    // Also the record of a pool that has lost its trustee.
    let number = Durable::<u64>::open(pool.trustees()[0], folder.path(), |_| 0).expect("it opens");
    number.apply(|_, _| ());
    drop(pool);
    assert!(matches!(number.sync(), Err(Error::Gone)));
    assert_eq!(client::records(), 0);
}

#[test]
fn threads_that_have_ended_are_forgotten() {
    const THREADS: usize = 1000;
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Threadpool::new(1);
    let number = Durable::<u64>::open(pool.trustees()[0], folder.path(), |_| 0).expect("it opens");
    // Threads that read, and threads that end before their result is delivered.
    for kind in 0..2 {
        for _ in 0..THREADS {
            let number = number.clone();
            let thread = std::thread::spawn(move || match kind {
                0 => _ = number.peek(|number| *number),
                _ => number.apply_then(|number, _| *number += 1, |()| ()),
            });
            thread.join().expect("it ends");
        }
        let known = number.trust.apply(|service| service.core().borrow().clients());
        // As many as end while the pool asks are forgotten the next time.
        assert!(known <= THREADS / 2, "{known} of {THREADS} are known");
    }
    // The remaining clients are notified all the same.
    number.sync().expect("this thread is known");
}

#[test]
fn a_panic_of_the_disk_thread_reaches_all_who_wait() {
    for within in [None, Some(Duration::MAX)] {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = Threadpool::new(1);
        let builder = within.map_or(Durable::<u64>::builder(), |within| Durable::<u64>::builder().within(within));
        let number = builder.open(pool.trustees()[0], folder.path(), |_| 0).expect("it opens");
        number.apply(|number, _| *number += 1);
        let told = Rc::new(RefCell::new(Vec::new()));
        let tell = || {
            let told = Rc::clone(&told);
            move |outcome| told.borrow_mut().push(outcome)
        };
        number.trust.apply(|service| service.core().borrow_mut().send(Job::Panic));
        number.call().apply(|number, _| *number += 1).then(tell());
        let mut future = std::pin::pin!(number.call().apply(|number, _| *number += 1).into_future());
        let cause = |outcome: Result<(), Error>| match outcome {
            Err(Error::Lost { cause }) => assert_eq!(cause, "its disk thread panicked: planted"),
            other => panic!("{other:?}"),
        };
        cause(number.sync());
        number.call().apply(|number, _| *number += 1).then(tell());
        cause(number.call().apply(|number, _| *number += 1).wait());
        cause(number.snapshot(folder.path().join("copy")));
        let end = Instant::now() + limits::HANG;
        let outcome = loop {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => break outcome,
                Poll::Pending => assert!(Instant::now() < end, "the future is not told"),
            }
            trust::yield_now();
        };
        let mut told = told.take();
        assert_eq!(told.len(), 2);
        cause(told.pop().expect("there are two"));
        // With `within` these results were delivered before the loss was known.
        let early = told.into_iter().chain([outcome]).filter(|outcome| within.is_none() || outcome.is_err());
        early.for_each(cause);
        cause(number.close());
    }
}

#[test]
fn a_handle_with_the_number_of_another_pool_is_told_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Threadpool::new(1);
    let open = |name| Durable::<u64>::open(pool.trustees()[0], folder.path().join(name), |_| 0).expect("it opens");
    let (one, other) = (open("one"), open("other"));
    // The other pool is far ahead, so every group of the first would seem durable.
    (0..20).for_each(|_| other.apply(|number, _| *number += 1));
    let changed = Durable::<u64>::of(one.trust.clone(), other.number);
    assert!(matches!(changed.call().apply(|number, _| *number += 1).wait(), Err(Error::Call { .. })));
    changed.call().apply(|number, _| *number += 1).then(|outcome| assert!(matches!(outcome, Err(Error::Call { .. }))));
    assert!(matches!(changed.sync(), Err(Error::Call { .. })));
    assert_eq!((one.apply(|number, _| *number), other.apply(|number, _| *number)), (2, 20));
}
