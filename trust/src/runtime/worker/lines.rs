//! Waiters for the values of latched properties, in order, and the values that are lent: out of their latches, for
//! calls of `together` that need them (`tasks/together.rs`). Here: the values, and the workers that go on. The order:
//! `lines/line.rs`.
//!
//! Invariants:
//! - [lent-to-one] A lent value is lent to one trustee, where closures run one at a time: any number of calls have a
//!   *share* of it, and it goes back to its latch with the last share. Only the thread that has that
//!   trustee's worker touches it meanwhile [seat-settled].
//! - [waiter-before-share] While a waiter stands in line no later call gets a share: shares only grow fewer, so the
//!   next waiter gets its turn. With it come all that wait for the same value and go to the same trustee, so a value is
//!   lent once for many; a waiter that stands before them and goes elsewhere is next.
//! - [entry-has-flag] A property with an entry here has a flag in its header: without the flag nothing is looked up.

#![allow(unsafe_code)]

pub(crate) mod line;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use self::line::{Returned, Turn};
use super::Worker;
use crate::fiber::FiberRef;
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::registry::report::Gathered;
use crate::request::{Host, Ignore, Request, Serving, Target};
use crate::runtime::watch;
use crate::unwind::quietly;

/// Operations on the values of latches of one type.
pub(crate) struct LatchKind {
    /// Name of the property's type, for messages.
    pub(crate) name: fn() -> &'static str,
    /// Address of the value, if it is there.
    pub(crate) get: unsafe fn(*mut Header) -> Option<NonNull<()>>,
    pub(crate) take: unsafe fn(*mut Header) -> Option<NonNull<()>>,
    pub(crate) put_back: unsafe fn(*mut Header, NonNull<()>),
    pub(crate) drop: unsafe fn(NonNull<()>),
}

/// A waiter for a latched value.
pub(crate) type Waiter = line::Waiter<Standing, Sharer>;
type Line = line::Line<Standing, Sharer, Lent>;
type Loan = line::Loan<Lent>;
type Orphan = line::Orphan<Lent>;

/// A fiber that waits for a value.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) fiber: FiberRef,
    /// Does the value lie in its latch?
    pub(crate) has_value: unsafe fn(*mut Header) -> bool,
}

impl PartialEq for Standing {
    fn eq(&self, other: &Standing) -> bool {
        self.fiber == other.fiber
    }
}

/// A call that waits for a share of a value of this kind.
pub(crate) struct Sharer {
    pub(crate) kind: &'static LatchKind,
    pub(crate) who: Caller,
}

/// A value out of its latch.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    value: NonNull<()>,
    kind: &'static LatchKind,
}

// SAFETY: values that are lent are `Send` (`tasks/together.rs`), and only the holder of the last share touches this
// one.
unsafe impl Send for Lent {}

/// A call that waits for a share, by its address. The owner of this value has exclusive access to the call.
pub(crate) struct Caller {
    pub(crate) at: NonNull<()>,
    pub(crate) vtable: &'static CallerVtable,
}

/// Functions that continue a waiting call.
pub(crate) struct CallerVtable {
    /// The call has a share of this value. Called anywhere, between closures.
    pub(crate) granted: unsafe fn(NonNull<()>, NonNull<()>),
    /// The call is to go on, now that the context allows it.
    pub(crate) go_on: unsafe fn(NonNull<()>, &Worker),
    /// The call will never go on.
    pub(crate) lost: unsafe fn(NonNull<()>),
    /// The client for which it stands in line, and the values it has.
    pub(crate) gathered: unsafe fn(NonNull<()>) -> Gathered,
}

impl Drop for Caller {
    fn drop(&mut self) {
        // SAFETY: the owner of the call gives it up.
        unsafe { (self.vtable.lost)(self.at) }
    }
}

/// State of a value of which a share was given back.
#[must_use]
pub(crate) enum Released {
    Done,
    /// It was the last share of a value on which a closure has panicked: the value is kept until the caller has asked
    /// that trustee to forget the panic.
    Spoiled(TrusteeId),
    /// This trustee has nothing more to do with it.
    Unknown,
}

