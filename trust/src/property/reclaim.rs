//! Counting of trusts, and the time when a property may be reclaimed.
//!
//! A trust is counted where its property is: cloning sends +1 to the trustee, dropping sends -1, as requests without a
//! response, or as plain additions on the trustee's own thread. No thread waits, there is no atomic read-modify-write.
//! The messages of different clients arrive in any order, so a count of 0 alone proves nothing: a clone's +1 may be on
//! its way while the -1 of the trust it was cloned from has arrived, and so may an `apply_then` made through a trust
//! that was dropped elsewhere since. (The thesis' set of ids, 2.5.4, has the same gap: an original that is dropped on a
//! third thread empties the set while its clone's id is still on its way.)
//!
//! Reclamation. Each client keeps, in memory that the trustee can read, the number of requests it has published
//! (`Pair::published`), and the property of each request of its open batch, which it has not published (`Pair::marks`),
//! and likewise of the requests that found no slot (`Pair::queued`). When a count reaches 0 the trustee
//! 1. empties its inbox, and clears the property's `counted` mark; then looks at the queue and the marks of each of its
//!    clients. If it finds the property there, it sets the property aside, and begins anew when it has served that
//!    batch or the next. Else it notes the number of each client,
//! 2. waits, serving as ever, until it has served that many of each, and
//! 3. reclaims the property if its count is 0 and did not change since (1); if it changed and is 0 again it begins anew
//!    at (1); if it is not 0 the property lives.
//!
//! Write a => b for "a happens before b".
//!
//! Lemma. If a request for the property was made => (1), it has been served at (3). Where it was made it was put into
//! the open batch, queued (from where it goes into a later open batch), or given to the inbox or pushed on the stack of
//! calls, before the client did anything else.
//! - In the inbox or the stack (`registry/calls.rs`): (1) has seen it, for the lock of the inbox, and the word of the
//!   stack by coherence, order them; a call that was taken and has not run has a count of its own.
//! - In the queue: (1) has found it there, by coherence of the flag and by the lock, and not come to (3); or it was
//!   taken out, after it had been marked in the open batch, and the lock or the flag (Release, Acquire) makes that mark
//!   => (1):
//! - In the open batch: (1) has found its mark, by coherence, and not come to (3); or it has found the mark of a later
//!   batch in its place. That mark is stored with Release after the number of the earlier batch, and read with Acquire
//!   before the number is noted: so the number includes the request. Reading marks up to the first of a served batch
//!   misses none: marks before this one in the batch were stored before it.
//!
//! A number is a number of requests in the order in which they are served, so (2) has served it.
//!
//! Proof. Let D be the set of trusts whose -1 the trustee had processed at
//! (1), and S those whose +1 it had (the first trust counts as processed). No count changed up to (3).
//! - For each X in D: making X (its +1) => moving X to where it was dropped => its -1 => (1). So the +1 has been served
//!   (lemma). As no count changed, it had been at (1): D is a subset of S. The count is |S| - |D| = 0, hence D = S.
//! - Suppose some trust is alive or a request through one is unserved at (3). Trusts come from trusts: take
//!   an X not in S, cloned from a P in S = D (the first trust is in S, and every trust in S has been dropped).
//!   `clone` borrows P, so X's +1 => P's drop => P's -1 => (1), and X's +1 has been served: X is in S. Contradiction.
//!   So all trusts are in D. A request through P borrows P likewise, so it => (1), and has been served. QED.
//!
//! Counts and properties for which a client has no free slot, trusts dropped by threads that have no slots, and new
//! clients, reach the trustee by its inbox. There counts of one property are added up: they are read together, and by
//! the lemma it does not matter when. `reclaim/model.rs` checks the scheme.
//!
//! Longest delay of a drop. A client delays it by an unsent request for that very property, until it sends the request,
//! which its worker's loop does in its first turn after the batch before was answered. So the delay is at most the
//! longest stretch in which no fiber of that thread, nor the thread's own code, waits. A thread that computes or blocks
//! delays the properties that it has just used, and no others. (Counts and new properties of a thread's own code go at
//! once, if need be by the inbox.)
//!
//! Across machines the trustee cannot read the clients' numbers, so in (1) it has the service thread of each other
//! machine asked (`runtime/worker/census.rs`), which always answers, and goes on to (2) when each has reported the
//! numbers of all workers of its machine (`remote/numbers.rs`). It answers after (1) began, so everything that happened
//! before (1) is in the numbers, which count all requests, sent or not, and the proof stands. So a drop may be delayed
//! by a worker of another machine that has unsent requests to the trustee, until its next turn.
//!
//! A request of another machine may come before the message of the thread that entrusted the property (`Adopt`): on a
//! machine of a rack the slab knows of the property from the start (`announced`). Where a count reaches 0 before that
//! message has come, (2) waits for it, for it is a request that was made before (1).
//!
//! Losses. When a machine was lost all properties that there are become *old* (`mark_old`): the lost machine may have
//! cloned a trust, sent the clone to another machine and not sent its +1, so their counts may be 0 or less while a
//! trust lives. No trust of a later property was ever there, for nothing that the machine sent arrives any more. So all
//! clients that had trusts of it report their numbers, and the proof holds for it; the lost machine is not asked.
//!
//! An old property is never freed: (3) *closes* it, by the same steps, which begin at a count of 0 or less. Let L be
//! the trusts whose +1 was lost. The lemma holds for the requests of all clients but the lost one, so D is a subset of
//! S and L together, and |S| - |D| <= 0. If L is empty then D = S as above, and no trust is alive. If L is not empty
//! one may be, and its requests find the property closed. If a -1 was lost the count may stay over 0, and the value
//! with it. Steps that had begun before the loss begin anew, for they may wait for the lost machine.
//!
//! Closing, by (3) or by a request of the program ([`Trust::close`](crate::Trust::close)), drops the value before the
//! property. The header and its slot stay until the property is freed, and with them the marks:
//! - [closed-refuses] A closed property counts as poisoned for ever, so each request that would borrow its value is
//!   refused by the test of that mark that it makes first. Nothing runs between that test and the borrow but code of
//!   that very request, in delegated context; and values are dropped between closures only: by a request of its own
//!   [closures-take-turns], or where the context is free. (The C API's requests make no test: their values stay whole,
//!   for the destructor of an old one leaves them.)
//! - [drop-when-unused] While a closed property is in use its value stays. The header says so: a launched closure has
//!   the value, or there is a line: waiters, a waiter whose turn it is, or a loan. These alone touch the latch without
//!   that test: to put the value back, or to take it in their turn; then they test the mark, and put it back. A waiter
//!   tests the mark before it enters the line, so the line of a closed property ends. Where a latch was replaced while
//!   its value was out, two closures may have a value of it, and the header may no longer say so of the second: so each
//!   tests whether the latch is still there before it puts the value back, and else drops the value.
//!
//! Invariant [property-live]: a request that runs finds its property live: the header and, unless it is closed, the
//! value.

