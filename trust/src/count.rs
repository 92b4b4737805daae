//! Who still holds a trust (T2), and when a property may be buried.
//!
//! A trust is counted where its property is: cloning sends +1 to the trustee, dropping sends -1, as requests
//! without a response, or as plain additions on the trustee's own thread. Nobody waits, there is no atomic
//! read-modify-write. The messages of different clients arrive in any order, so a count of 0 alone proves
//! nothing: a clone's +1 may be on its way while the -1 of the trust it was cloned from has arrived, and so
//! may an `apply_then` made through a trust that was dropped elsewhere since. (The thesis' set of ids,
//! 2.5.4, has the same gap: an original that is dropped on a third thread empties the set while its clone's
//! id is still on its way.)
//!
//! Burial. Each client keeps, in memory that the trustee can read, the number of requests it has made to this
//! trustee, those it has not sent yet included (`Pair::submitted`). When a count reaches 0 the trustee
//! (1) clears the property's `counted` mark and notes the submitted number of each of its clients,
//! (2) waits, serving as ever, until it has served that many of each, and
//! (3) buries the property if its count is 0 and did not change since (1); if it changed and is 0 again it
//! begins anew at (1); if it is not 0 the property lives.
//!
//! Proof. Write a => b for "happens before". Let D be the set of trusts whose -1 the trustee had processed at
//! (1), and S those whose +1 it had (the first trust counts as processed). No count changed up to (3).
//! - For each X in D: making X (its +1, a store to `submitted`) => moving X to where it was dropped => its -1
//!   => (1). So (1) sees that store, by coherence, though it is a Relaxed load, and (2) serves the +1. As no
//!   count changed, it had been served: D is a subset of S. The count is |S| - |D| = 0, hence D = S.
//! - Suppose some trust is alive or a request through one is unserved at (3). Trusts come from trusts: take
//!   an X not in S, cloned from a P in S = D (the first trust is in S, and every trust in S has been dropped).
//!   `clone` borrows P, so X's +1 => P's drop => P's -1 => (1), so (2) served X's +1: X is in S. Contradiction.
//!   So all trusts are in D. A request through P borrows P likewise, so it => (1), and (2) served it. QED.
//!
//! Trusts dropped by threads that have no slots any more, and new clients, reach the trustee by its inbox; it
//! empties the inbox before (1), and the lock of the inbox orders them. `count/model.rs` checks the scheme.
//! A +1 or -1 that is merged into one that waits to be sent goes under that one's number, which is noted and
//! unserved whenever its own would be.
//!
//! Across machines the trustee cannot read the clients' numbers, so in (1) it asks each client for its number,
//! by a request, and goes on to (2) when all have told it. A client answers after (1) began, so whatever
//! happened before (1) is in the number, and the proof stands.
//!
//! A request of another machine may come before the word of the thread that entrusted the property (`Adopt`): on a machine of a
//! rack the homes know of it from the start (`announced`). Where a count reaches 0 before that word has come, (2) waits for it,
//! for it is among the requests noted in (1).
//!
//! Invariant C1: a request that runs finds its property live.

#![allow(unsafe_code)]

#[cfg(all(test, loom))]
mod model;

