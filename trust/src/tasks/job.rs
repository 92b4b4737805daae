//! Work of a launched fiber on a value: a closure, or a closure with a serialised argument.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::MESSAGE_BYTES_MAX;
use crate::ids::TrusteeId;
use crate::request::{ANYWHERE, Fault, Ignore, pack_flat, unpack_flat};
use crate::runtime::worker::Worker;
use crate::serial;
use crate::serial::parcel::Parcel;
use crate::tasks::deliver::{Deliver, DeliverBytes, deliver_fault};
use crate::tasks::held::Held;
use crate::unwind::quietly;

/// Work of a launched fiber on a value.
pub(crate) trait Job<T>: Send + 'static {
    /// Result of the job.
    type Output: Send + 'static;
    fn run(self, held: &mut Held<'_, T>) -> Self::Output;
    /// The same as in [`Request`](crate::request::Request), and so for those below.
    const STAYS: bool = ANYWHERE;
    const PACKED_BYTES: Option<usize>;
    fn pack(self, to: &mut Vec<u8>);
    /// # Safety
    /// Same as [`Request::unpack`](crate::request::Request::unpack).
    unsafe fn unpack(from: &[u8]) -> Option<Self>
    where
        Self: Sized;
    /// Sends the output to the client.
    fn deliver(worker: &Worker, client: TrusteeId, token: u64, output: Self::Output);
}

/// Closure as a job.
pub(crate) struct Plain<F, const STAYS: bool>(pub(crate) F);

impl<T, U, F, const STAYS: bool> Job<T> for Plain<F, STAYS>
where
    U: Send + 'static,
    F: FnOnce(&mut Held<'_, T>) -> U + Send + 'static,
{
    type Output = U;
    const STAYS: bool = STAYS;
    const PACKED_BYTES: Option<usize> = Some(size_of::<F>());

    fn run(self, held: &mut Held<'_, T>) -> U {
        (self.0)(held)
    }
    fn pack(self, to: &mut Vec<u8>) {
        pack_flat(self.0, to);
    }
    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        // SAFETY: the caller's promise.
        (!STAYS && from.len() == size_of::<F>()).then(|| Plain(unsafe { unpack_flat(from) }))
    }
    fn deliver(worker: &Worker, client: TrusteeId, token: u64, output: U) {
        worker.submit(client, std::ptr::null_mut(), Deliver::<U, STAYS> { token, value: output }, Ignore, true);
    }
}

/// Closure with a serialised argument; the result is serialised too.
pub(crate) struct Serialised<A, U, F> {
    pub(crate) f: F,
    pub(crate) argument: Parcel,
    pub(crate) types: PhantomData<fn(A) -> U>,
}

impl<T, A, U, F> Job<T> for Serialised<A, U, F>
where
    A: DeserializeOwned + 'static,
    U: Serialize + 'static,
    F: FnOnce(&mut Held<'_, T>, A) -> U + Send + 'static,
{
    type Output = Result<Parcel, Fault>;
    const PACKED_BYTES: Option<usize> = None;

    fn run(self, held: &mut Held<'_, T>) -> Self::Output {
        // The code of the argument's and result's types is not the property's: a panic there poisons nothing.
        let argument = match serial::decode_guarded::<A>(self.argument) {
            Ok(argument) => argument,
            Err(fault) => {
                quietly(|| drop(self.f));
                return Err(fault);
            }
        };
        serial::encode_guarded((self.f)(held, argument), MESSAGE_BYTES_MAX)
    }
    fn pack(self, to: &mut Vec<u8>) {
        pack_flat(self.f, to);
        to.extend(self.argument.into_message());
    }
    // SAFETY: as the trait says.
    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        let message = from.get(size_of::<F>()..)?.to_vec();
        // SAFETY: the caller's promise.
        let (f, argument) = unsafe { (unpack_flat(from), Parcel::from_message(message)) };
        Some(Serialised { f, argument, types: PhantomData })
    }
    fn deliver(worker: &Worker, client: TrusteeId, token: u64, output: Self::Output) {
        match output {
            Ok(bytes) if bytes.len() > serial::limit_bytes(client) => {
                let fault = Fault::TooLarge(bytes.len(), serial::limit_bytes(client));
                deliver_fault(worker, client, token, fault);
            }
            Ok(bytes) => worker.submit(client, std::ptr::null_mut(), DeliverBytes { token, bytes }, Ignore, true),
            Err(fault) => deliver_fault(worker, client, token, fault),
        }
    }
}
