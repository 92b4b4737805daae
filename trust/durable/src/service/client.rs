//! A client's side: results that wait for their group, in the order of calls.
//!
//! A thread has a record of each pool that it has called. Its *ear* is a property of its own to which pools say which groups are durable; what is
//! ready is then let go in callback context, where nothing may wait. No fiber waits here, so a thread may end at any time.
//!
//! Invariants:
//! - Each entry is called once, or dropped with its thread.
//! - A record stays while a [`Call`] of its pool is under way or results are held, so what the pool says meanwhile is heard; it goes when the
//!   pool has said its last word and nothing is left.

use std::any::Any;
use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use trust::{Pending, Promise, Trust, local_trustee, promise};

use crate::error::Error;
use crate::hash::ByNumber;

/// The property of a client's thread.
pub(crate) struct Ear;

/// What a pool says.
#[derive(Clone, Copy)]
pub(crate) enum News {
    Durable(u64),
    Gone,
}

/// What becomes of a result.
pub(crate) type Verdict = Result<(), Why>;

/// Why a result will not be durable.
#[derive(Clone)]
pub(crate) enum Why {
    Lost(String),
    Gone,
}

impl From<Why> for Error {
    fn from(why: Why) -> Error {
        match why {
            Why::Lost(cause) => Error::Lost { cause },
            Why::Gone => Error::Gone,
        }
    }
}

/// A result that is held.
type Waiting = Box<dyn FnOnce(Verdict)>;

#[derive(Default)]
struct Held {
    durable: u64,
    end: Option<Why>,
    queue: VecDeque<(u64, Waiting)>,
    /// Calls that are under way.
    calls: usize,
    /// A trust of the pool, so that it lives for as long as results are awaited here.
    kept: Option<Box<dyn Any>>,
    /// Callers that wait for room.
    room: Vec<Promise<bool>>,
}

impl Held {
    fn is_quiet(&self) -> bool {
        self.calls == 0 && self.queue.is_empty()
    }
}

#[derive(Default)]
struct Pools {
    held: HashMap<u64, Held, ByNumber>,
    ear: Option<Trust<Ear>>,
}

impl Pools {
    /// What keeps the pool, and its record after its last word, if nothing is awaited any more. To be dropped where nothing is borrowed.
    fn let_go(&mut self, pool: u64) -> Option<Box<dyn Any>> {
        let held = self.held.get_mut(&pool).filter(|held| held.is_quiet())?;
        let kept = held.kept.take();
        if held.end.is_some() && held.room.is_empty() {
            self.held.remove(&pool);
        }
        kept
    }
}

thread_local! {
    static POOLS: RefCell<Pools> = RefCell::default();
}

/// Results that a thread holds for a pool before callers that may wait do.
const HELD_MAX: usize = 65_536;

/// A call on a pool by this thread, from before it is sent until its result is told or held.
pub(crate) struct Call {
    pool: u64,
    /// The number of this thread as a client.
    pub(crate) client: u64,
}

impl Call {
    /// Before the call is sent. `introduce` is given number and ear of this thread if the pool does not know them.
    pub(crate) fn begin(pool: u64, introduce: impl FnOnce(u64, Trust<Ear>)) -> Call {
        let client = local_trustee().id().to_bits();
        let is_known = POOLS.with_borrow_mut(|pools| match pools.held.entry(pool) {
            Entry::Occupied(mut known) => {
                known.get_mut().calls += 1;
                true
            }
            Entry::Vacant(new) => {
                new.insert(Held { calls: 1, ..Held::default() });
                false
            }
        });
        let call = Call { pool, client };
        if !is_known {
            introduce(client, ear());
        }
        call
    }

