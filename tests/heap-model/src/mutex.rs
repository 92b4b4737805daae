//! Loom model of the mutex: lockers that have its record mapped, and its keeper, a lock in place of the trustee that
//! serves one request at a time.
//!
//! The real [`Record`] and [`Queue`] run here, in the loop of `KeeperTrust::wait`
//! (`gossamer/heap/src/mutex/keeper.rs`). A message is a call by its sender. Nothing takes time, so a locker says
//! itself whether it has stood for long enough.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::model::{Told, Waiter, explore, promise};
use crate::name::{At, Name, Version};
use crate::queue::{Ask, Asked, Pass, Queue};
use crate::record::{Given, Mark, Record};

/// Machine of all lockers that live.
const HERE: u16 = 0;
/// Machine that is lost.
const LOST: u16 = 1;

/// How a locker goes about it.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Tries again as often as it is woken.
    Again,
    /// Is due when it has found the lock held again.
    Due,
    /// Does not take what it waits for: it was aborted.
    Gone,
    /// Has not mapped the record, so it asks the keeper only.
    Far,
}

struct Shared {
    record: Record,
    queue: Mutex<Queue<Promised>>,
    object: UnsafeCell<u64>,
    /// The loss of a machine is known to the keeper: set before it looks again.
    is_settled: AtomicBool,
}

type Promised = (Waiter, Arc<Mutex<Option<Pass>>>);

impl Shared {
    fn new() -> Arc<Shared> {
        let record = Record::new(Name { at: At::new(1, 16), version: Version::MIN });
        let (object, is_settled) = (UnsafeCell::new(0), AtomicBool::new(false));
        Arc::new(Shared { record, queue: Mutex::default(), object, is_settled })
    }

    /// Same as `Mutex::lock_or_lost`.
    fn lock(&self, way: Way) -> Option<Name> {
        let is_mapped = way != Way::Far;
        if is_mapped && let Some((name, _)) = self.record.take(HERE).or_else(|| self.record.take_soon(Mark::Held, HERE))
        {
            return Some(name);
        }
        let mut ask = Ask { is_again: false, is_due: !is_mapped, machine: HERE };
        loop {
            let (waiter, told) = promise();
            let pass = Arc::new(Mutex::new(None));
            let promised = (waiter, Arc::clone(&pass));
            let asked = {
                let mut queue = self.queue.lock().unwrap();
                queue.ask(&self.record, ask, promised, |machine| self.is_lost(machine))
            };
            let pass = match asked {
                Asked::Taken(taken) => Pass::Lock(taken),
                Asked::Waits => Shared::wait(told, &pass),
                Asked::Lost(_) => return None,
                Asked::Behind => unreachable!("all know the same"),
            };
            let taken = match pass {
                Pass::Lock((name, _)) if way == Way::Gone => return self.give_back(name),
                Pass::Again(_) if way == Way::Gone => return self.tell_freed(),
                Pass::Lock(taken) => Some(taken),
                Pass::Again(_) if !is_mapped => unreachable!("it could only ask again"),
                Pass::Again(mark) => self.record.take_soon(mark, HERE),
                Pass::Lost(_) => return None,
            };
            if let Some((name, _)) = taken {
                return Some(name);
            }
            ask = Ask { is_again: true, is_due: way == Way::Due, machine: HERE };
        }
    }

    fn is_lost(&self, machine: u16) -> bool {
        machine == LOST && self.is_settled.load(Ordering::Relaxed)
    }

    /// A locker up to the loss of its machine. Returns whether the lock may be lost with it.
    fn die(&self, dies: Dies) -> bool {
        match dies {
            Dies::Waiting { is_due } => {
                let ask = Ask { is_again: false, is_due, machine: LOST };
                let promised = (promise().0, Arc::new(Mutex::new(None)));
                let _ = self.queue.lock().unwrap().ask(&self.record, ask, promised, |_| false);
                true
            }
            Dies::Holding => self.record.take(LOST).is_some(),
            // The keeper would have had the object where it is somebody's turn.
            Dies::Freed => self.record.take(LOST).is_some_and(|(name, _)| self.record.give(name, false) == Given::Kept),
        }
    }

    /// The loss is known, and each locker that waits has the keeper look again (`Mutex::turn`).
    fn settle(&self, lockers: usize) {
        self.is_settled.store(true, Ordering::Relaxed);
        let is_lost = |machine| machine == LOST;
        for _ in 0..lockers {
            let mut queue = self.queue.lock().unwrap();
            // A waiter asks for it when it is told of the loss; nobody else does.
            let next = if queue.has_living(is_lost) { queue.heed(&self.record, is_lost) } else { Vec::new() };
            drop(queue);
            Shared::pass_on(next);
        }
    }

    fn wait(told: Told, pass: &Mutex<Option<Pass>>) -> Pass {
        told.wait();
        pass.lock().unwrap().take().unwrap()
    }

    /// Same as `Mutex::end`.
    fn unlock(&self, name: Name, way: Way) {
        let given = if way == Way::Far { Given::Kept } else { self.record.give(name, false) };
        match given {
            Given::Free => {}
            Given::Told => drop(self.tell_freed()),
            Given::Kept => drop(self.give_back(name)),
        }
    }

