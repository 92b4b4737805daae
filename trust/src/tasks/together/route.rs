//! Route of a call: its properties in order, the number of shares it has, and its client.
//!
//! The steps of a call at a trustee are generic over [`Lender`], so that the models (`model.rs`) run this very code.

#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::{self, NonNull};

use super::{Failure, Job, Outcome, Part, Parts, assert_here, poisoned, release, run_on};
use crate::error::{Error, panic_text};
use crate::ids::{self, TrusteeId};
use crate::registry;
use crate::request::{Fault, Host};
use crate::runtime::worker::Worker;

/// Receiver of the outcome.
#[derive(Clone, Copy)]
pub(super) enum Client {
    /// Waiting caller, with the address of its [`Reply`](crate::tasks::reply::Reply).
    Waits(TrusteeId, *const ()),
    /// Callback, kept under a token: the call lies in a box, and has its own trust of each property.
    Token(TrusteeId, u64),
}

/// Trustee, as a call sees it.
pub(super) trait Lender {
    /// Returns the trustee whose values are given back here.
    fn id(&self) -> TrusteeId;
    /// Returns the trustee whose values can be taken here: nobody's at its end.
    fn home(&self) -> TrusteeId;
    /// Returns whether one of its own values is poisoned.
    fn is_poisoned(&self, part: &Part) -> bool;
    /// Returns whether a closure has panicked here on this value, which another trustee has lent.
    fn is_spoiled(&self, part: &Part) -> bool;
    /// Returns the address of one of its own values, if it is there and nobody stands in line.
    fn free(&self, part: &Part) -> Option<NonNull<()>>;
    /// Returns a share of one of its own values, for closures at trustee `to`, if it can be had at once.
    fn borrow(&mut self, part: &Part, to: TrusteeId) -> Option<NonNull<()>>;
    fn poison(&mut self, part: &Part, panic: &(dyn Any + Send));
    /// Takes back a share.
    fn release(&mut self, part: &Part, is_spoiled: bool);
}

/// Next step of a call.
pub(super) enum Step {
    /// It has a share of each value, and runs.
    Run,
    To(TrusteeId),
    /// It has to stand in line for the value of this part.
    Line(Part),
    /// The property of this part is poisoned.
    Refuse(Part),
}

/// Route of a call.
pub(crate) struct Route<P> {
    /// Parts in the order in which they are borrowed.
    pub(super) parts: P,
    /// Number of the parts, the first ones, of which the call has a share.
    pub(super) taken: usize,
    pub(super) client: Client,
}

impl<P: Parts> Route<P> {
    /// Makes the route of a call.
    ///
    /// # Errors
    /// [`Error::Twice`], [`Error::Apart`].
    pub(crate) fn new(worker: &Worker, mut parts: P) -> Result<Self, Error> {
        sort(parts.as_mut())?;
        Ok(Route { parts, taken: 0, client: Client::Waits(worker.id, ptr::null()) })
    }

    pub(super) fn next(&self) -> Option<&Part> {
        self.parts.as_ref().get(self.taken)
    }

    /// Adds the share of the next part.
    pub(super) fn take(&mut self, value: NonNull<()>) {
        self.parts.as_mut()[self.taken].value = value;
        self.taken += 1;
    }

    /// Returns the trustee at which the closure runs.
    pub(super) fn last(&self) -> Option<TrusteeId> {
        self.parts.as_ref().last().map(|part| part.trustee)
    }

    /// Returns the number of values elsewhere, if the rest is here and the closure runs here.
    pub(super) fn others_before(&self, worker: &Worker) -> Option<usize> {
        let is_here = |part: &&Part| part.trustee == worker.home.get();
        let parts = self.parts.as_ref();
        let others = parts.iter().take_while(|part| !is_here(part)).count();
        (others < parts.len() && is_here(&&parts[parts.len() - 1])).then_some(others)
    }

    pub(super) fn is_all_here(&self, worker: &Worker) -> bool {
        self.parts.as_ref().iter().all(|part| part.trustee == worker.home.get())
    }

    /// Returns whether all values that the call has no share of are here and free; if so, notes their addresses.
    ///
    /// # Errors
    /// The part that is poisoned.
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

