//! Delegating functions: apply, launch, and their results.

use std::ffi::c_void;

use trust::ffi::{self, Function, Handle, Status, Then, TrustResult};

use crate::entry;

/// Bytes of arguments that travel without an allocation of their own. Results likewise, up to 256 bytes.
pub const TRUST_INLINE_BYTES: usize = 248;
const _: () = assert!(TRUST_INLINE_BYTES == ffi::INLINE_BYTES);

/// Applies `function` to the property, with a copy of the `length` bytes at `arguments`, and waits for the result.
/// Meanwhile other fibers run; on a thread's own stack the thread serves its trustee and calls back.
///
/// If `result_length` is not null, it holds the bytes of room at `result` before, and the length of the result
/// afterwards; the result is copied there if there is room for it, else the call returns TRUST_TOO_LARGE. If it is null
/// the result is dropped.
///
/// Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_MAY_NOT_WAIT, TRUST_GONE, TRUST_WRONG_KIND, TRUST_TOO_LARGE.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_apply(
    trust: Handle,
    function: Function,
    arguments: *const c_void,
    length: usize,
    result: *mut c_void,
    result_length: *mut usize,
) -> Status {
    // SAFETY: the caller's promise.
    entry(|| unsafe { ffi::apply(trust, function, (arguments, length), result, result_length) })
}

/// Applies `function` to the property, with a copy of the `length` bytes at `arguments`, and goes on. `then`, unless
/// null, is called with `context` and the outcome, on this thread: in trust_poll, in a call of the library that waits,
/// or, where the property's trustee is this very thread, before this call returns. It is called once if this returns
/// TRUST_OK, and not at all otherwise.
///
/// Legal everywhere on attached threads. Requests of one thread to one trustee run in the order in which they were
/// made. While every slot to the trustee is full this call waits as trust_apply does, inside delegated functions and
/// callbacks it queues instead.
///
/// Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_WRONG_KIND, TRUST_TOO_LARGE. To `then`: TRUST_GONE.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_apply_then(
    trust: Handle,
    function: Function,
    arguments: *const c_void,
    length: usize,
    then: Then,
    context: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    entry(|| unsafe { ffi::apply_then(trust, function, (arguments, length), then, context) })
}

/// Same as trust_apply, on a latched property: `function` runs in a fiber at the trustee and may wait (trust_apply,
/// trust_launch, trust_yield). No other launched function has the property meanwhile.
///
/// Errors: as trust_apply; TRUST_REFUSED if there is no memory for the fiber's stack.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_launch(
    trust: Handle,
    function: Function,
    arguments: *const c_void,
    length: usize,
    result: *mut c_void,
    result_length: *mut usize,
) -> Status {
    // SAFETY: the caller's promise.
    entry(|| unsafe { ffi::launch(trust, function, (arguments, length), result, result_length) })
}

/// Same as trust_launch, without waiting; `then` as for trust_apply_then.
///
/// Errors: as trust_apply_then. To `then`: TRUST_GONE, TRUST_REFUSED.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_launch_then(
    trust: Handle,
    function: Function,
    arguments: *const c_void,
    length: usize,
    then: Then,
    context: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    entry(|| unsafe { ffi::launch_then(trust, function, (arguments, length), then, context) })
}

/// Makes room for the result of the delegated function that runs, to be written before it returns: `length` bytes at a
/// multiple of 8. For functions whose result is made of several parts. Null if there is a result already, or for more
/// than 1 GiB.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_result_room(result: *mut TrustResult, length: usize) -> *mut c_void {
    let mut room = std::ptr::null_mut();
    entry(|| {
        // SAFETY: null, or the pointer that the library gave to the function that calls this.
        if let Some(result) = unsafe { result.as_mut() } {
            room = result.room(length).cast();
        }
        Ok(())
    });
    room
}

/// Copies the `length` bytes at `bytes` as the result of the delegated function that runs. False, and there is no
/// result from this call, if there is one already, for more than 1 GiB, and where `result` is null or, with a length,
/// `bytes` is.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_result_put(result: *mut TrustResult, bytes: *const c_void, length: usize) -> bool {
    // Before the room: bytes that are never written must not become the result.
    if bytes.is_null() && length > 0 {
        return false;
    }
    // SAFETY: the caller's promise.
    let room = unsafe { trust_result_room(result, length) };
    if room.is_null() {
        return false;
    }
    if length > 0 {
        // SAFETY: the caller's promise; the room was made for as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.cast::<u8>(), room.cast(), length) };
    }
    true
}
