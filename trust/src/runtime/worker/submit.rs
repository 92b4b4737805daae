//! Requests to other trustees: finds the pair or the link, makes room, waits for it or queues.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::fiber::Waits;
use crate::ids::TrusteeId;
use crate::local::client::{Outgoing, Room};
use crate::property::Header;
use crate::registry::{self, Message};
use crate::request::Pair;
use crate::request::{Fault, Host, Request, Response, Resuming};
use crate::runtime::worker::Worker;
use crate::runtime::worker::beside::AtOnce;
use crate::runtime::worker::end::leave_owed;
use crate::slot::Reader;
use crate::unwind::quietly;

/// Where a request goes that its pair has not taken.
enum Way {
    /// Behind those that the pair has queued.
    Later,
    /// To a seat of this thread.
    AtOnce(AtOnce),
    /// To another machine.
    Machine,
    /// The trustee is gone.
    Nowhere,
}

impl Worker {
    /// Sends a request, or runs it at once. If there is no room and `may_wait`, the caller waits, else the request is
    /// queued.
    #[inline(always)]
    pub(crate) fn submit<C: Request, R: Response + 'static>(
        &self,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
        may_wait: bool,
    ) {
        self.submit_as::<true, _, _>(trustee, property, request, response, may_wait, |seat, request, response| {
            // SAFETY: both are the caller's, moved out once; the seat is that of just now.
            unsafe { self.serve_beside(seat, property, request.read(), response.read()) }
        });
    }

    /// Same as [`submit`](Self::submit), for a caller that has found no seat at rest, or may not run it at once.
    #[inline(always)]
    pub(crate) fn submit_by_slots<C: Request, R: Response + 'static>(
        &self,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
        may_wait: bool,
    ) {
        self.submit_as::<false, _, _>(trustee, property, request, response, may_wait, |_, _, _| {
            unreachable!("no seat is looked for")
        });
    }

    #[inline(always)]
    fn submit_as<const AT_ONCE: bool, C: Request, R: Response + 'static>(
        &self,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
        may_wait: bool,
        at_once: impl FnOnce(AtOnce, *mut C, *mut R),
    ) {
        let mut request = ManuallyDrop::new(request);
        let mut response = ManuallyDrop::new(response);
        let way = loop {
            if let Some(outgoing) = self.pairs.find(trustee) {
                if const { C::HAS_NOTICE } && self.would_linger(outgoing) {
                    break Way::Later;
                }
                // SAFETY: on true both were moved out; they are not used again.
                if unsafe { outgoing.try_push(property, &raw mut *request, &raw mut *response) } {
                    if self.is_outside_loop() {
                        // No later code would send it until this thread waits for something.
                        outgoing.flush();
                    }
                    return;
                }
                if !may_wait && outgoing.has_queue() {
                    break Way::Later;
                }
            } else if const { AT_ONCE && C::RUNS_AT_ONCE }
                && trustee.machine() == self.id.machine()
                && let Some(seat) = self.seat_at_once(trustee)
            {
                break Way::AtOnce(seat);
            }
            if trustee.machine() != self.id.machine() {
                break Way::Machine;
            }
            match self.find_room::<C, R>(trustee, may_wait) {
                Room::Available => {}
                Room::Full => break Way::Later,
                Room::Gone => break Way::Nowhere,
            }
        };
        // In places of their own: those above can be registers if their addresses stay here. Once for all ways:
        // unoptimised code has room on its stack for each place that a large request is moved to.
        let mut own_request = request;
        let mut own_response = response;
        let (from, then) = (&raw mut *own_request, &raw mut *own_response);
        match way {
            // SAFETY: each is read once, and not used again.
            Way::Later => unsafe { self.submit_late(trustee, property, from.read(), then.read()) },
            Way::AtOnce(seat) => at_once(seat, from, then),
            // SAFETY: each is read once or dropped in its place, and not used again.
            Way::Machine => unsafe {
                // If it is sent both were moved out.
                if let Err(fault) = self.remote.submit(self, trustee, property, from, then, may_wait) {
                    self.fail(then.read(), fault);
                    // Last, for it may panic.
                    ptr::drop_in_place(from);
                }
            },
            // SAFETY: as above.
            Way::Nowhere => unsafe {
                self.fail(then.read(), Fault::Gone);
                // Last, for it may panic.
                ptr::drop_in_place(from);
            },
        }
    }

    /// Submits a request for which there is no slot, of a caller that does not wait: by the inbox, or queued.
    #[inline(never)]
    fn submit_late<C: Request, R: Response + 'static>(
        &self,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
    ) {
        let Some(outgoing) = self.pairs.find(trustee) else { unreachable!("full, so it exists") };
        match request.into_notice(property) {
            Ok(notice) => {
                if !outgoing.send(notice.into()) {
                    self.fail(response, Fault::Gone);
                }
            }
            Err(request) => outgoing.enqueue(property, request, response),
        }
    }

    /// May a request of the thread's own code wait here in the open batch for as long as that code likes? Not a request
    /// that a drop waits for, unless the thread's own loop hears of the answer first and sends it then.
    fn would_linger(&self, outgoing: &Outgoing) -> bool {
        self.is_outside_loop() && !outgoing.is_at_rest() && !self.outside.is_polled()
    }

    /// Fails a request that cannot be sent.
    #[cold]
    pub(crate) fn fail<R: Response + 'static>(&self, response: R, fault: Fault) {
        // Deferred, or a callback that tries again would call itself for ever.
        self.defer(Box::new(move || {
            let mut resuming = Resuming { responses: Reader::empty(), next: ptr::null_mut() };
            // SAFETY: with a fault no response is read.
            let resume = || unsafe { response.resume(&mut resuming, Some(fault)) };
            super::with(|worker| worker.call_back(|| quietly(resume)));
        }));
        self.settle();
    }

    /// Connects, moves on to the next slot, or waits.
    #[inline(never)]
    fn find_room<C, R>(&self, trustee: TrusteeId, may_wait: bool) -> Room {
        let mut waited = false;
        loop {
            let Some(outgoing) = self.pairs.find(trustee) else {
                if self.make_pair(trustee) {
                    continue;
                }
                return Room::Gone;
            };
            self.pairs.list(trustee);
            match outgoing.make_room::<C, R>() {
                // Once: a caller that has waited and finds it full again is queued, so that no request starves.
                Room::Full if may_wait && !waited => {
                    waited = true;
                    self.wait_for_room(trustee);
                }
                room => return room,
            }
        }
    }

    /// Puts the pair with this trustee into the table. False if the trustee is gone.
    #[cold]
    #[inline(never)]
    fn make_pair(&self, trustee: TrusteeId) -> bool {
        self.stir(trustee);
        self.pairs.find(trustee).is_some() || self.connect(trustee)
    }

    #[cold]
    fn wait_for_room(&self, trustee: TrusteeId) {
        let waits = || self.pairs.find(trustee).filter(|outgoing| outgoing.is_full());
        match self.fiber() {
            Some(fiber) => {
                if let Some(outgoing) = waits() {
                    outgoing.waiters.push(fiber);
                    self.scheduler.suspend();
                }
            }
            None => self.wait_until(|| waits().is_none()),
        }
    }

    /// Makes the pair for this trustee. False if the trustee is gone.
    #[cold]
    fn connect(&self, trustee: TrusteeId) -> bool {
        let Some(peer) = registry::find(trustee) else {
            return false;
        };
        let pair = Pair::new();
        if peer.send(Message::Client(Arc::clone(&self.shared), Arc::clone(&pair))).is_err() {
            return false;
        }
        if let Some(old) = self.pairs.insert(Outgoing::new(Arc::clone(&self.shared), peer, pair)) {
            // Callbacks meant for it touch properties, and a closure may be running on one of them.
            self.defer(Box::new(move || super::with(|worker| worker.retire(&old))));
            self.settle();
        }
        true
    }

    /// Closes the trustee that had this index before: requests meant for it fail.
    fn retire(&self, old: &Rc<Outgoing>) {
        self.call_back(|| old.abandon_if_closed());
        if !old.is_outstanding() {
            self.pairs.unlist(old, 0);
        }
        self.scheduler.resume_all(&old.waiters);
    }

    /// For the end, when the time for it is over: fails the requests that could not be sent.
    pub(crate) fn give_up(&self) {
        for outgoing in self.pairs.all_active() {
            self.call_back(|| outgoing.give_up());
        }
        self.settle();
    }

    /// Leaves all trustees.
    pub(crate) fn leave(&self) {
        for outgoing in self.pairs.take_all() {
            let is_awaited = outgoing.must_be_seen_through();
            if is_awaited {
                let (pair, trustee) = outgoing.shared_pair();
                leave_owed(pair, trustee, || outgoing.leave());
                // Answers that have no end, which may hold pointers to fibers: keep all of it.
                std::mem::forget(outgoing);
            } else {
                outgoing.leave();
            }
        }
    }
}
