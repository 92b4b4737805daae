//! Operations at a trustee of any machine: making a property, starting a fiber, and posting a closure with bytes one
//! way. For the crates above.

#![allow(unsafe_code)]

use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use crate::config::LAUNCHES_MAX;
use crate::error::Error;
use crate::fiber::record::{Awaited, Whom};
use crate::fiber::{Origin, Waits};
use crate::ids::TrusteeId;
use crate::noref::NoRef;
use crate::property::{Header, Property};
use crate::request::{ANYWHERE, Fault, Host, Ignore, Request, Serving, Target, Then, pack_flat, unpack_flat};
use crate::runtime::worker::{self, Context, Worker};
use crate::tasks::carry::carry;
use crate::tasks::deliver::{call_back, deliver_fault};
use crate::tasks::job::Plain;
use crate::tasks::launch::{Accepted, deliver, refused};
use crate::tasks::one_shot::{OneShot, WaitingFiber};
use crate::tasks::reply::Reply;
use crate::unwind::quietly;
use crate::{Trust, TrusteeReference};

/// Entrusts the value that `make` returns at a trustee of any machine, and waits for the trust.
///
/// # Errors
/// [`Error::Panicked`] if `make` panics, [`Error::Gone`] or [`Error::Refused`] if the trustee cannot be reached.
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
pub fn entrust_remote<T, F>(trustee: TrusteeReference, make: F) -> Result<Trust<T>, Error>
where
    T: 'static,
    F: FnOnce() -> T + NoRef + Send + 'static,
{
    let trustee = trustee.id();
    let outcome = worker::with(|worker| {
        worker.assert_may_wait("entrust");
        if worker.home.get() == trustee {
            let property = Property::allocate(&worker.shared.slab, make());
            worker.adopt_bound(property);
            return Ok(property.expose_provenance());
        }
        let reply = Reply::new();
        worker.submit(trustee, std::ptr::null_mut(), Make { make }, Then::new(reply.answer()), true);
        reply.wait(worker)
    });
    let property = outcome.map_err(Fault::into_error::<T>)?;
    Ok(Trust::of(std::ptr::with_exposed_provenance_mut(property), trustee))
}

struct Make<F> {
    make: F,
}

impl<T: 'static, F: FnOnce() -> T> Request for Make<F> {
    const TARGET: Target = Target::Nothing;

    fn name() -> String {
        format!("`{}`", type_name::<F>())
    }

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        let value = (self.make)();
        let property = worker::with(|worker| {
            let property = Property::allocate(&worker.shared.slab, value);
            worker.adopt_bound(property);
            property
        });
        serving.out.put(property.expose_provenance());
    }
}

/// Runs `f` in a fiber at a trustee of any machine and waits for its result.
///
/// # Errors
/// [`Error::Panicked`] if `f` panics, [`Error::Gone`] or [`Error::Refused`] if the trustee cannot be reached.
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
pub fn call<R, F>(trustee: TrusteeReference, f: F) -> Result<R, Error>
where
    R: NoRef + Send + 'static,
    F: FnOnce() -> R + NoRef + Send + 'static,
{
    worker::with(|worker| {
        worker.assert_may_wait("call");
        let reply = Reply::new();
        // SAFETY: it borrows nothing.
        let token = unsafe { start(worker, trustee.id(), f, Box::new(reply.answer())) };
        worker.scheduler.waiting(Awaited::Result(token), || reply.wait(worker))
    })
    .map_err(Fault::into_error::<F>)
}

/// Waits for the result of a call that was begun. Panics where nothing may wait.
pub type Wait<R> = Box<dyn FnOnce() -> Result<R, Error>>;

/// Same as [`call`], but returns a function that waits for the result, on this thread. `f` has been sent by then, even
/// if this thread computes next.
///
/// Never waits. If too many calls are under way, `f` is sent when the returned function is called.
pub fn begin<R, F>(trustee: TrusteeReference, f: F) -> Wait<R>
where
    R: NoRef + Send + 'static,
    F: FnOnce() -> R + NoRef + Send + 'static,
{
    worker::with(|worker| -> Wait<R> {
        if worker.launches.awaited() >= LAUNCHES_MAX {
            return Box::new(move || call(trustee, f));
        }
        let slot = Rc::new(OneShot::new(WaitingFiber::default()));
        let given = Rc::clone(&slot);
        // Expected in delegated context: a fiber that waits for all of its own requests does not wait for this one.
        let token =
            worker.delegated(|| worker.launches.expect(trustee.id(), Box::new(move |outcome| given.set(outcome))));
        // SAFETY: it borrows nothing.
        unsafe { submit(worker, trustee.id(), Call { f, token }, false) };
        Box::new(move || {
            worker::with(|worker| {
                worker.assert_may_wait("join");
                slot.waiter.set(worker.fiber());
                worker.scheduler.waiting(Awaited::Result(token), || worker.wait_until(|| slot.is_set()));
            });
            let outcome: Result<R, Fault> = slot.take().unwrap_or_else(|| unreachable!("it is set"));
            outcome.map_err(Fault::into_error::<F>)
        })
    })
}

