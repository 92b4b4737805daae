//! Client side: results that wait for their group, in the order of calls (`held.rs`), for each pool that a thread has
//! called.
//!
//! Each thread has a `Subscriber`, a property that pools notify of durable groups. Results that are ready are then
//! delivered in callback context, where nothing may wait. No fiber waits here, so a thread may end at any time.
//!
//! Invariants:
//! - Each entry is called once, or dropped with its thread.
//! - A record stays while a [`Call`] of its pool is in flight or results are held [record-stays]; it is removed
//!   when the pool has ended and nothing is left. No record is borrowed while user's code or another record's owner may
//!   run: entries to call or drop are taken out first.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use trust::link::{LossWatch, promise_at, watch_loss};
use trust::{Pending, Promise, Trust, TrusteeId, local_trustee};

use super::held::Held;
pub(crate) use super::held::{Notification, Verdict, Why};
use crate::hash::ByNumber;
use crate::unwind::quietly;

/// Property of a client's thread, the target of notifications.
pub(crate) struct Subscriber;

impl Drop for Subscriber {
    /// The thread's trustee ends: its records are dropped, and its client number becomes invalid.
    fn drop(&mut self) {
        let Pools { records, subscriber } = POOLS.with(|pools| pools.take());
        records.values().for_each(abandon);
        drop(subscriber);
    }
}

/// Queue of held results with entries of one type, in the order of calls: a box for each would be an allocation for
/// each call.
struct Alike<F>(RefCell<VecDeque<F>>);

/// Capacity that an emptied queue keeps.
const ROOM: usize = 8192;

trait Entries {
    /// Calls the first.
    fn tell_first(&self, verdict: Verdict);
    /// Drops the first.
    fn drop_first(&self);
}

impl<F> Alike<F> {
    #[inline]
    fn take_first(&self) -> Option<F> {
        let entries = &mut *self.0.borrow_mut();
        let first = entries.pop_front();
        if entries.is_empty() && entries.capacity() > ROOM {
            entries.shrink_to(ROOM);
        }
        first
    }
}

impl<F: FnOnce(Verdict)> Entries for Alike<F> {
    fn tell_first(&self, verdict: Verdict) {
        if let Some(entry) = self.take_first() {
            entry(verdict);
        }
    }

    fn drop_first(&self) {
        drop(self.take_first());
    }
}

/// Entry for a held result: stands for the first remaining result of its queue, when its turn comes.
type Entry = Rc<dyn Entries>;

/// This thread's state for a pool.
struct Record {
    pool: u64,
    /// The pool's trustee.
    trustee: TrusteeId,
    /// Calls back if that is lost with its machine.
    _watch: Option<LossWatch>,
    /// The number of this thread as a client.
    client: u64,
    held: Held<Entry>,
    /// The queues behind the entries of `held`, by type of closure; the last one used comes first.
    entries: Vec<(TypeId, Rc<dyn Any>)>,
    /// A trust of the pool, which keeps it alive while results are awaited here.
    kept: Option<Box<dyn Any>>,
    /// Callers that wait for space.
    room: Vec<Promise<bool>>,
    /// A delivery of entries is scheduled or running.
    is_telling: bool,
}

type Shared = Rc<RefCell<Record>>;

impl Record {
    #[inline]
    fn hold<F: FnOnce(Verdict) + 'static>(&mut self, mark: u64, entry: F) {
        let kind = TypeId::of::<F>();
        match self.entries.iter().position(|found| found.0 == kind) {
            Some(place) => self.entries.swap(0, place),
            None => {
                let new: Rc<dyn Any> = Rc::new(Alike::<F>(RefCell::default()));
                self.entries.insert(0, (kind, new));
            }
        }
        let queue = &self.entries[0].1;
        let Some(alike) = queue.downcast_ref::<Alike<F>>() else { unreachable!("by its type") };
        alike.0.borrow_mut().push_back(entry);
        let is_equal = |last: &Entry| ptr::addr_eq(Rc::as_ptr(last), Rc::as_ptr(queue));
        self.held.push(mark, is_equal, || match Rc::clone(queue).downcast::<Alike<F>>() {
            Ok(alike) => alike,
            Err(_) => unreachable!("by its type"),
        });
    }
}

#[derive(Default)]
struct Pools {
    records: HashMap<u64, Shared, ByNumber>,
    subscriber: Option<Trust<Subscriber>>,
}

thread_local! {
    /// Records without a destructor: they are used as long as the thread's trustee is alive, also by destructors of
    /// other thread-locals. The `Subscriber`, which ends with the trustee, empties them.
    static POOLS: ManuallyDrop<RefCell<Pools>> = ManuallyDrop::default();
}

/// The most results that a thread holds for a pool before callers wait, if they may.
const HELD_MAX: usize = 65_536;

/// A call on a pool by this thread, from before it is sent until its result is delivered or held.
pub(crate) struct Call {
    record: Shared,
    is_over: bool,
}

