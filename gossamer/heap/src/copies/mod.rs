//! Copies of objects of machines that are not mapped here: one of each for the whole machine, by the address, with the
//! version that it is of.
//!
//! A reader looks into its worker's own list first, where a hit takes no atomic; then into the machine's map; then one
//! of them reads the bytes, and the others wait for it. Nobody is notified of a copy, and nobody calls it back: a write
//! renames the object, so that its old copies are not found any more, and the next copy of that address takes the old
//! one's place.
//!
//! Invariants
//! - [copy-unchanged] A block does not change once it is in the map or in a list.
//! - [guard-keeps-copy] A block that a guard has is not freed: the guard has a count of it, which lasts if the guard is
//!   forgotten.
//! - [map-lock-short] Under a lock of the map nothing waits, and no code of the program runs.

mod block;
mod fetch;
mod room;
mod shelf;

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use trust::Promise;

use crate::error::{Error, Lost};
use crate::name::{At, Name, Version};
use block::{Block, block_bytes};
use shelf::{Shelf, Turn};

pub(crate) use block::in_words;
pub(crate) use fetch::{fetch, fetch_bytes};
pub(crate) use room::{make_room, reserve};

/// A copy that a guard reads.
pub(crate) type Pin = Rc<Arc<Block>>;

/// A waiter that sees no progress of a read for so long reads for itself: the reading worker may be computing.
const FETCH_LIMIT: Duration = Duration::from_millis(1);
const SHARDS: usize = 64;

type Own = HashMap<At, (Version, Pin), FixedState>;
type Shard = Shelf<Arc<Block>, Promise<()>>;

thread_local! {
    /// Copies that this worker has read.
    static OWN: RefCell<Own> = const { RefCell::new(Own::with_hasher(FixedState::with_seed(0))) };
}

static ALL: LazyLock<[Mutex<Shard>; SHARDS]> = LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
static LAST: AtomicU64 = AtomicU64::new(0);

fn shard(at: At) -> MutexGuard<'static, Shard> {
    let index = (at.offset() / crate::name::GRAIN) ^ at.place() as usize;
    lock(&ALL[index % SHARDS])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no copy.
pub(crate) enum Fault {
    Room(Error),
    Unreadable(String),
    Lost(Lost),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Room(error) => error.fmt(f),
            Fault::Unreadable(why) => write!(f, "it cannot be read from its machine: {why}"),
            Fault::Lost(lost) => lost.fmt(f),
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
    let block = shard(name.at).find(name).map(Arc::clone)?;
    Some(note(name, block))
}

/// This worker reads that copy.
fn note(name: Name, block: Arc<Block>) -> Pin {
    let pin = Rc::new(block);
    // At the end of a thread the copy is read without a list. The replaced entry is dropped when nothing is borrowed.
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
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let (turn, before) = shard(name.at).begin(name, number, Instant::now(), FETCH_LIMIT, trust::promise);
        // Outside of the lock.
        drop(before);
        match turn {
            Turn::Fetch => return read(name, layout, number),
            // Kept, dropped, or too slow: look again.
            Turn::Wait(pending) => drop(pending.wait_timeout(FETCH_LIMIT)),
            Turn::Look => {}
        }
    }
}

fn read(name: Name, layout: Layout, number: u64) -> Result<Pin, Fault> {
    let ends = Ends { name, number };
    let bytes = in_words(layout).size();
    reserve(block_bytes(bytes)).map_err(Fault::Room)?;
    let mut block = Block::new(layout, number).map_err(Fault::Room)?;
    let mut told = Instant::now();
    let goes_on = || {
        if told.elapsed() > FETCH_LIMIT / 4 {
            told = Instant::now();
            shard(name.at).goes_on(name, number, told);
        }
    };
    fetch(name, layout, block.bytes(), goes_on)?;
    let block = Arc::new(block);
    let waiting = shard(name.at).come(name, Arc::clone(&block));
    waiting.into_iter().for_each(|promise| promise.keep(()));
    drop(ends);
    Ok(note(name, block))
}

/// Ends a read, in whatever way it ended: the waiters of one that failed, or was unwound, look for themselves.
struct Ends {
    name: Name,
    number: u64,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let left = shard(self.name.at).ended(self.name, self.number);
        drop(left);
    }
}
