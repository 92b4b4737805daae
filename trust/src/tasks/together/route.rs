//! Which way a call goes: the properties in their order, of which of them it has a share, and who is told in the end.

#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::{self, NonNull};

use super::{Failure, Job, Outcome, Part, Parts, assert_here, poisoned, run_on};
use crate::error::{Error, panic_text};
use crate::ids::TrusteeId;
use crate::request::{Fault, Host};
use crate::runtime::worker::Worker;
use crate::runtime::worker::lines::release_orphan;

/// Who is told the outcome.
#[derive(Clone, Copy)]
pub(super) enum Client {
    /// A caller that waits, at this address of its [`Reply`](crate::tasks::reply::Reply).
    Waits(TrusteeId, *const ()),
    /// A callback, kept under a token: the call lies in a box, and has a trust of its own of each property.
    Token(TrusteeId, u64),
}

/// Which way a call goes.
pub(crate) struct Route<P> {
    /// In the order in which they are taken.
    pub(super) parts: P,
    /// Of so many of them, the first ones, it has a share.
    pub(super) taken: usize,
    pub(super) client: Client,
}

impl<P: Parts> Route<P> {
    /// # Errors
    /// [`Error::Twice`], [`Error::Apart`].
    pub(crate) fn new(worker: &Worker, mut parts: P) -> Result<Self, Error> {
        let all = parts.as_mut();
        all.sort_unstable_by_key(|part| (part.trustee, part.property));
        assert_here(all)?;
        let is_twice = |pair: &&[Part]| (pair[0].trustee, pair[0].property) == (pair[1].trustee, pair[1].property);
        if let Some(pair) = all.windows(2).find(is_twice) {
            return Err(Error::Twice { property: pair[0].name() });
        }
        Ok(Route { parts, taken: 0, client: Client::Waits(worker.id, ptr::null()) })
    }

    pub(super) fn next(&self) -> Option<&Part> {
        self.parts.as_ref().get(self.taken)
    }

    /// It has a share of the next one.
    pub(super) fn take(&mut self, value: NonNull<()>) {
        self.parts.as_mut()[self.taken].value = value;
        self.taken += 1;
    }

    /// The trustee at which the closure runs.
    pub(super) fn last(&self) -> Option<TrusteeId> {
        self.parts.as_ref().last().map(|part| part.trustee)
    }

    /// How many are elsewhere, if the rest is here and the closure runs here.
    pub(super) fn others_before(&self, worker: &Worker) -> Option<usize> {
        let is_here = |part: &&Part| part.trustee == worker.home.get();
        let parts = self.parts.as_ref();
        let others = parts.iter().take_while(|part| !is_here(part)).count();
        (others < parts.len() && is_here(&&parts[parts.len() - 1])).then_some(others)
    }

    pub(super) fn is_all_here(&self, worker: &Worker) -> bool {
        self.parts.as_ref().iter().all(|part| part.trustee == worker.home.get())
    }

    /// Are all values that it has no share of here, and free? Then it knows where they lie.
    ///
    /// # Errors
    /// One is poisoned.
    pub(super) fn finds_free(&mut self, worker: &Worker) -> Result<bool, Box<Failure>> {
        if self.last().is_some_and(|last| last != worker.home.get()) {
            return Ok(false);
        }
        for part in &mut self.parts.as_mut()[self.taken..] {
            if part.trustee != worker.home.get() {
                return Ok(false);
            }
            // SAFETY: live (J2), and of this trustee; its kind is its type.
            unsafe {
                if (*part.property).is_poisoned() {
                    return Err(poisoned(worker, part.property, part.kind));
                }
                if worker.launches.lines.has(part.property) {
                    return Ok(false);
                }
                let Some(value) = (part.kind.get)(part.property) else { return Ok(false) };
                part.value = value;
            }
        }
        Ok(true)
    }

    /// Has one of those been poisoned of which it has a share?
    pub(super) fn find_poisoned(&self, worker: &Worker) -> Result<(), Box<Failure>> {
        for part in &self.parts.as_ref()[..self.taken] {
            if part.trustee != worker.home.get() {
                if let Some(panic) = worker.launches.lines.spoiled(part.trustee, part.property) {
                    return Err(Box::new(Failure::of(Some(part), Fault::Poisoned(panic))));
                }
            // SAFETY: live (J2), and of this trustee.
            } else if unsafe { (*part.property).is_poisoned() } {
                return Err(poisoned(worker, part.property, part.kind));
            }
        }
        Ok(())
    }

    /// Runs the closure on the values, at the last of their trustees: it has a share of each, or it is free.
    pub(super) fn run<J: Job>(&self, worker: &Worker, job: J) -> Outcome<J::Output> {
        let parts = self.parts.as_ref();
        let (mut few, mut many) = ([NonNull::dangling(); 8], Vec::new());
        let values = match few.get_mut(..parts.len()) {
            Some(values) => values,
            None => {
                many.resize(parts.len(), NonNull::dangling());
                &mut many[..]
            }
        };
        for part in parts {
            values[part.argument] = part.value;
        }
        // SAFETY: each is one of the closure's arguments; nobody else has it.
        unsafe { run_on(worker, job, values) }.map_err(|payload| self.after_panic(worker, payload))
    }

    /// Poisons what is here; the others hear of it on the way back (J5).
    #[cold]
    pub(crate) fn after_panic(&self, worker: &Worker, payload: Box<dyn Any + Send>) -> Box<Failure> {
        for part in self.parts.as_ref() {
            if part.trustee == worker.home.get() {
                worker.poison(part.property, &*payload);
            } else {
                worker.launches.lines.spoil(part.trustee, part.property, panic_text(&*payload));
            }
        }
        Box::new(Failure::of(self.parts.as_ref().last(), Fault::Panicked(payload)))
    }

    /// The trustee `at` has gone, with the shares of its values.
    pub(super) fn lose(&mut self, worker: &Worker, at: TrusteeId) {
        while let Some(part) = self.taken.checked_sub(1).map(|last| self.parts.as_ref()[last])
            && part.trustee == at
        {
            release_orphan(worker, part.trustee, part.property);
            self.taken -= 1;
        }
    }
}
