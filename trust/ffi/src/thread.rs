//! Threads: attaching, polling, detaching.

use std::ffi::c_int;

use trust::ffi::{self, Status, Trustee};

use crate::entry;

/// Makes the calling thread a client and a trustee, until trust_detach or its end. A thread has to attach before it
/// entrusts or applies; workers of a pool are attached from their start.
///
/// With `descriptor` not null, the thread has a loop of its own (epoll, libevent): it gets an eventfd that is readable
/// whenever there is work for the library, responses to take or requests to serve. The loop waits for it together with
/// its own descriptors, level- or edge-triggered, and calls trust_poll when it is readable. It belongs to the library:
/// neither read, write nor close it. Without one, the thread serves its trustee only while it waits in a call of the
/// library or calls trust_poll.
///
/// Errors: TRUST_ATTACHED, TRUST_REFUSED.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_attach(descriptor: *mut c_int) -> Status {
    entry(|| {
        let made = ffi::attach(!descriptor.is_null())?;
        if let Some(made) = made {
            // SAFETY: not null, so the caller's to be written.
            unsafe { descriptor.write(made) };
        }
        Ok(())
    })
}

/// Takes responses (and calls back), serves requests, runs fibers and sends pending requests. To be called by an
/// attached thread when its descriptor is readable, and as often as it likes besides: a loop that calls it after each
/// round of events saves wake-ups. Does not wait, and returns after a bounded number of turns; if there is more work by
/// then the descriptor is readable again.
///
/// `busy` may be null; else it tells whether there was any work.
///
/// Errors: TRUST_NOT_ATTACHED; TRUST_MAY_NOT_WAIT inside delegated functions, callbacks and fibers.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_poll(busy: *mut bool) -> Status {
    entry(|| {
        let any = ffi::poll()?;
        if !busy.is_null() {
            // SAFETY: not null, so the caller's to be written.
            unsafe { busy.write(any) };
        }
        Ok(())
    })
}

/// Ends the state that trust_attach began: waits for the answers to the thread's requests (5 s at most), serves the
/// requests sent to it, drops the properties entrusted to it and closes the descriptor as soon as no other thread may
/// want to wake by it: it has to be out of the program's loop by now. Trusts of its properties fail from then on with
/// TRUST_GONE. A thread that ends does all that by itself, but for fibers in the middle of their code, with which it
/// must not end.
///
/// Errors: TRUST_NOT_ATTACHED; TRUST_MAY_NOT_WAIT inside delegated functions, callbacks and fibers; TRUST_REFUSED if a
/// fiber of the thread has begun and has not ended after 5 s: the thread is attached as before.
// SAFETY: the name is ours.
#[unsafe(no_mangle)]
pub extern "C" fn trust_detach() -> Status {
    // SAFETY: called from C; where one of the thread's own frames is inside `trust`, it refuses.
    entry(|| unsafe { ffi::detach() })
}

/// Lets other fibers run; outside of fibers it serves the thread's trustee once.
///
/// Errors: TRUST_NOT_ATTACHED, TRUST_MAY_NOT_WAIT.
// SAFETY: the name is ours.
#[unsafe(no_mangle)]
pub extern "C" fn trust_yield() -> Status {
    entry(ffi::yield_now)
}

/// Gets the number of the calling thread's trustee.
///
/// Errors: TRUST_NOT_ATTACHED, TRUST_INVALID.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_local_trustee(trustee: *mut Trustee) -> Status {
    entry(|| {
        if trustee.is_null() {
            return Err(crate::null("the place for the trustee"));
        }
        let local = ffi::local_trustee()?;
        // SAFETY: not null, so the caller's to be written.
        unsafe { trustee.write(local) };
        Ok(())
    })
}