use std::cell::{Ref, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use crate::config::SPREAD_FROM;
use crate::far::FarClient;
use crate::property::{self, Header};
use crate::registry::{self, TrusteeId};
use crate::request::{Fault, Request, Response, Resuming, Serving, Target};
use crate::trustee::Incoming;
use crate::unwind::quietly;
use crate::worker::{self, Worker};

/// What a burial needs to know of a client on this machine.
pub(crate) trait Client {
    /// Requests it has made to this trustee so far, those that it has not sent yet included.
    fn submitted(&self) -> u64;
    /// How many of them have been served.
    fn served(&self) -> u64;
    /// It is gone, and nothing of it is left to serve.
    fn has_left(&self) -> bool;
}

/// What an estate asks of the trustee it belongs to: the worker, or the one in `count/model.rs`.
pub(crate) trait Trustee<C> {
    /// Handles what has come by the inbox.
    fn read_mail(&self);
    fn clients(&self) -> Ref<'_, Vec<Rc<C>>>;
    /// Clients on other machines, and a question to one of them, which ends in [`Estate::told`].
    fn far_clients(&self) -> Vec<Rc<FarClient>>;
    fn ask(&self, client: Rc<FarClient>);
    /// Drops a property that is in no list any more.
    fn destroy(&self, property: *mut Header);
}

/// Properties of one trustee, and those among them that may have to go.
pub(crate) struct Estate<C = Incoming> {
    /// All properties; a property knows its place in the list.
    owned: RefCell<Vec<*mut Header>>,
    /// Count reached 0; step (1) is to come.
    dying: RefCell<Vec<*mut Header>>,
    /// Between (1) and (3).
    burial: RefCell<Option<Burial<C>>>,
    /// The addresses of all properties, where requests of other machines name them.
    known: RefCell<Option<HashSet<*mut Header>>>,
}

struct Burial<C> {
    properties: Vec<*mut Header>,
    /// Clients that have yet to be served up to a number of requests.
    awaited: Vec<(Rc<C>, u64)>,
    /// Clients on other machines likewise, and how many of them have yet to tell their number.
    awaited_far: Vec<(Rc<FarClient>, u64)>,
    asked: usize,
}

impl<C> Default for Estate<C> {
    fn default() -> Self {
        Estate {
            owned: RefCell::default(),
            dying: RefCell::default(),
            burial: RefCell::default(),
            known: RefCell::default(),
        }
    }
}

impl<C: Client> Estate<C> {
    /// Takes a property into the list.
    pub(crate) fn adopt(&self, property: *mut Header) {
        let mut owned = self.owned.borrow_mut();
        // SAFETY: live: its trust or this very request keeps it.
        unsafe { (*property).set_place(owned.len().try_into().unwrap_or(u32::MAX)) };
        owned.push(property);
        if let Some(known) = &mut *self.known.borrow_mut() {
            known.insert(property);
        }
    }

    /// Other machines will name properties by their addresses: from now on each is checked.
    pub(crate) fn know_all(&self) {
        *self.known.borrow_mut() = Some(self.owned.borrow().iter().copied().collect());
    }

    /// Is this the address of a property that has arrived here?
    pub(crate) fn knows(&self, property: *mut Header) -> bool {
        self.known.borrow().as_ref().is_some_and(|known| known.contains(&property))
    }

    /// Counts trusts of a property of this trustee.
    ///
    /// # Safety
    /// The property is live (C1), and this is its trustee's thread.
    pub(crate) unsafe fn count(&self, property: *mut Header, delta: i32) {
        // SAFETY: the caller's promise.
        let header = unsafe { &*property };
        if header.add_count(delta) == 0 && !header.is_dying() {
            header.set_dying(true);
            self.dying.borrow_mut().push(property);
        }
    }

    #[inline(always)]
    pub(crate) fn has_dying(&self) -> bool {
        !self.dying.borrow().is_empty() || self.burial.borrow().is_some()
    }

    /// Does what can be done now of steps (1) to (3). True if a property was buried.
    pub(crate) fn bury(&self, trustee: &impl Trustee<C>) -> bool {
        let mut any = false;
        loop {
            if self.burial.borrow().is_none() {
                let properties = std::mem::take(&mut *self.dying.borrow_mut());
                if properties.is_empty() {
                    return any;
                }
                self.begin(trustee, properties);
            }
            if !self.awaited_are_served() {
                return any;
            }
            let burial = self.burial.borrow_mut().take();
            any |= burial.is_some_and(|burial| self.end(trustee, burial.properties));
        }
    }

    /// Step (1).
    fn begin(&self, trustee: &impl Trustee<C>, properties: Vec<*mut Header>) {
        trustee.read_mail();
        for &property in &properties {
            // SAFETY: live: it is buried in step (3) at the earliest.
            unsafe { (*property).set_counted(false) };
        }
        let behind = |client: &Rc<C>| {
            let submitted = client.submitted();
            (submitted > client.served()).then(|| (Rc::clone(client), submitted))
        };
        let awaited = trustee.clients().iter().filter_map(behind).collect();
        let far = trustee.far_clients();
        let asked = far.len();
        *self.burial.borrow_mut() = Some(Burial { properties, awaited, awaited_far: Vec::new(), asked });
        for client in far {
            trustee.ask(client);
        }
    }

    /// A client on another machine has told its number.
    fn told(&self, client: Rc<FarClient>, submitted: Option<u64>) {
        if let Some(burial) = &mut *self.burial.borrow_mut() {
            burial.asked -= 1;
            burial.awaited_far.extend(submitted.map(|submitted| (client, submitted)));
        }
    }

    /// Step (2).
    fn awaited_are_served(&self) -> bool {
        let mut burial = self.burial.borrow_mut();
        let Some(burial) = burial.as_mut() else {
            return false;
        };
        burial.awaited.retain(|(client, submitted)| client.served() < *submitted && !client.has_left());
        burial.awaited_far.retain(|(client, submitted)| client.served() < *submitted);
        burial.awaited.is_empty() && burial.asked == 0 && burial.awaited_far.is_empty()
    }

    /// Step (3).
    fn end(&self, trustee: &impl Trustee<C>, properties: Vec<*mut Header>) -> bool {
        let mut any = false;
        for property in properties {
            // SAFETY: live: nothing else buries it.
            let header = unsafe { &*property };
            if header.count() != 0 {
                header.set_dying(false);
            } else if header.is_counted() {
                self.dying.borrow_mut().push(property);
            } else {
                any = true;
                self.forget(property);
                trustee.destroy(property);
            }
        }
        any
    }

    fn forget(&self, property: *mut Header) {
        let mut owned = self.owned.borrow_mut();
        // SAFETY: live, and in the list: whoever entrusted it did so before it dropped the trust.
        let place = unsafe { (*property).place() };
        debug_assert_eq!(owned.get(place as usize), Some(&property), "a property knows its place");
        owned.swap_remove(place as usize);
        if let Some(&moved) = owned.get(place as usize) {
            // SAFETY: in the list, so live.
            unsafe { (*moved).set_place(place) };
        }
        if let Some(known) = &mut *self.known.borrow_mut() {
            known.remove(&property);
        }
    }

    /// The trustee ends: drops every property, also those whose trusts are alive (their requests will fail).
    pub(crate) fn close(&self) {
        self.dying.borrow_mut().clear();
        *self.burial.borrow_mut() = None;
        while let Some(property) = { self.owned.borrow_mut().pop() } {
            destroy(property);
        }
    }

    /// Are there more properties than the caches near the core hold?
    pub(crate) fn is_large(&self) -> bool {
        self.owned.borrow().len() >= SPREAD_FROM
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owned.borrow().is_empty()
    }
}

impl Client for Incoming {
    fn submitted(&self) -> u64 {
        self.submitted()
    }
    fn served(&self) -> u64 {
        self.served()
    }
    fn has_left(&self) -> bool {
        self.has_left()
    }
}

impl Trustee<Incoming> for Worker {
    fn read_mail(&self) {
        self.read_mail();
    }
    fn clients(&self) -> Ref<'_, Vec<Rc<Incoming>>> {
        self.incoming()
    }
    fn far_clients(&self) -> Vec<Rc<FarClient>> {
        if self.far.is_attached() { self.far.clients() } else { Vec::new() }
    }
    fn ask(&self, client: Rc<FarClient>) {
        let told = Told { client: Rc::clone(&client) };
        self.submit(client.client(), std::ptr::null_mut(), Census { trustee: self.id }, told, false);
    }
    fn destroy(&self, property: *mut Header) {
        self.forget_poison(property);
        destroy(property);
    }
}