    /// What `keep` gives keeps the pool until nothing is awaited here any more.
    pub(crate) fn keep<K: 'static>(&self, keep: impl FnOnce() -> K) {
        let is_kept = POOLS.with_borrow(|pools| pools.held.get(&self.pool).is_some_and(|held| held.kept.is_some()));
        if !is_kept {
            let kept: Box<dyn Any> = Box::new(keep());
            POOLS.with_borrow_mut(|pools| pools.held.entry(self.pool).or_default().kept = Some(kept));
        }
    }

    /// Has `entry` called when the group is durable, which may be at once.
    pub(crate) fn hold(self, mark: u64, entry: impl FnOnce(Verdict) + 'static) {
        hold(self.pool, mark, entry);
    }

    /// Waits until the group is durable.
    pub(crate) fn wait(self, mark: u64) -> Verdict {
        let (keeps, settled) = promise::<bool>();
        let outcome = std::rc::Rc::new(std::cell::Cell::new(None));
        let sets = std::rc::Rc::clone(&outcome);
        hold(self.pool, mark, move |verdict| {
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
        // At the thread's end there may be no records any more.
        let kept = POOLS.try_with(|pools| {
            let pools = &mut *pools.borrow_mut();
            pools.held.get_mut(&self.pool)?.calls -= 1;
            pools.let_go(self.pool)
        });
        drop(kept);
    }
}

fn ear() -> Trust<Ear> {
    let ear = POOLS.with_borrow(|pools| pools.ear.clone());
    ear.unwrap_or_else(|| {
        let ear = local_trustee().entrust(Ear);
        POOLS.with_borrow_mut(|pools| pools.ear = Some(ear.clone()));
        ear
    })
}

fn hold(pool: u64, mark: u64, entry: impl FnOnce(Verdict) + 'static) {
    let now = POOLS.with_borrow_mut(|pools| {
        let held = pools.held.entry(pool).or_default();
        if let Some(why) = &held.end {
            // What is durable is, whatever came later.
            return Some((if mark > held.durable { Err(why.clone()) } else { Ok(()) }, entry));
        }
        // Behind what waits, whatever its group: in the order of calls.
        if held.durable >= mark && held.queue.is_empty() {
            return Some((Ok(()), entry));
        }
        let mark = held.queue.back().map_or(mark, |&(last, _)| last.max(mark));
        held.queue.push_back((mark, Box::new(entry)));
        None
    });
    if let Some((verdict, entry)) = now {
        entry(verdict);
    }
}

/// What a caller that may wait waits for before it adds another result; `None` if there is room.
pub(crate) fn room(pool: u64) -> Option<Pending<bool>> {
    let is_full = POOLS.with_borrow(|pools| pools.held.get(&pool).is_some_and(|held| held.queue.len() >= HELD_MAX));
    is_full.then(|| {
        let (keeps, settled) = promise();
        POOLS.with_borrow_mut(|pools| pools.held.entry(pool).or_default().room.push(keeps));
        settled
    })
}

/// The ear hears of a pool.
pub(crate) fn hear(pool: u64, news: News) {
    take(pool, |held| match news {
        News::Durable(group) => held.durable = held.durable.max(group),
        News::Gone => held.end = Some(Why::Gone),
    });
}

/// The ear hears that the disk failed, after this group.
pub(crate) fn hear_lost(_: &mut Ear, (pool, durable, cause): (u64, u64, String)) {
    hear(pool, News::Durable(durable));
    take(pool, |held| held.end = Some(Why::Lost(cause)));
}

/// Nothing is heard of a pool any more whose calls find nobody.
pub(crate) fn is_gone(pool: u64) {
    take(pool, |held| held.end = Some(Why::Gone));
}

/// How many pools this thread has a record of.
#[cfg(test)]
pub(crate) fn records() -> usize {
    POOLS.with_borrow(|pools| pools.held.len())
}

fn take(pool: u64, change: impl FnOnce(&mut Held)) {
    let ready = POOLS.try_with(|pools| {
        let pools = &mut *pools.borrow_mut();
        let held = pools.held.get_mut(&pool)?;
        change(held);
        let count = match held.end {
            Some(_) => held.queue.len(),
            None => held.queue.iter().take_while(|&&(mark, _)| mark <= held.durable).count(),
        };
        let ready: Vec<(u64, Waiting)> = held.queue.drain(..count).collect();
        let room = if held.queue.len() < HELD_MAX / 2 { std::mem::take(&mut held.room) } else { Vec::new() };
        let (durable, end) = (held.durable, held.end.clone());
        Some((ready, room, durable, end, pools.let_go(pool), pools.ear.clone()?))
    });
    let Ok(Some((ready, room, durable, end, kept, ear))) = ready else { return };
    drop(kept);
    room.into_iter().for_each(|waits| waits.keep(true));
    if ready.is_empty() {
        return;
    }
    // In callback context, when what runs now is done.
    ear.apply_then(
        |_| (),
        move |()| {
            for (mark, entry) in ready {
                let verdict = end.clone().filter(|_| mark > durable).map_or(Ok(()), Err);
                // The panic hook has told of it; the others are called all the same.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| entry(verdict))) {
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
                }
            }
        },
    );
}
