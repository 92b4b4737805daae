//! Types that cross the C interface: handles, statuses, functions and blocks of bytes.
//!
//! The types marked `repr(C)` are in `trust.h`, which is generated from this file and `trust/ffi`.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use crate::api::place::drops_old;
use crate::api::trust::Trust;
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::Fault;
use crate::slot::Writer;
use crate::tasks::latch::Latch;

/// Status of a call. `trust_error_message` gives details.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(non_camel_case_types, reason = "these are the names in C, where the enum is none of their scope")]
pub enum Status {
    /// The call succeeded.
    TRUST_OK = 0,
    /// An argument is null, or out of range.
    TRUST_INVALID = 1,
    /// The calling thread is not attached: see `trust_attach`.
    TRUST_NOT_ATTACHED = 2,
    /// The calling thread is attached already.
    TRUST_ATTACHED = 3,
    /// The call waits, and nothing may wait inside a delegated function, a destructor or a callback.
    TRUST_MAY_NOT_WAIT = 4,
    /// The trustee's thread has ended, and its properties with it.
    TRUST_GONE = 5,
    /// The property is latched where a plain one is needed, or the other way round.
    TRUST_WRONG_KIND = 6,
    /// More bytes than one request carries, or than the caller has room for.
    TRUST_TOO_LARGE = 7,
    /// The system had no memory, thread or descriptor for the call.
    TRUST_REFUSED = 8,
    /// Error in the library; please report it.
    TRUST_INTERNAL = 9,
}

/// Id of a trustee, of a pool's worker or of an attached thread.
pub type Trustee = u64;

/// Counted handle to a property: each handle made by entrusting or cloning must be dropped. It is a plain value, which
/// may be copied as bytes, for instance into arguments, as long as each is dropped once. All zero is no trust.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    pub(super) property: u64,
    pub(super) trustee: u64,
}

/// Destination of a delegated function's result. Valid until the function returns.
#[derive(Debug)]
pub struct TrustResult {
    place: Place,
    written: bool,
}

/// Function that runs at the trustee, on the entrusted property. The arguments are a copy of the caller's bytes at a
/// multiple of 8, valid until it returns. It puts its result with `trust_result_put` or `trust_result_room`, or has
/// none.
pub type Function = Option<
    unsafe extern "C" fn(property: *mut c_void, arguments: *const c_void, length: usize, result: *mut TrustResult),
>;

/// Function that is called with the outcome, on the thread that made the request. The result lies at a multiple of 8
/// and is valid until the function returns. If the status is not `TRUST_OK` there is no result.
pub type Then =
    Option<unsafe extern "C" fn(context: *mut c_void, status: Status, result: *const c_void, length: usize)>;

/// Function that is called with an entrusted pointer after the last trust was dropped, on the trustee's thread.
pub type Destroy = Option<unsafe extern "C" fn(property: *mut c_void)>;

/// Reason why a call was refused.
#[derive(Debug)]
pub struct Failure {
    /// Kind of failure.
    pub status: Status,
    /// Cause and remedy.
    pub text: String,
}

/// Result of a call.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Makes a failure with its text.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Failure { status, text: text.into() }
    }
}

impl From<Fault> for Failure {
    #[cold]
    fn from(fault: Fault) -> Self {
        let (status, text) = match fault {
            Fault::Gone => (
                Status::TRUST_GONE,
                "the trustee's thread has ended, and its properties with it: let trustees outlive their clients"
                    .to_owned(),
            ),
            Fault::Closed => (Status::TRUST_GONE, fault.into_error::<*mut c_void>().to_string()),
            Fault::Refused(cause) => {
                (Status::TRUST_REFUSED, format!("the trustee could not take the request on: {cause}"))
            }
            other => (Status::TRUST_INTERNAL, other.into_error::<*mut c_void>().to_string()),
        };
        Failure { status, text }
    }
}

/// Entrusted pointer.
pub(crate) struct Value {
    pub(super) data: *mut c_void,
    destroy: Destroy,
}

// SAFETY: the C program that entrusts a pointer promises that its trustee's thread may use it.
unsafe impl Send for Value {}

impl Value {
    pub(super) fn new(data: *mut c_void, destroy: Destroy) -> Self {
        Value { data, destroy }
    }
}

impl Drop for Value {
    /// Leaves a C object of before the loss of a machine: plain functions run on it without a look at the mark of a
    /// closed property.
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy
            && !drops_old()
        {
            // SAFETY: the promise made when it was entrusted; dropped once.
            unsafe { destroy(self.data) }
        }
    }
}

/// Kind of property that a trust of this type refers to.
pub(super) trait Kind: 'static {
    const IS_LATCHED: bool;
}
impl Kind for Value {
    const IS_LATCHED: bool = false;
}
impl Kind for Latch<Value> {
    const IS_LATCHED: bool = true;
}

