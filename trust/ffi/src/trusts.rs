//! Trusts: entrusting, cloning, dropping.

use std::ffi::c_void;

use trust::ffi::{self, Destroy, Handle, Status, Trustee};

use crate::{entry, null};

/// Entrusts a pointer to a trustee. From now on only functions that are applied to it may use the object it points to;
/// `destroy`, unless null, is called with it on the trustee's thread after the last trust was dropped, or when that
/// thread ends (on this thread, if that one ends before it has taken the property). Does not wait.
///
/// Legal everywhere on attached threads. Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_GONE; the pointer is the
/// caller's still.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_entrust(
    trustee: Trustee,
    property: *mut c_void,
    destroy: Destroy,
    trust: *mut Handle,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { entrust(trustee, property, destroy, trust, false) }
}

/// Same as trust_entrust, for trust_launch: in a latch, which one fiber at a time may hold, also while it waits.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_entrust_latched(
    trustee: Trustee,
    property: *mut c_void,
    destroy: Destroy,
    trust: *mut Handle,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { entrust(trustee, property, destroy, trust, true) }
}

// SAFETY: as trust_entrust.
unsafe fn entrust(
    trustee: Trustee,
    property: *mut c_void,
    destroy: Destroy,
    trust: *mut Handle,
    latched: bool,
) -> Status {
    entry(|| {
        if trust.is_null() {
            return Err(null("the place for the trust"));
        }
        // SAFETY: the caller's promise; not null, so the caller's to be written.
        unsafe { trust.write(ffi::entrust(trustee, property, destroy, latched)?) };
        Ok(())
    })
}

/// Makes one more trust of the same property, to be dropped on its own. Legal everywhere, on every thread, attached or
/// not; does not wait. All zero if `trust` is.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_clone(trust: Handle) -> Handle {
    let mut clone = Handle::NULL;
    entry(|| {
        // SAFETY: the caller's promise.
        clone = unsafe { ffi::clone(trust) }?;
        Ok(())
    });
    clone
}

/// Drops a trust, which must not be used again. Legal everywhere, on every thread, attached or not; does not wait.
/// Nothing happens if it is all zero.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_drop(trust: Handle) {
    entry(|| {
        // SAFETY: the caller's promise.
        unsafe { ffi::drop(trust) };
        Ok(())
    });
}

/// Gets the number of the property's trustee. Errors: TRUST_INVALID.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_trustee_of(trust: Handle, trustee: *mut Trustee) -> Status {
    entry(|| {
        if trustee.is_null() {
            return Err(null("the place for the trustee"));
        }
        let number = trust.trustee()?;
        // SAFETY: not null, so the caller's to be written.
        unsafe { trustee.write(number) };
        Ok(())
    })
}
