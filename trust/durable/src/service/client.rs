//! A client's side: results that wait for their group, in the order of calls (`held.rs`), of each pool that a thread
//! has called.
//!
//! A thread's *ear* is a property of its own to which pools say which groups are durable; what is ready is then let go
//! in callback context, where nothing may wait. No fiber waits here, so a thread may end at any time.
//!
//! Invariants:
//! - Each entry is called once, or dropped with its thread.
//! - A record stays while a [`Call`] of its pool is under way or results are held (K2); it goes when the pool has said
//!   its last word and nothing is left. No record is borrowed while user's code or another record's owner may run: what
//!   is told or dropped is taken out first.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::rc::Rc;

use trust::{Pending, Promise, Trust, local_trustee, promise};

use super::held::Held;
pub(crate) use super::held::{News, Verdict, Why};
use crate::hash::ByNumber;
use crate::unwind::quietly;

/// The property of a client's thread.
pub(crate) struct Ear;

impl Drop for Ear {
    /// The thread's trustee ends: what is left here is dropped, and its number as a client means nothing any more.
    fn drop(&mut self) {
        let Pools { records, ear } = POOLS.with(|pools| pools.take());
        records.values().for_each(abandon);
        drop(ear);
    }
}

/// Results that are held whose entries are of one type, in the order of calls: a box for each would be an allocation
/// for each call.
struct Alike<F>(RefCell<VecDeque<F>>);

/// Room for so many entries is kept.
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

/// A result that is held: the first of these that is left, when its turn has come.
type Entry = Rc<dyn Entries>;

/// What this thread knows of a pool.
struct Record {
    pool: u64,
    /// The number of this thread as a client.
    client: u64,
    held: Held<Entry>,
    /// What `held` names, by the type of the entries; the last one used is the first.
    entries: Vec<(TypeId, Rc<dyn Any>)>,
    /// A trust of the pool, so that it lives for as long as results are awaited here.
    kept: Option<Box<dyn Any>>,
    /// Callers that wait for room.
    room: Vec<Promise<bool>>,
    /// Entries are about to be told.
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
        let Ok(alike) = Rc::clone(&self.entries[0].1).downcast::<Alike<F>>() else { unreachable!("by its type") };
        alike.0.borrow_mut().push_back(entry);
        self.held.push(mark, alike);
    }
}

#[derive(Default)]
struct Pools {
    records: HashMap<u64, Shared, ByNumber>,
    ear: Option<Trust<Ear>>,
}

thread_local! {
    /// Without a destructor: they are used as long as the thread's trustee is there, also by destructors of other
    /// thread-locals. The ear, which goes with the trustee, empties them.
    static POOLS: ManuallyDrop<RefCell<Pools>> = ManuallyDrop::default();
}

/// Results that a thread holds for a pool before callers that may wait do.
const HELD_MAX: usize = 65_536;

/// A call on a pool by this thread, from before it is sent until its result is told or held.
pub(crate) struct Call {
    record: Shared,
    is_over: bool,
}

impl Call {
    /// Before the call is sent. `introduce` is given number and ear of this thread if the pool does not know them.
    #[inline]
    pub(crate) fn begin(pool: u64, introduce: impl FnOnce(u64, Trust<Ear>)) -> Call {
        if let Some(record) = POOLS.with(|pools| pools.borrow().records.get(&pool).cloned()) {
            record.borrow_mut().held.begin();
            return Call { record, is_over: false };
        }
        // Panics where the thread's trustee is gone.
        let client = local_trustee().id().to_bits();
        let mut held = Held::new();
        held.begin();
        let record =
            Record { pool, client, held, entries: Vec::new(), kept: None, room: Vec::new(), is_telling: false };
        let record = Rc::new(RefCell::new(record));
        POOLS.with(|pools| pools.borrow_mut().records.insert(pool, Rc::clone(&record)));
        let call = Call { record, is_over: false };
        introduce(client, ear());
        call
    }

    /// The number of this thread as a client.
    #[inline]
    pub(crate) fn client(&self) -> u64 {
        self.record.borrow().client
    }

    /// Are so many results held that a caller waits for room, if it may?
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.record.borrow().held.len() >= HELD_MAX
    }

    /// What such a caller waits for.
    pub(crate) fn room(&self) -> Pending<bool> {
        let (keeps, settled) = promise();
        self.record.borrow_mut().room.push(keeps);
        settled
    }

    /// What `keep` gives keeps the pool until nothing is awaited here any more.
    #[inline]
    pub(crate) fn keep<K: 'static>(&self, keep: impl FnOnce() -> K) {
        if self.record.borrow().kept.is_none() {
            let kept: Box<dyn Any> = Box::new(keep());
            self.record.borrow_mut().kept = Some(kept);
        }
    }

    /// Has `entry` called when the group is durable, which may be at once.
    #[inline]
    pub(crate) fn hold(mut self, mark: u64, entry: impl FnOnce(Verdict) + 'static) {
        let verdict = self.record.borrow().held.verdict(mark);
        match verdict {
            // Under way until it is told.
            Some(verdict) => entry(verdict),
            None => {
                let record = &mut *self.record.borrow_mut();
                record.hold(mark, entry);
                record.held.finish();
                self.is_over = true;
            }
        }
    }

    /// Waits until the group is durable.
    pub(crate) fn wait(self, mark: u64) -> Verdict {
        let (keeps, settled) = promise::<bool>();
        let outcome = Rc::new(Cell::new(None));
        let sets = Rc::clone(&outcome);
        self.hold(mark, move |verdict| {
            sets.set(Some(verdict));
            keeps.keep(true);
        });
        match outcome.take() {
            Some(verdict) => verdict,
            None => {
                let _ = settled.wait();
                outcome.take().unwrap_or(Err(Why::Gone))
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            self.record.borrow_mut().held.finish();
            let_go(&self.record);
        }
    }
}