#![allow(unsafe_code)]

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom), not(miri)))]
mod steps;

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use super::slab::PropertySlab;
use super::{Header, PLACE_MAX};
use crate::config::SPREAD_FROM;
use crate::ids::TrusteeId;
use crate::slot::Pair;

/// A client on this machine, as a reclamation sees it.
pub(crate) trait Client {
    /// Operation that its requests name.
    type Operation: 'static;
    /// Slots and numbers that the client and the trustee share.
    fn pair(&self) -> &Pair<Self::Operation>;
    /// Numbers of its requests, and of its batches, that have been served.
    fn served(&self) -> u64;
    fn batches(&self) -> u64;
    /// Is the client gone, with everything of it served?
    fn has_left(&self) -> bool;
}

/// A client on another machine, as a reclamation sees it.
pub(crate) trait RemoteClient {
    /// Number of its requests that have been served.
    fn served(&self) -> u64;
}

/// Question of a trustee to the other machines, in its reclamation of this number.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) trustee: TrusteeId,
    pub(crate) reclamation: u64,
}

/// Answer to a question: for each machine, named by its service thread, workers with the numbers of their requests.
pub(crate) struct Answer {
    pub(crate) reclamation: u64,
    pub(crate) of_machines: Vec<(TrusteeId, Vec<(u16, u64)>)>,
}

