//! Requests to one trustee of another machine: the open batch, the batches that wait for their turn, those in flight,
//! and the continuations of their responses. The counterpart of `crate::local::client`, which has slots in shared
//! memory where this has a carrier.
//!
//! Requests are written in place, into the bytes that will travel. Their continuations lie in the same order in a
//! buffer of their own, which stays here until the answer has come: no ids, no map.
//!
//! Order and fairness: batches are sent and answered in order. While full batches are queued, callers that may wait do
//! so in a line of fibers. Each answered batch resumes the first of them, even if callbacks have sent more meanwhile,
//! and a resumed fiber resumes the next one if there is room still.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::fault;
use super::frame::{Cursor, Item, LENGTH_BYTES, Malformed, PROPERTY_BYTES, Writer};
use super::{Local, Peers};
use crate::buffer::Buffer;
use crate::config::{REMOTE_KEPT_BYTES_MAX, REMOTE_WAITING_MAX};
use crate::fiber::FiberQueue;
use crate::ids::TrusteeId;
use crate::local::client::resume_batch;
use crate::property::Header;
use crate::request::{
    CONTINUATION_HEAD, Continuation, ContinuationOf, Fault, Operation, OperationOf, Request, Response, Resuming,
    capture_bytes, travels_inline, write_captures,
};
use crate::slot::Reader;

/// See the file's documentation.
pub(super) struct PeerTrustee {
    pub(super) trustee: TrusteeId,
    /// Its place at the carrier.
    pub(super) place: usize,
    /// Whether it is in the list of those with outstanding requests.
    pub(super) listed: Cell<bool>,
    open: RefCell<Batch>,
    /// A request in the open batch does not wait for answers to the batches in flight.
    is_urgent: Cell<bool>,
    /// Full batches, in order.
    waiting: RefCell<VecDeque<Batch>>,
    in_flight: RefCell<VecDeque<Continuations>>,
    /// Batches answered.
    answered: Cell<u64>,
    /// Fibers that wait for their turn to make a request.
    line: FiberQueue,
    /// Fibers that wait for answers.
    waiters: FiberQueue,
    /// Is it full, or are there fibers in line?
    crowded: Cell<bool>,
    /// Its machine is lost.
    is_lost: Cell<bool>,
}

struct Batch {
    writer: Writer,
    continuations: Continuations,
}

/// The continuations of one batch.
#[derive(Default)]
pub(super) struct Continuations {
    buffer: Buffer,
    bytes: usize,
    count: u32,
}

impl Continuations {
    #[inline(always)]
    fn push<R: Response>(&mut self, response: R) {
        if const { travels_inline::<R>() } {
            self.place(ContinuationOf::<R>::INLINE, response);
        } else {
            self.place(ContinuationOf::<R>::BOXED, Box::new(response));
        }
    }

    #[inline(always)]
    fn place<V>(&mut self, continuation: &'static Continuation, captures: V) {
        let end = self.bytes + CONTINUATION_HEAD + capture_bytes::<V>();
        self.buffer.reserve(end);
        let at = self.buffer.start().wrapping_add(self.bytes);
        // SAFETY: there is room up to `end`; all records are multiples of 8 bytes.
        unsafe {
            at.cast::<&'static Continuation>().write(continuation);
            write_captures(at.add(CONTINUATION_HEAD), captures);
        }
        self.bytes = end;
        self.count += 1;
    }

    /// Runs all of them with this fault.
    fn fail(mut self, worker: &impl Local, fault: impl Fn() -> Fault) {
        let mut resuming = Resuming { responses: Reader::empty(), next: self.buffer.start() };
        let faults = (0..self.count).map(|index| (index, fault())).collect();
        // SAFETY: the continuations of one batch, which are run nowhere else; each is given a fault.
        worker.call_back(|| unsafe { resume_batch(&mut resuming, faults, self.count) });
    }

    fn clear(&mut self) {
        self.bytes = 0;
        self.count = 0;
    }
}