impl Call {
    /// Begins a call, before it is sent, on a pool of this trustee. `introduce` is called with number and `Subscriber`
    /// of this thread if the pool does not know them.
    #[inline]
    pub(crate) fn begin(pool: u64, trustee: TrusteeId, introduce: impl FnOnce(u64, Trust<Subscriber>)) -> Call {
        if let Some(record) = POOLS.with(|pools| pools.borrow().records.get(&pool).cloned()) {
            record.borrow_mut().held.begin();
            return Call { record, is_over: false };
        }
        // Panics where the thread's trustee is gone.
        let own = local_trustee().id();
        // A number of the thread: the caller's trustee may move on, and call from another one.
        let subscriber = subscriber();
        let client = subscriber.trustee().id().to_bits();
        let mut held = Held::new();
        held.begin();
        let watch = (trustee.machine() != own.machine()).then(|| watch_loss(trustee, move || mark_gone(pool)));
        let (entries, room) = Default::default();
        let record =
            Record { pool, trustee, _watch: watch, client, held, entries, kept: None, room, is_telling: false };
        let record = Rc::new(RefCell::new(record));
        POOLS.with(|pools| pools.borrow_mut().records.insert(pool, Rc::clone(&record)));
        let call = Call { record, is_over: false };
        introduce(client, subscriber);
        call
    }

    fn trustee(&self) -> TrusteeId {
        self.record.borrow().trustee
    }

    /// Returns the number of this thread as a client.
    #[inline]
    pub(crate) fn client(&self) -> u64 {
        self.record.borrow().client
    }

    /// Are so many results held that a caller waits for space, if it may?
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.record.borrow().held.len() >= HELD_MAX
    }

    /// Returns the promise that such a caller waits for.
    pub(crate) fn room(&self) -> Pending<bool> {
        let (keeps, settled) = promise_at(self.trustee());
        self.record.borrow_mut().room.push(keeps);
        settled
    }

    /// Keeps the result of `keep`, which keeps the pool alive, until nothing is awaited here any more.
    #[inline]
    pub(crate) fn keep<K: 'static>(&self, keep: impl FnOnce() -> K) {
        if self.record.borrow().kept.is_none() {
            let kept: Box<dyn Any> = Box::new(keep());
            self.record.borrow_mut().kept = Some(kept);
        }
    }

    /// Calls `entry` when the group is durable, which may be at once.
    #[inline]
    pub(crate) fn hold(mut self, mark: u64, entry: impl FnOnce(Verdict) + 'static) {
        let verdict = self.record.borrow().held.verdict(mark);
        match verdict {
            // The call counts as in flight until then.
            Some(verdict) => entry(verdict),
            None => {
                let record = &mut *self.record.borrow_mut();
                record.hold(mark, entry);
                record.held.finish();
                self.is_over = true;
            }
        }
    }

    /// Waits until the group is durable, at most until `end`; none if it is not durable by then.
    pub(crate) fn wait(self, mark: u64, end: Option<Instant>) -> Option<Verdict> {
        // The loss of another machine is nothing to this group.
        let (keeps, settled) = promise_at::<bool>(self.trustee());
        let outcome = Rc::new(Cell::new(None));
        let sets = Rc::clone(&outcome);
        self.hold(mark, move |verdict| {
            sets.set(Some(verdict));
            keeps.keep(true);
        });
        if let Some(verdict) = outcome.take() {
            return Some(verdict);
        }
        match end {
            None => _ = settled.wait(),
            Some(end) => _ = settled.wait_timeout(left(end))?,
        }
        Some(outcome.take().unwrap_or(Err(Why::Gone)))
    }
}

/// Returns the time until `end`.
pub(crate) fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            self.record.borrow_mut().held.finish();
            let_go(&self.record);
        }
    }
}

/// Drops the trust that keeps the pool alive, and the record of an ended pool, if nothing is awaited any more.
fn let_go(record: &Shared) {
    let (kept, is_over, pool) = {
        let record = &mut *record.borrow_mut();
        if !record.held.is_quiet() {
            return;
        }
        (record.kept.take(), record.held.has_ended() && record.room.is_empty(), record.pool)
    };
    if is_over {
        let gone = POOLS.with(|pools| pools.borrow_mut().records.remove(&pool));
        drop(gone);
    }
    drop(kept);
}

/// Drops held entries, each by itself: a panic of one while another one unwinds would abort the process.
fn abandon(record: &Shared) {
    while let Some(entry) = { record.borrow_mut().held.take_first() } {
        quietly(|| entry.drop_first());
    }
    let (kept, room) = {
        let record = &mut *record.borrow_mut();
        (record.kept.take(), std::mem::take(&mut record.room))
    };
    drop((kept, room));
}

fn subscriber() -> Trust<Subscriber> {
    let subscriber = POOLS.with(|pools| pools.borrow().subscriber.clone());
    subscriber.unwrap_or_else(|| {
        // The table is that of this thread, from which its trustee does not move then.
        let subscriber = trust::link::entrust_here(Subscriber);
        POOLS.with(|pools| pools.borrow_mut().subscriber = Some(subscriber.clone()));
        subscriber
    })
}