/// The trustee of a property table: the worker, or the one in `reclaim/model.rs`.
pub(crate) trait Trustee<C, F> {
    /// Handles the messages in the inbox.
    fn read_messages(&self);
    fn clients(&self) -> Ref<'_, Vec<Rc<C>>>;
    /// The client that this worker of another machine is.
    fn remote_client(&self, machine: u16, worker: u16) -> Option<Rc<F>>;
    /// Service threads of other machines, and a question to all of them, for the reclamation of this number, which ends
    /// in [`PropertyTable::note_numbers`].
    fn services(&self) -> Vec<TrusteeId>;
    fn ask(&self, reclamation: u64);
    /// Drops a property that is in no list any more.
    fn destroy(&self, property: *mut Header);
    /// Drops the value of a closed property that is not in use.
    fn drop_value(&self, property: *mut Header);
}

/// Properties of one trustee, and those among them that may have to go.
pub(crate) struct PropertyTable<C, F> {
    /// All properties; a property knows its place in the list.
    owned: RefCell<Vec<*mut Header>>,
    /// Properties beyond the number of places.
    beyond: RefCell<HashSet<*mut Header>>,
    places: u32,
    /// Count reached 0; step (1) is to come.
    unreferenced: RefCell<Vec<*mut Header>>,
    /// Set aside in (1) until a batch of a client has been served.
    aside: RefCell<Vec<Aside<C>>>,
    /// The reclamation between (1) and (3).
    reclamation: RefCell<Option<Reclamation<C, F>>>,
    /// Closed while it was in use: the value is to be dropped.
    closing: RefCell<Vec<*mut Header>>,
    /// Times that step (1) was taken.
    rounds: Cell<u64>,
    /// The addresses of all properties, where requests of other machines name them.
    known: RefCell<Option<HashSet<*mut Header>>>,
}

/// A property for which a client has an unserved request in this batch.
struct Aside<C> {
    property: *mut Header,
    client: Rc<C>,
    batch: u64,
}

struct Reclamation<C, F> {
    properties: Vec<*mut Header>,
    /// Clients that have yet to be served up to a number of requests.
    awaited: Vec<(Rc<C>, u64)>,
    /// Clients on other machines likewise, and the service threads that have yet to report the numbers of their
    /// machines.
    awaited_remote: Vec<(Rc<F>, u64)>,
    asked: Vec<TrusteeId>,
}

impl<C, F> Default for PropertyTable<C, F> {
    fn default() -> Self {
        PropertyTable {
            owned: RefCell::default(),
            beyond: RefCell::default(),
            places: PLACE_MAX,
            unreferenced: RefCell::default(),
            aside: RefCell::default(),
            reclamation: RefCell::default(),
            closing: RefCell::default(),
            rounds: Cell::new(0),
            known: RefCell::default(),
        }
    }
}

impl<C: Client, F: RemoteClient> PropertyTable<C, F> {
    /// Takes a property into the list.
    pub(crate) fn adopt(&self, property: *mut Header) {
        let mut owned = self.owned.borrow_mut();
        let place = u32::try_from(owned.len()).map_or(self.places, |place| place.min(self.places));
        // SAFETY: live: its trust or this very request keeps it.
        unsafe { (*property).set_place(place) };
        if place < self.places {
            owned.push(property);
        } else {
            self.beyond.borrow_mut().insert(property);
        }
        if let Some(known) = &mut *self.known.borrow_mut() {
            known.insert(property);
        }
    }

    /// Starts to check the addresses by which other machines name properties.
    pub(crate) fn know_all(&self) {
        *self.known.borrow_mut() = Some(self.owned.borrow().iter().chain(&*self.beyond.borrow()).copied().collect());
    }

    /// Is this the address of a property that has arrived here?
    pub(crate) fn knows(&self, property: *mut Header) -> bool {
        self.known.borrow().as_ref().is_some_and(|known| known.contains(&property))
    }

