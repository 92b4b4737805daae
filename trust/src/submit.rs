//! Requests to other trustees: finds the pair or the link, makes room, waits for it or queues.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::client::{Outgoing, Room};
use crate::property::Header;
use crate::registry::{self, Message, TrusteeId};
use crate::request::{Fault, Request, Response, Resuming};
use crate::slot::{Pair, Reader};
use crate::unwind::quietly;
use crate::worker::Worker;

impl Worker {
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> Option<&Outgoing> {
        // SAFETY: only this thread, and only for this look-up; entries are boxed, see the field.
        unsafe { &*self.outgoing.get() }.get(index)?.as_deref()
    }

    /// The pair of this trustee.
    ///
    /// A client of one trustee finds it by a comparison, which the processor predicts: so it makes the next requests while a trust
    /// is still on its way from memory, where an address made from the trust's id would have to wait. With several trustees
    /// the comparison would often be predicted wrong.
    #[inline(always)]
    fn pair(&self, trustee: TrusteeId) -> Option<&Outgoing> {
        let (only, outgoing) = self.only.get();
        if only == trustee {
            // SAFETY: null, or the entry of the table, as in `at`; whoever changes the table changes this.
            return unsafe { outgoing.as_ref() };
        }
        self.at(trustee.index()).filter(|outgoing| outgoing.trustee == trustee)
    }

    /// The table has changed.
    fn note_only(&self) {
        // SAFETY: as in `at`.
        let mut pairs = unsafe { &*self.outgoing.get() }.iter().flatten();
        self.only.set(match (pairs.next(), pairs.next()) {
            (Some(outgoing), None) => (outgoing.trustee, Rc::as_ptr(outgoing)),
            _ => (TrusteeId::NOBODY, ptr::null()),
        });
    }

    fn shared_at(&self, index: usize) -> Option<Rc<Outgoing>> {
        // SAFETY: as in `at`.
        unsafe { &*self.outgoing.get() }.get(index)?.clone()
    }

