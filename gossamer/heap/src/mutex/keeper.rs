//! [`Keeper`]: the trustee's property that has the record of a mutex and the queue of those that found it held; and
//! [`KeeperTrust`], by which lockers ask it and wait for their [`Turn`]. Here: all messages between them. The lock and
//! its guards: `mod.rs`; the word and the queue: `record.rs`, `queue.rs`.

use std::io::Write;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use gossamer::{Error, NoRef, Pending, Place, Promise, Trust, link};
use trust::link::promise_at;

use super::queue::{Ask, Asked, Pass, Queue};
use super::record::{self, Mark, Record, Taken};
use super::settle;
use crate::error::Lost;
use crate::global::Global;
use crate::name::{At, Name};
use crate::object::Object;
use crate::portable::Portable;
use crate::replicas::switch;
use crate::{bases, freeing, places, replicas};

/// Wait after which a waiter that was woken and found the lock held again is handed it.
const DUE_AFTER: Duration = Duration::from_millis(1);
/// Wait before a keeper is asked again that has not been told of a loss yet.
pub(super) const BEHIND: Duration = Duration::from_millis(1);

/// The record, and the queue of those that found it held.
pub(super) struct Keeper<T: ?Sized + Object + Portable> {
    record: ManuallyDrop<Global<[u64; 3]>>,
    meta: T::Meta,
    queue: Queue<Waiter<T>>,
}

/// With its machine.
type Waiter<T> = (Promise<Turn<T>>, KeeperTrust<T>, u16);

/// A waiter's result, on its way. Dropped, the next waiter gets it.
struct Turn<T: ?Sized + Object + Portable> {
    pass: Option<Pass>,
    keeper: KeeperTrust<T>,
    /// The waiter's machine.
    machine: u16,
}

/// The trust of a mutex's keeper.
pub(super) struct KeeperTrust<T: ?Sized + Object + Portable> {
    trust: Trust<Keeper<T>>,
    /// Place of the record.
    record: At,
}

impl<T: ?Sized + Object + Portable> Clone for KeeperTrust<T> {
    fn clone(&self) -> Self {
        KeeperTrust { trust: self.trust.clone(), record: self.record }
    }
}

impl<T: ?Sized + Object + Portable> KeeperTrust<T> {
    /// Makes a keeper at the calling worker, of the object of this name.
    pub(super) fn new(name: Name, meta: T::Meta) -> Self {
        let record = Global::new_here(record::words(name));
        let place = record.name().at;
        replicas::keep_none(record.name());
        let keeper = Keeper { record: ManuallyDrop::new(record), meta, queue: Queue::default() };
        KeeperTrust { trust: trust::local_trustee().entrust(keeper), record: place }
    }

