//! One call on its way: from trustee to trustee, in lines, and back to its client. Its address is sent.

#![allow(unsafe_code)]

mod visit;

use std::ptr::{self, NonNull};

pub(super) use self::visit::Stop;
use self::visit::{Unrun, Visit, Visitor};
use super::reliable::{ReliableMessage, Sent};
use super::route::{Step, refusal};
use super::{Client, Failure, Job, Outcome, Part, Parts, Route, gathered, token_of};
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::registry::report::Gathered;
use crate::request::{Fault, Host, Ignore, LocalRequest, Response, Resuming, Serving};
use crate::runtime::worker::end::is_leaving;
use crate::runtime::worker::lines::{Caller, CallerVtable, Sharer, Waiter, release_orphan};
use crate::runtime::worker::reclaim::count;
use crate::runtime::worker::{self, Worker};
use crate::tasks::deliver::call_back;
use crate::tasks::reply::Reply;
use crate::unwind::quietly;

pub(super) struct Call<P, J: Job> {
    pub(super) route: Route<P>,
    /// Closure; present until it runs, or is refused.
    pub(super) job: Option<J>,
    /// Outcome; present from then on.
    pub(super) outcome: Option<Outcome<J::Output>>,
}

impl<P: Parts, J: Job> Call<P, J> {
    fn run(&mut self, worker: &Worker) {
        match (self.route.find_poisoned(&worker), self.job.take()) {
            (Ok(()), Some(job)) => self.outcome = Some(self.route.run(worker, job)),
            (Ok(()), None) => unreachable!("a call runs once"),
            (Err(part), job) => {
                self.job = job;
                self.refuse(worker, refusal(worker, &part));
            }
        }
    }

    /// Refuses the call: the closure does not run.
    #[cold]
    pub(super) fn refuse(&mut self, worker: &Worker, failure: Box<Failure>) {
        self.outcome = Some(Err(failure));
        let job = self.job.take();
        // User code, which may not wait here.
        worker.delegated(|| quietly(|| drop(job)));
    }

    /// Gives back the shares of values of this trustee. Returns the next trustee on the way back; `None` for the
    /// client.
    fn give_back(&mut self, mut worker: &Worker) -> Option<TrusteeId> {
        let panic = match &self.outcome {
            Some(Err(failure)) => failure.payload(),
            _ => None,
        };
        self.route.give_back(&mut worker, panic)
    }
}

/// State of a call after it came to a trustee.
pub(super) enum Visited {
    /// It has its outcome, and its sender owns it again.
    Done,
    /// It stands in line, or has moved on: the outcome comes by another request.
    Moved,
}

/// Address of a call: its holder owns the call [call-owner].
pub(super) struct At<P, J: Job>(pub(super) NonNull<Call<P, J>>);

impl<P, J: Job> Clone for At<P, J> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P, J: Job> Copy for At<P, J> {}

// SAFETY: one thread owns it at a time and hands it over by a request or a response; its contents are `Send`, but for
// the reply, whose address only the client's thread dereferences.
unsafe impl<P: Send, J: Job> Send for At<P, J> {}

