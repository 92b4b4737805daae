//! Serialised arguments and results (thesis 2.4.3.3): serde, in bincode 2's standard format.
//!
//! Short arguments travel in the slot, in an array of the next larger size; long ones in a separate allocation. Results
//! follow in the response half of the slot, with their length.

#![allow(unsafe_code)]

pub(crate) mod parcel;
mod spill;

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bincode::error::{DecodeError, EncodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::parcel::{List, Parcel};
use self::spill::{Spill, Written};
use crate::buffer::fix_padding;
use crate::config::{MESSAGE_BYTES_MAX, REMOTE_MESSAGE_BYTES_MAX};
use crate::ids::{self, TrusteeId};
use crate::property::{Header, Property};
use crate::request::{Fault, Host, Request, Response, Resuming, Serving, Target, name_on, pack_flat, unpack_flat};
use crate::runtime::worker::{Context, Worker, poisoned};
use crate::unwind::quietly;

const FORMAT: bincode::config::Configuration = bincode::config::standard();

/// Likely cause where a value is not read as it was written.
const NO_NAMES: &str = "the format has no names of fields or types in it, so what looks for these does not work \
                        (serde's `untagged`, `tag`, `flatten`, `skip_serializing_if`; `serde_json::Value`)";

/// Makes the fault of a value that cannot be written; an error of the type's own code stands alone.
fn not_written(error: EncodeError) -> Fault {
    Fault::Codec(match error {
        EncodeError::OtherString(text) => text,
        EncodeError::Serde(_) => format!("{error}; {NO_NAMES}"),
        other => other.to_string(),
    })
}

/// Makes the fault of a value that cannot be read, in the same way.
fn not_read(error: DecodeError) -> Fault {
    Fault::Codec(match error {
        DecodeError::OtherString(text) => text,
        other => format!("{other}; {NO_NAMES}"),
    })
}

/// Serialises a value into a message.
pub(crate) fn encode<A: Serialize>(value: &A, limit_bytes: usize) -> Result<Parcel, Fault> {
    let mut message = Vec::new();
    encode_onto(&mut message, value, limit_bytes)?;
    // SAFETY: just written, and read by nothing else.
    Ok(unsafe { Parcel::from_message(message) })
}

/// Appends a value's message.
fn encode_onto<A: Serialize>(message: &mut Vec<u8>, value: &A, limit_bytes: usize) -> Result<(), Fault> {
    let (start, list) = (message.len(), List::default());
    parcel::with_list(&list, || bincode::serde::encode_into_std_write(value, message, FORMAT)).map_err(not_written)?;
    let bytes = message.len() - start;
    if bytes > limit_bytes {
        return Err(Fault::TooLarge(bytes, limit_bytes));
    }
    list.seal(message, start);
    Ok(())
}

/// Returns the most bytes that a message between this worker and `other` may have.
pub(crate) fn limit_bytes(other: TrusteeId) -> usize {
    if other.machine() == ids::machine() { MESSAGE_BYTES_MAX } else { REMOTE_MESSAGE_BYTES_MAX }
}

/// Writes the packed form of [`With`]: the closure, then its argument's message. On an error the closure is dropped.
fn pack_with<A: Serialize, F>(to: &mut Vec<u8>, f: F, argument: &A, limit_bytes: usize) -> Result<(), Fault> {
    to.resize(size_of::<F>(), 0);
    encode_onto(to, argument, limit_bytes)?;
    // SAFETY: room for it was left at the start; the value is moved there.
    unsafe { to.as_mut_ptr().cast::<F>().write_unaligned(f) };
    fix_padding(to.as_mut_ptr());
    Ok(())
}

/// Deserialises the bytes of a message while its list of trusts is open.
fn decode_value<A: DeserializeOwned>(bytes: &[u8]) -> Result<A, Fault> {
    match bincode::serde::decode_from_slice(bytes, FORMAT) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(Fault::Codec(format!("it reads less than it wrote; {NO_NAMES}"))),
        Err(error) => Err(not_read(error)),
    }
}

/// Deserialises a message.
pub(crate) fn decode<A: DeserializeOwned>(parcel: Parcel) -> Result<A, Fault> {
    // SAFETY: the parcel's message, which is read only here.
    unsafe { decode_message(&parcel.into_message()) }
}

