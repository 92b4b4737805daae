//! Visit of a call to the last trustee: the request carries all that the closure needs there, the response carries the
//! result. The call itself is accessed there only if a value is not free, or on an error: its memory is the client's,
//! and remote.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::{At, Visited};
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::{Fault, Host, LocalRequest, Response, Resuming, Serving};
use crate::runtime::worker::end::is_leaving;
use crate::runtime::worker::{self, Worker};
use crate::tasks::together::{Job, Parts, VISITED_MAX, run_on};
use crate::unwind::quietly;

/// Value of one part of a call, or its address.
#[derive(Clone, Copy)]
pub(crate) struct Stop {
    /// Address of the value, if the call has a share of it, else of the property.
    pub(super) at: NonNull<()>,
    pub(super) argument: usize,
}

// SAFETY: as for `Part`.
unsafe impl Send for Stop {}

/// Visit of a call to the last trustee.
pub(super) struct Visit<P: Parts, J: Job> {
    pub(super) at: At<P, J>,
    pub(super) stops: P::Stops,
    /// Number of the stops, the first ones, of which the call has a share.
    pub(super) taken: usize,
    pub(super) job: Unrun<J>,
}

/// Closure that has not run. If it is dropped, that is user code that may not wait.
pub(super) struct Unrun<J>(Option<J>);

impl<J> Unrun<J> {
    pub(super) fn new(job: J) -> Self {
        Unrun(Some(job))
    }

    fn take(&mut self) -> Option<J> {
        self.0.take()
    }
}

impl<J> Drop for Unrun<J> {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            worker::try_with(|worker| worker.delegated(|| quietly(|| drop(job))));
        }
    }
}

/// Outcome of a visit.
enum Answer<U> {
    Ran(U),
    /// The visit did not run it: the state of the call itself.
    Other(Visited),
}

impl<P: Parts, J: Job> Visit<P, J> {
    fn arrive(mut self, worker: &Worker, client: TrusteeId) -> Answer<J::Output> {
        let Some(job) = self.job.take() else { unreachable!("it comes once") };
        let mut values = [NonNull::dangling(); VISITED_MAX];
        let stops = self.stops.as_ref();
        let is_free = !worker.launches.lines.has_spoiled()
            && stops.iter().enumerate().all(|(place, stop)| {
                let value = if place < self.taken { Some(stop.at) } else { Self::value_here(worker, stop) };
                value.is_some_and(|value| {
                    values[stop.argument] = value;
                    true
                })
            });
        let at = self.at;
        if !is_free {
            at.call().job = Some(job);
            return Answer::Other(match at.arrive(worker) {
                Visited::Done => at.answer(worker, client),
                Visited::Moved => Visited::Moved,
            });
        }
        // SAFETY: each is one of the closure's arguments, and nothing else has it: it is free, or shared with calls
        // that run here [lent-to-one].
        match unsafe { run_on(worker, job, &values[..stops.len()]) } {
            Ok(value) if is_leaving(client) => {
                at.call().outcome = Some(Ok(value));
                at.go_back(worker);
                Answer::Other(Visited::Moved)
            }
            Ok(value) => Answer::Ran(value),
            Err(payload) => {
                let call = at.call();
                call.outcome = Some(Err(call.route.after_panic(worker, payload)));
                Answer::Other(at.answer(worker, client))
            }
        }
    }

    /// Returns the value of a property of this trustee, if it is free.
    #[inline(always)]
    fn value_here(worker: &Worker, stop: &Stop) -> Option<NonNull<()>> {
        let property = stop.at.cast::<Header>().as_ptr();
        // SAFETY: live [call-keeps-property], of this trustee and kind; [value-thread].
        unsafe {
            if (*property).is_poisoned() || worker.launches.lines.has(property) {
                return None;
            }
            (J::kind(stop.argument).get)(property)
        }
    }
}

impl<P: Parts, J: Job> LocalRequest for Visit<P, J> {
    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        let answer = worker::with(|worker| self.arrive(worker, serving.client));
        serving.out.put(answer);
    }
}

/// Response that takes the call back.
pub(super) struct Visitor<P: Parts, J: Job>(pub(super) At<P, J>);

impl<P: Parts, J: Job> Response for Visitor<P, J> {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let Visitor(at) = self;
        worker::with(|worker| match fault {
            // SAFETY: a visit puts it.
            None => match unsafe { resuming.responses.take::<Answer<J::Output>>() } {
                Answer::Ran(value) => {
                    at.call().outcome = Some(Ok(value));
                    at.go_back(worker);
                }
                Answer::Other(visited) => at.returned(worker, visited),
            },
            Some(fault) => at.refused(worker, fault),
        });
    }
}