    /// Sends a request. If there is no room and `may_wait`, the caller waits, else the request is queued.
    #[inline(always)]
    pub(crate) fn submit<C: Request, R: Response + 'static>(
        &self,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
        may_wait: bool,
    ) {
        let mut request = ManuallyDrop::new(request);
        let mut response = ManuallyDrop::new(response);
        loop {
            if let Some(outgoing) = self.pair(trustee) {
                if const { C::HAS_MESSAGE } && self.would_linger(outgoing) {
                    let (request, response) = (ManuallyDrop::into_inner(request), ManuallyDrop::into_inner(response));
                    return self.submit_late(trustee, property, request, response);
                }
                // SAFETY: on true both were moved out; they are not used again.
                if unsafe { outgoing.try_push(property, &raw mut *request, &raw mut *response) } {
                    if self.is_outside_loop() {
                        // Nobody else would send it until this thread waits for something.
                        outgoing.flush();
                    }
                    return;
                }
            }
            if trustee.machine() != self.id.machine() {
                // In places of their own: those above can be registers if their addresses stay here.
                let (mut request, mut response) = (
                    ManuallyDrop::new(ManuallyDrop::into_inner(request)),
                    ManuallyDrop::new(ManuallyDrop::into_inner(response)),
                );
                let (from, then) = (&raw mut *request, &raw mut *response);
                // SAFETY: if it is sent both were moved out; they are not used again.
                if let Err(fault) = unsafe { self.far.submit(self, trustee, property, from, then, may_wait) } {
                    self.fail(ManuallyDrop::into_inner(response), fault);
                    // Last, for it may panic.
                    drop(ManuallyDrop::into_inner(request));
                }
                return;
            }
            match self.find_room::<C, R>(trustee, may_wait) {
                Room::Made => {}
                Room::Full => {
                    let (request, response) = (ManuallyDrop::into_inner(request), ManuallyDrop::into_inner(response));
                    return self.submit_late(trustee, property, request, response);
                }
                Room::Gone => {
                    self.fail(ManuallyDrop::into_inner(response), Fault::Gone);
                    // Last, for it may panic.
                    return drop(ManuallyDrop::into_inner(request));
                }
            }
        }
    }

    /// A request for which there is no slot, by a caller who does not wait: it goes by the inbox, or is queued.
    #[inline(never)]
    fn submit_late<C: Request, R: Response + 'static>(
        &self,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
    ) {
        let Some(outgoing) = self.at(trustee.index()) else { unreachable!("full, so it exists") };
        match request.into_message(property) {
            Ok(message) => {
                if !outgoing.send(message) {
                    self.fail(response, Fault::Gone);
                }
            }
            Err(request) => outgoing.enqueue(property, request, response),
        }
    }

    /// May a request of the thread's own code wait here in the open batch for as long as that code likes? Not one that a drop
    /// waits for, unless the thread's own loop is told of the answer before, and sends it then.
    fn would_linger(&self, outgoing: &Outgoing) -> bool {
        self.is_outside_loop() && !outgoing.is_at_rest() && !self.outside.is_polled()
    }

    /// A request that cannot be sent.
    #[cold]
    pub(crate) fn fail<R: Response + 'static>(&self, response: R, fault: Fault) {
        // Deferred, or a callback that tries again would call itself for ever.
        self.defer(Box::new(move |worker| {
            let mut resuming = Resuming { responses: Reader::empty(), next: ptr::null_mut() };
            // SAFETY: with a fault no response is read.
            worker.call_back(|| quietly(|| unsafe { response.resume(&mut resuming, Some(fault)) }));
        }));
        self.settle();
    }

    /// Connects, moves on to the next slot, or waits.
    #[inline(never)]
    fn find_room<C, R>(&self, trustee: TrusteeId, may_wait: bool) -> Room {
        let mut waited = false;
        loop {
            let Some(outgoing) = self.at(trustee.index()).filter(|outgoing| outgoing.trustee == trustee) else {
                if self.connect(trustee) {
                    continue;
                }
                return Room::Gone;
            };
            if !outgoing.listed.replace(true) {
                self.active.borrow_mut().extend(self.shared_at(trustee.index()));
            }
            match outgoing.make_room::<C, R>() {
                // Once: who has waited and finds it full again stands in the queue, so that nobody starves.
                Room::Full if may_wait && !waited => {
                    waited = true;
                    self.wait_for_room(trustee);
                }
                room => return room,
            }
        }
    }

    #[cold]
    fn wait_for_room(&self, trustee: TrusteeId) {
        let waits = || self.at(trustee.index()).filter(|outgoing| outgoing.trustee == trustee && outgoing.is_full());
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
        let index = trustee.index();
        // SAFETY: only this thread; no reference into the table is held across this call.
        let old = unsafe {
            let table = &mut *self.outgoing.get();
            if table.len() <= index {
                table.resize_with(index + 1, || None);
            }
            table[index].replace(Rc::new(Outgoing::new(peer, pair)))
        };
        self.note_only();
        if let Some(old) = old {
            self.retire(&old);
        }
        true
    }

    /// The trustee that had this index before is closed: whatever was meant for it fails.
    fn retire(&self, old: &Rc<Outgoing>) {
        self.call_back(|| old.settle_accounts());
        if !old.is_outstanding() && old.listed.replace(false) {
            self.active.borrow_mut().retain(|active| !Rc::ptr_eq(active, old));
        }
        self.resume_all(&old.waiters);
    }

    /// For the end, when the time for it is over: what could not be sent fails.
    pub(crate) fn give_up(&self) {
        let active = self.active.borrow().clone();
        for outgoing in active {
            self.call_back(|| outgoing.give_up());
        }
        self.settle();
    }

    /// Leaves all trustees.
    pub(crate) fn leave(&self) {
        // SAFETY: as in `connect`.
        let pairs = unsafe { std::mem::take(&mut *self.outgoing.get()) };
        self.note_only();
        for outgoing in pairs.into_iter().flatten() {
            let is_awaited = outgoing.must_be_seen_through();
            outgoing.leave();
            if is_awaited {
                // Answers that have no end, which may hold pointers to fibers: keep all of it.
                std::mem::forget(outgoing);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use crate::registry::TrusteeId;
    use crate::{Error, Threadpool, Trust, worker};

    fn only() -> TrusteeId {
        worker::with(|worker| worker.only.get().0)
    }

    fn entrusted() -> (Threadpool, Trust<u32>) {
        let pool = Threadpool::new(1);
        let trust = pool.trustees()[0].entrust(7);
        (pool, trust)
    }

    /// In a thread of its own, which has asked nobody.
    fn in_new_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn the_only_pair_is_known_until_there_is_another() {
        in_new_thread(|| {
            assert_eq!(only(), TrusteeId::NOBODY);
            let (_one, first) = entrusted();
            assert_eq!((first.apply(|n| *n), only()), (7, first.trustee().id()));
            let (_two, second) = entrusted();
            assert_eq!((second.apply(|n| *n), only()), (7, TrusteeId::NOBODY));
            assert_eq!(first.apply(|n| *n), 7);
        });
    }

    #[test]
    fn a_trustee_that_takes_the_place_of_the_only_one_is_asked_itself() {
        in_new_thread(|| {
            let (pool, mut last) = entrusted();
            assert_eq!(last.apply(|n| *n), 7);
            drop(pool);
            let answers = Rc::new(Cell::new(0));
            let mut replaced = 0;
            // Other tests may take the place in between.
            let rounds = (1..=2000).take_while(|_| {
                let (pool, next) = entrusted();
                assert!(matches!(last.try_apply(|n| *n), Err(Error::Gone { .. })));
                assert_eq!(next.apply(|n| *n), 7);
                // The first is sent, the second waits in an open batch, which has room.
                for _ in 0..2 {
                    let answers = Rc::clone(&answers);
                    next.apply_then(|n| *n, move |n| answers.set(answers.get() + n));
                }
                assert!(matches!(last.try_apply(|n| *n), Err(Error::Gone { .. })));
                assert_eq!(next.apply(|n| *n), 7);
                replaced += usize::from(last.trustee().id().index() == next.trustee().id().index());
                drop(pool);
                last = next;
                replaced < 20
            });
            let rounds = rounds.count() as u32 + 1;
            assert_eq!((replaced, answers.get()), (20, rounds * 2 * 7));
        });
    }
}
