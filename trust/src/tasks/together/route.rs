//! Which way a call goes: the properties in their order, of which of them it has a share, and who is told in the end.
//!
//! What a call does at a trustee is written for any [`Lender`], so that the models (`model.rs`) run this very code.

#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::{self, NonNull};

use super::{Failure, Job, Outcome, Part, Parts, assert_here, poisoned, release, run_on};
use crate::error::{Error, panic_text};
use crate::ids::{self, TrusteeId};
use crate::registry;
use crate::request::{Fault, Host};
use crate::runtime::worker::Worker;

/// Who is told the outcome.
#[derive(Clone, Copy)]
pub(super) enum Client {
    /// A caller that waits, at this address of its [`Reply`](crate::tasks::reply::Reply).
    Waits(TrusteeId, *const ()),
    /// A callback, kept under a token: the call lies in a box, and has a trust of its own of each property.
    Token(TrusteeId, u64),
}

/// A trustee, as a call finds it.
pub(super) trait Lender {
    /// Of whose values shares are given back here.
    fn id(&self) -> TrusteeId;
    /// Whose values can be taken here: nobody's, if it is at its end.
    fn home(&self) -> TrusteeId;
    /// Of a value of its own.
    fn is_poisoned(&self, part: &Part) -> bool;
    /// Has a closure panicked here on this value, which another trustee has lent?
    fn is_spoiled(&self, part: &Part) -> bool;
    /// Where a value of its own lies, if it is there and nobody stands in line.
    fn free(&self, part: &Part) -> Option<NonNull<()>>;
    /// A share of a value of its own, for closures at that trustee, if it can be had at once.
    fn borrow(&mut self, part: &Part, to: TrusteeId) -> Option<NonNull<()>>;
    fn poison(&mut self, part: &Part, panic: &(dyn Any + Send));
    /// Takes back a share.
    fn release(&mut self, part: &Part, is_spoiled: bool);
}

/// Which way a call is to go on.
pub(super) enum Step {
    /// It has a share of each value.
    Run,
    To(TrusteeId),
    /// It has to stand in line for the value of this part.
    Line(Part),
    /// The property of this part is poisoned.
    Refuse(Part),
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
        sort(parts.as_mut())?;
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
    /// One is poisoned: which.
    #[inline(always)]
    pub(super) fn finds_free(&mut self, lender: &impl Lender) -> Result<bool, Part> {
        if self.last().is_some_and(|last| last != lender.home()) {
            return Ok(false);
        }
        for part in &mut self.parts.as_mut()[self.taken..] {
            if part.trustee != lender.home() {
                return Ok(false);
            }
            if lender.is_poisoned(part) {
                return Err(*part);
            }
            let Some(value) = lender.free(part) else { return Ok(false) };
            part.value = value;
        }
        Ok(true)
    }

    /// Has one of those been poisoned of which it has a share?
    #[inline(always)]
    pub(super) fn find_poisoned(&self, lender: &impl Lender) -> Result<(), Part> {
        let is_poisoned = |part: &&Part| {
            if part.trustee == lender.home() { lender.is_poisoned(part) } else { lender.is_spoiled(part) }
        };
        self.parts.as_ref()[..self.taken].iter().find(is_poisoned).map_or(Ok(()), |part| Err(*part))
    }

    /// Takes shares of what is here, in order, and says where it is to go on.
    pub(super) fn advance(&mut self, lender: &mut impl Lender) -> Step {
        loop {
            if let Err(part) = self.find_poisoned(lender) {
                return Step::Refuse(part);
            }
            let Some(part) = self.next().copied() else { return Step::Run };
            if part.trustee != lender.home() {
                return Step::To(part.trustee);
            }
            if lender.is_poisoned(&part) {
                return Step::Refuse(part);
            }
            match lender.borrow(&part, self.last().unwrap_or(part.trustee)) {
                Some(value) => self.take(value),
                None => return Step::Line(part),
            }
        }
    }