/// Runs `f` in a fiber at a trustee of any machine; `then` is called on this thread with the outcome.
pub fn call_then<R, F, H>(trustee: TrusteeReference, f: F, then: H)
where
    R: NoRef + Send + 'static,
    F: FnOnce() -> R + NoRef + Send + 'static,
    H: FnOnce(Result<R, Error>) + 'static,
{
    // SAFETY: it borrows nothing.
    unsafe { call_scoped(trustee, f, then) }
}

/// Same as [`call_then`], for a closure that may borrow: for crates that ensure its end, as `std::thread::scope` does.
///
/// The outcome is no sign that the closure has ended: `then` also gets an error when its thread ends or its machine is
/// lost. The closure's captures are dropped in every case in which they are not leaked, on any thread, before its
/// outcome is sent or after it was dropped unrun: capture a value that signals its drop.
///
/// # Safety
/// Everything that `f` borrows stays borrowed until `f` has run, or was dropped unrun.
pub unsafe fn call_scoped<R, F, H>(trustee: TrusteeReference, f: F, then: H)
where
    R: NoRef + Send + 'static,
    F: FnOnce() -> R + NoRef + Send,
    H: FnOnce(Result<R, Error>) + 'static,
{
    let then = move |outcome: Result<R, Fault>| then(outcome.map_err(Fault::into_error::<F>));
    // SAFETY: the caller's promise.
    worker::with(|worker| unsafe {
        start(worker, trustee.id(), f, Box::new(then));
    });
}

/// # Safety
/// As for `call_scoped`.
unsafe fn start<R, F>(worker: &Worker, trustee: TrusteeId, f: F, then: Box<dyn FnOnce(Result<R, Fault>)>) -> u64
where
    R: Send + 'static,
    F: FnOnce() -> R + Send,
{
    worker.launches.wait_for_place(worker);
    let token = worker.launches.expect(trustee, then);
    // SAFETY: the caller's promise.
    unsafe { submit(worker, trustee, Call { f, token }, worker.context() == Context::Free) };
    token
}

/// Sends a closure to its trustee at once: it does not wait for this thread to be idle.
///
/// # Safety
/// As for `call_scoped`.
unsafe fn submit<R, F>(worker: &Worker, trustee: TrusteeId, call: Call<F>, may_wait: bool)
where
    R: Send + 'static,
    F: FnOnce() -> R + Send,
{
    let token = call.token;
    if trustee == worker.id {
        if let Err(fault) = call.start(worker, worker.id) {
            call_back(worker, || worker.launches.fail(token, fault));
        }
    } else {
        worker.submit(trustee, std::ptr::null_mut(), call, Accepted { token }, may_wait);
        worker.remote.send_now(worker, trustee);
    }
}

/// Closure to run in a fiber. It may borrow: its maker has promised that everything borrowed outlives it
/// (`call_scoped`).
struct Call<F> {
    f: F,
    token: u64,
}

impl<R, F> Call<F>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send,
{
    fn start(self, worker: &Worker, client: TrusteeId) -> Result<(), Fault> {
        let (f, token) = (self.f, self.token);
        worker.launches.note_running(client, token, deliver_fault);
        let run: Box<dyn FnOnce() + '_> = Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(f)).map_err(Fault::Panicked);
            worker::with(|worker| {
                quietly(|| deliver::<(), Plain<Ended<R>, ANYWHERE>>(worker, client, token, outcome));
                worker.launches.note_ended(client, token);
            });
        });
        // SAFETY: the maker's promise: everything it borrows outlives the fiber's code, or its drop.
        let run = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(run) };
        worker.shared.counters.fibers_spawned.add(1);
        worker.scheduler.spawn(run, None, Origin::Spawned(type_name::<F>()), Whom::Client(client, token)).map_err(
            |not_started| {
                worker.launches.note_ended(client, token);
                refused(not_started)
            },
        )
    }
}