    fn tell_freed(&self) -> Option<Name> {
        let next = self.queue.lock().unwrap().freed(&self.record, |machine| self.is_lost(machine));
        Shared::pass_on(next)
    }

    fn give_back(&self, name: Name) -> Option<Name> {
        let is_lost = |machine| self.is_lost(machine);
        let next = self.queue.lock().unwrap().came_back(&self.record, (name, false), HERE, is_lost);
        Shared::pass_on(next)
    }

    /// Nothing for the caller.
    fn pass_on(next: impl IntoIterator<Item = (Promised, Pass)>) -> Option<Name> {
        for ((waiter, turn), pass) in next {
            *turn.lock().unwrap() = Some(pass);
            drop(waiter);
        }
        None
    }

    /// A turn: writes the object, and renames it.
    fn turn(&self, way: Way) {
        let Some(mut name) = self.lock(way) else { return };
        // SAFETY: loom sees that one at a time has it.
        #[allow(unsafe_code)]
        let count = self.object.with_mut(|object| unsafe {
            *object += 1;
            *object
        });
        assert_eq!(name.version.get(), count, "the name of the last turn");
        name.version = name.version.saturating_add(1);
        self.unlock(name, way);
    }
}

/// Turns of these lockers exclude each other, each sees the last one's writes, and nobody waits for ever.
fn take_turns(lockers: &'static [Way]) {
    explore(move || {
        let shared = Shared::new();
        let [first, others @ ..] = lockers else { return };
        let threads: Vec<_> = others
            .iter()
            .map(|way| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.turn(*way))
            })
            .collect();
        shared.turn(*first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (name, _) = shared.record.take(HERE).expect("nobody holds it");
        // SAFETY: all threads have ended.
        #[allow(unsafe_code)]
        let turns = shared.object.with(|object| unsafe { *object });
        assert_eq!(name.version.get(), turns + 1);
        let some_gone = lockers.contains(&Way::Gone);
        assert!(turns == lockers.len() as u64 || some_gone, "{turns}");
        assert!(shared.queue.lock().unwrap().freed(&shared.record, |_| false).is_none(), "nobody waits");
    });
}

/// How far a locker is when its machine is lost.
#[derive(Clone, Copy)]
enum Dies {
    /// It has the lock.
    Holding,
    /// It has ended the lock, and has not told the keeper.
    Freed,
    /// It stands in the queue, was woken, or was handed the lock.
    Waiting { is_due: bool },
}

/// A locker dies amid the turns of these. They exclude each other, and each has its turn or learns that the lock is
/// lost.
fn outlive(dies: Dies, lockers: &'static [Way]) {
    explore(move || {
        let shared = Shared::new();
        let threads: Vec<_> = lockers
            .iter()
            .map(|way| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.turn(*way))
            })
            .collect();
        let may_be_lost = shared.die(dies);
        shared.settle(lockers.len());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // SAFETY: all threads have ended.
        #[allow(unsafe_code)]
        let turns = shared.object.with(|object| unsafe { *object });
        match shared.record.lost(|machine| machine == LOST) {
            Some(machine) => assert!(machine == LOST && may_be_lost),
            None => {
                let (name, _) = shared.record.take(HERE).expect("nobody holds it");
                assert_eq!((name.version.get(), turns), (turns + 1, lockers.len() as u64));
            }
        }
        assert!(shared.queue.lock().unwrap().heed(&shared.record, |_| false).is_empty(), "nobody waits");
    });
}

#[test]
fn loom_a_holder_that_is_lost_takes_the_lock_along() {
    outlive(Dies::Holding, &[Way::Again, Way::Due]);
    outlive(Dies::Holding, &[Way::Again, Way::Far]);
}

#[test]
fn loom_a_lost_message_of_a_free_lock_holds_up_nobody() {
    outlive(Dies::Freed, &[Way::Again, Way::Due]);
    outlive(Dies::Freed, &[Way::Again, Way::Far]);
}

#[test]
fn loom_a_waiter_that_is_lost_holds_up_nobody() {
    outlive(Dies::Waiting { is_due: false }, &[Way::Again, Way::Due]);
    outlive(Dies::Waiting { is_due: true }, &[Way::Again, Way::Far]);
}

#[test]
fn loom_lockers_of_one_host_exclude_each_other() {
    take_turns(&[Way::Again, Way::Again, Way::Again]);
}

#[test]
fn loom_lockers_that_are_due_exclude_newcomers() {
    take_turns(&[Way::Due, Way::Due, Way::Again]);
}

#[test]
fn loom_lockers_of_other_hosts_exclude_those_of_one() {
    take_turns(&[Way::Again, Way::Far, Way::Due]);
}

#[test]
fn loom_waiters_that_have_gone_hold_up_nobody() {
    take_turns(&[Way::Again, Way::Gone, Way::Due]);
    take_turns(&[Way::Far, Way::Gone, Way::Again]);
}