impl PeerTrustee {
    pub(super) fn new(trustee: TrusteeId, place: usize) -> Self {
        PeerTrustee {
            trustee,
            place,
            listed: Cell::new(false),
            open: RefCell::new(Batch { writer: Writer::new(), continuations: Continuations::default() }),
            is_urgent: Cell::new(false),
            waiting: RefCell::default(),
            in_flight: RefCell::default(),
            answered: Cell::new(0),
            line: FiberQueue::new(),
            waiters: FiberQueue::new(),
            crowded: Cell::new(false),
            is_lost: Cell::new(false),
        }
    }

    /// Is there a request that has not been answered?
    pub(super) fn is_outstanding(&self) -> bool {
        !self.in_flight.borrow().is_empty()
            || self.open.borrow().continuations.count > 0
            || !self.waiting.borrow().is_empty()
    }

    /// Batches made so far, including those not sent yet.
    pub(super) fn written_in_all(&self) -> u64 {
        let open = u64::from(self.open.borrow().continuations.count > 0);
        self.answered.get() + self.in_flight.borrow().len() as u64 + self.waiting.borrow().len() as u64 + open
    }

    /// Waits until this many batches have been answered, and their continuations have run.
    pub(super) fn wait_for_answers(&self, worker: &impl Local, batches: u64) {
        worker.wait_in(&self.waiters, || self.answered.get() >= batches);
    }

    fn is_full(&self) -> bool {
        self.waiting.borrow().len() >= REMOTE_WAITING_MAX
    }

    /// Notes a change. To be called when a batch or a fiber has joined or left its line.
    fn note_crowd(&self) {
        self.crowded.set(self.is_full() || !self.line.is_empty());
    }

    /// Returns when it is the caller's turn to make one request. True if the machine was lost meanwhile, so that no
    /// request can be made.
    #[inline(always)]
    pub(super) fn wait_for_place(&self, worker: &impl Local) -> bool {
        self.crowded.get() && self.stand_in_line(worker)
    }

    #[cold]
    fn stand_in_line(&self, worker: &impl Local) -> bool {
        match worker.scheduler().current() {
            Some(fiber) => {
                self.line.push(fiber);
                self.note_crowd();
                worker.scheduler().suspend();
            }
            // The loop's own thread cannot stand in line: it goes on with room or after the next answer.
            None => {
                let answered = self.answered.get();
                worker.wait_until(|| !self.is_full() || self.answered.get() != answered);
            }
        }
        self.is_lost.get()
    }

    /// Its machine is lost: fails the requests that were sent as lost, and the others as never sent, whose captures are
    /// dropped first. Captures that may have arrived are the lost machine's.
    #[cold]
    pub(super) fn lose(&self, worker: &impl Local, peers: &Peers, machine: u16) {
        self.is_lost.set(true);
        self.listed.set(false);
        self.answered.set(self.written_in_all());
        let sent = std::mem::take(&mut *self.in_flight.borrow_mut());
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        let nothing = Batch { writer: Writer::new(), continuations: Continuations::default() };
        let open = self.open.replace(nothing);
        for batch in sent {
            batch.fail(worker, || Fault::Lost(machine));
        }
        for mut batch in waiting.into_iter().chain([open]).filter(|batch| batch.continuations.count > 0) {
            // Before the callers go on: captures may borrow from them.
            worker.call_back(|| drop_unsent(peers, batch.writer.frame().bytes()));
            batch.continuations.fail(worker, || Fault::Gone);
        }
        worker.scheduler().resume_all(&self.waiters);
        worker.scheduler().resume_all(&self.line);
        self.note_crowd();
    }

    /// Resumes the first fiber of the line.
    fn call_next(&self, worker: &impl Local) {
        if let Some(fiber) = self.line.pop() {
            self.note_crowd();
            worker.scheduler().ready(fiber);
        }
    }

