//! Futures of calls: more than a trustee accepts at once, dropped at any point, with tasks and results that call the
//! pool or panic.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use trust::{Shared, Threadpool};
use trust_durable::{Durable, DurableFuture, Error};

/// More calls than a trustee accepts at once.
const FLOOD: u64 = 1_400;
/// Number of calls that it accepts, and a few more that race for the last place.
const WINDOW: u64 = 1_024 + 8;

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Panics if nothing wakes it for a minute.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let end = Instant::now() + Duration::from_secs(60);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park_timeout(Duration::from_secs(60)),
        }
        assert!(Instant::now() < end, "the future is not woken");
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn stand_until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "it does not come to that");
        thread::yield_now();
    }
}

fn open(pool: &Threadpool, folder: &std::path::Path) -> Durable<u64> {
    Durable::<u64>::open(pool.trustees()[0], folder, |_| 0).unwrap()
}

/// A pool with its trustee busy in a closure until this is opened.
struct Standing {
    is_open: Shared<AtomicBool>,
    first: DurableFuture<()>,
}

impl Standing {
    fn new(counter: &Durable<u64>) -> Self {
        let (is_open, is_in) = (Shared::new(AtomicBool::new(false)), Shared::new(AtomicBool::new(false)));
        let (opens, enters) = (is_open.clone(), is_in.clone());
        let first = counter
            .call()
            .apply(move |_, _| {
                enters.store(true, Ordering::SeqCst);
                stand_until(|| opens.load(Ordering::SeqCst));
            })
            .into_future();
        stand_until(|| is_in.load(Ordering::SeqCst));
        Standing { is_open, first }
    }

    fn open(self) {
        self.is_open.store(true, Ordering::SeqCst);
        block_on(self.first).unwrap();
    }
}

fn add(counter: &Durable<u64>) -> DurableFuture<u64> {
    counter
        .call()
        .apply(|counter, _| {
            *counter += 1;
            *counter
        })
        .into_future()
}

#[test]
fn futures_beyond_the_window_wait_for_room() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    let standing = Standing::new(&counter);
    let futures: Vec<_> = (0..FLOOD).map(|_| add(&counter)).collect();
    standing.open();
    let mut values: Vec<u64> = futures.into_iter().map(|future| block_on(future).unwrap()).collect();
    values.sort_unstable();
    assert!(values.into_iter().eq(1..=FLOOD), "each ran once");
    assert_eq!(counter.apply(|counter, _| *counter), FLOOD);
}

#[test]
fn tasks_beyond_the_window_are_woken() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    let standing = Standing::new(&counter);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = (0..FLOOD)
        .map(|_| {
            let counter = counter.clone();
            runtime.spawn(async move { add(&counter).await.unwrap() })
        })
        .collect();
    standing.open();
    let sum: u64 = runtime.block_on(async {
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        sum
    });
    assert_eq!(sum, FLOOD * (FLOOD + 1) / 2);
}

/// Counts its drops.
struct Captured(Shared<AtomicU64>);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn futures_that_are_dropped_take_back_what_was_not_sent_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    for polls_first in [false, true] {
        let before = counter.apply(|counter, _| *counter);
        let standing = Standing::new(&counter);
        let dropped = Shared::new(AtomicU64::new(0));
        for _ in 0..FLOOD {
            let captured = Captured(dropped.clone());
            let mut future = counter
                .call()
                .apply(move |counter, _| {
                    *counter += 1;
                    drop(captured);
                })
                .into_future();
            if polls_first {
                assert!(poll_once(&mut future).is_pending());
            }
        }
        let kept = FLOOD - dropped.load(Ordering::SeqCst);
        assert!((1_023..=WINDOW).contains(&kept), "{kept} calls were sent");
        standing.open();
        // Behind the calls that were sent.
        assert_eq!(block_on(add(&counter)).unwrap() - before, kept + 1, "those that were sent run");
        stand_until(|| dropped.load(Ordering::SeqCst) == FLOOD);
    }
}

#[test]
fn futures_that_were_polled_once_and_are_kept_stand_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    let standing = Standing::new(&counter);
    let mut kept: Vec<_> = (0..FLOOD).map(|_| add(&counter)).collect();
    kept.iter_mut().for_each(|future| assert!(poll_once(future).is_pending()));
    let last = add(&counter);
    let waiter = thread::spawn(move || block_on(last));
    standing.open();
    assert!(waiter.join().unwrap().unwrap() <= FLOOD);
    // Some are dropped when they may have been woken, the others are awaited.
    let (mut awaited, mut count) = (Vec::new(), 0);
    for (number, future) in kept.into_iter().enumerate() {
        if number % 2 == 0 { drop(future) } else { awaited.push(future) }
    }
    for future in awaited {
        block_on(future).unwrap();
        count += 1;
    }
    assert!((count..=FLOOD + 1).contains(&block_on(add(&counter)).unwrap()));
}