    /// Counts trusts of a property of this trustee.
    ///
    /// # Safety
    /// The property is live [property-live], and this is its trustee's thread.
    pub(crate) unsafe fn count(&self, property: *mut Header, delta: i32) {
        // SAFETY: the caller's promise.
        let header = unsafe { &*property };
        let count = header.add_count(delta);
        if count <= 0 && (count == 0 || header.is_old()) && !header.is_unreferenced() {
            header.set_unreferenced(true);
            self.unreferenced.borrow_mut().push(property);
        }
    }

    #[inline(always)]
    pub(crate) fn has_unreferenced(&self) -> bool {
        !self.unreferenced.borrow().is_empty() || self.reclamation.borrow().is_some() || !self.aside.borrow().is_empty()
    }

    /// Is there a property to be reclaimed, or a value to be dropped?
    pub(crate) fn has_work(&self) -> bool {
        self.has_unreferenced() || !self.closing.borrow().is_empty()
    }

    /// A machine is lost that may have had trusts of these properties, and with it counts that it has not sent: a count
    /// of 0 proves nothing any more. Makes them all old, and those that `slab` has announced. Returns the number of
    /// those whose values are there, and which were not old before.
    pub(crate) fn mark_old(&self, slab: &PropertySlab) -> u64 {
        let begun = self.reclamation.borrow_mut().take();
        let aside = std::mem::take(&mut *self.aside.borrow_mut());
        let mut unreferenced = self.unreferenced.borrow_mut();
        unreferenced.extend(begun.into_iter().flat_map(|begun| begun.properties));
        unreferenced.extend(aside.into_iter().map(|aside| aside.property));
        let mut marked = 0;
        let mut mark = |property: *mut Header| {
            // SAFETY: live: nothing reclaims them meanwhile [property-live].
            let header = unsafe { &*property };
            if !header.is_old() {
                header.set_old();
                marked += u64::from(!header.is_dropped());
            }
            // Less than 0: for want of a +1 that does not come any more, or that is still to come.
            if header.count() <= 0 && !header.is_unreferenced() {
                header.set_unreferenced(true);
                unreferenced.push(property);
            }
        };
        self.owned.borrow().iter().chain(&*self.beyond.borrow()).copied().for_each(&mut mark);
        slab.announced(mark);
        marked
    }

    /// Notes a closed property whose value is in use.
    pub(crate) fn note_closing(&self, property: *mut Header) {
        self.closing.borrow_mut().push(property);
    }

    /// Takes a property off the list of those that were closed while they were in use.
    fn forget_closing(&self, property: *mut Header) {
        self.closing.borrow_mut().retain(|closing| *closing != property);
    }

    /// Drops the values of closed properties that are no longer in use. True if there was any.
    fn drop_closed(&self, trustee: &impl Trustee<C, F>) -> bool {
        if self.closing.borrow().is_empty() {
            return false;
        }
        // SAFETY: live: those that are freed are taken off the list.
        let is_free = |property: &mut *mut Header| unsafe { !(**property).is_in_use() };
        let free: Vec<*mut Header> = self.closing.borrow_mut().extract_if(.., is_free).collect();
        // SAFETY: as above.
        let is_there = |property: &&*mut Header| unsafe { !(***property).is_dropped() };
        free.iter().filter(is_there).for_each(|&property| trustee.drop_value(property));
        !free.is_empty()
    }

    /// Carries out steps (1) to (3) as far as possible now. True if a property was reclaimed.
    pub(crate) fn reclaim(&self, trustee: &impl Trustee<C, F>) -> bool {
        self.take_back();
        let mut any = self.drop_closed(trustee);
        loop {
            if self.reclamation.borrow().is_none() {
                let properties = std::mem::take(&mut *self.unreferenced.borrow_mut());
                if properties.is_empty() {
                    return any;
                }
                self.begin(trustee, properties);
                continue;
            }
            if !self.awaited_are_served() {
                return any;
            }
            let reclamation = self.reclamation.borrow_mut().take();
            any |= reclamation.is_some_and(|reclamation| self.end(trustee, reclamation.properties));
        }
    }