    /// Writes a request into the open batch. False, and nothing taken, if that is full: see [`close`](Self::close).
    ///
    /// # Safety
    /// On true the values behind `request` and `response` have been moved out. The response must fit the
    /// request's output (see [`Response`]).
    #[inline(always)]
    pub(super) unsafe fn try_push<C: Request, R: Response>(
        &self,
        peers: &Peers,
        property: *mut Header,
        request: *mut C,
        response: *mut R,
    ) -> bool {
        let Batch { writer, continuations } = &mut *self.open.borrow_mut();
        let operation = OperationOf::<C>::INLINE;
        let position = || peers.carrier.borrow().position(operation);
        let Some(at) = writer.add(operation, PROPERTY_BYTES + size_of::<C>(), peers.room_bytes, position) else {
            return false;
        };
        // SAFETY: `add` gave out room for property and captures; the caller gives both values up.
        unsafe {
            at.cast::<u64>().write_unaligned(property.expose_provenance() as u64);
            at.add(PROPERTY_BYTES).cast::<C>().write_unaligned(request.read());
            continuations.push(response.read());
        }
        true
    }

    /// Writes a request in its packed form.
    pub(super) fn push_packed<R: Response>(
        &self,
        worker: &impl Local,
        peers: &Peers,
        property: *mut Header,
        operation: &'static Operation,
        packed: &[u8],
        response: R,
    ) {
        let varies = operation.packed_bytes().is_none();
        let head_bytes = PROPERTY_BYTES + if varies { LENGTH_BYTES } else { 0 };
        let position = || peers.carrier.borrow().position(operation);
        let at = loop {
            let mut open = self.open.borrow_mut();
            match open.writer.add(operation, head_bytes + packed.len(), peers.room_bytes, position) {
                Some(at) => {
                    open.continuations.push(response);
                    break at;
                }
                None => {
                    drop(open);
                    self.close(worker, peers);
                }
            }
        };
        // SAFETY: `add` gave out room for property, length and the packed bytes; nothing was written since.
        unsafe {
            at.cast::<u64>().write_unaligned(property.expose_provenance() as u64);
            if varies {
                at.add(PROPERTY_BYTES).cast::<u32>().write_unaligned(packed.len() as u32);
            }
            at.add(head_bytes).copy_from_nonoverlapping(packed.as_ptr(), packed.len());
        }
    }

    /// Notes one more request.
    #[inline(always)]
    pub(super) fn note_submitted(&self, worker: &impl Local, peers: &Peers) {
        peers.numbers.add_one(self.place);
        peers.list(self);
        if self.crowded.get() && !self.is_full() {
            self.call_next(worker);
        }
    }

    /// Closes the open batch, which is full: it is queued, and sent if it may.
    #[inline(never)]
    pub(super) fn close(&self, worker: &impl Local, peers: &Peers) {
        let writer = peers.writers.borrow_mut().pop().unwrap_or_else(Writer::new);
        let continuations = peers.continuations.borrow_mut().pop().unwrap_or_default();
        let full = self.open.replace(Batch { writer, continuations });
        self.waiting.borrow_mut().push_back(full);
        self.note_crowd();
        peers.list(self);
        self.send_waiting(worker, peers);
    }

    /// Sends the queued batches, as far as the carrier takes them.
    fn send_waiting(&self, worker: &impl Local, peers: &Peers) {
        while !self.waiting.borrow().is_empty() && peers.carrier.borrow_mut().can_send(self.place) {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(Batch { mut writer, continuations }) = next else { return };
            self.note_crowd();
            self.send(worker, peers, &mut writer, continuations);
            peers.writers.borrow_mut().push(writer);
        }
    }

    fn send(&self, worker: &impl Local, peers: &Peers, writer: &mut Writer, continuations: Continuations) {
        let requests = writer.requests();
        peers.carrier.borrow_mut().send(self.place, writer.frame(), requests);
        writer.frame().trim(REMOTE_KEPT_BYTES_MAX);
        writer.clear();
        self.in_flight.borrow_mut().push_back(continuations);
        let counters = worker.counters();
        counters.requests_sent.add(u64::from(requests));
        counters.requests_sent_remote.add(u64::from(requests));
        counters.batches_sent.add(1);
    }