impl<P: Parts, J: Job> At<P, J> {
    const VTABLE: &'static CallerVtable = &CallerVtable {
        // SAFETY: of a call of this type, which this thread owns [call-owner], here and below.
        granted: |at, value| unsafe { at.cast::<Call<P, J>>().as_mut() }.route.take(value),
        go_on: |at, worker| At::<P, J>(at.cast()).go_on(worker),
        lost: |at| At::<P, J>(at.cast()).lost(),
        gathered: |at| At::<P, J>(at.cast()).gathered(),
    };

    pub(super) fn caller(self) -> Caller {
        Caller { at: self.0.cast(), vtable: Self::VTABLE }
    }

    /// Returns the call; not to be kept once the address is given away.
    pub(super) fn call<'a>(self) -> &'a mut Call<P, J> {
        // SAFETY: [call-owner].
        unsafe { &mut *self.0.as_ptr() }
    }

    /// Called at a trustee without shares yet: runs the call at once if it can, else takes shares of the values there.
    pub(super) fn arrive(self, worker: &Worker) -> Visited {
        let call = self.call();
        match call.route.finds_free(&worker) {
            Ok(true) => call.run(worker),
            Err(part) => call.refuse(worker, refusal(worker, &part)),
            Ok(false) => {
                self.go_on(worker);
                return Visited::Moved;
            }
        }
        Visited::Done
    }

    /// Takes shares of the values here, in order, and moves on: to the next trustee, to the end of a line, or back.
    pub(super) fn go_on(self, worker: &Worker) {
        let call = self.call();
        match call.route.advance(&mut { worker }) {
            Step::To(trustee) => return self.send(worker, trustee),
            Step::Line(Part { property, kind, .. }) => {
                let to = call.route.last().unwrap_or(worker.id);
                let waiter = Waiter::Share { to, who: Sharer { kind, who: self.caller() } };
                // SAFETY: live [call-keeps-property], and of this trustee.
                return unsafe { worker.launches.lines.push(property, waiter) };
            }
            Step::Run => call.run(worker),
            Step::Refuse(part) => call.refuse(worker, refusal(worker, &part)),
        }
        self.go_back(worker);
    }

    fn send(self, worker: &Worker, trustee: TrusteeId) {
        let call = self.call();
        if P::STOPS_MAX > 0
            && call.route.last() == Some(trustee)
            && let Some(job) = call.job.take()
        {
            let taken = call.route.taken;
            let stops = call.route.parts.stops(|place, part| {
                let property = NonNull::new(part.property).map_or(NonNull::dangling(), NonNull::cast);
                Stop { at: if place < taken { part.value } else { property }, argument: part.argument }
            });
            let visit = Visit { at: self, stops, taken, job: Unrun::new(job) };
            worker.submit(trustee, ptr::null_mut(), visit, Visitor(self), false);
        } else {
            worker.submit(trustee, ptr::null_mut(), self, Return(self), false);
        }
    }

    /// Called when the call has its outcome: sends it back in the response to this client, or else by a request.
    pub(super) fn answer(self, worker: &Worker, client: TrusteeId) -> Visited {
        if !is_leaving(client) {
            return Visited::Done;
        }
        self.go_back(worker);
        Visited::Moved
    }

    /// Called when the trustee that it was sent to has returned it.
    pub(super) fn returned(self, worker: &Worker, visited: Visited) {
        match visited {
            Visited::Done => self.go_back(worker),
            Visited::Moved => {}
        }
    }

    /// Called when the trustee that it was sent to refuses it, or is gone.
    #[cold]
    pub(super) fn refused(self, worker: &Worker, fault: Fault) {
        let call = self.call();
        let failure = Failure::of(call.route.next(), fault);
        call.refuse(worker, Box::new(failure));
        self.go_back(worker);
    }

    /// Gives back the shares of values of this trustee, and goes on to the previous one, or to the client.
    pub(super) fn go_back(self, worker: &Worker) {
        if let Some(trustee) = self.call().give_back(worker) {
            return worker.submit(trustee, ptr::null_mut(), Sent::new(Homeward(self)), CallReceived, false);
        }
        match self.call().route.client {
            Client::Waits(client, _) | Client::Token(client, _) if client != worker.id => {
                worker.submit(client, ptr::null_mut(), Sent::new(Tell(self)), Ignore, false);
            }
            _ => self.tell(worker),
        }
    }

    /// Returns the next trustee on the way back, or `None` for the client.
    fn back_to(self) -> Option<TrusteeId> {
        let route = &self.call().route;
        route.taken.checked_sub(1).map(|last| route.parts.as_ref()[last].trustee)
    }

    /// Completes the call, on the client's thread.
    fn tell(self, worker: &Worker) {
        match self.call().route.client {
            // SAFETY: the client waits until it is notified, once [call-owner].
            Client::Waits(_, reply) => unsafe { Reply::answer_at(reply, Ok(())) },
            Client::Token(_, token) => {
                let call = self.into_box();
                let outcome = call.outcome.unwrap_or_else(|| unreachable!("it has one"));
                call_back(worker, || worker.launches.complete(token, Ok(outcome)));
                call.route.parts.as_ref().iter().for_each(|part| count(part.trustee, part.property, -1));
            }
        }
    }

    /// Returns the box of a call made with a callback.
    fn into_box(self) -> Box<Call<P, J>> {
        // SAFETY: `together_and_call_back` leaked it; [call-owner].
        unsafe { Box::from_raw(self.0.as_ptr()) }
    }

    /// Makes the report of a call in a line.
    fn gathered(self) -> Gathered {
        let route = &self.call().route;
        let (client, token) = match route.client {
            Client::Waits(client, reply) => (client, token_of(reply)),
            Client::Token(client, token) => (client, token),
        };
        let Some(next) = route.next() else { unreachable!("it stands in the line of the next value") };
        gathered(client, token, &route.parts.as_ref()[..route.taken], next.kind)
    }

    /// Called when its trustee ends while the call stands in line there, or is deferred.
    #[cold]
    fn lost(self) {
        let sent = worker::try_with(|worker| {
            let call = self.call();
            let failure = Failure::of(call.route.next(), Fault::Gone);
            call.refuse(worker, Box::new(failure));
            worker.defer(Box::new(move || worker::with(|worker| self.go_back(worker))));
            worker.settle();
        });
        debug_assert!(sent.is_some(), "lines are a worker's");
    }
}