    /// Checks that no part of which the call has a share has been poisoned.
    #[inline(always)]
    pub(super) fn find_poisoned(&self, lender: &impl Lender) -> Result<(), Part> {
        let is_poisoned = |part: &&Part| {
            if part.trustee == lender.home() { lender.is_poisoned(part) } else { lender.is_spoiled(part) }
        };
        self.parts.as_ref()[..self.taken].iter().find(is_poisoned).map_or(Ok(()), |part| Err(*part))
    }

    /// Takes shares of the values here, in order. Returns the next step.
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

    /// Gives back the shares of values of this trustee, with the closure's panic, if it panicked. Returns the previous
    /// trustee; `None` for the client.
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

    /// Runs the closure on the values, at the last trustee: each value is shared by the call, or free.
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
        // SAFETY: each is one of the closure's arguments; nothing else has it.
        unsafe { run_on(worker, job, values) }.map_err(|payload| self.after_panic(worker, payload))
    }

    /// Poisons the properties here; the other trustees hear of it on the way back [poison-all].
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

    /// Handles the end of trustee `at`, with the shares of its values.
    pub(super) fn lose(&mut self, at: TrusteeId, mut release_orphan: impl FnMut(&Part)) {
        while let Some(part) = self.taken.checked_sub(1).map(|last| self.parts.as_ref()[last])
            && part.trustee == at
        {
            release_orphan(&part);
            self.taken -= 1;
        }
    }
}

/// Sorts the parts in the order in which they are taken [one-call-order].
///
/// # Errors
/// [`Error::Twice`], [`Error::Apart`]; [`Error::Gone`] instead of the former if the trustee is gone: properties
/// entrusted to it then have no address of their own.
pub(super) fn sort(parts: &mut [Part]) -> Result<(), Error> {
    parts.sort_unstable_by_key(|part| (part.trustee, part.property));
    assert_here(parts)?;
    let is_twice = |pair: &&[Part]| (pair[0].trustee, pair[0].property) == (pair[1].trustee, pair[1].property);
    match parts.windows(2).find(is_twice) {
        Some([part, ..]) => {
            let (property, trustee) = (part.name(), part.trustee);
            let is_gone = trustee.machine() == ids::machine() && registry::find(trustee).is_none();
            Err(if is_gone { Error::Gone { property, was_closed: false } } else { Error::Twice { property } })
        }
        _ => Ok(()),
    }
}

/// Worker as the lender, for its own trustee. The properties are live [call-keeps-property], and of their kinds.
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
        // SAFETY: live [call-keeps-property], and of this trustee.
        unsafe { (*part.property).is_poisoned() }
    }

    #[inline(always)]
    fn is_spoiled(&self, part: &Part) -> bool {
        self.launches.lines.has_spoiled() && self.launches.lines.spoiled(part.trustee, part.property).is_some()
    }

    #[inline(always)]
    fn free(&self, part: &Part) -> Option<NonNull<()>> {
        // SAFETY: live [call-keeps-property], and of this trustee; its kind is its type.
        unsafe { if self.launches.lines.has(part.property) { None } else { (part.kind.get)(part.property) } }
    }

    fn borrow(&mut self, part: &Part, to: TrusteeId) -> Option<NonNull<()>> {
        // SAFETY: as above; [value-thread].
        unsafe { self.launches.lines.borrow(part.property, part.kind, to) }
    }

    fn poison(&mut self, part: &Part, panic: &(dyn Any + Send)) {
        Worker::poison(self, part.property, panic);
    }

    fn release(&mut self, part: &Part, is_spoiled: bool) {
        release(self, part.trustee, part.property, is_spoiled);
    }
}

/// Makes the failure of a call that needs the value of this poisoned property, or has a share of it.
#[cold]
pub(super) fn refusal(worker: &Worker, part: &Part) -> Box<Failure> {
    if part.trustee == worker.home.get() {
        return poisoned(worker, part.property, part.kind);
    }
    let panic = worker.launches.lines.spoiled(part.trustee, part.property).unwrap_or_default();
    Box::new(Failure::of(Some(part), Fault::Poisoned(panic)))
}