/// Bit of a property's address that marks a latched one. Headers are 8-aligned.
const LATCHED: u64 = 1;

impl Handle {
    pub(super) fn of<T: Kind>(trust: Trust<T>) -> Self {
        let (property, trustee) = std::mem::ManuallyDrop::new(trust).parts();
        let kind = if T::IS_LATCHED { LATCHED } else { 0 };
        Handle { property: property.expose_provenance() as u64 | kind, trustee: trustee.to_bits() }
    }

    /// Returns the property and its trustee, of any kind.
    #[inline(always)]
    pub(super) fn parts(self) -> Result<(*mut Header, TrusteeId)> {
        let property: *mut Header = ptr::with_exposed_provenance_mut((self.property & !LATCHED) as usize);
        if property.is_null() {
            return Err(null("the trust"));
        }
        Ok((property, TrusteeId::from_bits(self.trustee)))
    }

    /// Returns the property and its trustee, of this kind.
    #[inline(always)]
    pub(super) fn parts_of<T: Kind>(self) -> Result<(*mut Header, TrusteeId)> {
        if (self.property & LATCHED != 0) != T::IS_LATCHED {
            return Err(wrong_kind(T::IS_LATCHED));
        }
        self.parts()
    }

    /// Returns the trustee of the property.
    ///
    /// # Errors
    /// If the handle is null.
    pub fn trustee(self) -> Result<u64> {
        self.parts().map(|(_, trustee)| trustee.to_bits())
    }
}

#[cold]
pub(super) fn null(what: &str) -> Failure {
    Failure::new(Status::TRUST_INVALID, format!("{what} is null"))
}

#[cold]
fn wrong_kind(wants_latched: bool) -> Failure {
    let text = if wants_latched {
        "the property is not latched: entrust it with trust_entrust_latched to launch functions on it"
    } else {
        "the property is latched: use trust_launch, or entrust it with trust_entrust to apply functions to it"
    };
    Failure::new(Status::TRUST_WRONG_KIND, text)
}

/// Words of a result outside a slot that need no allocation.
const INLINE_WORDS: usize = 32;

/// Result outside a slot.
#[derive(Debug)]
pub struct Block {
    inline: [MaybeUninit<u64>; INLINE_WORDS],
    /// Used instead of `inline` if the result is longer.
    long: Box<[MaybeUninit<u64>]>,
    length: usize,
}

impl Block {
    #[inline]
    pub(super) fn new() -> Self {
        Block { inline: [MaybeUninit::uninit(); INLINE_WORDS], long: Box::default(), length: 0 }
    }

    fn room(&mut self, length: usize) -> *mut u8 {
        self.length = length;
        let words = length.div_ceil(8);
        if words <= INLINE_WORDS {
            return self.inline.as_mut_ptr().cast();
        }
        self.long = Box::new_uninit_slice(words);
        self.long.as_mut_ptr().cast()
    }

    /// Returns the address of the result and its length.
    pub(super) fn bytes(&self) -> (*const c_void, usize) {
        let long = self.length.div_ceil(8) > INLINE_WORDS;
        (if long { self.long.as_ptr().cast() } else { self.inline.as_ptr().cast() }, self.length)
    }
}

#[derive(Debug)]
enum Place {
    Slot(*mut Writer),
    Block(*mut Block),
}

/// Longest result.
const RESULT_BYTES_MAX: usize = crate::config::MESSAGE_BYTES_MAX;

impl TrustResult {
    /// # Safety
    /// The writer is used by nothing else until [`finish`](Self::finish).
    #[inline(always)]
    pub(super) unsafe fn in_slot(writer: *mut Writer) -> Self {
        TrustResult { place: Place::Slot(writer), written: false }
    }

    /// # Safety
    /// The block is used by nothing else while this exists.
    #[inline(always)]
    pub(super) unsafe fn in_block(block: *mut Block) -> Self {
        TrustResult { place: Place::Block(block), written: false }
    }

    /// Returns room for the result, once: null if there is one already or it is too long.
    #[inline(always)]
    pub fn room(&mut self, length: usize) -> *mut u8 {
        if self.written || length > RESULT_BYTES_MAX {
            return ptr::null_mut();
        }
        self.written = true;
        match self.place {
            // SAFETY: the promise of `in_slot`.
            Place::Slot(writer) => unsafe { (*writer).put_room(length) },
            // SAFETY: the promise of `in_block`.
            Place::Block(block) => unsafe { (*block).room(length) },
        }
    }

    /// Called when the function has returned: if it has put no result, an empty one is put.
    #[inline(always)]
    pub(super) fn finish(mut self) {
        if !self.written {
            self.room(0);
        }
    }
}