    /// Makes a keeper of the object of this name, where it stays: with copies on machine 0, whose loss ends the
    /// program.
    /// Waits for that one.
    pub(super) fn that_stays(name: Name, meta: T::Meta) -> Self {
        if !switch::has_heads() {
            return Self::new(name, meta);
        }
        let place = Place::of(0, gossamer::here().worker % gossamer::rack().machines()[0].workers);
        let made = gossamer::spawn_on(place, move || Self::new(name, meta)).join();
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The record, if it is mapped here.
    #[inline]
    pub(super) fn record(&self) -> Option<&Record> {
        at(self.record)
    }

    /// An error if the keeper's machine is lost.
    pub(super) fn check(&self) -> Result<(), Lost> {
        places::check(self.record)
    }

    /// Looks for the lock for a while, then asks the keeper, and waits.
    #[cold]
    #[inline(never)]
    pub(super) fn wait(&self) -> Result<Taken, Lost> {
        let (record, machine) = (self.record(), places::own_machine());
        if let Some(taken) = record.and_then(|record| record.take_soon(Mark::Held, machine)) {
            return Ok(taken);
        }
        let start = Instant::now();
        // A waiter that has it not mapped would only ask again.
        let mut ask = Ask { is_again: false, is_due: record.is_none(), machine };
        loop {
            let known = link::losses();
            let (promise, pending) = promise_at(self.trust.trustee().id());
            let own = self.clone();
            match self.ask(move |keeper| keeper.take_or_wait(ask, promise, own, known))? {
                Asked::Taken(taken) => return Ok(taken),
                Asked::Lost(machine) => return Err(Lost { machine }),
                Asked::Behind => gossamer::sleep(BEHIND),
                Asked::Waits => {
                    if let Some(taken) = self.turn(pending, known)?.taken()? {
                        return Ok(taken);
                    }
                    let is_due = record.is_none() || start.elapsed() >= DUE_AFTER;
                    ask = Ask { is_again: true, is_due, machine };
                }
            }
        }
    }

    /// Waits for the keeper's turn, which was asked for when so many losses were known. At each later one the keeper
    /// looks again: the lost machine may have had the lock, or the message that it is free.
    fn turn(&self, pending: Pending<Turn<T>>, mut known: u32) -> Result<Turn<T>, Lost> {
        let outcome = if link::outlives_losses() {
            loop {
                // Each loss settles it.
                let (unkept, loss) = trust::promise::<()>();
                let now = link::losses();
                if now == known {
                    gossamer::sync::select(&[&pending, &loss], None);
                } else if self.ask(move |keeper| keeper.heed(now))? {
                    known = now;
                } else {
                    gossamer::sleep(BEHIND);
                }
                unkept.discard();
                if let Some(outcome) = pending.try_take() {
                    break outcome;
                }
            }
        } else {
            pending.wait()
        };
        outcome.or_else(|error| {
            self.check()?;
            panic!("the mutex is gone: {error}")
        })
    }

    /// Asks the keeper, and waits for the answer.
    pub(super) fn ask<R, F>(&self, f: F) -> Result<R, Lost>
    where
        R: NoRef + Send + 'static,
        F: FnOnce(&mut Keeper<T>) -> R + NoRef + Send + 'static,
    {
        self.trust.call().apply(f).wait().or_else(|error| {
            self.check()?;
            panic!("{error}")
        })
    }

    /// Tells the keeper that a lock with waiters is free.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_freed(&self) {
        self.trust.call().apply(Keeper::freed).then(report);
    }

    /// Gives the object back to the keeper, which hands it on, for a holder on this machine. With copies it waits until
    /// the keeper has it, if it may wait: a change whose lock has ended outlives this machine.
    #[cold]
    #[inline(never)]
    pub(super) fn give_back(&self, name: Name, poisons: bool, holder: u16) {
        let call = self.trust.call().apply(move |keeper: &mut Keeper<T>| keeper.came_back(name, poisons, holder));
        if !switch::has_heads() {
            return call.then(report);
        }
        settle::begin();
        let (tell, told) = promise_at(trust::local_trustee().id());
        call.then(|outcome| {
            settle::end();
            report(outcome);
            tell.keep(());
        });
        if trust::may_wait() && !std::thread::panicking() {
            drop(told.wait());
        }
    }
}

/// Checks that a mutex can be made here.
pub(super) fn check_may_wait() {
    assert!(
        trust::may_wait() || !switch::has_heads(),
        "with copies of the heap a `Mutex` is kept by machine 0, for which this has to wait, and nothing may wait here \
         (in a delegated closure, a callback or a destructor): `launch` instead of `apply`"
    );
}

/// Reports the fault of a message that nobody waits for: those that wait for the lock may wait in vain. A keeper that
/// is gone or lost needs no news.
fn report(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::Gone { .. } | Error::Lost { .. }) => {}
        Err(error) => {
            // Nobody is left to tell if that fails.
            let _ = writeln!(std::io::stderr(), "gossamer-heap: a mutex was not told of the end of a lock: {error}");
        }
    }
}

