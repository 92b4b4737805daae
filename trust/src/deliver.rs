//! A launched fiber's outcome on its way home: a request from the trustee's worker to the client's, with the token
//! under which the client keeps what is to be done with it.

#![allow(unsafe_code)]

use crate::far::RemoteFault;
use crate::inside::Parcel;
use crate::job::Job;
use crate::property::Header;
use crate::registry::TrusteeId;
use crate::request::{Fault, Ignore, Request, Serving, Target};
use crate::serial;
use crate::unwind::quietly;
use crate::worker::{self, Worker};

/// Sends the outcome to the client.
pub(crate) fn deliver<T, J: Job<T>>(worker: &Worker, client: TrusteeId, token: u64, outcome: Result<J::Output, Fault>) {
    if client == worker.id {
        return call_back(worker, || worker.launches.complete(token, outcome));
    }
    match outcome {
        Ok(output) => J::deliver(worker, client, token, output),
        Err(fault) => deliver_fault(worker, client, token, fault),
    }
}

/// Runs a client's callback. One that panics has said so through the panic hook; this is a fiber's entry (trap 7),
/// a trustee's closure or its end, where nothing may unwind.
pub(crate) fn call_back(worker: &Worker, callback: impl FnOnce()) {
    worker.call_back(|| quietly(callback));
}

/// Sends word to the client that there will be no result.
pub(crate) fn deliver_fault(worker: &Worker, client: TrusteeId, token: u64, fault: Fault) {
    if client == worker.id {
        return call_back(worker, || worker.launches.fail(token, fault));
    }
    worker.submit(client, std::ptr::null_mut(), DeliverFault { token, fault }, Ignore, false);
}

/// A launched closure's result on its way to the client.
pub(crate) struct Deliver<U> {
    pub(crate) token: u64,
    pub(crate) value: U,
}

impl<U: 'static> Request for Deliver<U> {
    const TARGET: Target = Target::Nothing;

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            call_back(worker, || worker.launches.complete(self.token, Ok(self.value)));
        });
        serving.out.put(());
    }
}

/// Why a launched closure has no result.
struct DeliverFault {
    token: u64,
    fault: Fault,
}

impl Request for DeliverFault {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;

    fn pack(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.token.to_ne_bytes());
        // Plain text and a number: it always serialises.
        to.extend(serial::encode(&RemoteFault::new(self.fault), usize::MAX).map_or(Vec::new(), Parcel::into_message));
    }

    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        let (token, fault) = from.split_first_chunk::<8>()?;
        // SAFETY: the caller's promise.
        let fault = unsafe { Parcel::from_message(fault.to_vec()) };
        let fault = serial::decode::<RemoteFault>(fault).ok()?.into_fault();
        Some(DeliverFault { token: u64::from_ne_bytes(*token), fault })
    }

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            call_back(worker, || worker.launches.fail(self.token, self.fault));
        });
        serving.out.put(());
    }
}

/// A launched closure's serialised result on its way to the client.
pub(crate) struct DeliverBytes {
    pub(crate) token: u64,
    pub(crate) bytes: Parcel,
}

impl Request for DeliverBytes {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;

    fn pack(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.token.to_ne_bytes());
        to.extend(self.bytes.into_message());
    }

    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        let (token, bytes) = from.split_first_chunk::<8>()?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { Parcel::from_message(bytes.to_vec()) };
        Some(DeliverBytes { token: u64::from_ne_bytes(*token), bytes })
    }

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            let outcome: Result<Result<Parcel, Fault>, Fault> = Ok(Ok(self.bytes));
            call_back(worker, || worker.launches.complete(self.token, outcome));
        });
        serving.out.put(());
    }
}