/// The lines of one trustee.
#[derive(Default)]
pub(crate) struct Lines {
    lines: RefCell<HashMap<*mut Header, Line, BuildHasherDefault<AddressHasher>>>,
    /// Calls whose turn has come, as many as there are deferred calls for them.
    granted: RefCell<VecDeque<Caller>>,
    /// Values lent to this trustee on which a closure has panicked.
    spoiled: RefCell<HashMap<(TrusteeId, *mut Header), String>>,
    has_spoiled: Cell<bool>,
    /// Requests that this trustee had run when it last looked for values that were replaced without notice.
    looked_after: Cell<u64>,
}

impl Lines {
    /// Are there waiters, is a waiter's turn pending, or is the value lent?
    ///
    /// # Safety
    /// The property is live, and this trustee's.
    #[inline(always)]
    pub(crate) unsafe fn has(&self, property: *mut Header) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (*property).has_line() }
    }

    /// # Safety
    /// Same as [`has`](Self::has).
    pub(crate) unsafe fn push(&self, property: *mut Header, waiter: Waiter) {
        // SAFETY: the caller's promise.
        unsafe { (*property).set_line(true) };
        watch::note_wait();
        self.lines.borrow_mut().entry(property).or_default().push(waiter);
    }

    /// Takes this fiber out of the line. False if it is not in line: its turn had come.
    ///
    /// # Safety
    /// Same as [`has`](Self::has).
    pub(crate) unsafe fn leave(&self, property: *mut Header, fiber: Standing) -> bool {
        {
            let mut lines = self.lines.borrow_mut();
            if !lines.get_mut(&property).is_some_and(|line| line.leave(fiber)) {
                return false;
            }
        }
        // SAFETY: the caller's promise. A fiber whose turn it is finds a value, or is the first again.
        unsafe { self.close_if_over(property) };
        true
    }

    /// The calls of `together` that stand in lines, and at which property.
    pub(crate) fn gathered(&self) -> Vec<(usize, Gathered)> {
        let lines = self.lines.borrow();
        let all = lines.iter().flat_map(|(property, line)| line.waiters().map(move |waiter| (property.addr(), waiter)));
        let calls = all.filter_map(|(property, waiter)| match waiter {
            // SAFETY: the owner of a `Caller` has exclusive access to the call.
            Waiter::Share { who: Sharer { who, .. }, .. } => Some((property, unsafe { (who.vtable.gathered)(who.at) })),
            Waiter::Fiber(_) => None,
        });
        calls.collect()
    }

    /// Puts a fiber whose turn brought no value at the front again.
    ///
    /// # Safety
    /// Same as [`has`](Self::has).
    pub(crate) unsafe fn push_first(&self, property: *mut Header, fiber: Standing) {
        // SAFETY: the caller's promise.
        unsafe { (*property).set_line(true) };
        self.lines.borrow_mut().entry(property).or_default().push_first(fiber);
    }

    /// Takes a share of the value, lent to that trustee, if there are no waiters before.
    ///
    /// # Safety
    /// The property is live, of this trustee and kind, and nothing borrows it.
    pub(crate) unsafe fn borrow(
        &self,
        property: *mut Header,
        kind: &'static LatchKind,
        to: TrusteeId,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller's promise.
        unsafe {
            if !self.has(property) {
                let value = (kind.take)(property)?;
                (*property).set_line(true);
                self.lines.borrow_mut().entry(property).or_default().lend(to, Lent { value, kind }, 1);
                return Some(value);
            }
        }
        let mut lines = self.lines.borrow_mut();
        lines.get_mut(&property)?.share(to).map(|lent| lent.value)
    }

    /// Gives a share back.
    ///
    /// # Safety
    /// Same as [`borrow`](Self::borrow), but for a property of a trustee that has ended ([`abandon`](Self::abandon)).
    pub(crate) unsafe fn release(&self, worker: &Worker, property: *mut Header, is_spoiled: bool) -> Released {
        let returned =
            self.lines.borrow_mut().get_mut(&property).map_or(Returned::Unknown, |line| line.release(is_spoiled));
        match returned {
            Returned::Unknown => return Released::Unknown,
            Returned::Shared => return Released::Done,
            Returned::Spoiled(to) => return Released::Spoiled(to),
            // SAFETY: live, for it is in the table; taken from there [lent-to-one].
            Returned::Last(Lent { value, kind }) => unsafe { (kind.put_back)(property, value) },
        }
        // SAFETY: as above.
        unsafe { self.let_next(worker, property) };
        Released::Done
    }

    /// The value is back: lets the first fiber try, or gives the first call the value, and with it all calls behind it
    /// that go to the same trustee, up to the next fiber.
    ///
    /// # Safety
    /// Same as [`borrow`](Self::borrow).
    pub(crate) unsafe fn let_next(&self, worker: &Worker, property: *mut Header) {
        // SAFETY: the caller's promise.
        if !unsafe { self.has(property) } {
            return;
        }
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(&property) else { return };
        match line.turn() {
            Turn::Taken => {}
            Turn::Over => {
                drop(lines);
                // SAFETY: the caller's promise.
                unsafe { self.close_if_over(property) };
            }
            Turn::Fiber(fiber) => {
                drop(lines);
                worker.resume(Some(fiber.fiber));
            }
            Turn::Shares(to) => {
                let Some(kind) = line.first_share().map(|first| first.kind) else { return };
                // SAFETY: the caller's promise.
                let Some(value) = (unsafe { (kind.take)(property) }) else { return };
                line.grant(to, Lent { value, kind }, |Sharer { who, .. }| {
                    // SAFETY: it has a share from here on. This only notes it.
                    unsafe { (who.vtable.granted)(who.at, value) };
                    self.go_on_later(worker, who);
                });
            }
        }
    }

    /// Wakes waiters whose value is in its latch although it was not put back: a plain closure has replaced the latch,
    /// perhaps one whose value was lost with a guard that was forgotten. For a worker with nothing else to do, between
    /// closures. True if there was any.
    pub(crate) fn let_missed_on(&self, worker: &Worker) -> bool {
        if self.lines.borrow().is_empty() {
            return false;
        }
        let counters = &worker.shared.counters;
        let ran = counters.requests_served.get().wrapping_add(counters.requests_run_here.get());
        if self.looked_after.replace(ran) == ran {
            return false; // only a closure could have replaced it
        }
        let is_missed = |(property, line): (&*mut Header, &Line)| {
            // SAFETY: live, for it is in the table, and of the type that its waiters have named.
            let has_value = line.next().is_some_and(|next| unsafe {
                match next {
                    Waiter::Fiber(fiber) => (fiber.has_value)(*property),
                    Waiter::Share { who, .. } => (who.kind.get)(*property).is_some(),
                }
            });
            has_value.then_some(*property)
        };
        let missed: Vec<*mut Header> = self.lines.borrow().iter().filter_map(is_missed).collect();
        // SAFETY: as above.
        missed.iter().for_each(|&property| unsafe { self.let_next(worker, property) });
        !missed.is_empty()
    }

    /// Lets a call go on, as soon as the context is free. (The deferred call captures nothing, so it is not allocated.)
    pub(crate) fn go_on_later(&self, worker: &Worker, who: Caller) {
        self.granted.borrow_mut().push_back(who);
        worker.defer(Box::new(|| {
            super::with(|worker| {
                let next = worker.launches.lines.granted.borrow_mut().pop_front();
                if let Some(who) = next.map(ManuallyDrop::new) {
                    // SAFETY: the call is given up here.
                    unsafe { (who.vtable.go_on)(who.at, worker) };
                }
            });
        }));
    }

    /// Ends a fiber's turn: it has the value.
    ///
    /// # Safety
    /// Same as [`has`](Self::has).
    pub(crate) unsafe fn end_turn(&self, property: *mut Header) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&property) {
            line.end_turn();
        }
        // SAFETY: the caller's promise.
        unsafe { self.close_if_over(property) };
    }

    unsafe fn close_if_over(&self, property: *mut Header) {
        let mut lines = self.lines.borrow_mut();
        if lines.get(&property).is_some_and(Line::is_over) {
            lines.remove(&property);
            // SAFETY: live, the caller's promise.
            unsafe { (*property).set_line(false) };
        }
    }

    /// Notes that a closure has panicked here on a value lent by that trustee.
    #[cold]
    pub(crate) fn spoil(&self, lender: TrusteeId, property: *mut Header, panic: String) {
        self.spoiled.borrow_mut().entry((lender, property)).or_insert(panic);
        self.has_spoiled.set(true);
    }

    /// Has a closure panicked here on a value that still has shares?
    #[inline(always)]
    pub(crate) fn has_spoiled(&self) -> bool {
        self.has_spoiled.get()
    }

    /// Text of a panic on this value.
    #[inline(always)]
    pub(crate) fn spoiled(&self, lender: TrusteeId, property: *mut Header) -> Option<String> {
        if !self.has_spoiled.get() {
            return None;
        }
        self.spoiled.borrow().get(&(lender, property)).cloned()
    }

    pub(crate) fn forget_spoiled(&self, lender: TrusteeId, property: *mut Header) {
        let mut spoiled = self.spoiled.borrow_mut();
        spoiled.remove(&(lender, property));
        self.has_spoiled.set(!spoiled.is_empty());
    }

    /// The trustee ends: no value will come back. Fibers of its own have ended by now.
    pub(super) fn abandon(&self, worker: &Worker) {
        let lines = std::mem::take(&mut *self.lines.borrow_mut());
        let mut waiting = Vec::new();
        for (property, line) in lines {
            let (loan, waiters) = line.abandon();
            waiting.extend(waiters);
            if let Some(loan) = loan {
                let of = (worker.id, property.addr());
                drop_loan(worker, of, change_orphan(of, |orphan| orphan.abandon(loan)));
            }
        }
        for waiter in waiting {
            quietly(|| drop(waiter));
        }
    }
}

