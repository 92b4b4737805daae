//! Loom models of the order of notifications: `cargo dev loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p gossamer-durable --release --lib loom_`.
//!
//! The real [`Held`], [`Waiting`], [`Awaited`] and [`Closers`] run here. A lock around each party's state (a client's
//! record, the trustee's core) stands in for a thread that serves one message after the other. So every order of
//! serving the messages is tried, including that the answer of a call and the notification of its group overtake each
//! other, because they use different slots. Messages of the trustee to one client keep their order, as in `trust`.
//!
//! A disk is a thread that takes one group after the other; its contents are recorded apart, to check each result
//! against.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Mutex;
use loom::thread;

use super::awaited::Awaited;
use super::closers::{Closers, Ends};
use super::held::{Held, Notification, Verdict, Why};
use super::waiting::Waiting;
use crate::error::Error;

/// Explores a model, like the models of `trust`.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

const CLIENT: u64 = 1;
/// Mark of `core.rs` for a pool that is lost.
const NEVER: u64 = u64::MAX;

/// A result: its number and its group.
type Entry = (u64, u64);

/// A client's record, while it exists, and the delivered results in their order.
#[derive(Default)]
struct Client {
    held: Option<Held<Entry>>,
    delivered: Vec<(Entry, Verdict)>,
}

/// The trustee's side of a pool.
struct Core {
    clients: Waiting<()>,
    /// The open group, and whether anything changed in it.
    open: u64,
    has_changes: bool,
    durable: u64,
    lost: Option<String>,
    is_gone: bool,
}

struct Pool {
    client: Mutex<Client>,
    core: Mutex<Core>,
    /// The last group on the disk.
    disk: Mutex<u64>,
}

impl Pool {
    fn new() -> Arc<Pool> {
        let core =
            Core { clients: Waiting::new(), open: 1, has_changes: false, durable: 0, lost: None, is_gone: false };
        Arc::new(Pool { client: Mutex::new(Client::default()), core: Mutex::new(core), disk: Mutex::new(0) })
    }

    /// Same as `Call::begin`, `Service::run` and `Call::hold`: a transaction with this number as its result.
    fn call(&self, number: u64) {
        let is_known = {
            let client = &mut *self.client.lock().unwrap();
            let is_known = client.held.is_some();
            client.held.get_or_insert_with(Held::new).begin();
            is_known
        };
        let mark = {
            let core = &mut *self.core.lock().unwrap();
            if core.is_gone {
                None
            } else {
                if !is_known {
                    core.clients.register(CLIENT, ());
                }
                let mark = if core.lost.is_some() { NEVER } else { core.open };
                core.has_changes = core.lost.is_none();
                core.clients.note(mark, CLIENT);
                Some(mark)
            }
        };
        match mark {
            Some(NEVER) => {
                // The trustee sends the cause to a caller that finds the pool lost, in a message behind this answer.
                self.hold(number, NEVER);
                self.tell();
            }
            Some(mark) => self.hold(number, mark),
            // To keep the order of calls: behind the waiting entries, and then all of them.
            None => {
                self.hold(number, NEVER);
                self.receive(|held| held.receive(Notification::Gone));
            }
        }
    }

    fn hold(&self, number: u64, mark: u64) {
        let client = &mut *self.client.lock().unwrap();
        let held = client.held.as_mut().expect("a call is under way");
        match held.verdict(mark) {
            Some(verdict) => {
                held.finish();
                client.delivered.push(((number, mark), verdict));
                self.is_right(client);
            }
            None => {
                held.push(mark, |_| false, || (number, mark));
                held.finish();
            }
        }
    }

    /// Same as `take` and `tell` of `client.rs`: the notification is applied at once, entries are called somewhat
    /// later.
    fn receive(&self, change: impl FnOnce(&mut Held<Entry>)) {
        if let Some(held) = &mut self.client.lock().unwrap().held {
            change(held);
        }
        let client = &mut *self.client.lock().unwrap();
        while let Some((entry, verdict)) = client.held.as_mut().and_then(Held::pop) {
            client.delivered.push((entry, verdict));
        }
        self.is_right(client);
    }

    /// Checks that nothing was delivered before it is on the disk. The record is removed after the pool's end.
    fn is_right(&self, client: &mut Client) {
        let on_disk = *self.disk.lock().unwrap();
        let is_early = |delivered: &(Entry, Verdict)| delivered.1.is_ok() && delivered.0.1 > on_disk;
        assert!(!client.delivered.iter().any(is_early), "delivered before it is durable: {:?}", client.delivered);
        client.held.take_if(|held| held.is_quiet() && held.has_ended());
    }

    /// Closes the open group and makes it durable, or fails; then notifies.
    fn commit(&self, fails: bool) {
        let group = {
            let core = &mut *self.core.lock().unwrap();
            if core.lost.is_some() || core.is_gone || !std::mem::take(&mut core.has_changes) {
                return;
            }
            core.open += 1;
            core.open - 1
        };
        if !fails {
            *self.disk.lock().unwrap() = group;
        }
        {
            let core = &mut *self.core.lock().unwrap();
            if fails {
                core.lost = Some("a cause".into());
            } else {
                core.durable = group;
            }
        }
        self.tell();
    }

