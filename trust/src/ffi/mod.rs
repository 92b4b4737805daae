//! Parts of this crate's inside that the C API (`trust/ffi`) needs; not for programs in Rust.
//!
//! Here: threads of a C program that have a loop of their own (`attached.rs`), requests that are C functions with bytes
//! as arguments (`call.rs`), the same in fibers (`launch.rs`), the types that both sides see (`types.rs`). Not here:
//! the functions that C calls, and where panics are caught: `trust/ffi`.
//!
//! The C program is responsible for safety: its functions must have the types it claims, and its pointers and lengths
//! must be right. docs/c-api.md has the rules.

#![allow(unsafe_code)]

mod attached;
mod call;
mod launch;
mod types;

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};

pub use attached::{attach, detach, poll};
pub use call::{INLINE_BYTES, apply, apply_then};
pub use launch::{launch, launch_then, spawn, yield_now};
pub use types::{Block, Destroy, Failure, Function, Handle, Result, Status, Then, TrustResult, Trustee};

use crate::api::pool::Threadpool;
use crate::api::reference::TrusteeReference;
use crate::ids::TrusteeId;
use crate::registry;
use crate::runtime::worker::reclaim::count;
use crate::runtime::worker::{self, Context, Worker};
use crate::tasks::latch::Latch;
use types::Value;

impl Handle {
    /// The null handle: no trust.
    pub const NULL: Handle = Handle { property: 0, trustee: 0 };
}

/// Runs `f` on the calling thread's worker. A call from C does not start a worker implicitly, for nothing would run it.
pub(crate) fn with_worker<R>(f: impl FnOnce(&Worker) -> Result<R>) -> Result<R> {
    let called = worker::existing(|worker| {
        let called = f(worker);
        attached::look(worker);
        called
    });
    called.unwrap_or_else(|| {
        Err(Failure::new(
            Status::TRUST_NOT_ATTACHED,
            "this thread is not attached: call trust_attach first (workers of a pool need not)",
        ))
    })
}

/// Refuses to wait inside delegated functions and callbacks.
pub(crate) fn may_wait(worker: &Worker) -> Result<()> {
    if worker.context() == Context::Free {
        return Ok(());
    }
    Err(Failure::new(
        Status::TRUST_MAY_NOT_WAIT,
        "nothing may wait inside a delegated function, a destructor or a callback: use trust_apply_then, or \
         trust_launch the function (it then runs in a fiber and may wait)",
    ))
}

/// Checks that the calling thread may wait.
///
/// # Errors
/// If the thread is not attached, or inside a delegated function, a destructor or a callback.
pub fn check_may_wait() -> Result<()> {
    with_worker(may_wait)
}

/// Ends the workers of a pool. The thread's trustee, if it has one, serves meanwhile. A thread that was not attached
/// before is not attached afterwards.
///
/// # Errors
/// If nothing may wait; in a fiber of the pool itself, or of a thread that is attached with a descriptor. Then `pool`
/// has not been called.
///
/// # Safety
/// Same as [`detach`], where the thread is not attached.
pub unsafe fn stop(trustees: &[TrusteeReference], pool: impl FnOnce() -> Threadpool) -> Result<()> {
    let is_attached = worker::existing(|_| ()).is_some();
    if is_attached {
        with_worker(|worker| {
            may_wait(worker)?;
            if trustees.iter().any(|trustee| trustee.id() == worker.id) {
                let text = "trust_pool_stop is not for fibers of the pool itself: it waits for their end";
                return Err(Failure::new(Status::TRUST_MAY_NOT_WAIT, text));
            }
            if worker.outside.is_polled() {
                attached::outside_loop(worker, "trust_pool_stop on a thread with a loop of its own")?;
            }
            worker.leave_outside();
            std::mem::drop(pool());
            worker.enter_outside();
            Ok(())
        })
    } else {
        std::mem::drop(pool());
        // If there is a worker, the end of the pool made it here.
        let _ = crate::runtime::worker::current::end(false);
        Ok(())
    }
}

/// Returns the trustee of the calling thread.
///
/// # Errors
/// If the thread is not attached.
pub fn local_trustee() -> Result<u64> {
    with_worker(|worker| Ok(worker.id.to_bits()))
}

/// Entrusts a pointer to a trustee, directly or in a latch.
///
/// # Errors
/// If the thread is not attached or the trustee does not exist; the caller keeps the pointer.
///
/// # Safety
/// The pointer may be used on the trustee's thread, and is not used elsewhere from now on; `destroy` may be called with
/// it there.
pub unsafe fn entrust(trustee: u64, data: *mut c_void, destroy: Destroy, latched: bool) -> Result<Handle> {
    let id = TrusteeId::from_bits(trustee);
    with_worker(|_| {
        if registry::find(id).is_none() {
            return Err(gone(id));
        }
        let trustee = TrusteeReference::from_id(id);
        let value = Value::new(data, destroy);
        let handle = if latched {
            trustee.try_entrust(Latch::new(value)).map(Handle::of).map_err(std::mem::forget)
        } else {
            trustee.try_entrust(value).map(Handle::of).map_err(std::mem::forget)
        };
        handle.map_err(|()| gone(trustee.id()))
    })
}

fn gone(trustee: TrusteeId) -> Failure {
    let number = trustee.to_bits();
    let text = format!("there is no trustee {number:#x}: its thread has ended, or the number is of none");
    Failure::new(Status::TRUST_GONE, text)
}

/// Makes one more trust of the same property. Legal anywhere, on any thread.
///
/// # Errors
/// If the handle is null.
///
/// # Safety
/// The handle is of a trust that has not been dropped.
pub unsafe fn clone(handle: Handle) -> Result<Handle> {
    let (property, trustee) = handle.parts()?;
    count(trustee, property, 1);
    Ok(handle)
}

/// Drops a trust. Legal anywhere, on any thread.
///
/// # Safety
/// The handle is null or of a trust that has not been dropped, and is not used again.
pub unsafe fn drop(handle: Handle) {
    if let Ok((property, trustee)) = handle.parts() {
        count(trustee, property, -1);
        // A destructor may have launched fibers.
        worker::existing(attached::look);
    }
}

thread_local! {
    static NOTED: RefCell<CString> = RefCell::default();
}

/// Keeps a text for `trust_error_message`.
pub fn note(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // If the thread-local is destroyed already, no call reads it any more.
    let _ = NOTED.try_with(|noted| noted.replace(text));
}

/// Returns the text of this thread's last failure. Valid until the next.
pub fn noted_text() -> *const c_char {
    NOTED.try_with(|noted| noted.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn noted() -> String {
    NOTED.try_with(|noted| noted.borrow().to_string_lossy().into_owned()).unwrap_or_default()
}