/// Drops what keeps the pool, and its record after its last word, if nothing is awaited any more.
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

/// Drops what is held. Each by itself: a panic of one while another one unwinds would end the process.
fn abandon(record: &Shared) {
    while let Some(entry) = { record.borrow_mut().held.abandon() } {
        quietly(|| entry.drop_first());
    }
    let (kept, room) = {
        let record = &mut *record.borrow_mut();
        (record.kept.take(), std::mem::take(&mut record.room))
    };
    drop((kept, room));
}

fn ear() -> Trust<Ear> {
    let ear = POOLS.with(|pools| pools.borrow().ear.clone());
    ear.unwrap_or_else(|| {
        let ear = local_trustee().entrust(Ear);
        POOLS.with(|pools| pools.borrow_mut().ear = Some(ear.clone()));
        ear
    })
}

/// The ear hears of a pool.
pub(crate) fn hear(pool: u64, news: News) {
    take(pool, |held| held.hear(news));
}

/// The ear hears that the disk failed, after this group.
pub(crate) fn hear_lost(_: &mut Ear, (pool, durable, cause): (u64, u64, String)) {
    take(pool, |held| held.hear_lost(durable, cause));
}

/// Nothing is heard of a pool any more whose calls find nobody.
pub(crate) fn is_gone(pool: u64) {
    take(pool, |held| held.hear(News::Gone));
}

/// How many pools this thread has a record of.
#[cfg(test)]
pub(crate) fn records() -> usize {
    POOLS.with(|pools| pools.borrow().records.len())
}

fn take(pool: u64, change: impl FnOnce(&mut Held<Entry>)) {
    let found = POOLS.with(|pools| {
        let pools = pools.borrow();
        Some((Rc::clone(pools.records.get(&pool)?), pools.ear.clone()?))
    });
    let Some((record, ear)) = found else { return };
    let is_ready = {
        let record = &mut *record.borrow_mut();
        change(&mut record.held);
        record.held.is_ready() && !std::mem::replace(&mut record.is_telling, true)
    };
    if is_ready {
        // In callback context, when what runs now is done.
        ear.apply_then(|_| (), move |()| tell(&record));
    } else {
        let_go(&record);
    }
}

/// Calls the entries whose verdict is known. Results that come meanwhile stand behind them.
fn tell(record: &Shared) {
    loop {
        let next = record.borrow_mut().held.pop();
        let Some((entry, verdict)) = next else { break };
        // The others are called all the same.
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
        let begin = || Call::begin(POOL, |_, _| ());
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
        hear(POOL, News::Durable(1));
        trust::yield_now();
        assert_eq!(told.get(), HELD_MAX / 4, "those of the first group");
        assert!(!waits.is_finished(), "it waits until half of the room is free");
        hear(POOL, News::Durable(3));
        assert!(waits.join().expect("it goes on"));
        assert_eq!(told.get(), HELD_MAX / 4 * 3);
        drop(call);
        hear(POOL, News::Durable(4));
        hear(POOL, News::Gone);
        trust::yield_now();
        assert_eq!((told.get(), records()), (HELD_MAX, 0));
    }

    #[test]
    fn results_that_come_while_others_are_told_stand_behind_them() {
        const POOL: u64 = 78;
        let seen = Rc::new(RefCell::new(Vec::new()));
        let note = |number| {
            let seen = Rc::clone(&seen);
            move |verdict: Verdict| seen.borrow_mut().push((number, verdict.is_ok()))
        };
        let calls: Vec<_> = (0..4).map(|_| Call::begin(POOL, |_, _| ())).collect();
        let [one, two, three, four]: [Call; 4] = calls.try_into().ok().expect("four");
        one.hold(1, note(1));
        let (third, fourth) = (note(3), note(4));
        two.hold(2, {
            let second = note(2);
            move |verdict| {
                second(verdict);
                three.hold(1, third);
                four.hold(9, fourth);
                is_gone(POOL);
            }
        });
        hear(POOL, News::Durable(2));
        trust::yield_now();
        assert_eq!(*seen.borrow(), [(1, true), (2, true), (3, true), (4, false)]);
        assert_eq!(records(), 0);
    }
}