impl<T: ?Sized + Object + Portable> Turn<T> {
    /// The lock; where it is none, but may be free, by another try.
    fn taken(mut self) -> Result<Option<Taken>, Lost> {
        match self.pass.take() {
            Some(Pass::Lock(taken)) => Ok(Some(taken)),
            Some(Pass::Again(mark)) => {
                Ok(self.keeper.record().and_then(|record| record.take_soon(mark, places::own_machine())))
            }
            Some(Pass::Lost(machine)) => Err(Lost { machine }),
            None => Ok(None),
        }
    }
}

impl<T: ?Sized + Object + Portable> Drop for Turn<T> {
    fn drop(&mut self) {
        match self.pass.take() {
            Some(Pass::Lock((name, _))) => self.keeper.give_back(name, false, self.machine),
            Some(Pass::Again(_)) => self.keeper.tell_freed(),
            Some(Pass::Lost(_)) | None => {}
        }
    }
}

impl<T: ?Sized + Object + Portable> Keeper<T> {
    /// `known` losses are known to the caller.
    fn take_or_wait(&mut self, ask: Ask, promise: Promise<Turn<T>>, trust: KeeperTrust<T>, known: u32) -> Asked {
        if link::losses() < known {
            return Asked::Behind;
        }
        let lost = self.restored();
        self.queue.ask(own(&self.record), ask, (promise, trust, ask.machine), |machine| lost.contains(&machine))
    }

    /// Looks again who waits and who holds the lock, after so many losses. False if this machine has not been told of
    /// all of them.
    fn heed(&mut self, known: u32) -> bool {
        if link::losses() < known {
            return false;
        }
        let lost = self.restored();
        let heard = self.queue.heed(own(&self.record), |machine| lost.contains(&machine));
        heard.into_iter().for_each(pass_on);
        true
    }

    /// Takes the lock if it is free, for that machine.
    pub(super) fn take(&mut self, machine: u16) -> Result<Option<Taken>, Lost> {
        let (lost, record) = (self.restored(), own(&self.record));
        if lost.contains(&machine) {
            return Err(Lost { machine }); // sent before the loss
        }
        match record.take(machine) {
            None => record.lost(|machine| lost.contains(&machine)).map_or(Ok(None), |machine| Err(Lost { machine })),
            taken => Ok(taken),
        }
    }

    /// Returns the machines that are lost, for one turn of the keeper, in which all has to follow from the same ones.
    /// With copies the lock of one of them is restored: only that of plain data, for of owners inside the holder may
    /// have made something else than the object at rest has.
    fn restored(&self) -> Vec<u16> {
        let lost = if link::losses() == 0 { Vec::new() } else { link::lost_machines() };
        if !T::DROPS && switch::are_on() {
            own(&self.record).restore(|machine| lost.contains(&machine));
        }
        lost
    }

    /// Gives a mutex that is lost another object; so is one with this object, which the caller has found to be lost.
    /// False if it is not lost.
    pub(super) fn renew(&mut self, name: Name, gone: Option<Name>) -> bool {
        let (lost, record) = (self.restored(), own(&self.record));
        let waiting = self.queue.heed(record, |machine| lost.contains(&machine)); // none is left, if the lock is lost
        waiting.into_iter().for_each(pass_on);
        record.renew(name) || self.renew_free(name, gone)
    }

    /// Same as `renew`, of one that is free, with an object that lies on a lost machine.
    fn renew_free(&mut self, name: Name, gone: Option<Name>) -> bool {
        let record = own(&self.record);
        let Some((old, _)) = record.take(places::own_machine()) else { return false };
        // SAFETY: whoever takes the lock is the object's owner; it has the mutex's type, and is not dropped here.
        let object = ManuallyDrop::new(unsafe { Global::<T>::of(old, self.meta) });
        let is_lost = object.lost().is_some() || gone == Some(old);
        record.free(if is_lost { name } else { old }, false); // as it was, without a mark
        if is_lost {
            record.clear_poison();
        }
        is_lost
    }

