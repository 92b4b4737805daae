//! Loom models of the copies of a machine, traps 2, 3 and 13 of the heap: `cargo dev loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p heap-model --release --lib loom_`.
//!
//! The real [`Shelf`] runs here, under a lock, in the loop of `get` (`gossamer/heap/src/copies/mod.rs`). Blocks are
//! counted as `Arc` counts, and are written to when they are freed, so that loom finds a reader of a freed one. The
//! memory of the home is one word that a read may find in any state; owners go from thread to thread as messages do,
//! which order earlier stores.

use std::time::{Duration, Instant};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use loom::sync::mpsc::{Receiver, Sender, channel};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::name::{At, Name, Version};
use crate::shelf::{Shelf, Turn};

pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

/// A count of a block's memory, as `Arc` has it.
struct Block(Arc<Memory>);

struct Memory {
    count: AtomicUsize,
    value: UnsafeCell<u64>,
}

impl Block {
    fn new(value: u64) -> Block {
        Block(Arc::new(Memory { count: AtomicUsize::new(1), value: UnsafeCell::new(value) }))
    }

    fn read(&self) -> u64 {
        // SAFETY: loom sees that nobody writes meanwhile.
        #[allow(unsafe_code)]
        self.0.value.with(|value| unsafe { *value })
    }

    /// Same as `Arc::strong_count`.
    fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        Block(Arc::clone(&self.0))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: loom sees that nobody reads meanwhile, or later.
            #[allow(unsafe_code)]
            self.0.value.with_mut(|value| unsafe { *value = u64::MAX });
        }
    }
}

/// A promise: told when it is kept, and when it is dropped.
pub(crate) struct Waiter(Arc<(Mutex<bool>, Condvar)>);

pub(crate) struct Told(Arc<(Mutex<bool>, Condvar)>);

pub(crate) fn promise() -> (Waiter, Told) {
    let both = Arc::new((Mutex::new(false), Condvar::new()));
    (Waiter(Arc::clone(&both)), Told(both))
}

impl Drop for Waiter {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl Told {
    /// Waits without a time limit: a waiter that is never notified is a deadlock, which loom reports.
    pub(crate) fn wait(self) {
        let mut is_told = self.0.0.lock().unwrap();
        while !*is_told {
            is_told = self.0.1.wait(is_told).unwrap();
        }
    }
}

/// A machine that reads, and the word that it reads from.
struct Machine {
    shelf: Mutex<Shelf<Block, Waiter>>,
    last: AtomicU64,
    home: AtomicU64,
    /// Time, which is the same in all of loom's runs.
    now: Instant,
}

fn name(version: u64) -> Name {
    Name { at: At::new(1, 16), version: Version::new(version).unwrap() }
}

const FOR_EVER: Duration = Duration::from_secs(1);

impl Machine {
    fn new(now: Instant, value: u64) -> Arc<Machine> {
        let (shelf, last) = (Mutex::new(Shelf::default()), AtomicU64::new(0));
        Arc::new(Machine { shelf, last, home: AtomicU64::new(value), now })
    }

    fn find(&self, name: Name) -> Option<Block> {
        self.shelf.lock().unwrap().find(name).cloned()
    }

    /// Same as `get`. The read fails where `is_there` says so.
    fn get(&self, name: Name, limit: Duration, is_there: bool) -> Option<Block> {
        loop {
            if let Some(block) = self.find(name) {
                return Some(block);
            }
            let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            let (turn, before) = self.shelf.lock().unwrap().begin(name, number, self.now, limit, promise);
            drop(before);
            match turn {
                Turn::Fetch => return self.read(name, number, is_there),
                Turn::Wait(told) => told.wait(),
                Turn::Look => {}
            }
        }
    }

    fn read(&self, name: Name, number: u64, is_there: bool) -> Option<Block> {
        let block = is_there.then(|| Block::new(self.home.load(Ordering::Relaxed)));
        if let Some(block) = &block {
            let waiting = self.shelf.lock().unwrap().come(name, block.clone());
            drop(waiting);
        }
        let left = self.shelf.lock().unwrap().ended(name, number);
        drop(left);
        block
    }

    /// Same as `evict`.
    fn evict(&self) {
        let is_unread = |block: &Block| block.count() == 1;
        let unread: Vec<At> = {
            let shelf = self.shelf.lock().unwrap();
            shelf.copies().filter(|(_, block)| is_unread(block)).map(|(at, _)| at).collect()
        };
        for at in unread {
            let gone = self.shelf.lock().unwrap().take_if(at, is_unread);
            drop(gone);
        }
    }
}

/// One reads and unpins, one evicts, one reads: no reader sees freed memory, and all find the object.
#[test]
fn loom_eviction_takes_nothing_from_readers() {
    let now = Instant::now();
    explore(move || {
        let machine = Machine::new(now, 7);
        let reader =
            |machine: Arc<Machine>| move || assert_eq!(machine.get(name(1), FOR_EVER, true).unwrap().read(), 7);
        let readers = [thread::spawn(reader(Arc::clone(&machine))), thread::spawn(reader(Arc::clone(&machine)))];
        machine.evict();
        for reader in readers {
            reader.join().unwrap();
        }
        machine.evict();
        assert!(machine.find(name(1)).is_none(), "nobody reads it any more");
    });
}

/// Trap 3: a read that fails while another one waits for it, or overtakes it, or has come before.
#[test]
fn loom_reads_that_fail_hold_up_nobody() {
    let now = Instant::now();
    for limit in [FOR_EVER, Duration::ZERO] {
        explore(move || {
            let machine = Machine::new(now, 7);
            let fails = Arc::clone(&machine);
            let failing = thread::spawn(move || {
                // It may find the other one's copy.
                assert!(fails.get(name(1), limit, false).is_none_or(|block| block.read() == 7));
            });
            assert_eq!(machine.get(name(1), limit, true).unwrap().read(), 7);
            failing.join().unwrap();
            // A failure leaves nothing behind, and takes no copy away.
            assert_eq!(machine.get(name(1), limit, true).unwrap().read(), 7);
        });
    }
}

/// Traps 2 and 13: an object is prefetched, then it ends, and its address is used again, all while that read is under
/// way: the holder of the new name reads the new object, and no waiter is left.
#[test]
fn loom_an_address_that_is_used_again_has_no_old_copy() {
    let now = Instant::now();
    explore(move || {
        let machine = Machine::new(now, 10);
        let ahead = Arc::clone(&machine);
        let prefetch = thread::spawn(move || drop(ahead.get(name(1), FOR_EVER, true)));
        let (free, freed): (Sender<Version>, Receiver<Version>) = channel();
        let (give, given): (Sender<Name>, Receiver<Name>) = channel();
        let home = Arc::clone(&machine);
        let partition = thread::spawn(move || {
            // [version-grows]: it learns the last version with the room, and all that is made later has a higher one.
            let last = freed.recv().unwrap();
            home.home.store(20, Ordering::Relaxed);
            give.send(Name { version: last.saturating_add(1), ..name(1) }).unwrap();
        });
        // The owner of the old one has read it, and drops it.
        assert_eq!(machine.get(name(1), FOR_EVER, true).unwrap().read(), 10);
        free.send(name(1).version).unwrap();
        let new = given.recv().unwrap();
        assert_eq!(machine.get(new, FOR_EVER, true).unwrap().read(), 20);
        prefetch.join().unwrap();
        partition.join().unwrap();
        assert_eq!(machine.find(new).unwrap().read(), 20, "the old read has not taken its place");
    });
}