/// Drops a property in delegated context; a panic of its `Drop` ends here (the panic hook has told of it).
fn destroy(property: *mut Header) {
    worker::with(|worker| {
        let before = worker.enter_delegated();
        // SAFETY: the proof above, or the trustee's end.
        quietly(|| unsafe { property::destroy(property) });
        worker.leave_delegated(before);
    });
}

/// +1 or -1 on its way to the trustee.
pub(crate) struct Count(pub(crate) i32);

impl Request for Count {
    const TARGET: Target = Target::AnyProperty;
    const IS_FLAT: bool = true;
    const MERGES: bool = true;

    fn merge(&mut self, later: Self) {
        self.0 += later.0;
    }

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: C1.
        worker::with(|worker| unsafe { worker.count(property, self.0) });
        serving.out.put(());
    }
}

/// A property that another thread has entrusted to this trustee.
pub(crate) struct Adopt;

impl Request for Adopt {
    const TARGET: Target = Target::AnyProperty;

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            worker.adopt(property);
            if registry::is_in_rack() {
                worker.shared.homes.arrived(property);
            }
        });
        serving.out.put(());
    }
}

/// Asks a client on another machine how many requests it has made to this trustee.
struct Census {
    trustee: TrusteeId,
}

impl Request for Census {
    const TARGET: Target = Target::Nothing;

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        let submitted = worker::with(|worker| {
            // What threads without links have handed over counts too.
            worker.read_mail();
            worker.far.submitted(self.trustee)
        });
        serving.out.put(submitted);
    }
}

/// Its answer.
struct Told {
    client: Rc<FarClient>,
}

impl Response for Told {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let submitted = match fault {
            // SAFETY: `Census` puts a `u64`.
            None => Some(unsafe { resuming.responses.take::<u64>() }),
            // Its machine is gone, and with it the whole program, in a moment.
            Some(_) => None,
        };
        worker::with(|worker| worker.estate().told(self.client, submitted));
    }
}