/// Runs `f` with these bytes at a trustee of any machine, in delegated context: one way, and never waits. Ordered with
/// everything else that this worker sends there. At the calling thread's own trustee `f` runs as soon as nothing else
/// runs in delegated context.
///
/// Threads that are not workers of a pool may post too, in no order, and so may destructors of thread-locals.
///
/// If the trustee is gone the closure is dropped unrun.
pub fn post<F>(trustee: TrusteeReference, f: F, bytes: &[u8])
where
    F: FnOnce(&[u8]) + NoRef + Send + 'static,
{
    let trustee = trustee.id();
    if worker::existing(|worker| worker.is_outside_loop()) == Some(false) {
        return worker::with(|worker| post_from(worker, trustee, f, bytes));
    }
    let bytes: Box<[u8]> = bytes.into();
    carry(trustee, move |worker| post_from(worker, trustee, f, &bytes));
}

fn post_from<F>(worker: &Worker, trustee: TrusteeId, f: F, bytes: &[u8])
where
    F: FnOnce(&[u8]) + NoRef + Send + 'static,
{
    if trustee == worker.id {
        let bytes: Box<[u8]> = bytes.into();
        // A panic is reported, and ends at the loop of deferred calls.
        worker.defer(Box::new(move || without_waiting(|| f(&bytes))));
        worker.settle();
    } else if trustee.machine() == worker.id.machine() {
        worker.submit(trustee, std::ptr::null_mut(), Post { f, bytes: bytes.into() }, Ignore, false);
    } else {
        let pack = |to: &mut Vec<u8>| {
            pack_flat(f, to);
            to.extend_from_slice(bytes);
            Ok(())
        };
        let property = std::ptr::null_mut();
        let sent = worker.remote.submit_packed::<Post<F>, _>(worker, trustee, property, pack, Ignore, false);
        sent.unwrap_or_else(|(ignore, fault)| worker.fail(ignore, fault));
    }
}

/// Returns whether the calling thread's trustee is ending or has ended. Values destroyed then may still have trusts
/// elsewhere.
pub fn is_ending() -> bool {
    worker::existing(|worker| worker.home.get() == TrusteeId::NOBODY).unwrap_or(true)
}

/// Returns whether the destructor of a value of before the loss of a machine runs here, ahead of its property: the lost
/// machine may have handed on a trust of it that nobody has counted. Destructors that free what others use without a
/// request leave it then.
pub fn drops_old() -> bool {
    worker::existing(|worker| worker.drops_old.get()).unwrap_or(false)
}

/// Closure and its bytes, one way.
struct Post<F> {
    f: F,
    bytes: Box<[u8]>,
}

impl<F: FnOnce(&[u8])> Request for Post<F> {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;

    fn name() -> String {
        format!("`{}`", type_name::<F>())
    }

    fn pack(self, to: &mut Vec<u8>) {
        pack_flat(self.f, to);
        to.extend_from_slice(&self.bytes);
    }

    // SAFETY: as the trait says; it runs from its packed form only.
    unsafe fn unpack(_from: &[u8]) -> Option<Self> {
        None
    }

    // SAFETY: as the trait says.
    unsafe fn run_packed(from: &[u8], _property: *mut Header, serving: &mut Serving) -> Option<()> {
        let bytes = from.get(size_of::<F>()..)?;
        // SAFETY: the caller's promise; `pack` put the closure first. The bytes are read where they lie.
        (unsafe { unpack_flat::<F>(from) })(bytes);
        serving.out.put(());
        Some(())
    }

    // SAFETY: as the trait says.
    unsafe fn drop_packed(from: &[u8]) {
        // SAFETY: the caller's promise; `pack` put the closure first.
        drop(unsafe { unpack_flat::<F>(from) });
    }

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        (self.f)(&self.bytes);
        serving.out.put(());
    }
}

/// Runs `f` as inside a delegated closure: a wait in it panics, and nothing is served meanwhile.
pub fn without_waiting<R>(f: impl FnOnce() -> R) -> R {
    worker::with(|worker| {
        let outcome = worker.delegated(|| catch_unwind(AssertUnwindSafe(f)));
        worker.settle();
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Type of a job that delivers an `R`; there is no such job.
type Ended<R> = fn(&mut crate::tasks::held::Held<'_, ()>) -> R;

impl<R, F> Request for Call<F>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send,
{
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = Some(size_of::<F>() + 8);

    fn name() -> String {
        format!("`{}`", type_name::<F>())
    }

    fn pack(self, to: &mut Vec<u8>) {
        pack_flat(self.f, to);
        to.extend_from_slice(&self.token.to_ne_bytes());
    }

    // SAFETY: as the trait says.
    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        let (f, token) = from.split_last_chunk::<8>()?;
        // SAFETY: the caller's promise.
        (f.len() == size_of::<F>()).then(|| Call { f: unsafe { unpack_flat(f) }, token: u64::from_ne_bytes(*token) })
    }

    // SAFETY: as the trait says.
    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        match worker::with(|worker| self.start(worker, serving.client)) {
            Ok(()) => serving.out.put(()),
            Err(fault) => serving.fault(fault),
        }
    }
}