#[test]
fn futures_that_wait_for_room_hear_that_the_pool_is_gone_or_closed() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    let standing = Standing::new(&counter);
    let mut futures: Vec<_> = (0..FLOOD).map(|_| add(&counter)).collect();
    futures.iter_mut().for_each(|future| assert!(poll_once(future).is_pending()));
    standing.open();
    counter.close().unwrap();
    let mut unsent = futures.split_off(WINDOW as usize);
    let later = unsent.split_off(unsent.len() / 2);
    for future in unsent {
        let outcome = block_on(future);
        assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    }
    drop(pool);
    for future in later {
        let outcome = block_on(future);
        assert!(matches!(outcome, Err(Error::Gone)), "{outcome:?}");
    }
    let done = futures.into_iter().map(block_on).filter(Result::is_ok).count() as u64;
    assert!((1_023..=WINDOW).contains(&done), "{done}");
}

/// A task that calls the pool when it is dropped.
struct LastWord {
    counter: Durable<u64>,
    has_begun: Arc<AtomicBool>,
}

impl Wake for LastWord {
    fn wake(self: Arc<Self>) {}
}

impl Drop for LastWord {
    fn drop(&mut self) {
        self.has_begun.store(true, Ordering::SeqCst);
        self.counter.apply(|counter, _| *counter += 1_000_000);
    }
}

#[test]
fn a_task_that_is_replaced_may_call_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    for fills in [0, FLOOD] {
        let standing = Standing::new(&counter);
        let filling: Vec<_> = (0..fills).map(|_| add(&counter)).collect();
        let mut future = add(&counter);
        let has_begun = Arc::new(AtomicBool::new(false));
        let task = Waker::from(Arc::new(LastWord { counter: counter.clone(), has_begun: Arc::clone(&has_begun) }));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&task)).is_pending());
        drop(task);
        let second = thread::spawn(move || block_on(future).unwrap());
        // The trustee then stores the outcome while the first task's destructor waits for it.
        stand_until(|| has_begun.load(Ordering::SeqCst));
        standing.open();
        filling.into_iter().for_each(|future| _ = block_on(future).unwrap());
        second.join().unwrap();
    }
    assert_eq!(counter.apply(|counter, _| *counter), 2_000_000 + FLOOD + 2);
}

/// A result with a destructor that panics.
struct Bomb(Shared<AtomicU64>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("the destructor of a result");
    }
}

#[test]
fn a_result_that_nobody_wants_and_panics_spoils_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    let dropped = Shared::new(AtomicU64::new(0));
    let bomb = || {
        let dropped = dropped.clone();
        counter
            .call()
            .apply(move |counter, _| {
                *counter += 1;
                Bomb(dropped)
            })
            .into_future()
    };
    let standing = Standing::new(&counter);
    drop(bomb());
    // Behind it, and settled with the same group.
    let other = add(&counter);
    standing.open();
    assert_eq!(block_on(other).unwrap(), 2);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert_eq!(counter.apply(|counter, _| *counter), 2, "it is not poisoned");
}

#[test]
fn futures_that_wait_for_room_keep_their_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    for is_backwards in [false, true] {
        let counter = open(&pool, folder.path());
        let standing = Standing::new(&counter);
        let mut futures: Vec<_> = (0..FLOOD).map(|_| add(&counter)).collect();
        drop(counter);
        if is_backwards {
            futures.reverse();
        }
        standing.open();
        futures.into_iter().for_each(|future| _ = block_on(future).unwrap());
    }
    assert_eq!(open(&pool, folder.path()).apply(|counter, _| *counter), 2 * FLOOD);
}

#[test]
fn arguments_come_to_closures_whose_result_is_awaited() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(&pool, folder.path());
    let added = counter.call().with(vec![1, 2, 3]).apply(|counter, _, numbers: Vec<u64>| {
        *counter += numbers.iter().sum::<u64>();
        format!("{counter}")
    });
    assert_eq!(block_on(added.into_future()).unwrap(), "6");
    let refuse = |limit: u64| {
        counter.call().with(limit).attempt(|counter, _, limit| {
            *counter += 10;
            if *counter > limit { Err(format!("{counter} is over {limit}")) } else { Ok(*counter) }
        })
    };
    assert_eq!(block_on(refuse(10).into_future()).unwrap(), Err("16 is over 10".to_owned()));
    assert_eq!(block_on(refuse(16).into_future()).unwrap(), Ok(16));
    assert_eq!(counter.peek(|counter| *counter), 16, "the refused one is undone");
    let panicked = counter.call().with(0).apply(|counter, _, zero: u64| *counter / zero);
    assert!(matches!(block_on(panicked.into_future()), Err(Error::Panicked { .. })));
}