    /// Clears the poison of the mutex.
    pub(super) fn clear_poison(&mut self) {
        own(&self.record).clear_poison();
    }

    fn came_back(&mut self, name: Name, poisons: bool, holder: u16) {
        let (lost, record) = (self.restored(), own(&self.record));
        let is_lost = |machine| lost.contains(&machine);
        let (before, is_good) = (record.name(), !is_lost(holder) && record.lost(is_lost).is_none());
        let next = self.queue.came_back(record, (name, poisons), holder, is_lost);
        next.into_iter().for_each(pass_on);
        if switch::are_on() && is_good && before.at != name.at {
            // SAFETY: its contents are in the new room, and the record has that.
            unsafe { freeing::room::<T>(before, self.meta) };
        }
    }

    fn freed(&mut self) {
        let lost = self.restored();
        let next = self.queue.freed(own(&self.record), |machine| lost.contains(&machine));
        next.into_iter().for_each(pass_on);
    }
}

/// The keeper's record.
fn own(record: &Global<[u64; 3]>) -> &Record {
    at(record.name().at).unwrap_or_else(|| unreachable!("the record is mapped at its place"))
}

fn pass_on<T: ?Sized + Object + Portable>(((promise, keeper, machine), pass): (Waiter<T>, Pass)) {
    promise.keep(Turn { pass: Some(pass), keeper, machine });
}

impl<T: ?Sized + Object + Portable> Drop for Keeper<T> {
    /// Destroys the object, unless a guard of it was forgotten, or a lost machine may have handed on the mutex.
    fn drop(&mut self) {
        if trust::link::drops_old() {
            return; // others may lock it by its record alone
        }
        if let Some((name, _)) = own(&self.record).take(places::own_machine()) {
            // SAFETY: whoever takes the lock is the object's owner; it has the mutex's type.
            drop(unsafe { Global::<T>::of(name, self.meta) });
        }
        if !trust::link::is_ending() {
            // SAFETY: dropped once, and not used again; the last handle of the mutex has gone. At the end of the
            // program others may still look at it, and it goes with the process.
            unsafe { ManuallyDrop::drop(&mut self.record) };
        }
    }
}

/// The record at this place, if it is mapped here.
#[inline]
fn at<'a>(record: At) -> Option<&'a Record> {
    // With replicas an object goes to another machine by a message, which the gate sees.
    if switch::are_on() && places::places()[record.place() as usize].machine != places::own_machine() {
        return None;
    }
    let address = bases::mapped(record).or_else(|| bases::find(record))?;
    // SAFETY: three aligned words, which all use as atomics; the caller has a handle of the mutex, which keeps them.
    Some(unsafe { &*address.cast::<Record>() })
}

#[cfg(test)]
mod tests {
    use crate::mutex::Mutex;

    /// Set in a child of the test.
    const PANICS: &str = "GOSSAMER_KEEPER_TEST_PANICS";

    #[test]
    fn the_end_of_a_lock_that_no_keeper_hears_is_reported() {
        if std::env::var_os(PANICS).is_some() {
            let main = || {
                let mutex = Mutex::new(7u64);
                assert!(mutex.keeper.trust.call().apply(|_| panic!("planted")).wait().is_err());
                mutex.keeper.tell_freed();
                trust::wait_all();
            };
            return gossamer::main(main, 1);
        }
        const SELF: &str = "mutex::keeper::tests::the_end_of_a_lock_that_no_keeper_hears_is_reported";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", SELF, "--nocapture"]).env(PANICS, "1").output().unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}");
        let report = said.lines().find(|line| line.starts_with("gossamer-heap: a mutex was not told of the end of"));
        assert!(report.is_some_and(|report| report.contains("planted")), "{said}");
    }
}
