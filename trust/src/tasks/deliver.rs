//! Delivery of a launched fiber's outcome: a request from the trustee's worker to the client's, with the token under
//! which the client keeps the callback.

#![allow(unsafe_code)]

use crate::ids::TrusteeId;
use crate::property::Header;
use crate::remote::RemoteFault;
use crate::request::{Fault, Host, Ignore, Request, Serving, Target};
use crate::runtime::worker::{self, Worker};
use crate::serial;
use crate::serial::parcel::Parcel;
use crate::unwind::quietly;

/// Runs a client's callback. A panic in it is reported by the panic hook and stops here: the caller is a fiber's entry,
/// a trustee's closure or its end, where nothing may unwind.
pub(crate) fn call_back(worker: &Worker, callback: impl FnOnce()) {
    worker.call_back(|| quietly(callback));
}

/// Tells the client that there will be no result.
pub(crate) fn deliver_fault(worker: &Worker, client: TrusteeId, token: u64, fault: Fault) {
    if client == worker.id {
        return call_back(worker, || worker.launches.fail(token, fault));
    }
    worker.submit(client, std::ptr::null_mut(), DeliverFault { token, fault }, Ignore, false);
}

/// Writes a token and its payload, for a message to another machine.
pub(super) fn pack_token(token: u64, message: Vec<u8>, to: &mut Vec<u8>) {
    to.extend_from_slice(&token.to_ne_bytes());
    to.extend(message);
}

/// # Safety
/// Same as `Request::unpack`.
pub(super) unsafe fn unpack_token(from: &[u8]) -> Option<(u64, Parcel)> {
    let (token, message) = from.split_first_chunk::<8>()?;
    // SAFETY: the caller's promise.
    Some((u64::from_ne_bytes(*token), unsafe { Parcel::from_message(message.to_vec()) }))
}

/// Result of a launched closure, on its way to the client.
pub(crate) struct Deliver<U, const STAYS: bool> {
    pub(crate) token: u64,
    pub(crate) value: U,
}

impl<U: 'static, const STAYS: bool> Request for Deliver<U, STAYS> {
    const STAYS: bool = STAYS;
    const TARGET: Target = Target::Nothing;

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            call_back(worker, || worker.launches.complete(self.token, Ok(self.value)));
        });
        serving.out.put(());
    }
}

/// Reason why a launched closure has no result, on its way to the client.
struct DeliverFault {
    token: u64,
    fault: Fault,
}

impl Request for DeliverFault {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;

    fn pack(self, to: &mut Vec<u8>) {
        // Plain text and a number: it always serialises.
        let fault = serial::encode(&RemoteFault::new(self.fault), usize::MAX).map_or(Vec::new(), Parcel::into_message);
        pack_token(self.token, fault, to);
    }

    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        // SAFETY: the caller's promise.
        let (token, fault) = unsafe { unpack_token(from) }?;
        Some(DeliverFault { token, fault: serial::decode::<RemoteFault>(fault).ok()?.into_fault() })
    }

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            call_back(worker, || worker.launches.fail(self.token, self.fault));
        });
        serving.out.put(());
    }
}

/// Serialised result of a launched closure, on its way to the client.
pub(crate) struct DeliverBytes {
    pub(crate) token: u64,
    pub(crate) bytes: Parcel,
}

impl Request for DeliverBytes {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;

    fn pack(self, to: &mut Vec<u8>) {
        pack_token(self.token, self.bytes.into_message(), to);
    }

    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        // SAFETY: the caller's promise.
        let (token, bytes) = unsafe { unpack_token(from) }?;
        Some(DeliverBytes { token, bytes })
    }

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            let outcome: Result<Result<Parcel, Fault>, Fault> = Ok(Ok(self.bytes));
            call_back(worker, || worker.launches.complete(self.token, outcome));
        });
        serving.out.put(());
    }
}