    /// Step (1).
    fn begin(&self, trustee: &impl Trustee<C, F>, mut properties: Vec<*mut Header>) {
        trustee.read_messages();
        for &property in &properties {
            // SAFETY: live: it is reclaimed in step (3) at the earliest.
            unsafe { (*property).set_counted(false) };
        }
        self.set_aside(&trustee.clients(), &mut properties);
        if properties.is_empty() {
            return;
        }
        let behind = |client: &Rc<C>| {
            let published = client.pair().published();
            (published > client.served()).then(|| (Rc::clone(client), published))
        };
        let awaited = trustee.clients().iter().filter_map(behind).collect();
        let asked = trustee.services();
        let is_alone = asked.is_empty();
        let number = self.rounds.get() + 1;
        self.rounds.set(number);
        *self.reclamation.borrow_mut() = Some(Reclamation { properties, awaited, awaited_remote: Vec::new(), asked });
        if !is_alone {
            trustee.ask(number);
        }
    }

    /// Sets those of the properties aside for which a client has a request that is queued, or in a batch that is not
    /// served.
    fn set_aside(&self, clients: &[Rc<C>], properties: &mut Vec<*mut Header>) {
        properties.sort_unstable();
        let mut unserved = Vec::new();
        for client in clients {
            let mut note = |address: usize, batch| {
                if let Ok(at) = properties.binary_search_by_key(&address, |property| property.addr()) {
                    unserved.push((at, client, batch));
                }
            };
            // In the order in which a request goes: to the queue, to the open batch, to the trustee.
            client.pair().queued(|address| note(address, client.batches()));
            client.pair().marks(client.batches()).for_each(|(batch, address)| note(address, batch));
        }
        unserved.sort_unstable_by_key(|(at, ..)| *at);
        unserved.dedup_by_key(|(at, ..)| *at);
        let mut aside = self.aside.borrow_mut();
        // From behind, so that the earlier places stay valid.
        for (at, client, batch) in unserved.into_iter().rev() {
            aside.push(Aside { property: properties.swap_remove(at), client: Rc::clone(client), batch });
        }
    }

    /// Takes back those whose batch has been served, to begin anew.
    fn take_back(&self) {
        let mut aside = self.aside.borrow_mut();
        let served = aside.extract_if(.., |aside| aside.client.batches() > aside.batch || aside.client.has_left());
        self.unreferenced.borrow_mut().extend(served.map(|aside| aside.property));
    }

    /// Takes the numbers of all workers of the machines that have answered a question of a reclamation.
    pub(crate) fn note_numbers(&self, trustee: &impl Trustee<C, F>, answer: &Answer) {
        let mut current = self.reclamation.borrow_mut();
        // A machine was lost since, or the trustee ends: another one has begun, or none.
        let Some(current) = current.as_mut().filter(|_| answer.reclamation == self.rounds.get()) else { return };
        for (service, numbers) in &answer.of_machines {
            current.asked.retain(|asked| asked != service);
            current.awaited_remote.extend(numbers.iter().filter_map(|&(worker, number)| {
                let client = trustee.remote_client(service.machine(), worker)?;
                Some((client, number))
            }));
        }
    }

    /// Step (2).
    fn awaited_are_served(&self) -> bool {
        let mut reclamation = self.reclamation.borrow_mut();
        let Some(reclamation) = reclamation.as_mut() else {
            return false;
        };
        reclamation.awaited.retain(|(client, published)| client.served() < *published && !client.has_left());
        reclamation.awaited_remote.retain(|(client, submitted)| client.served() < *submitted);
        reclamation.awaited.is_empty() && reclamation.asked.is_empty() && reclamation.awaited_remote.is_empty()
    }