    /// Same as `update` of `notifications.rs`.
    fn tell(&self) {
        // A message to a client is served while no other of this trustee's is: they keep their order.
        let core = &mut *self.core.lock().unwrap();
        let limit = if core.lost.is_some() { NEVER } else { core.durable };
        for _ in core.clients.take(limit) {
            self.receive(|held| match &core.lost {
                Some(cause) => held.receive_lost(core.durable, cause.clone()),
                None => held.receive(Notification::Durable(core.durable)),
            });
        }
    }

    /// Same as the core's `drop`.
    fn end(&self) {
        let core = &mut *self.core.lock().unwrap();
        core.is_gone = true;
        for () in core.clients.drain() {
            self.receive(|held| held.receive(Notification::Gone));
        }
    }

    /// Checks that every call has one verdict, in order, and that results on the disk are delivered as durable.
    fn check(&self, results: u64) {
        let client = &*self.client.lock().unwrap();
        let on_disk = *self.disk.lock().unwrap();
        assert!(client.delivered.iter().map(|delivered| delivered.0.0).eq(1..=results), "{:?}", client.delivered);
        assert!(
            client.delivered.iter().all(|((_, mark), verdict)| verdict.is_ok() || *mark > on_disk),
            "{:?}",
            client.delivered
        );
        assert!(client.held.as_ref().is_none_or(Held::is_quiet));
    }
}

/// Calls while the disk makes groups durable: none waits for ever, none returns early.
#[test]
fn loom_durable_ask() {
    explore(|| {
        let pool = Pool::new();
        let disk = Arc::clone(&pool);
        let disk = thread::spawn(move || (0..2).for_each(|_| disk.commit(false)));
        pool.call(1);
        pool.call(2);
        disk.join().unwrap();
        // The changes after the last commit.
        pool.commit(false);
        pool.check(2);
        assert!(pool.client.lock().unwrap().delivered.iter().all(|(_, verdict)| verdict.is_ok()));
    });
}

/// The disk fails meanwhile: results on it are delivered as durable, all others get the cause.
#[test]
fn loom_durable_lost() {
    explore(|| {
        let pool = Pool::new();
        let disk = Arc::clone(&pool);
        let disk = thread::spawn(move || {
            disk.commit(false);
            disk.commit(true);
        });
        pool.call(1);
        pool.call(2);
        disk.join().unwrap();
        pool.commit(true);
        pool.check(2);
    });
}

/// The pool ends during calls: each gets a verdict, and the client keeps no record.
#[test]
fn loom_durable_close() {
    explore(|| {
        let pool = Pool::new();
        let trustee = Arc::clone(&pool);
        let trustee = thread::spawn(move || {
            trustee.commit(false);
            trustee.end();
        });
        pool.call(1);
        pool.call(2);
        trustee.join().unwrap();
        pool.check(2);
    });
}

struct Closer(Arc<Mutex<Vec<Option<String>>>>);

impl Ends for Closer {
    fn end(self, lost: Option<String>) {
        self.0.lock().unwrap().push(lost);
    }
}

/// Every closer is notified of the pool's end once, whether it registers before or after.
#[test]
fn loom_durable_close_is_told_to_all() {
    explore(|| {
        let closers = Arc::new(Closers::default());
        let delivered = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (closers, closer) = (Arc::clone(&closers), Closer(Arc::clone(&delivered)));
                thread::spawn(move || closers.add(closer))
            })
            .collect();
        closers.end(Some("a cause".into()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*delivered.lock().unwrap(), vec![Some("a cause".to_owned()); 2]);
    });
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task polls twice, with different wakers, while its outcome is stored and settled.
fn awaited(settle: fn(&Awaited<u64>), is_right: fn(&Result<u64, Error>) -> bool) {
    explore(move || {
        let awaited = Arc::new(Awaited::new());
        let gives = Arc::clone(&awaited);
        let giver = thread::spawn(move || settle(&gives));
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        let mut outcome = None;
        let mut waits = None;
        for (poll, count) in counts.iter().enumerate() {
            let waker = Waker::from(Arc::clone(count));
            match awaited.poll(&Context::from_waker(&waker)) {
                Poll::Ready(ready) => {
                    outcome = Some(ready);
                    break;
                }
                Poll::Pending => waits = Some(poll),
            }
        }
        giver.join().unwrap();
        let woken = counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert!(woken.iter().sum::<usize>() <= 1);
        let outcome = outcome.unwrap_or_else(|| {
            assert_eq!(waits.map(|poll| woken[poll]), Some(1), "it waits, and nobody wakes it");
            match awaited.poll(&Context::from_waker(Waker::noop())) {
                Poll::Ready(ready) => ready,
                Poll::Pending => panic!("it is settled"),
            }
        });
        assert!(is_right(&outcome), "{outcome:?}");
    });
}

/// A future's outcome that the trustee stores and later settles.
#[test]
fn loom_durable_keep() {
    awaited(
        |awaited| {
            awaited.put(Ok(7));
            awaited.settle(None);
        },
        |outcome| matches!(outcome, Ok(7)),
    );
}

/// A future that is lost, and one that never ran because its trustee is gone.
#[test]
fn loom_durable_keep_lost() {
    awaited(
        |awaited| {
            awaited.put(Ok(7));
            awaited.settle(Some(&Why::Lost("a cause".into())));
        },
        |outcome| matches!(outcome, Err(Error::Lost { cause }) if cause == "a cause"),
    );
    awaited(|awaited| awaited.settle(None), |outcome| matches!(outcome, Err(Error::Gone)));
}