/// Local request: a call stays in its process (`Route::new`).
impl<P: Parts, J: Job> LocalRequest for At<P, J> {
    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        let visited = worker::with(|worker| match self.arrive(worker) {
            Visited::Done => self.answer(worker, serving.client),
            Visited::Moved => Visited::Moved,
        });
        serving.out.put(visited);
    }
}

/// Response that takes a call back from the trustee that it was sent to, if it is not under way there.
struct Return<P, J: Job>(At<P, J>);

impl<P: Parts, J: Job> Response for Return<P, J> {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let Return(at) = self;
        worker::with(|worker| match fault {
            // SAFETY: the request of a call puts it.
            None => at.returned(worker, unsafe { resuming.responses.take::<Visited>() }),
            Some(fault) => at.refused(worker, fault),
        });
    }
}

/// Call on its way back to a trustee that has lent values. A trustee that is gone is skipped.
struct Homeward<P: Parts, J: Job>(At<P, J>);

impl<P: Parts, J: Job> ReliableMessage for Homeward<P, J> {
    fn to(&self) -> Option<TrusteeId> {
        self.0.back_to()
    }

    fn arrive(self, worker: &Worker) {
        self.0.go_back(worker);
    }

    fn lost(self) {
        let Homeward(at) = self;
        let sent = worker::try_with(|worker| {
            if let Some(gone) = at.back_to().filter(|trustee| *trustee != worker.id) {
                at.call().route.lose(gone, |part| release_orphan(worker, part.trustee, part.property));
            }
            worker.defer(Box::new(move || worker::with(|worker| at.go_back(worker))));
            worker.settle();
        });
        debug_assert!(sent.is_some(), "requests are a worker's");
    }
}

/// Response that confirms that the trustee has the call. Awaited, so that a worker that ends sees the call there: a
/// request that neither its client nor its trustee is left to refuse would be lost [call-owner].
struct CallReceived;

impl Response for CallReceived {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        if fault.is_none() {
            // SAFETY: `Sent` puts `()`. With a fault the request was dropped, and the call has gone on.
            unsafe { resuming.responses.take::<()>() }
        }
    }
}

/// Call with its outcome, on its way to the client. Dropped if the client is gone.
struct Tell<P: Parts, J: Job>(At<P, J>);

impl<P: Parts, J: Job> ReliableMessage for Tell<P, J> {
    fn to(&self) -> Option<TrusteeId> {
        let (Client::Waits(client, _) | Client::Token(client, _)) = self.0.call().route.client;
        Some(client)
    }

    fn arrive(self, worker: &Worker) {
        self.0.tell(worker);
    }

    fn lost(self) {
        // A waiting client is not gone.
        if let Client::Token(..) = self.0.call().route.client {
            let call = self.0.into_box();
            call.route.parts.as_ref().iter().for_each(|part| count(part.trustee, part.property, -1));
            // User code, which may not wait here.
            worker::try_with(|worker| worker.delegated(|| quietly(|| drop(call))));
        }
    }
}