    /// Step (3).
    fn end(&self, trustee: &impl Trustee<C, F>, properties: Vec<*mut Header>) -> bool {
        let mut any = false;
        for property in properties {
            // SAFETY: live: nothing else reclaims it.
            let header = unsafe { &*property };
            let may_go = header.count() == 0 || header.is_old() && header.count() < 0;
            if !may_go {
                header.set_unreferenced(false);
            } else if header.is_counted() {
                self.unreferenced.borrow_mut().push(property);
            } else if header.is_old() {
                // With its mark it comes into no list any more.
                any |= !header.is_closed() && self.close_old(trustee, property);
            } else {
                any = true;
                self.forget(property);
                self.forget_closing(property);
                trustee.destroy(property);
            }
        }
        any
    }

    /// Closes an old property. True if its value was dropped.
    fn close_old(&self, trustee: &impl Trustee<C, F>, property: *mut Header) -> bool {
        // SAFETY: live: old ones are not freed.
        let header = unsafe { &*property };
        header.close();
        if header.is_in_use() {
            self.note_closing(property);
            return false;
        }
        trustee.drop_value(property);
        true
    }

    fn forget(&self, property: *mut Header) {
        let mut owned = self.owned.borrow_mut();
        // SAFETY: live, and in the list: the thread that entrusted it did so before it dropped the trust.
        let place = unsafe { (*property).place() };
        if place < self.places {
            debug_assert_eq!(owned.get(place as usize), Some(&property), "a property knows its place");
            owned.swap_remove(place as usize);
            if let Some(&moved) = owned.get(place as usize) {
                // SAFETY: in the list, so live.
                unsafe { (*moved).set_place(place) };
            }
        } else {
            self.beyond.borrow_mut().remove(&property);
        }
        if let Some(known) = &mut *self.known.borrow_mut() {
            known.remove(&property);
        }
    }

    /// The trustee ends: drops every property, also those whose trusts are alive (their requests will fail).
    pub(crate) fn close(&self, destroy: impl Fn(*mut Header)) {
        self.unreferenced.borrow_mut().clear();
        self.aside.borrow_mut().clear();
        self.closing.borrow_mut().clear();
        *self.reclamation.borrow_mut() = None;
        while let Some(property) = { self.owned.borrow_mut().pop() } {
            destroy(property);
        }
        let beyond = std::mem::take(&mut *self.beyond.borrow_mut());
        beyond.into_iter().for_each(destroy);
    }

    /// Are there more properties than the caches near the core hold?
    pub(crate) fn is_large(&self) -> bool {
        self.owned.borrow().len() >= SPREAD_FROM
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owned.borrow().is_empty() && self.beyond.borrow().is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::local::trustee::Incoming;
    use crate::property::{Property, destroy};
    use crate::remote::PeerClient;

    #[test]
    fn more_properties_than_places() {
        let property_table: PropertyTable<Incoming, PeerClient> =
            PropertyTable { places: 3, ..PropertyTable::default() };
        let value = Rc::new(());
        let slab = Arc::default();
        let all: Vec<_> = (0..7).map(|_| Property::allocate(&slab, Rc::clone(&value))).collect();
        all.iter().for_each(|&property| property_table.adopt(property));
        property_table.know_all();
        assert_eq!((property_table.owned.borrow().len(), property_table.beyond.borrow().len()), (3, 4));
        assert!(all.iter().all(|&property| property_table.knows(property)));
        // From the list, where the last one takes its place, from beyond, and one that is adopted later.
        for gone in [0, 5] {
            property_table.forget(all[gone]);
            assert!(!property_table.knows(all[gone]));
            // SAFETY: in no list any more.
            unsafe { destroy(all[gone]) };
        }
        let later = Property::allocate(&slab, Rc::clone(&value));
        property_table.adopt(later);
        assert_eq!((property_table.owned.borrow().len(), property_table.beyond.borrow().len()), (3, 3));
        property_table.forget(later);
        // SAFETY: as above.
        unsafe { destroy(later) };
        property_table.forget(all[2]);
        // SAFETY: as above.
        unsafe { destroy(all[2]) };
        assert_eq!(Rc::strong_count(&value), 1 + 4);
        // SAFETY: each is taken out of its list.
        property_table.close(|property| unsafe { destroy(property) });
        assert!(property_table.is_empty());
        assert_eq!(Rc::strong_count(&value), 1, "each is dropped once");
    }
}
