//! Loans and their fate, as seen in the worker's own lines.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::runtime::worker;
use crate::{Error, Latch, Threadpool, Trust, local_trustee, try_together, try_together_then, yield_now};

/// Thread with values, which ends when told to.
struct Lender {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Lender {
    fn new<T: Send + 'static, const N: usize>(values: [T; N]) -> (Lender, [Trust<Latch<T>>; N]) {
        let (tell, told) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let thread = thread::spawn(move || {
            tell.send(values.map(|value| local_trustee().entrust(Latch::new(value)))).unwrap();
            while ends.try_recv().is_err() {
                yield_now();
                thread::yield_now();
            }
        });
        (Lender { end, thread }, told.recv().unwrap())
    }

    fn end(self) {
        self.end.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn stand_until(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

/// Makes a pool with ids behind those of the trusts, so that calls run there. The ids of threads are given in the order
/// of their first use of the library, unless an older one is free.
fn pool_behind<T>(trusts: &[Trust<T>], workers: usize) -> Threadpool {
    loop {
        let pool = Threadpool::builder().workers(workers).pin(false).build();
        let is_behind = |trust: &Trust<T>| pool.trustees().iter().all(|trustee| trustee.id() > trust.trustee().id());
        if trusts.iter().all(is_behind) {
            return pool;
        }
        // Its ids are not used again while it exists.
        std::mem::forget(pool);
    }
}

#[test]
fn a_panic_is_forgotten_where_the_lender_ends_before_it_hears_of_it() {
    static IS_IN: AtomicBool = AtomicBool::new(false);
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    let (lender, [a, other]) = Lender::new([1, 2]);
    let pool = pool_behind(std::slice::from_ref(&a), 1);
    let fiber = pool.spawn(move || {
        let own = local_trustee().entrust(Latch::new(0));
        let outcome = try_together((&a, &own), |(a, _)| {
            IS_IN.store(true, Ordering::SeqCst);
            stand_until(&HAS_ENDED);
            *a = 5;
            panic!("half done");
        });
        let spoiled = worker::with(|worker| worker.launches.lines.has_spoiled());
        (outcome, spoiled)
    });
    stand_until(&IS_IN);
    lender.end();
    HAS_ENDED.store(true, Ordering::SeqCst);
    let (outcome, spoiled) = fiber.join().unwrap();
    assert!(matches!(outcome, Err(Error::Panicked { .. })), "{outcome:?}");
    assert!(!spoiled, "it is kept in mind of a value that is no more");
    drop(other);
}

#[test]
fn who_stands_in_line_where_a_lender_ends_is_told_and_the_value_is_dropped_once() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    static IS_IN: AtomicBool = AtomicBool::new(false);
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (lender, [a]) = Lender::new([Counted]);
    let pool = pool_behind(std::slice::from_ref(&a), 2);
    let [one, two] = [0, 1].map(|at| pool.trustees()[at].entrust(Latch::new(0)));
    let borrower = a.clone();
    let has = pool.spawn_on(0, move || {
        try_together((&borrower, &one), |(_, one)| {
            *one += 1;
            IS_IN.store(true, Ordering::SeqCst);
            stand_until(&HAS_ENDED);
            *one
        })
    });
    stand_until(&IS_IN);
    // A client on the last trustee's thread, and calls that have come to the lender: both go to a trustee other than
    // the one that has the value.
    let (borrower, other) = (a.clone(), two.clone());
    let waits = pool.spawn_on(1, move || try_together((&borrower, &other), |_| ()));
    for _ in 0..2 {
        try_together_then(
            (&a, &two),
            |_| (),
            |outcome| {
                assert!(matches!(outcome, Err(Error::Gone { .. })), "{outcome:?}");
                TOLD.fetch_add(1, Ordering::SeqCst);
            },
        );
    }
    // Until they stand in line.
    let gathered = |trustee: crate::TrusteeId| {
        let (send, receive) = mpsc::channel();
        // Read on the thread itself.
        drop(crate::tasks::join::spawn_at(trustee, move || {
            let _ = send.send(worker::with(|worker| worker.launches.lines.gathered().len()));
        }));
        receive.recv().unwrap()
    };
    while gathered(a.trustee().id()) < 3 {
        yield_now();
    }
    lender.end();
    let waited = waits.join().unwrap();
    assert!(matches!(waited, Err(Error::Gone { .. })), "{waited:?}");
    crate::wait_all();
    assert_eq!((TOLD.load(Ordering::SeqCst), DROPPED.load(Ordering::SeqCst)), (2, 0));
    HAS_ENDED.store(true, Ordering::SeqCst);
    assert_eq!(has.join().unwrap(), Ok(1));
    assert_eq!(DROPPED.load(Ordering::SeqCst), 1);
}

/// The lender counts a trust of the property until the last trustee has forgotten the panic.
#[test]
fn trusts_may_be_dropped_while_a_panic_is_being_forgotten() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counted(u32);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    const ROUNDS: usize = 200;
    let pool = Threadpool::builder().workers(2).pin(false).build();
    for _ in 0..ROUNDS {
        let [a, b] = [0, 1].map(|at| pool.trustees()[at].entrust(Latch::new(Counted(0))));
        try_together_then(
            (&a, &b),
            |(a, _)| {
                a.0 += 1;
                std::panic::resume_unwind(Box::new("half done"));
            },
            |outcome: Result<(), Error>| assert!(outcome.is_err()),
        );
    }
    crate::wait_all();
    for at in 0..2 {
        // After all the messages to its worker.
        let until = move || {
            while worker::with(|worker| worker.launches.lines.has_spoiled()) {
                yield_now();
            }
        };
        pool.spawn_on(at, until).join().unwrap();
    }
    drop(pool);
    assert_eq!(DROPPED.load(Ordering::SeqCst), 2 * ROUNDS);
}
