//! Ways to trustees on other machines, for the crate `gossamer`; not for programs.
//!
//! Going remote changes only how a full batch travels: `gossamer` gives each worker a [`Link`] to every worker
//! of the other machines, as client, and a [`Source`] for each, as trustee. Requests travel in packed form
//! (`Request::pack`), responses as one byte string; who suspends, serves and wakes stays as it is.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::config::FAR_MESSAGE_BYTES_MAX;
use crate::property::Header;
use crate::registry::TrusteeId;
use crate::request::{Fault, OperationOf, Request};
use crate::worker::{self};

pub use crate::park::Bell;
pub use crate::place::{call, call_then, entrust_remote};
pub use crate::registry::{set_machine, worker_id};
pub use crate::request::Operation;

/// Requests that may wait for a batch in flight before those who make them wait too.
const OUTBOX_REQUESTS: usize = 4096;
/// Bytes likewise.
const OUTBOX_BYTES: usize = 1 << 20;

/// The client's half of the way to one trustee of another machine. Used by one worker.
pub trait Link {
    /// Sends a prefix of the outbox as one batch; says how many requests it took, 0 if it cannot send now.
    fn send(&mut self, outbox: &Outbox) -> usize;
    /// The answer to the oldest batch in flight, once the whole of it has come.
    fn receive(&mut self) -> Option<Answer>;
    /// Would `receive` have something to do?
    fn has_news(&self) -> bool;
}

/// The trustee's half, for one client of another machine. Used by one worker.
pub trait Source {
    /// The client.
    fn client(&self) -> TrusteeId;
    /// The next batch, whole and checked.
    fn receive(&mut self) -> Option<Requests>;
    /// The answer to the batch that was received last: exactly one for each.
    fn answer(&mut self, answer: Answer);
    /// Would `receive` have something to do?
    fn has_batch(&self) -> bool;
}

/// Requests that wait to be sent, in order.
#[derive(Default)]
pub struct Outbox {
    entries: VecDeque<Entry>,
    bytes: Vec<u8>,
}

struct Entry {
    operation: &'static Operation,
    property: u64,
    start: usize,
    len: usize,
}

/// One request in packed form.
pub struct Packed<'a> {
    /// What to do.
    pub operation: &'static Operation,
    /// Address of the property at its trustee; 0 if the request has none.
    pub property: u64,
    /// Captures and arguments.
    pub bytes: &'a [u8],
}

impl Outbox {
    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Does none?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// The request at this place of the order.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn get(&self, place: usize) -> Packed<'_> {
        let entry = &self.entries[place];
        let bytes = &self.bytes[entry.start..entry.start + entry.len];
        Packed { operation: entry.operation, property: entry.property, bytes }
    }

    /// Adds a request to the end.
    pub(crate) fn push<C: Request>(&mut self, property: *mut Header, request: C) {
        let start = self.bytes.len();
        request.pack(&mut self.bytes);
        let len = self.bytes.len() - start;
        let property = property.expose_provenance() as u64;
        self.entries.push_back(Entry { operation: OperationOf::<C>::INLINE, property, start, len });
    }

    pub(crate) fn forget(&mut self, sent: usize) {
        self.entries.drain(..sent);
        let Some(first) = self.entries.front().map(|entry| entry.start) else {
            return self.bytes.clear();
        };
        if first > self.bytes.len() / 2 {
            self.bytes.drain(..first);
            for entry in &mut self.entries {
                entry.start -= first;
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= OUTBOX_REQUESTS || self.bytes.len() >= OUTBOX_BYTES
    }
}

/// A batch from another machine.
pub struct Requests {
    /// The bytes of all of them.
    pub buffer: Vec<u8>,
    /// Where each lies.
    pub items: Vec<Item>,
}

/// One request of a batch.
pub struct Item {
    /// What to do.
    pub operation: &'static Operation,
    /// Address of the property, or 0. Checked before it is used.
    pub property: u64,
    /// Where its bytes begin in the buffer.
    pub start: u32,
    /// How many they are.
    pub len: u32,
}

/// The responses to a batch.
pub struct Answer {
    /// One behind the other, as the operations put them.
    pub bytes: Vec<u8>,
    /// Which requests have no response, in order, and why.
    pub faults: Vec<(u32, RemoteFault)>,
}

/// Why a request of another machine has no response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoteFault {
    kind: u8,
    text: String,
}

impl RemoteFault {
    pub(crate) fn new(fault: Fault) -> Self {
        let (kind, text) = match fault {
            Fault::Panicked(payload) => (0, crate::error::panic_text(&*payload)),
            Fault::Poisoned(text) => (1, text),
            Fault::Gone => (2, String::new()),
            Fault::Codec(text) => (3, text),
            Fault::Refused(text) => (4, text),
            Fault::TooLarge(bytes, _) => (5, bytes.to_string()),
        };
        RemoteFault { kind, text }
    }

    pub(crate) fn into_fault(self) -> Fault {
        match self.kind {
            0 => Fault::Panicked(Box::new(self.text)),
            1 => Fault::Poisoned(self.text),
            2 => Fault::Gone,
            3 => Fault::Codec(self.text),
            5 => Fault::TooLarge(self.text.parse().unwrap_or(0), FAR_MESSAGE_BYTES_MAX),
            _ => Fault::Refused(self.text),
        }
    }
}

/// Gives the calling worker its links, its sources and its bell. Once, before it serves anyone.
///
/// # Panics
/// If the worker has some already.
pub fn attach(links: Vec<(TrusteeId, Box<dyn Link>)>, sources: Vec<Box<dyn Source>>, bell: Option<Box<dyn Bell>>) {
    worker::with(|worker| worker.far.attach(worker, links, sources, bell));
}