/// # Safety
/// As for [`parcel::read_message`].
unsafe fn decode_message<A: DeserializeOwned>(message: &[u8]) -> Result<A, Fault> {
    // SAFETY: the caller's promise.
    unsafe { parcel::read_message(message, decode_value) }
}

/// Same as `decode`; a panic in the type's own code is a fault, so that the waiter is notified.
pub(crate) fn decode_guarded<A: DeserializeOwned>(parcel: Parcel) -> Result<A, Fault> {
    guarded(|| decode(parcel))
}

/// Serialises a value, and drops it. A panic in the type's own code is a fault.
pub(crate) fn encode_guarded<A: Serialize>(value: A, limit_bytes: usize) -> Result<Parcel, Fault> {
    let encoded = guarded(|| encode(&value, limit_bytes));
    let dropped = guarded(|| {
        drop(value);
        Ok(())
    });
    match (encoded, dropped) {
        (Ok(parcel), Ok(())) => Ok(parcel),
        (Ok(_), Err(fault)) => Err(fault),
        (Err(fault), dropped) => {
            quietly(|| drop(dropped));
            Err(fault)
        }
    }
}

fn guarded<A>(code: impl FnOnce() -> Result<A, Fault>) -> Result<A, Fault> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|payload| Err(Fault::Panicked(payload)))
}

/// Submits `f` with a serialised argument; `then` is called with the outcome.
pub(crate) fn submit<T, A, U, F>(
    worker: &Worker,
    trustee: TrusteeId,
    property: *mut Header,
    f: F,
    argument: &A,
    then: impl FnOnce(Result<U, Fault>) + 'static,
) where
    T: 'static,
    F: FnOnce(&mut T, A) -> U + 'static,
    A: Serialize + DeserializeOwned + 'static,
    U: Serialize + DeserializeOwned + 'static,
{
    let may_wait = worker.context() == Context::Free;
    let then = ThenDecode { then, value: PhantomData };
    if trustee.machine() != worker.id.machine() {
        let pack = |to: &mut Vec<u8>| pack_with(to, f, argument, limit_bytes(trustee));
        type Remote<T, A, U, F> = With<T, A, U, F, Parcel>;
        let sent =
            worker.remote.submit_packed::<Remote<T, A, U, F>, _>(worker, trustee, property, pack, then, may_wait);
        return sent.unwrap_or_else(|(then, fault)| worker.fail(then, fault));
    }
    let (mut written, list) = (Spill::<LONGEST_SHORT>::new(), List::default());
    let outcome = parcel::with_list(&list, || bincode::serde::encode_into_writer(argument, &mut written, FORMAT));
    if let Err(error) = outcome {
        return worker.call_back(|| (then.then)(Err(not_written(error))));
    }
    let message = match written.written() {
        Written::Short(bytes) if list.is_empty() => {
            return match bytes.len() {
                len if len <= SHORT_0 => {
                    let bytes = Short::<SHORT_0>::new(bytes);
                    worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, bytes), then, may_wait);
                }
                len if len <= SHORT_1 => {
                    let bytes = Short::<SHORT_1>::new(bytes);
                    worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, bytes), then, may_wait);
                }
                _ => {
                    let bytes = Short::<LONGEST_SHORT>::new(bytes);
                    worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, bytes), then, may_wait);
                }
            };
        }
        Written::Short(bytes) => bytes.to_vec(),
        Written::Long(bytes) => std::mem::take(bytes),
    };
    match seal(message, list, limit_bytes(trustee)) {
        Ok(parcel) => worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, parcel), then, may_wait),
        Err(fault) => worker.call_back(|| (then.then)(Err(fault))),
    }
}

/// Makes the message from the bytes of a value and the trusts inside it.
fn seal(mut message: Vec<u8>, list: List, limit_bytes: usize) -> Result<Parcel, Fault> {
    if message.len() > limit_bytes {
        return Err(Fault::TooLarge(message.len(), limit_bytes));
    }
    list.seal(&mut message, 0);
    // SAFETY: just written, and read by nothing else.
    Ok(unsafe { Parcel::from_message(message) })
}

const SHORT_0: usize = 23;
const SHORT_1: usize = 63;
const LONGEST_SHORT: usize = 191;

