//! Arguments and results that travel serialised (T5, thesis 2.4.3.3): serde, in bincode 2's standard format.
//!
//! Short arguments travel in the slot, in an array of the next size up; long ones in an allocation of their
//! own. Results follow in the response slot, with their length.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::panic::catch_unwind;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::{FAR_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::property::{Header, Property};
use crate::registry::{self, TrusteeId};
use crate::request::{Fault, Request, Response, Resuming, Serving, pack_flat, poisoned, unpack_flat};
use crate::worker::{Context, Worker};

const FORMAT: bincode::config::Configuration = bincode::config::standard();

/// A value's bytes.
pub(crate) fn encode<A: Serialize>(value: &A, limit_bytes: usize) -> Result<Vec<u8>, Fault> {
    let bytes = bincode::serde::encode_to_vec(value, FORMAT).map_err(|error| Fault::Codec(error.to_string()))?;
    if bytes.len() > limit_bytes { Err(Fault::TooLarge(bytes.len(), limit_bytes)) } else { Ok(bytes) }
}

/// The most bytes that a message between here and this worker may have.
pub(crate) fn limit_bytes(other: TrusteeId) -> usize {
    if other.machine() == registry::machine() { MESSAGE_BYTES_MAX } else { FAR_MESSAGE_BYTES_MAX }
}

/// The packed form of [`With`]: the closure, then its argument's bytes. On an error the closure is dropped.
fn pack_with<A: Serialize, F>(to: &mut Vec<u8>, f: F, argument: &A, limit_bytes: usize) -> Result<(), Fault> {
    to.resize(size_of::<F>(), 0);
    bincode::serde::encode_into_std_write(argument, to, FORMAT).map_err(|error| Fault::Codec(error.to_string()))?;
    let bytes = to.len() - size_of::<F>();
    if bytes > limit_bytes {
        return Err(Fault::TooLarge(bytes, limit_bytes));
    }
    // SAFETY: its room was left free at the start; the value is moved there.
    unsafe { to.as_mut_ptr().cast::<F>().write_unaligned(f) };
    Ok(())
}

/// The value of these bytes.
pub(crate) fn decode<A: DeserializeOwned>(bytes: &[u8]) -> Result<A, Fault> {
    match bincode::serde::decode_from_slice(bytes, FORMAT) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(Fault::Codec("it reads less than it wrote".to_owned())),
        Err(error) => Err(Fault::Codec(error.to_string())),
    }
}

/// As `decode`; a panic of the type's own code is a fault, so that whoever waits is told.
pub(crate) fn decode_guarded<A: DeserializeOwned>(bytes: &[u8]) -> Result<A, Fault> {
    catch_unwind(|| decode(bytes)).unwrap_or_else(|payload| Err(Fault::Panicked(payload)))
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
        type Far<T, A, U, F> = With<T, A, U, F, Vec<u8>>;
        let sent = worker.far.submit_packed::<Far<T, A, U, F>, _>(worker, trustee, property, pack, then, may_wait);
        return sent.unwrap_or_else(|(then, fault)| worker.fail(then, fault));
    }
    let mut short = [0; LONGEST_SHORT];
    match bincode::serde::encode_into_slice(argument, &mut short, FORMAT) {
        Ok(len @ 0..=SHORT_0) => {
            let bytes = Short::<SHORT_0>::new(&short[..len]);
            worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, bytes), then, may_wait);
        }
        Ok(len @ 0..=SHORT_1) => {
            let bytes = Short::<SHORT_1>::new(&short[..len]);
            worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, bytes), then, may_wait);
        }
        Ok(len) => {
            let bytes = Short::<LONGEST_SHORT>::new(&short[..len]);
            worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, bytes), then, may_wait);
        }
        Err(_) => match encode(argument, limit_bytes(trustee)) {
            Ok(bytes) => worker.submit(trustee, property, With::<T, A, U, F, _>::new(f, bytes), then, may_wait),
            Err(fault) => worker.call_back(|| (then.then)(Err(fault))),
        },
    }
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

/// Where the bytes of an argument are.
trait Bytes: AsRef<[u8]> + Sized {
    fn from_slice(bytes: &[u8]) -> Self;
}

impl<const N: usize> Bytes for Short<N> {
    fn from_slice(bytes: &[u8]) -> Self {
        Short::new(bytes)
    }
}

impl Bytes for Vec<u8> {
    fn from_slice(bytes: &[u8]) -> Self {
        bytes.to_vec()
    }
}

impl<const N: usize> AsRef<[u8]> for Short<N> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A closure on the property and its serialised argument.
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
    F: FnOnce(&mut T, A) -> U,
    A: DeserializeOwned,
    U: Serialize,
    B: Bytes,
{
    const PACKED_BYTES: Option<usize> = None;
    const CAPTURED_BYTES: usize = size_of::<F>();

    fn pack(self, to: &mut Vec<u8>) {
        pack_flat(self.f, to);
        to.extend_from_slice(self.argument.as_ref());
    }

    // SAFETY: as the trait says.
    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        let argument = B::from_slice(from.get(size_of::<F>()..)?);
        // SAFETY: the caller's promise; `pack` put the closure first.
        Some(With::new(unsafe { unpack_flat::<F>(from) }, argument))
    }

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: live (C1); only this thread looks at it.
        if unsafe { (*property).is_poisoned() } {
            // Before the fault: a request whose captures panic when dropped must not have two.
            drop(self);
            return serving.fault(poisoned(property));
        }
        // Reading the argument is the argument's code, not the property's: a panic there poisons nothing.
        let argument = match decode::<A>(self.argument.as_ref()) {
            Ok(argument) => argument,
            Err(fault) => {
                drop(self.f);
                return serving.fault(fault);
            }
        };
        serving.property = property;
        // SAFETY: live (C1), of type `T` by the type of the trust; the borrow is unique (D1).
        let value = (self.f)(unsafe { Property::<T>::value(property) }, argument);
        serving.property = std::ptr::null_mut();
        let encoded = encode(&value, limit_bytes(serving.client));
        // Before the response: a request whose result panics when dropped must not have a fault as well.
        drop(value);
        match encoded {
            Ok(bytes) => serving.out.put_bytes(&bytes),
            Err(fault) => serving.fault(fault),
        }
    }
}

/// Reads the result back and hands it on.
struct ThenDecode<U, H> {
    then: H,
    value: PhantomData<fn(U)>,
}

impl<U: DeserializeOwned, H: FnOnce(Result<U, Fault>)> Response for ThenDecode<U, H> {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let outcome = match fault {
            // SAFETY: no fault, so `With` put bytes.
            None => unsafe { resuming.responses.take_bytes(decode_guarded::<U>) },
            Some(fault) => Err(fault),
        };
        (self.then)(outcome);
    }
}
