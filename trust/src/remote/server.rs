//! Requests of clients on other machines: runs a frame that came from one of them in delegated context, and gives the
//! carrier the answer. The counterpart of `crate::local::trustee`.
//!
//! All data from the peer is checked before it is used: the place of each request (`frame`), its operation
//! (`Carrier::operation_at`), that its property is one of this trustee's, and that this is of the type that the
//! operation is for.

use std::any::TypeId;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::fault;
use super::frame::{Cursor, Item, Malformed};
use super::{BEHIND_BYTES, Peers};
use crate::buffer::Buffer;
use crate::config::{REMOTE_KEPT_BYTES_MAX, REMOTE_SERVED_A_TURN};
use crate::ids::TrusteeId;
use crate::local::trustee::after_panic;
use crate::property::Header;
use crate::property::slab;
use crate::request::{Fault, Host, Operation, Serving, Target};
use crate::slot::Writer;

/// A client on another machine.
pub(crate) struct PeerClient {
    client: TrusteeId,
    served: Cell<u64>,
}

impl PeerClient {
    pub(super) fn new(client: TrusteeId) -> Self {
        PeerClient { client, served: Cell::new(0) }
    }

    /// Requests served for this client since the start.
    pub(crate) fn served(&self) -> u64 {
        self.served.get()
    }
}

/// Serves the batches that have come from one client, up to a limit: others want their turn too.
pub(super) fn serve(host: &impl Host, peers: &Peers, place: usize) -> bool {
    (0..REMOTE_SERVED_A_TURN).take_while(|_| serve_next(host, peers, place)).count() > 0
}

fn serve_next(host: &impl Host, peers: &Peers, place: usize) -> bool {
    let mut frame = peers.incoming.take();
    let received = peers.carrier.borrow_mut().receive_requests(place, &mut frame);
    if let Some(requests) = received {
        host.mark_busy();
        let client = &peers.clients[place];
        let (mut answer, faults) = match run(host, peers, client.client, frame.bytes(), requests) {
            Ok(served) => served,
            Err(malformed) => peers.end(place, malformed),
        };
        client.served.set(client.served.get() + u64::from(requests));
        let faults_bytes = if faults.is_empty() { 0 } else { fault::append(&mut answer, faults) };
        peers.carrier.borrow_mut().answer(place, &mut answer, faults_bytes);
        answer.trim(REMOTE_KEPT_BYTES_MAX);
        peers.answer.set(answer);
        host.counters().requests_served.add(u64::from(requests));
        host.counters().batches_served.add(1);
        frame.trim(REMOTE_KEPT_BYTES_MAX);
    }
    peers.incoming.set(frame);
    received.is_some()
}

/// The responses to a batch, and the requests of it that have none.
type Served = (Buffer, Vec<(u32, Fault)>);

/// Runs a batch in delegated context.
pub(super) fn run(
    host: &impl Host,
    peers: &Peers,
    client: TrusteeId,
    frame: &[u8],
    requests: u32,
) -> Result<Served, Malformed> {
    let mut out = peers.answer.take();
    out.reserve(peers.room_bytes + BEHIND_BYTES);
    let out = Writer::packed(out);
    let mut serving = Serving { out, next: ptr::null_mut(), index: 0, property: ptr::null_mut(), client };
    let (mut cursor, mut last) = (Cursor::new(), None);
    let resolve = |position| peers.carrier.borrow().operation_at(position);
    host.delegated(|| {
        loop {
            let ran = catch_unwind(AssertUnwindSafe(|| {
                while let Some(item) = cursor.next(frame, resolve)? {
                    run_one(host, &item, frame, &mut last, &mut serving)?;
                    serving.index += 1;
                }
                Ok(())
            }));
            match ran {
                Ok(outcome) => break outcome,
                Err(payload) => after_panic(host, &mut serving, payload),
            }
        }
    })?;
    host.counters().running.end();
    if serving.index != requests {
        return Err(Malformed("a batch with another number of requests than it says"));
    }
    Ok(serving.out.finish_packed())
}

/// `last` is the property that was looked up last, and the type of its value: none is freed in delegated context.
#[inline(always)]
fn run_one(
    host: &impl Host,
    item: &Item<&'static Operation>,
    frame: &[u8],
    last: &mut Option<(*mut Header, TypeId)>,
    serving: &mut Serving,
) -> Result<(), Malformed> {
    let property = ptr::with_exposed_provenance_mut::<Header>(item.property as usize);
    if item.operation.target != Target::Nothing {
        let value = match *last {
            Some((last, value)) if last == property => value,
            _ => {
                if !host.knows(property) {
                    serving.fault(Fault::Gone);
                    return Ok(());
                }
                // SAFETY: a property of this trustee that has not been freed.
                let value = unsafe { slab::kind_of(property) }.value();
                *last = Some((property, value));
                value
            }
        };
        if item.operation.target != Target::AnyProperty && item.operation.target != Target::Property(value) {
            return Err(Malformed("a closure for another type than its property's"));
        }
    }
    let bytes = &frame[item.start..item.start + item.len];
    host.counters().running.begin(item.operation.as_running());
    // SAFETY: the operation is one of this program (`Operation::at`), the bytes are those that its client packed for
    // it, and the property, if it needs one, is live and of the type that it is for.
    unsafe { (item.operation.run_packed)(bytes, property, serving) };
    Ok(())
}
