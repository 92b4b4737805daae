//! Futures of trusts: on tokio, on a plain executor, dropped at any point, with panics and trustees that are gone.

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use common::{Drops, Server, panic_of, serve_until, stand_until};
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trust::{Error, Shared, Threadpool, Trust, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls once, with a waker that does nothing.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_tokio_server_has_a_trust_as_its_state() {
    let _watch = watchdog!();
    const CLIENTS: u64 = 1_000;
    const ROUNDS: u64 = 5;
    let pool = pool(2);
    let drops = Drops::default();
    let total = pool.entrust(drops.value(0u64));
    let runtime = runtime(2);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = total.clone();
        let server = tokio::spawn(async move {
            let mut connections = Vec::new();
            for _ in 0..CLIENTS {
                let (mut connection, _) = listener.accept().await.unwrap();
                let state = state.clone();
                connections.push(tokio::spawn(async move {
                    while let Ok(number) = connection.read_u64().await {
                        let sum = state.apply_async(move |total| {
                            total.check();
                            total.value += number;
                            total.value
                        });
                        connection.write_u64(sum.await).await.unwrap();
                    }
                }));
            }
            for connection in connections {
                connection.await.unwrap();
            }
        });
        // A gate, so that all are connected at the same time.
        let (open, gate) = tokio::sync::watch::channel(0);
        let open = Arc::new(open);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (open, mut gate) = (Arc::clone(&open), gate.clone());
                tokio::spawn(async move {
                    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
                    open.send_modify(|connected| *connected += 1);
                    gate.wait_for(|&connected| connected == CLIENTS).await.unwrap();
                    let mut last = 0;
                    for _ in 0..ROUNDS {
                        connection.write_u64(client).await.unwrap();
                        let sum = connection.read_u64().await.unwrap();
                        assert!(sum >= last + client, "{sum} after {last}, by {client}");
                        last = sum;
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        server.await.unwrap();
    });
    assert_eq!(total.apply(|total| total.value), ROUNDS * CLIENTS * (CLIENTS - 1) / 2);
    // The runtime's threads, which have cloned and dropped trusts of it, are still there.
    drop(total);
    serve_until(|| drops.count() == 1);
    drop(runtime);
}

#[test]
fn a_future_may_be_dropped_at_any_point() {
    let _watch = watchdog!();
    const ROUNDS: u64 = if cfg!(debug_assertions) { 5_000 } else { 50_000 };
    struct Value(Shared<AtomicU64>);
    impl Drop for Value {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let pool = pool(2);
    let property = pool.entrust(0u64);
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let property = property.clone();
            thread::spawn(move || {
                let mut random = Rng::with_seed(thread);
                let (dropped, ran) = (Shared::new(AtomicU64::new(0)), Shared::new(AtomicU64::new(0)));
                for _ in 0..ROUNDS {
                    let value = Value(dropped.clone());
                    let runs = ran.clone();
                    let mut future = property.apply_async(move |v| {
                        *v += 1;
                        runs.fetch_add(1, Ordering::SeqCst);
                        value
                    });
                    match random.usize(..5) {
                        0 => {}
                        1 => drop(poll_once(&mut future)),
                        2 => {
                            thread::yield_now();
                            drop(poll_once(&mut future));
                        }
                        3 => (0..random.usize(..200)).for_each(|_| std::hint::spin_loop()),
                        _ => drop(block_on(future)),
                    }
                }
                // Behind all the others of this thread.
                block_on(property.apply_async(|_| ()));
                // The last result may be dropped just after this one's task was woken.
                stand_until(|| dropped.load(Ordering::SeqCst) == ROUNDS);
                // Futures that were dropped while the window was full did not run.
                ran.load(Ordering::SeqCst)
            })
        })
        .collect();
    let ran: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(ran >= 3 * ROUNDS / 5, "{ran}");
    assert_eq!(property.apply(|v| *v), ran);
}

/// A property whose trustee is in a closure until this is opened.
struct Held {
    is_open: Shared<AtomicBool>,
    first: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Held {
    fn hold<T: Send + 'static>(property: &Trust<T>) -> Self {
        let (is_open, is_in) = (Shared::new(AtomicBool::new(false)), Shared::new(AtomicBool::new(false)));
        let (opens, enters) = (is_open.clone(), is_in.clone());
        let first = property.apply_async(move |_| {
            enters.store(true, Ordering::SeqCst);
            stand_until(|| opens.load(Ordering::SeqCst));
        });
        stand_until(|| is_in.load(Ordering::SeqCst));
        Held { is_open, first: Some(Box::pin(first)) }
    }

    fn open(mut self) {
        self.is_open.store(true, Ordering::SeqCst);
        block_on(self.first.take().unwrap());
    }
}

/// Calls of a flood: far more than a window has places.
const FLOOD: u64 = 20_000;
/// Most active calls at one worker, and a few that find the last place at the same time.
const WINDOW: u64 = 1_024 + 8;

#[test]
fn calls_that_nobody_awaits_are_bounded() {
    let _watch = watchdog!();
    let pool = pool(1);
    let property = pool.entrust(0u64);
    let held = Held::hold(&property);
    let drops = Drops::default();
    for _ in 0..FLOOD {
        let value = Shared::new(drops.value(()));
        drop(property.apply_async(move |v| {
            *v += 1;
            drop(value);
        }));
    }
    let kept = FLOOD - drops.count() as u64;
    assert!((1..=WINDOW).contains(&kept), "{kept} calls are kept");
    held.open();
    assert_eq!(block_on(property.apply_async(|v| *v)), kept);
    serve_until(|| drops.count() as u64 == FLOOD);
}

#[test]
fn futures_beyond_the_window_wait_for_room() {
    let _watch = watchdog!();
    let pool = pool(1);
    let property = pool.entrust(0u64);
    let held = Held::hold(&property);
    let runtime = runtime(2);
    let tasks: Vec<_> = (0..FLOOD)
        .map(|number| {
            let property = property.clone();
            runtime.spawn(async move {
                let call = property.apply_async(|v| {
                    *v += 1;
                    *v
                });
                if number % 3 == 0 {
                    // Perhaps in the middle of its wait for room: another has its turn.
                    let mut call = Box::pin(call);
                    let _ = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await;
                    tokio::task::yield_now().await;
                    0
                } else {
                    call.await
                }
            })
        })
        .collect();
    held.open();
    let mut got: Vec<u64> = runtime.block_on(async {
        let mut got = Vec::new();
        for task in tasks {
            got.push(task.await.unwrap());
        }
        got
    });
    got.retain(|&number| number != 0);
    let awaited = got.len() as u64;
    assert_eq!(awaited, FLOOD - FLOOD.div_ceil(3));
    got.sort_unstable();
    got.dedup();
    assert_eq!(got.len() as u64, awaited, "no call ran twice");
    let all = block_on(property.apply_async(|v| *v));
    assert!((awaited..=FLOOD).contains(&all), "{all}");
}

#[test]
fn futures_that_wait_for_room_hear_that_the_trustee_is_gone() {
    let _watch = watchdog!();
    let server = Server::start();
    let property = server.trustee.entrust(0u64);
    let held = Held::hold(&property);
    let mut futures: Vec<_> =
        (0..FLOOD / 4).map(|_| Box::pin(property.call().apply(|v| *v += 1).into_future())).collect();
    let woken = Arc::new(AtomicUsize::new(0));
    struct Count(Arc<AtomicUsize>);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let waker = Waker::from(Arc::new(Count(Arc::clone(&woken))));
    for future in &mut futures {
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    held.is_open.store(true, Ordering::SeqCst);
    server.end();
    // Each is woken: by its outcome, or because its wait has lost its purpose.
    stand_until(|| woken.load(Ordering::SeqCst) >= futures.len());
    let (mut done, mut gone) = (0, 0);
    for future in futures {
        match block_on(future) {
            Ok(()) => done += 1,
            Err(Error::Gone { .. }) => gone += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(done <= WINDOW && gone >= FLOOD / 4 - WINDOW, "{done} done, {gone} gone");
}

#[test]
fn a_future_belongs_to_no_thread() {
    let _watch = watchdog!();
    let pool = pool(1);
    let property = pool.entrust(0u64);
    let drops = Drops::default();
    for round in 0..200 {
        let (asks, value) = (property.clone(), Shared::new(drops.value(())));
        // Made on a thread that ends, polled on a second, awaited on this one.
        let held = (round % 2 == 0).then(|| Held::hold(&property));
        let mut future = thread::spawn(move || {
            Box::pin(asks.apply_async(move |v| {
                *v += 1;
                drop(value);
                *v
            }))
        })
        .join()
        .unwrap();
        future = thread::spawn(move || {
            if held.is_some() {
                assert!(poll_once(&mut future).is_pending());
            }
            held.into_iter().for_each(Held::open);
            future
        })
        .join()
        .unwrap();
        assert_eq!(block_on(future), round + 1);
    }
    drop(property);
    serve_until(|| drops.count() == 200);
}

#[test]
fn a_future_is_woken_by_its_last_waker_alone() {
    let _watch = watchdog!();
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let pool = pool(1);
    let property = pool.entrust(());
    let go = Shared::new(AtomicBool::new(false));
    let held = go.clone();
    let mut future = property.apply_async(move |()| {
        stand_until(|| held.load(Ordering::SeqCst));
        7
    });
    let counts: [Arc<Count>; 3] = Default::default();
    for count in &counts {
        let waker = Waker::from(Arc::clone(count));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    go.store(true, Ordering::SeqCst);
    stand_until(|| counts[2].0.load(Ordering::SeqCst) > 0);
    assert_eq!(poll_once(&mut future), Poll::Ready(7));
    assert_eq!(counts.each_ref().map(|count| count.0.load(Ordering::SeqCst)), [0, 0, 1]);
    assert!(panic_of(|| poll_once(&mut future)).contains("polled after"));
}

#[test]
fn panics_poison_and_codec_reach_who_awaits() {
    let _watch = watchdog!();
    let pool = pool(1);
    let property = pool.entrust(String::from("whole"));
    // On a thread without a worker, where everything that futures do is in order.
    thread::spawn(move || panics_poison_and_codec(&property)).join().unwrap();
}

fn panics_poison_and_codec(property: &Trust<String>) {
    let text = panic_of(|| block_on(property.apply_async(|_| panic!("of the closure"))));
    assert_eq!(text, "of the closure");
    match block_on(property.call().apply(|s| s.len()).into_future()) {
        Err(Error::Poisoned { panic, .. }) => assert_eq!(panic, "of the closure"),
        other => panic!("{other:?}"),
    }
    assert!(panic_of(|| block_on(property.apply_async(|s| s.len()))).contains("poisoned"));
    property.clear_poison();
    assert_eq!(block_on(property.call().apply(|s| s.len()).into_future()), Ok(5));
    let failed = block_on(property.call().apply(|_| assert_eq!(1, 2, "no")).into_future());
    assert!(matches!(failed, Err(Error::Panicked { .. })), "{failed:?}");
    property.clear_poison();
    let longer = property
        .call()
        .with(" and sound".into())
        .apply(|s, more: String| {
            s.push_str(&more);
            s.clone()
        })
        .into_future();
    assert_eq!(block_on(longer).as_deref(), Ok("whole and sound"));
    let outcome = property.call().with(vec![1, 2]).apply(|s, map: Vec<u32>| map.len() + s.len()).into_future();
    assert_eq!(block_on(outcome), Ok(17));
}

/// The future may be awaited far from the call.
#[test]
fn a_panic_of_a_future_names_the_line_of_the_call() {
    let _watch = watchdog!();
    let gone: Trust<u8> = thread::spawn(|| local_trustee().entrust(1)).join().unwrap();
    let (future, line) = (gone.apply_async(|v| *v), line!());
    let text = panic_of(|| block_on(future));
    assert!(text.contains("is gone") && text.contains(&format!("`apply_async` at {}:{line}:", file!())), "{text}");
    let pool = pool(1);
    let number = pool.entrust(1);
    number.call().apply(|_| panic!("half way")).wait().unwrap_err();
    let (future, line) = (number.apply_async(|v| *v), line!());
    let text = panic_of(|| block_on(future));
    assert!(text.contains("`call()`") && text.contains(&format!("`apply_async` at {}:{line}:", file!())), "{text}");
}

#[test]
fn a_gone_trustee_is_an_error_and_drops_the_closure() {
    let _watch = watchdog!();
    let gone: Trust<u8> = thread::spawn(|| local_trustee().entrust(1)).join().unwrap();
    let (captured, canary) = (Drops::default(), Shared::new(Mutex::new(None)));
    *canary.lock().unwrap() = Some(captured.value(()));
    let future = gone
        .call()
        .apply(move |v| {
            drop(canary);
            *v
        })
        .into_future();
    assert_eq!(captured.count(), 1);
    assert!(matches!(block_on(future), Err(Error::Gone { .. })));
    assert!(matches!(block_on(gone.call().with(()).apply(|v, ()| *v).into_future()), Err(Error::Gone { .. })));
}

/// Each future gets an outcome, and each call that ran did so once.
#[test]
fn trap_06_futures_of_a_trustee_that_ends_are_completed() {
    let _watch = watchdog!();
    const ROUNDS: u64 = if cfg!(debug_assertions) { 60 } else { 600 };
    let (mut done, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let server = Server::start();
        let ran = Shared::new(AtomicU64::new(0));
        let property = server.trustee.entrust(ran.clone());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let property = property.clone();
                thread::spawn(move || {
                    let (mut done, mut refused) = (0, 0);
                    while refused < 10 {
                        let futures = [0; 4]
                            .map(|_| property.call().apply(|ran| ran.fetch_add(1, Ordering::SeqCst)).into_future());
                        for future in futures {
                            match block_on(future) {
                                Ok(_) => done += 1,
                                Err(Error::Gone { .. }) => refused += 1,
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                    (done, refused)
                })
            })
            .collect();
        (0..round % 7).for_each(|_| property.apply(|_| ()));
        drop(property);
        server.end();
        let outcomes: Vec<(u64, u64)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let sum: u64 = outcomes.iter().map(|outcome| outcome.0).sum();
        assert_eq!(ran.load(Ordering::SeqCst), sum, "round {round}");
        done += sum;
        refused += outcomes.iter().map(|outcome| outcome.1).sum::<u64>();
    }
    assert!(done > 0 && refused >= 20 * ROUNDS, "{done} done, {refused} refused");
}

#[test]
fn closures_of_one_thread_run_in_order() {
    let _watch = watchdog!();
    let pool = pool(1);
    let list = pool.entrust(Vec::new());
    let futures: Vec<_> = (0..1_000u32).map(|number| list.apply_async(move |list| list.push(number))).collect();
    futures.into_iter().for_each(block_on);
    assert!(list.apply_with(|list, ()| list.clone(), ()).into_iter().eq(0..1_000));
}

#[test]
fn a_property_of_this_very_thread_is_at_hand() {
    let _watch = watchdog!();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let own = local_trustee().entrust(1);
    assert_eq!(runtime.block_on(own.apply_async(|v| *v + 1)), 2);
    // Inside a closure it comes after that closure.
    let inner = own.clone();
    let kept = Arc::new(Mutex::new(None));
    let keep = Shared::new(Mutex::new(Arc::clone(&kept)));
    own.apply(move |v| {
        let future = inner.apply_async(|v| *v);
        *v = 10;
        *keep.lock().unwrap().lock().unwrap() = Some(future);
    });
    let future = kept.lock().unwrap().take().unwrap();
    assert_eq!(block_on(future), 10);
}

#[test]
fn fibers_and_futures_share_a_property() {
    let _watch = watchdog!();
    let pool = pool(2);
    let property = pool.entrust(0u64);
    let fibers: Vec<_> = (0..4)
        .map(|_| {
            let property = property.clone();
            pool.spawn(move || (0..1_000).for_each(|_| property.apply(|v| *v += 1)))
        })
        .collect();
    let runtime = runtime(2);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let property = property.clone();
            runtime.spawn(async move {
                for _ in 0..1_000 {
                    property.apply_async(|v| *v += 1).await;
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(property.apply(|v| *v), 8_000);
}

/// The place of a call is free again although its unwanted outcome panics when it is dropped.
#[test]
fn outcomes_that_panic_when_they_are_dropped_leave_their_places() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            // Without a report of the panic hook, two thousand times.
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
    let _watch = watchdog!();
    let pool = pool(1);
    let property = pool.entrust(());
    for _ in 0..5 {
        let held = Held::hold(&property);
        // Before there is an outcome, so that it is dropped by the trustee.
        (0..WINDOW / 2).for_each(|_| drop(property.apply_async(|()| Bomb)));
        held.open();
        block_on(property.apply_async(|()| ()));
    }
}

/// Same as a call of a trustee that ends.
#[test]
fn a_future_that_waits_for_room_is_told_that_its_trustee_is_gone() {
    let _watch = watchdog!();
    let pool = pool(1);
    let property = pool.entrust(0u64);
    let held = Held::hold(&property);
    let flood: Vec<_> = (0..WINDOW + 8).map(|_| property.call().apply(|v| *v += 1).into_future()).collect();
    let mut waits = flood.into_iter().next_back().expect("there are some");
    assert!(poll_once(&mut waits).is_pending());
    let waiter = thread::spawn(move || block_on(waits));
    held.open();
    drop(pool);
    // Before the end, or refused by it.
    let outcome = waiter.join().unwrap();
    assert!(matches!(outcome, Ok(()) | Err(Error::Gone { .. })), "{outcome:?}");
}

/// A task whose waker goes with its last share, and whose destructor asks the pool and is one more that waits for room.
struct LastWord(Trust<u64>, Arc<AtomicUsize>);

impl Wake for LastWord {
    fn wake(self: Arc<Self>) {}
}

impl Drop for LastWord {
    fn drop(&mut self) {
        let mut call = self.0.apply_async(|count| *count += 1);
        let _ = poll_once(&mut call);
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Futures are polled by one task after the other, more of them than the window has places: wakers are replaced while
/// calls are active, and while they wait for room.
#[test]
fn wakers_are_replaced_and_dropped_outside_of_all_locks() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let (count, dropped) = (pool.entrust(0u64), Arc::new(AtomicUsize::new(0)));
    let (stands, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begins, ends) = (Arc::clone(&stands), Arc::clone(&go_on));
    // The trustee stands still meanwhile.
    drop(pool.spawn(move || {
        begins.store(true, Ordering::SeqCst);
        stand_until(|| ends.load(Ordering::SeqCst));
    }));
    serve_until(|| stands.load(Ordering::SeqCst));
    let mut futures: Vec<_> = (0..1200).map(|_| count.apply_async(|count| *count += 1)).collect();
    for round in 0..3 {
        for future in &mut futures {
            let waker = Waker::from(Arc::new(LastWord(count.clone(), Arc::clone(&dropped))));
            assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(dropped.load(Ordering::SeqCst), round * futures.len());
    }
    go_on.store(true, Ordering::SeqCst);
    let last = futures.pop();
    drop(futures);
    // Woken, or dropped with its future.
    serve_until(|| dropped.load(Ordering::SeqCst) >= 3 * 1199 + 2);
    drop(last);
}

#[test]
fn one_future_has_the_answers_of_many_properties() {
    let _watch = watchdog!();
    const PROPERTIES: u64 = 5_000; // more than a worker's window
    let pool = pool(2);
    let numbers: Vec<Trust<u64>> = (0..PROPERTIES).map(|number| pool.entrust(number)).collect();
    let double = |number: &mut u64| {
        *number *= 2;
        *number
    };
    let doubled = || block_on(trust::apply_each_async(&numbers, double));
    assert!(doubled().into_iter().eq((0..PROPERTIES).map(|number| number * 2)));
    assert_eq!(runtime(2).block_on(trust::apply_each_async(&numbers[..0], double)), [0; 0]);
    let fails_at_4 = |number: &mut u64| assert!(*number != 4, "four");
    let outcomes = block_on(trust::try_apply_each_async(&numbers, fails_at_4));
    assert!(matches!(&outcomes[2], Err(Error::Panicked { panic, .. }) if panic == "four"));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64, PROPERTIES - 1);
    assert!(panic_of(|| block_on(trust::apply_each_async(&numbers, double))).contains("poisoned"));
    numbers[2].clear_poison();
    assert_eq!(numbers[2].call().apply(|_| ()).wait(), Ok(()));
    // One that is dropped early: closures that were sent run.
    let sent = Shared::new(AtomicU64::new(0));
    let count = {
        let sent = sent.clone();
        move |_: &mut u64| {
            sent.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut future = trust::apply_each_async(&numbers, count);
    let _ = poll_once(&mut future);
    drop(future);
    block_on(trust::apply_each_async(&numbers, |_| ()));
    let ran = sent.load(Ordering::Relaxed);
    assert!((1024..=PROPERTIES).contains(&ran), "{ran} have run");
}