    /// Sends at the end of a turn: full batches, and the open one if nothing else is in flight. So batches grow by
    /// themselves while an earlier one is with the trustee.
    pub(super) fn flush(&self, worker: &impl Local, peers: &Peers) {
        self.send_waiting(worker, peers);
        if (self.is_urgent.get() || self.in_flight.borrow().is_empty()) && self.waiting.borrow().is_empty() {
            self.send_open(worker, peers);
        }
    }

    /// Sends the open batch too, behind those that are in flight, or as soon as the carrier takes it.
    pub(super) fn send_now(&self, worker: &impl Local, peers: &Peers) {
        self.is_urgent.set(true);
        self.send_waiting(worker, peers);
        if self.waiting.borrow().is_empty() {
            self.send_open(worker, peers);
        }
    }

    fn send_open(&self, worker: &impl Local, peers: &Peers) {
        let mut open = self.open.borrow_mut();
        if open.continuations.count > 0 && peers.carrier.borrow_mut().can_send(self.place) {
            self.is_urgent.set(false);
            let fresh = peers.continuations.borrow_mut().pop().unwrap_or_default();
            let continuations = std::mem::replace(&mut open.continuations, fresh);
            self.send(worker, peers, &mut open.writer, continuations);
        }
    }

    /// Handles the answers that have come, and sends the batches that waited for them. True if there were any.
    pub(super) fn collect(&self, worker: &impl Local, peers: &Peers) -> bool {
        let mut any = false;
        loop {
            let mut answer = peers.answer.take();
            let received = peers.carrier.borrow_mut().receive_answer(self.place, &mut answer);
            if let Some(faults_bytes) = received {
                any = true;
                worker.mark_busy();
                if let Err(malformed) = self.resume(worker, peers, &mut answer, faults_bytes) {
                    peers.end(self.place, malformed);
                }
                answer.trim(REMOTE_KEPT_BYTES_MAX);
            }
            peers.answer.set(answer);
            if received.is_none() {
                return any;
            }
            self.answered.set(self.answered.get() + 1);
            worker.scheduler().resume_all(&self.waiters);
            self.send_waiting(worker, peers);
            self.call_next(worker);
        }
    }

    fn resume(
        &self,
        worker: &impl Local,
        peers: &Peers,
        answer: &mut Buffer,
        faults_bytes: u32,
    ) -> Result<(), Malformed> {
        let next = self.in_flight.borrow_mut().pop_front();
        let Some(mut continuations) = next else { return Err(Malformed("an answer to nothing")) };
        let faults =
            if faults_bytes == 0 { Vec::new() } else { fault::split_off(answer, faults_bytes, continuations.count)? };
        // SAFETY: the answer is not touched while its responses are read.
        let responses = unsafe { Reader::packed(answer) };
        let mut resuming = Resuming { responses, next: continuations.buffer.start() };
        // SAFETY: the continuations of this batch, in the order of its responses; each batch is answered once.
        worker.call_back(|| unsafe { resume_batch(&mut resuming, faults, continuations.count) });
        continuations.clear();
        continuations.buffer.trim(REMOTE_KEPT_BYTES_MAX);
        peers.continuations.borrow_mut().push(continuations);
        Ok(())
    }
}

/// Drops the requests of a frame that was not sent, unrun.
fn drop_unsent(peers: &Peers, frame: &[u8]) {
    let mut cursor = Cursor::new();
    let resolve = |position| peers.carrier.borrow().operation_at(position);
    // Written here, so it can be read.
    while let Ok(Some(item)) = cursor.next(frame, resolve) {
        let Item { operation, start, len, .. } = item;
        // SAFETY: [request-read-once]: these are the bytes that were packed for this operation, and nobody else has the
        // frame.
        unsafe { (operation.drop_packed)(&frame[start..start + len]) };
    }
}

#[cfg(all(test, not(loom), not(miri)))]
impl PeerTrustee {
    /// Number of full batches that are queued, and whether there are callers in line.
    pub(super) fn waiting(&self) -> (usize, bool) {
        (self.waiting.borrow().len(), self.crowded.get())
    }
}