/// Orphans by trustee and address of the property.
type Orphans = HashMap<(TrusteeId, usize), Orphan, BuildHasherDefault<AddressHasher>>;

static ORPHANS: Mutex<Orphans> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));

/// Changes an orphan, and removes it if no shares of it are left.
fn change_orphan(of: (TrusteeId, usize), change: impl FnOnce(&mut Orphan)) -> Option<Loan> {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    let orphan = orphans.entry(of).or_default();
    change(orphan);
    if orphan.is_over() { orphans.remove(&of)?.into_loan() } else { None }
}

fn drop_loan(worker: &Worker, (lender, property): (TrusteeId, usize), loan: Option<Loan>) {
    if let Some(loan) = loan {
        // SAFETY: there are no shares of it. Its destructor is the user's code, which may not wait here.
        worker.delegated(|| quietly(|| unsafe { (loan.value.kind.drop)(loan.value.value) }));
        // The lender, which would send the notice, may never have heard of a panic.
        let property = ptr::without_provenance_mut(property);
        if loan.to == worker.id {
            worker.launches.lines.forget_spoiled(lender, property);
        } else {
            worker.submit(loan.to, ptr::null_mut(), Forget { lender, property }, Ignore, false);
        }
    }
}

/// Notice that a value of the lender has no shares any more. The record of a panic on it is no longer needed.
pub(crate) struct Forget {
    pub(crate) lender: TrusteeId,
    pub(crate) property: *mut Header,
}

impl Request for Forget {
    const TARGET: Target = Target::Nothing;

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        super::with(|worker| worker.launches.lines.forget_spoiled(self.lender, self.property));
        serving.out.put(());
    }
}

/// Gives back a share of a value whose trustee has ended, or is about to.
pub(crate) fn release_orphan(worker: &Worker, of: TrusteeId, property: *mut Header) {
    let of = (of, property.addr());
    drop_loan(worker, of, change_orphan(of, |orphan| orphan.release()));
}

/// Hasher for addresses, which differ in the bits in the middle.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }
    fn write_usize(&mut self, address: usize) {
        self.write_u64(address as u64);
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}