/// Handles a notification of a pool.
pub(crate) fn receive(pool: u64, notification: Notification) {
    take(pool, |held| held.receive(notification));
}

/// Handles the notification that the disk failed after group `durable`.
pub(crate) fn receive_lost(_: &mut Subscriber, (pool, durable, cause): (u64, u64, String)) {
    take(pool, |held| held.receive_lost(durable, cause));
}

/// Marks a pool as gone, after a call found no trustee.
pub(crate) fn mark_gone(pool: u64) {
    take(pool, |held| held.receive(Notification::Gone));
}

/// Returns the number of pools that this thread has a record of.
#[cfg(test)]
pub(crate) fn records() -> usize {
    POOLS.with(|pools| pools.borrow().records.len())
}

fn take(pool: u64, change: impl FnOnce(&mut Held<Entry>)) {
    let found = POOLS.with(|pools| {
        let pools = pools.borrow();
        Some((Rc::clone(pools.records.get(&pool)?), pools.subscriber.clone()?))
    });
    let Some((record, subscriber)) = found else { return };
    let is_ready = {
        let record = &mut *record.borrow_mut();
        change(&mut record.held);
        record.held.is_ready() && !std::mem::replace(&mut record.is_telling, true)
    };
    if is_ready {
        // In callback context, after the code that runs now.
        subscriber.apply_then(|_| (), move |()| tell(&record));
    } else {
        let_go(&record);
    }
}

/// Calls the entries that have a verdict. Results that come meanwhile queue behind them.
fn tell(record: &Shared) {
    loop {
        let next = record.borrow_mut().held.pop();
        let Some((entry, verdict)) = next else { break };
        // After a panic the others are still called.
        quietly(|| entry.tell_first(verdict));
    }
    let room = {
        let record = &mut *record.borrow_mut();
        record.is_telling = false;
        if record.held.len() < HELD_MAX / 2 { std::mem::take(&mut record.room) } else { Vec::new() }
    };
    room.into_iter().for_each(|waits| waits.keep(true));
    let_go(record);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_caller_waits_for_room_and_gets_it() {
        const POOL: u64 = 77;
        let told = Rc::new(Cell::new(0));
        let begin = || Call::begin(POOL, local_trustee().id(), |_, _| ());
        for n in 0..HELD_MAX {
            let (call, told) = (begin(), Rc::clone(&told));
            assert!(!call.is_full());
            call.hold(1 + n as u64 / (HELD_MAX as u64 / 4), move |verdict| {
                assert!(verdict.is_ok() && told.replace(n + 1) == n, "in the order of calls");
            });
        }
        let call = begin();
        assert!(call.is_full());
        let room = call.room();
        let waits = trust::spawn(move || room.wait().is_ok());
        receive(POOL, Notification::Durable(1));
        trust::yield_now();
        assert_eq!(told.get(), HELD_MAX / 4, "those of the first group");
        assert!(!waits.is_finished(), "it waits until half of the room is free");
        receive(POOL, Notification::Durable(3));
        assert!(waits.join().expect("it goes on"));
        assert_eq!(told.get(), HELD_MAX / 4 * 3);
        drop(call);
        receive(POOL, Notification::Durable(4));
        receive(POOL, Notification::Gone);
        trust::yield_now();
        assert_eq!((told.get(), records()), (HELD_MAX, 0));
    }

    #[test]
    fn a_wait_for_a_group_ends_in_time_and_leaves_nothing() {
        const POOL: u64 = 79;
        let begin = || Call::begin(POOL, local_trustee().id(), |_, _| ());
        assert_eq!(begin().wait(1, Some(Instant::now())), None);
        receive(POOL, Notification::Durable(1));
        trust::yield_now();
        assert_eq!(begin().wait(1, Some(Instant::now())), Some(Ok(())), "it is known already");
        receive(POOL, Notification::Gone);
        assert_eq!(records(), 0);
    }

    #[test]
    fn results_that_come_while_others_are_told_stand_behind_them() {
        const POOL: u64 = 78;
        let seen = Rc::new(RefCell::new(Vec::new()));
        let note = |number| {
            let seen = Rc::clone(&seen);
            move |verdict: Verdict| seen.borrow_mut().push((number, verdict.is_ok()))
        };
        let calls: Vec<_> = (0..4).map(|_| Call::begin(POOL, local_trustee().id(), |_, _| ())).collect();
        let [one, two, three, four]: [Call; 4] = calls.try_into().ok().expect("four");
        one.hold(1, note(1));
        let (third, fourth) = (note(3), note(4));
        two.hold(2, {
            let second = note(2);
            move |verdict| {
                second(verdict);
                three.hold(1, third);
                four.hold(9, fourth);
                mark_gone(POOL);
            }
        });
        receive(POOL, Notification::Durable(2));
        trust::yield_now();
        assert_eq!(*seen.borrow(), [(1, true), (2, true), (3, true), (4, false)]);
        assert_eq!(records(), 0);
    }
}
