//! Borrowing by a waiting caller on the last trustee's thread: it borrows the values of others itself and runs the
//! closure in place, so its call need not travel. Two requests of a few bytes for each value; nothing is allocated if
//! the value is free.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::reliable::{ReliableMessage, Sent};
use super::{Failure, Job, Outcome, Part, Parts, Route, gathered, poisoned, release, token_of};
use crate::error::panic_text;
use crate::fiber::record::Awaited;
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::{Fault, Host, Ignore, LocalRequest, Response, Resuming, Serving};
use crate::runtime::worker::lines::{Caller, CallerVtable, LatchKind, Sharer, Waiter, release_orphan};
use crate::runtime::worker::{self, Worker};
use crate::tasks::reply::Reply;
use crate::unwind::AbortOnUnwind;

/// Lender's answer: the address of the value, or the reason why there is no share of it.
type Lent = Result<Value, Box<Failure>>;

#[derive(Clone, Copy)]
struct Value(NonNull<()>);
// SAFETY: values that are lent are `Send` (`together_and_wait`).
unsafe impl Send for Value {}

/// Address of a [`Reply`] of a waiting client.
#[derive(Clone, Copy)]
struct ReplyAddress(*const ());
// SAFETY: dereferenced by the client's thread alone.
unsafe impl Send for ReplyAddress {}

impl ReplyAddress {
    /// Fills the reply, on the client's thread.
    fn tell(self, lent: Lent) {
        // SAFETY: `borrow_others` waits for it, and it is filled once: by `Borrowed` or by `Granted`.
        unsafe { Reply::<Lent>::answer_at(self.0, Ok(lent)) }
    }
}

/// Borrows values of other trustees, in the order of the route, up to the first value of this one.
///
/// # Errors
/// One is poisoned, or its trustee gone: the values before it stay borrowed, and the caller returns them.
pub(super) fn borrow_others<P: Parts>(worker: &Worker, route: &mut Route<P>) -> Result<(), Box<Failure>> {
    while let Some(part) = route.next().copied().filter(|part| part.trustee != worker.home.get()) {
        let reply = Reply::<Lent>::new();
        let reply_to = ReplyAddress(reply.address());
        let borrowed_before: *const [Part] = &route.parts.as_ref()[..route.taken];
        let request = Borrow { kind: part.kind, reply_to, borrowed_before };
        worker.submit(part.trustee, part.property, request, Borrowed { reply_to, kind: part.kind }, false);
        let awaited = Awaited::Together(token_of(reply_to.0));
        let lent = worker.scheduler.waiting(awaited, || reply.wait(worker));
        let lent = lent.unwrap_or_else(|fault| Err(Box::new(Failure::of(Some(&part), fault))));
        route.take(lent?.0);
    }
    Ok(())
}

/// Runs the closure here, where all other values are free, and waits until every lender has its value back.
pub(super) fn run_and_return<P: Parts, J: Job>(worker: &Worker, route: &Route<P>, job: J) -> Outcome<J::Output> {
    let outcome = route.run(worker, job);
    let panic = match &outcome {
        Err(failure) => failure.payload().map(panic_text),
        Ok(_) => None,
    };
    let lent = &route.parts.as_ref()[..route.taken];
    let (left, reply) = (Cell::new(lent.len()), Reply::<()>::new());
    let guard = AbortOnUnwind;
    for part in lent {
        let request = GiveBack { panic: panic.as_deref().map(Box::from) };
        let (left, reply_to) = (ptr::from_ref(&left), reply.address());
        let then = GivenBack { left, reply_to, trustee: part.trustee, property: part.property };
        worker.submit(part.trustee, part.property, request, then, false);
    }
    // A lender that is gone has already been reported to `GivenBack`.
    let _ = reply.wait(worker);
    std::mem::forget(guard);
    outcome
}

/// Request for a share of a value, for closures at the client.
struct Borrow {
    kind: &'static LatchKind,
    reply_to: ReplyAddress,
    /// Values that the client has borrowed before. The list stays unchanged until the client is notified.
    borrowed_before: *const [Part],
}
// SAFETY: read by the lender until it tells the client, which waits and writes nothing meanwhile.
unsafe impl Send for Borrow {}

/// Answer to `Borrow`.
enum Answer {
    Now(Lent),
    /// The client stands in line: the share comes by a request ([`Granted`]).
    Later,
}

impl Borrow {
    /// # Safety
    /// The property is live [property-live], and nothing borrows it.
    unsafe fn answer(self, worker: &Worker, property: *mut Header, client: TrusteeId) -> Answer {
        // SAFETY: the caller's promise.
        unsafe {
            if (*property).is_poisoned() {
                return Answer::Now(Err(poisoned(worker, property, self.kind)));
            }
            let lines = &worker.launches.lines;
            if let Some(value) = lines.borrow(property, self.kind, client) {
                return Answer::Now(Ok(Value(value)));
            }
            let (reply_to, kind) = (self.reply_to, self.kind);
            let in_line =
                InLine { client, reply_to, property, kind, value: None, borrowed_before: self.borrowed_before };
            let who = Caller { at: NonNull::from(Box::leak(Box::new(in_line))).cast(), vtable: InLine::VTABLE };
            lines.push(property, Waiter::Share { to: client, who: Sharer { kind: self.kind, who } });
        }
        Answer::Later
    }
}

