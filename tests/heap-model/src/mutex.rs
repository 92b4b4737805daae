//! Loom model of the mutex: lockers that have its record mapped, and its keeper, a lock in place of the trustee that
//! serves one request at a time.
//!
//! The real [`Record`] and [`Queue`] run here, in the loop of `Mutex::wait` (`gossamer/heap/src/mutex/mod.rs`). A
//! message is a call by its sender. Nothing takes time, so a locker says itself whether it has stood for long enough.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::model::{Told, Waiter, explore, promise};
use crate::name::{At, Name, Version};
use crate::queue::{Ask, Pass, Queue};
use crate::record::{Given, Mark, Record};

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
}

type Promised = (Waiter, Arc<Mutex<Option<Pass>>>);

impl Shared {
    fn new() -> Arc<Shared> {
        let record = Record::new(Name { at: At::new(1, 16), version: Version::MIN });
        Arc::new(Shared { record, queue: Mutex::default(), object: UnsafeCell::new(0) })
    }

    /// Same as `Mutex::lock`.
    fn lock(&self, way: Way) -> Option<Name> {
        let is_mapped = way != Way::Far;
        if is_mapped && let Some((name, _)) = self.record.take().or_else(|| self.record.take_soon(Mark::Held)) {
            return Some(name);
        }
        let mut ask = Ask { is_again: false, is_due: !is_mapped };
        loop {
            let (waiter, told) = promise();
            let pass = Arc::new(Mutex::new(None));
            let promised = (waiter, Arc::clone(&pass));
            let asked = self.queue.lock().unwrap().ask(&self.record, ask, promised);
            let pass = match asked {
                Some(taken) => Pass::Lock(taken),
                None => Shared::wait(told, &pass),
            };
            let taken = match pass {
                Pass::Lock((name, _)) if way == Way::Gone => return self.give_back(name),
                Pass::Again(_) if way == Way::Gone => return self.tell_freed(),
                Pass::Lock(taken) => Some(taken),
                Pass::Again(_) if !is_mapped => unreachable!("it could only ask again"),
                Pass::Again(mark) => self.record.take_soon(mark),
            };
            if let Some((name, _)) = taken {
                return Some(name);
            }
            ask = Ask { is_again: true, is_due: way == Way::Due };
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
        let next = self.queue.lock().unwrap().freed(&self.record);
        Shared::pass_on(next)
    }

    fn give_back(&self, name: Name) -> Option<Name> {
        let next = self.queue.lock().unwrap().came_back(&self.record, name, false);
        Shared::pass_on(next)
    }

    /// Nothing for the caller.
    fn pass_on(next: Option<(Promised, Pass)>) -> Option<Name> {
        if let Some(((waiter, turn), pass)) = next {
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
        let (name, _) = shared.record.take().expect("nobody holds it");
        // SAFETY: all threads have ended.
        #[allow(unsafe_code)]
        let turns = shared.object.with(|object| unsafe { *object });
        assert_eq!(name.version.get(), turns + 1);
        let some_gone = lockers.contains(&Way::Gone);
        assert!(turns == lockers.len() as u64 || some_gone, "{turns}");
        assert!(shared.queue.lock().unwrap().freed(&shared.record).is_none(), "nobody waits");
    });
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
