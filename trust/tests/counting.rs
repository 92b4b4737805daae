//! Clones and drops, from anywhere and in any order: the property is dropped exactly once, on its trustee, after the
//! last trust, also where trusts lie in properties, in closures and in thread-locals.

mod common;

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use common::{Counted, Drops, Server, join_and_serve, panic_of, serve_until};
use fastrand::Rng;
use trust::{Shared, Threadpool, Trust, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

#[test]
fn a_trust_is_two_words() {
    assert_eq!(size_of::<Trust<Vec<String>>>(), 16);
}

#[test]
fn the_property_is_dropped_once_on_its_trustee_after_the_last_trust() {
    let _watch = watchdog!();
    let pool = pool(2);
    for &trustee in pool.trustees() {
        let drops = Drops::default();
        let first = trustee.entrust(drops.value(1));
        let on = trust::spawn_on(&trustee, || thread::current().id()).join().unwrap();
        let clones: Vec<_> = (0..10).map(|_| first.clone()).collect();
        drop(first);
        for clone in clones {
            assert_eq!(clone.apply(|v| v.value), 1);
            assert_eq!(drops.count(), 0, "a trust is left");
        }
        serve_until(|| drops.count() > 0);
        assert_eq!(drops.threads(), [on]);
    }
}

#[test]
fn a_local_property_is_dropped_with_its_last_trust() {
    let _watch = watchdog!();
    let drops = Drops::default();
    let trust = local_trustee().entrust(drops.value(()));
    let clone = trust.clone();
    drop(trust);
    assert_eq!(drops.count(), 0);
    clone.apply(|v| v.check());
    drop(clone);
    serve_until(|| drops.count() == 1);
    assert_eq!(drops.threads(), [thread::current().id()]);
}

#[test]
fn requests_made_through_a_trust_that_is_dropped_at_once_still_run() {
    let _watch = watchdog!();
    let pool = pool(1);
    let drops = Drops::default();
    let ran = Shared::new(AtomicUsize::new(0));
    for _ in 0..1_000 {
        let trust = pool.entrust(drops.value(()));
        for _ in 0..3 {
            let ran = ran.clone();
            trust.apply_then(
                move |v| {
                    v.check();
                    ran.fetch_add(1, Ordering::SeqCst);
                },
                |()| (),
            );
        }
    }
    serve_until(|| drops.count() == 1_000);
    assert_eq!(ran.load(Ordering::SeqCst), 3_000);
}

#[test]
fn clones_and_drops_inside_closures() {
    let _watch = watchdog!();
    let pool = pool(2);
    let drops = Drops::default();
    let inner = pool.trustees()[0].entrust(drops.value(0u32));
    let outer = pool.trustees()[1].entrust(Vec::<Trust<Counted<u32>>>::new());
    let same = pool.trustees()[0].entrust(Vec::<Trust<Counted<u32>>>::new());
    for holder in [&outer, &same] {
        for _ in 0..200 {
            let sent = inner.clone();
            holder.apply(move |held| {
                for _ in 0..5 {
                    held.push(sent.clone());
                }
                drop(sent.clone());
                held.swap_remove(0);
                drop(sent);
            });
        }
    }
    drop(inner);
    let last = outer.apply(|held| {
        held.truncate(1);
        held.pop().unwrap()
    });
    same.apply(|held| held.clear());
    assert_eq!(last.apply(|v| v.value), 0);
    assert_eq!(drops.count(), 0);
    drop(last);
    serve_until(|| drops.count() == 1);
}

#[test]
fn the_last_trust_dropped_inside_a_closure_on_the_property_itself() {
    let _watch = watchdog!();
    let pool = pool(1);
    let drops = Drops::default();
    for trustee in [local_trustee(), pool.trustees()[0]] {
        let before = drops.count();
        let trust = trustee.entrust((drops.value(5), None::<Trust<_>>.map(|t: Trust<u8>| t)));
        let last = trust.clone();
        trust.apply_then(
            move |v| {
                drop(last);
                v.0.check();
            },
            |()| (),
        );
        drop(trust);
        serve_until(|| drops.count() == before + 1);
    }
}

/// The scenario of `reclaim.rs`: a trust is cloned, the clone goes on to the next thread, the original to a third,
/// where it is dropped at once, so that its -1 may overtake the clone's +1.
#[test]
fn a_trust_cloned_here_used_there_and_dropped_elsewhere() {
    let _watch = watchdog!();
    const ROUNDS: usize = if cfg!(debug_assertions) { 3_000 } else { 20_000 };
    const HOPS: u32 = 12;
    type Parcel = Option<(Trust<Counted<u64>>, u32)>;
    let server = Server::start();
    let drops = Drops::default();
    let used = Shared::new(AtomicUsize::new(0));
    let (give, to_drop) = mpsc::channel::<Trust<Counted<u64>>>();
    let ends: Vec<(Sender<Parcel>, Receiver<Parcel>)> = (0..3).map(|_| mpsc::channel()).collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let (finished, is_finished) = mpsc::channel();
    let mut threads = Vec::new();
    for (place, receiver) in receivers.into_iter().enumerate() {
        let (next, give) = (senders[(place + 1) % 3].clone(), give.clone());
        let (finished, used) = (finished.clone(), used.clone());
        threads.push(thread::spawn(move || {
            let mut random = Rng::with_seed(place as u64);
            for parcel in receiver {
                let Some((trust, hops)) = parcel else { break };
                if random.usize(..3) == 0 {
                    let used = used.clone();
                    trust.apply_then(
                        move |v| {
                            v.check();
                            used.fetch_add(1, Ordering::Relaxed);
                        },
                        |()| (),
                    );
                }
                if hops == 0 {
                    finished.send(()).unwrap();
                } else {
                    next.send(Some((trust.clone(), hops - 1))).unwrap();
                    match random.usize(..4) {
                        0 => drop(trust),
                        1 => {
                            trust::yield_now();
                            drop(trust);
                        }
                        _ => give.send(trust).unwrap(),
                    }
                }
                if random.usize(..4) == 0 {
                    trust::yield_now();
                }
            }
        }));
    }
    drop(give);
    threads.push(thread::spawn(move || {
        for trust in to_drop {
            drop(trust);
            trust::yield_now();
        }
    }));
    for round in 0..ROUNDS {
        let trust = server.trustee.entrust(drops.value(round as u64));
        senders[round % 3].send(Some((trust, HOPS))).unwrap();
        if round >= 8 {
            is_finished.recv().unwrap();
        }
        if round % 16 == 0 {
            trust::yield_now();
        }
    }
    (0..8).for_each(|_| is_finished.recv().unwrap());
    // Requests that a blocked thread has not sent yet go when it ends.
    for sender in &senders {
        sender.send(None).unwrap();
    }
    while let Some(thread) = threads.pop() {
        join_and_serve(thread);
    }
    serve_until(|| drops.count() == ROUNDS);
    assert!(used.load(Ordering::Relaxed) > ROUNDS);
    server.end();
    assert_eq!(drops.count(), ROUNDS);
}

/// A property that may hold a trust of its own kind.
struct Node {
    next: Option<Trust<Node>>,
    _counted: Counted<u32>,
}

fn node(drops: &Drops) -> Node {
    Node { next: None, _counted: drops.value(0) }
}

#[test]
fn a_chain_of_properties_goes_with_its_first_trust() {
    let _watch = watchdog!();
    const LENGTH: usize = 500;
    let pool = pool(3);
    let drops = Drops::default();
    let mut first = pool.entrust(node(&drops));
    for _ in 1..LENGTH {
        let before = pool.entrust(node(&drops));
        let next = first;
        before.apply(move |node| node.next = Some(next));
        first = before;
    }
    assert_eq!(drops.count(), 0);
    drop(first);
    serve_until(|| drops.count() == LENGTH);
}

#[test]
fn a_long_chain_on_one_trustee_does_not_recurse() {
    let _watch = watchdog!();
    const LENGTH: usize = 100_000;
    let drops = Drops::default();
    let mut first = local_trustee().entrust(node(&drops));
    for _ in 1..LENGTH {
        let before = local_trustee().entrust(node(&drops));
        let next = first;
        before.apply(move |node| node.next = Some(next));
        first = before;
    }
    drop(first);
    serve_until(|| drops.count() == LENGTH);
}

#[test]
fn properties_that_hold_trusts_of_themselves_go_with_their_trustee() {
    let _watch = watchdog!();
    let drops = Drops::default();
    let (of_thread, of_pool) = (drops.clone(), drops.clone());
    thread::spawn(move || {
        // One that holds itself, two that hold each other, and a ring through all of them.
        let nodes: Vec<_> = (0..20).map(|_| local_trustee().entrust(node(&of_thread))).collect();
        for (place, holder) in nodes.iter().enumerate() {
            let held = nodes[if place < 10 { place } else { 10 + (place + 1) % 10 }].clone();
            holder.apply(move |node| node.next = Some(held));
        }
    })
    .join()
    .unwrap();
    assert_eq!(drops.count(), 20);
    let pool = pool(2);
    let nodes: Vec<_> = (0..20).map(|_| pool.entrust(node(&of_pool))).collect();
    for (place, holder) in nodes.iter().enumerate() {
        let held = nodes[(place + 1) % 20].clone();
        holder.apply(move |node| node.next = Some(held));
    }
    drop(nodes);
    drop(pool);
    assert_eq!(drops.count(), 40);
}

/// Drops the trusts it holds, after a last clone, when the thread's thread-locals go.
struct Last<T: 'static>(RefCell<Vec<Trust<T>>>);

impl<T> Drop for Last<T> {
    fn drop(&mut self) {
        for trust in self.0.borrow_mut().drain(..) {
            let clones = [trust.clone(), trust.clone()];
            drop(trust);
            drop(clones);
        }
    }
}

thread_local! {
    static HELD: Last<Counted<u32>> = const { Last(RefCell::new(Vec::new())) };
}

fn hold(trust: Trust<Counted<u32>>) {
    HELD.with(|held| held.0.borrow_mut().push(trust));
}

#[test]
fn trap_12_trusts_in_thread_locals_are_cloned_and_dropped_after_the_trustee_of_their_thread_has_ended() {
    let _watch = watchdog!();
    let pool = pool(1);
    let drops = Drops::default();
    for early in [true, false] {
        for round in 0..50 {
            let before = drops.count();
            let (mine, remote) = (drops.clone(), pool.entrust(drops.value(1)));
            let thread = thread::spawn(move || {
                if early {
                    // Thread-locals are destroyed last in, first out: this one outlives the worker.
                    HELD.with(|_| ());
                    hold(remote);
                    hold(local_trustee().entrust(mine.value(2)));
                } else {
                    let local = local_trustee().entrust(mine.value(2));
                    hold(local);
                    hold(remote);
                }
            });
            thread.join().unwrap();
            serve_until(|| drops.count() == before + 2);
            assert_eq!(drops.count(), before + 2, "early {early}, round {round}");
        }
    }
}

thread_local! {
    static APPLIES: AppliesAtEnd = const { AppliesAtEnd(RefCell::new(None)) };
}

struct AppliesAtEnd(RefCell<Option<(Trust<u32>, Sender<String>)>>);

impl Drop for AppliesAtEnd {
    fn drop(&mut self) {
        if let Some((trust, told)) = self.0.borrow_mut().take() {
            told.send(panic_of(|| trust.apply(|v| *v))).unwrap();
            told.send(panic_of(local_trustee)).unwrap();
            told.send(panic_of(|| trust.apply_then(|v| *v, |_| ()))).unwrap();
            // After the refusals the trust still counts as one.
        }
    }
}

#[test]
fn trap_12_delegation_after_the_end_of_the_thread_s_trustee_panics_and_says_why() {
    let _watch = watchdog!();
    let pool = pool(1);
    let trust = pool.entrust(1);
    let (told, texts) = mpsc::channel();
    let sent = trust.clone();
    thread::spawn(move || {
        APPLIES.with(|applies| *applies.0.borrow_mut() = Some((sent.clone(), told)));
        sent.apply(|v| *v += 1);
    })
    .join()
    .unwrap();
    let texts: Vec<String> = texts.iter().collect();
    assert_eq!(texts.len(), 3);
    assert!(texts.iter().all(|text| text.contains("thread is ending")), "{texts:?}");
    assert_eq!(trust.apply(|v| *v), 2);
}

/// The ending thread has sent no request whose answer it must see, and its trustee does not serve meanwhile.
#[test]
fn timed_t2_a_thread_that_drops_a_trust_and_ends_waits_for_nobody() {
    let _watch = watchdog!();
    let property = local_trustee().entrust(1);
    let start = std::time::Instant::now();
    for _ in 0..3 {
        let clone = property.clone();
        std::thread::spawn(move || drop(clone)).join().unwrap();
    }
    assert!(start.elapsed() < limits::bound(std::time::Duration::from_secs(3)), "it waited {:?}", start.elapsed());
    assert_eq!(property.apply(|value| *value), 1);
}