/// Up to `N` bytes in place.
struct Short<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Short<N> {
    fn new(from: &[u8]) -> Self {
        let mut bytes = [0; N];
        bytes[..from.len()].copy_from_slice(from);
        Short { len: from.len() as u8, bytes }
    }
}

/// Serialised argument on its way.
trait Argument: Sized {
    /// # Safety
    /// As for [`Parcel::from_message`].
    unsafe fn from_message(message: &[u8]) -> Self;
    fn into_message(self) -> Vec<u8>;
    fn decode<A: DeserializeOwned>(self) -> Result<A, Fault>;
}

impl<const N: usize> Argument for Short<N> {
    // SAFETY: as the trait says; arguments to another machine are always parcels.
    unsafe fn from_message(message: &[u8]) -> Self {
        Short::new(message)
    }
    fn into_message(self) -> Vec<u8> {
        self.bytes[..usize::from(self.len)].to_vec()
    }
    fn decode<A: DeserializeOwned>(self) -> Result<A, Fault> {
        // No trusts: otherwise it would be a parcel.
        parcel::with_list(&List::default(), || decode_value(&self.bytes[..usize::from(self.len)]))
    }
}

impl Argument for Parcel {
    // SAFETY: as the trait says.
    unsafe fn from_message(message: &[u8]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Parcel::from_message(message.to_vec()) }
    }
    fn into_message(self) -> Vec<u8> {
        self.into_message()
    }
    fn decode<A: DeserializeOwned>(self) -> Result<A, Fault> {
        decode(self)
    }
}

/// Closure on the property, with its serialised argument.
struct With<T, A, U, F, B> {
    f: F,
    argument: B,
    types: PhantomData<fn(&mut T, A) -> U>,
}

impl<T, A, U, F, B> With<T, A, U, F, B> {
    fn new(f: F, argument: B) -> Self {
        With { f, argument, types: PhantomData }
    }
}

impl<T, A, U, F, B> Request for With<T, A, U, F, B>
where
    T: 'static,
    F: FnOnce(&mut T, A) -> U,
    A: DeserializeOwned,
    U: Serialize,
    B: Argument,
{
    const TARGET: Target = Target::property_of::<T>();
    const PACKED_BYTES: Option<usize> = None;
    const RUNS_AT_ONCE: bool = true;

    fn name() -> String {
        name_on::<T, F>()
    }

    fn pack(self, to: &mut Vec<u8>) {
        pack_flat(self.f, to);
        to.extend(self.argument.into_message());
    }

    // SAFETY: as the trait says.
    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        let message = from.get(size_of::<F>()..)?;
        // SAFETY: the caller's promise; `pack` put the closure first.
        Some(unsafe { With::new(unpack_flat::<F>(from), B::from_message(message)) })
    }

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: live [property-live]; only this thread accesses it.
        if unsafe { (*property).is_poisoned() } {
            // Before the fault: a request that panics when its captures are dropped must not answer twice.
            drop(self);
            return serving.fault(poisoned(property));
        }
        // Deserialising is the code of the argument's type, not the property's: a panic there poisons nothing.
        let argument = match self.argument.decode::<A>() {
            Ok(argument) => argument,
            Err(fault) => {
                drop(self.f);
                return serving.fault(fault);
            }
        };
        serving.property = property;
        // SAFETY: live [property-live], of type `T` by the type of the trust; the borrow is unique
        // [closures-take-turns].
        let value = (self.f)(unsafe { Property::<T>::value(property) }, argument);
        serving.property = std::ptr::null_mut();
        let encoded = encode(&value, limit_bytes(serving.client));
        // Before the response: a request that panics when its result is dropped must not answer twice.
        drop(value);
        match encoded {
            Ok(parcel) => serving.out.put_bytes(&parcel.into_message()),
            Err(fault) => serving.fault(fault),
        }
    }
}

/// Response that deserialises the result and passes it on.
struct ThenDecode<U, H> {
    then: H,
    value: PhantomData<fn(U)>,
}

impl<U: DeserializeOwned, H: FnOnce(Result<U, Fault>)> Response for ThenDecode<U, H> {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let outcome = match fault {
            // SAFETY: no fault, so `With` put a message, which is read only here.
            None => unsafe { resuming.responses.take_bytes(|message| guarded(|| decode_message(message))) },
            Some(fault) => Err(fault),
        };
        (self.then)(outcome);
    }
}
