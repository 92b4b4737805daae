//! Copies of objects of machines that are not mapped here: one of each for the whole machine, by the address, with the version that it is of.
//!
//! A reader looks into its worker's own list first, where a hit takes no atomic; then into the machine's map; then one of them reads the bytes, and
//! the others wait for it. Nobody is told of a copy, and nobody calls it back: a write renames the object, so that its old copies are not found any more,
//! and the next copy of that address takes the old one's place.
//!
//! Invariants
//! - K1 What is in a block does not change once it is in the map or in a list.
//! - K2 A block that a guard has is not freed: the guard has a count of it, which lasts if the guard is forgotten.
//! - K3 Under a lock of the map nothing waits, and no code of the program runs.

mod block;
mod fetch;
mod room;

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use trust::{Pending, Promise};

use crate::error::Error;
use crate::name::{At, Name, Version};
use block::{Block, taken_by};

pub(crate) use block::in_words;
pub(crate) use fetch::fetch;
pub(crate) use room::{make_room, reserve};

/// A copy that a guard reads.
pub(crate) type Pin = Rc<Arc<Block>>;

/// Who finds that another one has been reading for so long reads for itself: the other one's worker may be computing.
const PATIENCE: Duration = Duration::from_millis(1);
const SHARDS: usize = 64;

type Map<V> = HashMap<At, V, FixedState>;

thread_local! {
    /// Copies that this worker has read.
    static OWN: RefCell<Map<(Version, Pin)>> = const { RefCell::new(Map::with_hasher(FixedState::with_seed(0))) };
}

static ALL: LazyLock<[Mutex<Map<Copy>>; SHARDS]> = LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
static LAST: AtomicU64 = AtomicU64::new(0);

struct Copy {
    version: Version,
    state: State,
}

enum State {
    /// One is reading it, since then; those wait.
    Fetching {
        number: u64,
        since: Instant,
        waiting: Vec<Promise<()>>,
    },
    Here(Arc<Block>),
}

fn shard(at: At) -> MutexGuard<'static, Map<Copy>> {
    let index = (at.offset() / crate::name::GRAIN) ^ at.place() as usize;
    lock(&ALL[index % SHARDS])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no copy.
pub(crate) enum Fault {
    Room(Error),
    Lost(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Room(error) => error.fmt(f),
            Fault::Lost(why) => write!(f, "it cannot be read from its machine: {why}"),
        }
    }
}

/// The copy of that name, if this machine has it.
pub(crate) fn find(name: Name) -> Option<Pin> {
    let own = OWN.try_with(|own| {
        let own = own.borrow();
        own.get(&name.at).filter(|(version, _)| *version == name.version).map(|(_, pin)| Rc::clone(pin))
    });
    if let Ok(Some(pin)) = own {
        return Some(pin);
    }
    let block = match shard(name.at).get(&name.at) {
        Some(Copy { version, state: State::Here(block) }) if *version == name.version => Arc::clone(block),
        _ => return None,
    };
    Some(note(name, block))
}

/// This worker reads that copy.
fn note(name: Name, block: Arc<Block>) -> Pin {
    let pin = Rc::new(block);
    // Not at the end of a thread, which reads it all the same. What stood there before is dropped when nothing is borrowed.
    let before = OWN.try_with(|own| own.borrow_mut().insert(name.at, (name.version, Rc::clone(&pin))));
    drop(before);
    pin
}

/// The copy of that name, read from its machine if need be. Waits for that.
pub(crate) fn get(name: Name, layout: Layout) -> Result<Pin, Fault> {
    loop {
        if let Some(pin) = find(name) {
            return Ok(pin);
        }
        match begin(name) {
            Turn::Fetch(number) => return read(name, layout, number),
            // Kept, dropped, or too slow: look again.
            Turn::Wait(pending) => drop(pending.wait_timeout(PATIENCE)),
            Turn::Look => {}
        }
    }
}

enum Turn {
    Fetch(u64),
    Wait(Pending<()>),
    Look,
}

/// Whose turn it is to read it.
fn begin(name: Name) -> Turn {
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let mut shard = shard(name.at);
    let copy = shard.get_mut(&name.at);
    match copy {
        Some(copy) if copy.version == name.version => match &mut copy.state {
            State::Fetching { since, waiting, .. } if since.elapsed() < PATIENCE => {
                let (promise, pending) = trust::promise();
                waiting.push(promise);
                Turn::Wait(pending)
            }
            // The other one may still come: who is first puts its copy there. From now on this one is waited for.
            State::Fetching { number: last, since, .. } => {
                (*last, *since) = (number, Instant::now());
                Turn::Fetch(number)
            }
            // It came just now.
            State::Here(_) => Turn::Look,
        },
        // A name that nobody has any more, of which something was fetched ahead: it does not take the place of a newer one.
        Some(copy) if copy.version > name.version => Turn::Fetch(number),
        _ => {
            let state = State::Fetching { number, since: Instant::now(), waiting: Vec::new() };
            let before = shard.insert(name.at, Copy { version: name.version, state });
            drop(shard);
            drop(before);
            Turn::Fetch(number)
        }
    }
}

fn read(name: Name, layout: Layout, number: u64) -> Result<Pin, Fault> {
    let ends = Ends { name, number };
    let bytes = in_words(layout).size();
    reserve(taken_by(bytes)).map_err(Fault::Room)?;
    let mut block = Block::new(layout, number).map_err(Fault::Room)?;
    let mut told = Instant::now();
    let goes_on = || {
        if told.elapsed() > PATIENCE / 4 {
            told = Instant::now();
            still_reading(name, number);
        }
    };
    fetch(name.at, block.bytes(), goes_on).map_err(Fault::Lost)?;
    let block = Arc::new(block);
    let mut shard = shard(name.at);
    let waiting = match shard.get_mut(&name.at) {
        Some(copy) if copy.version == name.version => {
            match std::mem::replace(&mut copy.state, State::Here(Arc::clone(&block))) {
                State::Fetching { waiting, .. } => waiting,
                State::Here(first) => {
                    copy.state = State::Here(first);
                    Vec::new()
                }
            }
        }
        _ => Vec::new(),
    };
    drop(shard);
    waiting.into_iter().for_each(|promise| promise.keep(()));
    drop(ends);
    Ok(note(name, block))
}

/// Who waits for this read is not to overtake it.
fn still_reading(name: Name, number: u64) {
    if let Some(Copy { state: State::Fetching { number: last, since, .. }, .. }) = shard(name.at).get_mut(&name.at)
        && *last == number
    {
        *since = Instant::now();
    }
}

/// The end of a read, however it comes: who waits for one that failed, or was unwound, looks for itself.
struct Ends {
    name: Name,
    number: u64,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let mut shard = shard(self.name.at);
        let own = |copy: &Copy| matches!(&copy.state, State::Fetching { number, .. } if *number == self.number);
        let left = if shard.get(&self.name.at).is_some_and(own) { shard.remove(&self.name.at) } else { None };
        drop(shard);
        drop(left);
    }
}