/// Local request: a call stays in its process (`Route::new`).
impl LocalRequest for Borrow {
    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: [property-live], [closures-take-turns].
        let answer = worker::with(|worker| unsafe { self.answer(worker, property, serving.client) });
        serving.out.put(answer);
    }
}

struct Borrowed {
    reply_to: ReplyAddress,
    kind: &'static LatchKind,
}

impl Response for Borrowed {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let lent = match fault {
            // SAFETY: `Borrow` puts it.
            None => match unsafe { resuming.responses.take::<Answer>() } {
                Answer::Now(lent) => lent,
                Answer::Later => return,
            },
            Some(fault) => Err(Box::new(Failure::of_kind(self.kind, fault))),
        };
        self.reply_to.tell(lent);
    }
}

/// Client that stands in line, at the lender.
struct InLine {
    client: TrusteeId,
    reply_to: ReplyAddress,
    property: *mut Header,
    kind: &'static LatchKind,
    /// Value of its share, once granted.
    value: Option<NonNull<()>>,
    borrowed_before: *const [Part],
}

impl InLine {
    const VTABLE: &'static CallerVtable = &CallerVtable {
        // SAFETY: the box that `answer` leaked; the caller of these functions has it exclusively, here and below.
        granted: |at, value| unsafe { at.cast::<InLine>().as_mut() }.value = Some(value),
        // SAFETY: as above.
        go_on: |at, worker| unsafe { Box::from_raw(at.cast::<InLine>().as_ptr()) }.go_on(worker),
        lost: |at| {
            // SAFETY: as above.
            let lost = unsafe { Box::from_raw(at.cast::<InLine>().as_ptr()) };
            let told = worker::try_with(|worker| {
                if lost.value.is_some() {
                    release(worker, worker.id, lost.property, false);
                }
                lost.tell(worker, Err(Box::new(Failure::of_kind(lost.kind, Fault::Gone))));
            });
            debug_assert!(told.is_some(), "lines are a worker's");
        },
        gathered: |at| {
            // SAFETY: as above, and the client waits to be notified (`Borrow`).
            let (in_line, before) = unsafe {
                let in_line = at.cast::<InLine>().as_ref();
                (in_line, &*in_line.borrowed_before)
            };
            gathered(in_line.client, token_of(in_line.reply_to.0), before, in_line.kind)
        },
    };

    /// Continues with its share.
    fn go_on(&self, worker: &Worker) {
        // SAFETY: live: the client's trust keeps it [call-keeps-property]; of this trustee.
        let is_poisoned = unsafe { (*self.property).is_poisoned() };
        let lent = match self.value {
            Some(value) if !is_poisoned => Ok(Value(value)),
            _ => {
                let failure = poisoned(worker, self.property, self.kind);
                release(worker, worker.id, self.property, false);
                Err(failure)
            }
        };
        self.tell(worker, lent);
    }

    fn tell(&self, worker: &Worker, lent: Lent) {
        let granted = Granted { client: self.client, reply_to: self.reply_to, lent };
        worker.submit(self.client, ptr::null_mut(), Sent::new(granted), Ignore, false);
    }
}

/// Message that the turn of a client in line has come. The client waits, so it is there.
struct Granted {
    client: TrusteeId,
    reply_to: ReplyAddress,
    lent: Lent,
}

impl ReliableMessage for Granted {
    fn to(&self) -> Option<TrusteeId> {
        Some(self.client)
    }

    fn arrive(self, _: &Worker) {
        self.reply_to.tell(self.lent);
    }

    fn lost(self) {}
}

/// Request that gives back a share, with the text of the closure's panic if it panicked.
struct GiveBack {
    panic: Option<Box<str>>,
}

impl LocalRequest for GiveBack {
    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            if let Some(panic) = &self.panic {
                worker.poison(property, &String::from(&**panic));
            }
            release(worker, worker.id, property, self.panic.is_some());
        });
        serving.out.put(());
    }
}

struct GivenBack {
    left: *const Cell<usize>,
    reply_to: *const (),
    trustee: TrusteeId,
    property: *mut Header,
}

impl Response for GivenBack {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        match fault {
            // SAFETY: `GiveBack` puts `()`.
            None => unsafe { resuming.responses.take::<()>() },
            // The lender is gone.
            Some(_) => worker::with(|worker| release_orphan(worker, self.trustee, self.property)),
        }
        // SAFETY: `run_and_return` waits until all are back; same thread.
        unsafe {
            let left = &*self.left;
            left.set(left.get() - 1);
            if left.get() == 0 {
                Reply::<()>::answer_at(self.reply_to, Ok(()));
            }
        }
    }
}