    /// Gives back the shares of values of this trustee, and says who is next: the trustee before, or the client. With
    /// the closure's panic, if it did.
    pub(super) fn give_back(
        &mut self,
        lender: &mut impl Lender,
        panic: Option<&(dyn Any + Send)>,
    ) -> Option<TrusteeId> {
        while let Some(part) = self.taken.checked_sub(1).map(|last| self.parts.as_ref()[last]) {
            if part.trustee != lender.id() {
                return Some(part.trustee);
            }
            if let Some(panic) = panic
                && lender.home() == lender.id()
            {
                lender.poison(&part, panic);
            }
            lender.release(&part, panic.is_some() && self.last() != Some(lender.id()));
            self.taken -= 1;
        }
        None
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
    pub(super) fn lose(&mut self, at: TrusteeId, mut release_orphan: impl FnMut(&Part)) {
        while let Some(part) = self.taken.checked_sub(1).map(|last| self.parts.as_ref()[last])
            && part.trustee == at
        {
            release_orphan(&part);
            self.taken -= 1;
        }
    }
}

/// In the order in which they are taken (J1).
///
/// # Errors
/// [`Error::Twice`], [`Error::Apart`]; [`Error::Gone`] in the place of the former where the trustee is gone: what is
/// entrusted to it then has no address of its own.
pub(super) fn sort(parts: &mut [Part]) -> Result<(), Error> {
    parts.sort_unstable_by_key(|part| (part.trustee, part.property));
    assert_here(parts)?;
    let is_twice = |pair: &&[Part]| (pair[0].trustee, pair[0].property) == (pair[1].trustee, pair[1].property);
    match parts.windows(2).find(is_twice) {
        Some([part, ..]) => {
            let (property, trustee) = (part.name(), part.trustee);
            let is_gone = trustee.machine() == ids::machine() && registry::find(trustee).is_none();
            Err(if is_gone { Error::Gone { property } } else { Error::Twice { property } })
        }
        _ => Ok(()),
    }
}

/// The worker, whose trustee it is. The properties are live (J2), and of their kinds.
impl Lender for &Worker {
    fn id(&self) -> TrusteeId {
        self.id
    }

    #[inline(always)]
    fn home(&self) -> TrusteeId {
        self.home.get()
    }

    #[inline(always)]
    fn is_poisoned(&self, part: &Part) -> bool {
        // SAFETY: live (J2), and of this trustee.
        unsafe { (*part.property).is_poisoned() }
    }

    #[inline(always)]
    fn is_spoiled(&self, part: &Part) -> bool {
        self.launches.lines.has_spoiled() && self.launches.lines.spoiled(part.trustee, part.property).is_some()
    }

    #[inline(always)]
    fn free(&self, part: &Part) -> Option<NonNull<()>> {
        // SAFETY: live (J2), and of this trustee; its kind is its type.
        unsafe { if self.launches.lines.has(part.property) { None } else { (part.kind.get)(part.property) } }
    }

    fn borrow(&mut self, part: &Part, to: TrusteeId) -> Option<NonNull<()>> {
        // SAFETY: as above; J4.
        unsafe { self.launches.lines.borrow(part.property, part.kind, to) }
    }

    fn poison(&mut self, part: &Part, panic: &(dyn Any + Send)) {
        Worker::poison(self, part.property, panic);
    }

    fn release(&mut self, part: &Part, is_spoiled: bool) {
        release(self, part.trustee, part.property, is_spoiled);
    }
}

/// That this property is poisoned, of which a call would take the value, or has a share.
#[cold]
pub(super) fn refusal(worker: &Worker, part: &Part) -> Box<Failure> {
    if part.trustee == worker.home.get() {
        return poisoned(worker, part.property, part.kind);
    }
    let panic = worker.launches.lines.spoiled(part.trustee, part.property).unwrap_or_default();
    Box::new(Failure::of(Some(part), Fault::Poisoned(panic)))
}
