//! The client's half of one pair: the open batch, the batches in flight, and the continuations of their responses.
//! Encodes straight into the slot. Requests that a closed trustee left unanswered: `gone`. Keeps the fibers that wait
//! for room or answers; the worker resumes them.
//!
//! Requests of this client to this trustee run in the order they were pushed: batches are a ring in order, and while
//! anything is queued for lack of a slot, later requests queue behind it. The queue (`queue.rs`) holds them in chunks
//! of memory as a trustee reads them: a free slot takes over a whole chunk in place of its own body.

#![allow(unsafe_code)]

mod gone;
mod queue;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
mod walk;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr;
use std::sync::Arc;

use crate::buffer::Block;
use crate::config::{INLINE_ALIGN, INLINE_BYTES, OVERFLOW_BYTES, SLOTS};
use crate::fiber::FiberQueue;
use crate::ids::TrusteeId;
use crate::park::Presence;
use crate::prefetch;
use crate::property::Header;
use crate::property::slab::PropertySlab;
use crate::registry::{Message, Shared};
use crate::request::{
    CONTINUATION_HEAD, ClientSide, Continuation, ContinuationOf, OperationOf, Pair, Request, RequestHead, Response,
    Resuming, capture_bytes, travels_inline, write_captures,
};
use crate::slot::{Body, REQUESTS_MAX, Reader};
use queue::{Chunk, Queue};
pub(crate) use walk::{Requests, for_each_request, resume_batch};

/// Result of [`Outgoing::make_room`].
#[must_use]
pub(crate) enum Room {
    /// There is room now.
    Available,
    /// Every slot is with the trustee, or earlier requests are queued.
    Full,
    /// The trustee is gone.
    Gone,
}

/// Blocks that a slot's continuations have at first.
const CONTINUATION_BLOCKS: usize = 32;
const _: () = assert!(CONTINUATION_BLOCKS * size_of::<Block>() >= CONTINUATION_HEAD + INLINE_BYTES + INLINE_ALIGN);

/// The client's half of one pair.
pub(crate) struct Outgoing {
    pub(crate) trustee: TrusteeId,
    /// The worker whose half this is.
    client: Arc<Shared>,
    peer: Arc<Shared>,
    side: ClientSide,
    /// Place of the next request, and the end of the part it must fit; both null if no batch is open.
    at: Cell<*mut u8>,
    end: Cell<*mut u8>,
    body: Cell<*mut Body>,
    slot: Cell<usize>,
    written: Cell<u32>,
    written_in_primary: Cell<u32>,
    /// Place of the next continuation, and the end of the room for it.
    continuation_at: Cell<*mut u8>,
    continuation_end: Cell<*mut u8>,
    continuations: [UnsafeCell<Vec<Block>>; SLOTS],
    counts: [Cell<u32>; SLOTS],
    /// Chunks in place of the request bodies of slots that are open or in flight.
    chunks: [RefCell<Option<Chunk>>; SLOTS],
    /// Requests published so far.
    published: Cell<u64>,
    queue: RefCell<Queue>,
    gone: Cell<bool>,
    /// `collect` is on the stack (callbacks may come back here).
    collecting: Cell<bool>,
    /// Fibers that wait for room.
    pub(crate) waiters: FiberQueue,
    /// Whether it is in the worker's list of pairs with outstanding requests.
    pub(crate) listed: Cell<bool>,
}

impl Outgoing {
    pub(crate) fn new(client: Arc<Shared>, peer: Arc<Shared>, pair: Arc<Pair>) -> Self {
        Outgoing {
            trustee: peer.id,
            client,
            peer,
            side: ClientSide::new(pair),
            at: Cell::new(ptr::null_mut()),
            end: Cell::new(ptr::null_mut()),
            body: Cell::new(ptr::null_mut()),
            slot: Cell::new(0),
            written: Cell::new(0),
            written_in_primary: Cell::new(0),
            continuation_at: Cell::new(ptr::null_mut()),
            continuation_end: Cell::new(ptr::null_mut()),
            continuations: std::array::from_fn(|_| UnsafeCell::new(vec![Block::EMPTY; CONTINUATION_BLOCKS])),
            counts: std::array::from_fn(|_| Cell::new(0)),
            chunks: std::array::from_fn(|_| RefCell::default()),
            published: Cell::new(0),
            queue: RefCell::default(),
            gone: Cell::new(false),
            collecting: Cell::new(false),
            waiters: FiberQueue::new(),
            listed: Cell::new(false),
        }
    }

    /// The slab of the trustee's properties.
    pub(crate) fn slab(&self) -> &Arc<PropertySlab> {
        &self.peer.slab
    }

    /// Is there a request that has not been answered?
    #[inline]
    pub(crate) fn is_outstanding(&self) -> bool {
        self.side.in_flight() > 0 || self.written.get() > 0 || !self.queue.borrow().is_empty()
    }

    /// Requests made so far, including those not sent yet.
    pub(crate) fn written_in_all(&self) -> u64 {
        self.published.get() + u64::from(self.written.get()) + self.queue.borrow().len()
    }

    /// Have this many requests, in the order they were made, been answered, and their continuations run?
    pub(crate) fn has_answered(&self, written: u64) -> bool {
        let newest = self.side.next_slot();
        let slots = (1..=self.side.in_flight()).map(|back| (newest + SLOTS - back) % SLOTS);
        let in_flight: u64 = slots.map(|slot| u64::from(self.counts[slot].get())).sum();
        // Requests that were never sent to a closed trustee count as answered too.
        self.published.get() - in_flight >= written || !self.is_outstanding()
    }

    /// Sends the open batch of a client that ends; returns whether there is still a request that this thread must
    /// complete. Requests that are sent and not awaited (counts) are not: the trustee will serve them, whether or not
    /// its client is there. Those in a chunk are, because that is this client's memory.
    pub(crate) fn must_be_seen_through(&self) -> bool {
        self.send_open();
        let in_flight = self.side.in_flight();
        let newest = self.side.next_slot();
        let awaited = |back: usize| {
            let slot = (newest + SLOTS - back) % SLOTS;
            if self.chunks[slot].borrow().is_some() {
                return true;
            }
            let continuations = self.continuations(slot).cast::<&'static Continuation>();
            // SAFETY: continuations of a slot in flight. One that is not awaited captures nothing, so it is the 8 bytes
            // of its pointer, and the walk is right up to the first that is awaited.
            (0..self.counts[slot].get() as usize).any(|index| unsafe { (*continuations.add(index)).is_awaited })
        };
        !self.queue.borrow().is_empty() || (1..=in_flight).any(awaited)
    }

    /// Is nothing in flight, so that the next request may go at once?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.side.in_flight() == 0
    }

    /// Is there no slot to fill, or a queue to join?
    pub(crate) fn is_full(&self) -> bool {
        self.has_queue() || (!self.gone.get() && self.body.get().is_null() && self.side.filling().is_none())
    }

    /// Are requests queued, so that the next one is, too?
    pub(crate) fn has_queue(&self) -> bool {
        !self.gone.get() && !self.queue.borrow().is_empty()
    }

    /// Ends all outstanding requests as gone if the trustee is closed.
    pub(crate) fn abandon_if_closed(&self) {
        self.collect();
        // Where this is a callback of `collect`, the outer call goes on with the rest.
        if !self.collecting.get() && self.is_outstanding() {
            self.abandon();
        }
    }

    /// Returns whether there is work for `collect`, for the check before sleep.
    pub(crate) fn has_responses(&self) -> bool {
        self.side.has_response() || (self.is_outstanding() && self.peer.parker.presence() == Presence::Closed)
    }

    /// Puts a request into the open batch. False, and nothing taken, if there is no room: see [`make_room`].
    ///
    /// [`make_room`]: Outgoing::make_room
    ///
    /// # Safety
    /// On true the values behind `request` and `response` have been moved out. The response must fit the
    /// request's output (see [`Response`]).
    #[inline(always)]
    pub(crate) unsafe fn try_push<C: Request, R: Response>(
        &self,
        property: *mut Header,
        request: *mut C,
        response: *mut R,
    ) -> bool {
        if const { travels_inline::<C>() && travels_inline::<R>() } {
            let (head, continuation) = (self.side.head(OperationOf::<C>::INLINE), ContinuationOf::<R>::INLINE);
            if !self.has_room(head.bytes() + capture_bytes::<C>(), capture_bytes::<R>()) {
                return false;
            }
            // SAFETY: the caller gives both values up.
            let (request, response) = unsafe { (request.read(), response.read()) };
            // SAFETY: there is room.
            unsafe { self.place(head, property, request, continuation, response) };
        } else {
            let (head, continuation) = (self.side.head(OperationOf::<C>::BOXED), ContinuationOf::<R>::BOXED);
            if !self.has_room(head.bytes() + 8, 8) {
                return false;
            }
            // SAFETY: the caller gives both values up.
            let (request, response) = unsafe { (Box::new(request.read()), Box::new(response.read())) };
            // SAFETY: there is room.
            unsafe { self.place(head, property, request, continuation, response) };
        }
        true
    }

    #[inline(always)]
    fn has_room(&self, request: usize, continuation_captures: usize) -> bool {
        let next = self.at.get().wrapping_add(request);
        let continuation_next = self.continuation_at.get().wrapping_add(CONTINUATION_HEAD + continuation_captures);
        next.addr() <= self.end.get().addr() && continuation_next.addr() <= self.continuation_end.get().addr()
    }

    /// # Safety
    /// There is room for the request in the open batch and for its continuation (`has_room`).
    #[inline(always)]
    unsafe fn place<C, R>(
        &self,
        head: RequestHead,
        property: *mut Header,
        captures: C,
        continuation: &'static Continuation,
        then: R,
    ) {
        let (at, continuation_at) = (self.at.get(), self.continuation_at.get());
        // SAFETY: the caller has seen that there is room; the open request body and the buffer of
        // continuations are this client's (slot/mod.rs), and all records are multiples of 8 bytes.
        unsafe {
            write_captures(head.write(at, property), captures);
            continuation_at.cast::<&'static Continuation>().write(continuation);
            write_captures(continuation_at.add(CONTINUATION_HEAD), then);
        }
        self.at.set(at.wrapping_add(head.bytes() + capture_bytes::<C>()));
        self.continuation_at.set(continuation_at.wrapping_add(CONTINUATION_HEAD + capture_bytes::<R>()));
        let written = self.written.get();
        self.written.set(written + 1);
        // SAFETY: [mark-in-range]: each request has taken the 8 bytes of its head at least.
        unsafe { self.side.mark(written, property.addr()) };
    }

    /// Makes room for one request: moves on to the overflow part, publishes a full batch, opens the next.
    pub(crate) fn make_room<C, R>(&self) -> Room {
        let (captures, continuation_captures) = if travels_inline::<C>() && travels_inline::<R>() {
            (capture_bytes::<C>(), capture_bytes::<R>())
        } else {
            (8, 8)
        };
        if self.gone.get() {
            Room::Gone
        } else if !self.queue.borrow().is_empty() {
            Room::Full
        } else {
            self.make_room_for(captures, continuation_captures)
        }
    }

    fn make_room_for(&self, captures: usize, continuation_captures: usize) -> Room {
        loop {
            if self.body.get().is_null() {
                let Some((slot, body)) = self.side.filling() else {
                    return Room::Full;
                };
                self.open(slot, body);
            }
            self.grow_continuations(CONTINUATION_HEAD + continuation_captures);
            if self.has_room(RequestHead::BYTES_MAX + captures, continuation_captures) {
                return Room::Available;
            }
            // With nothing in flight the trustee may as well begin with the requests in the primary part.
            let begin = self.written.get() > 0 && self.side.in_flight() == 0;
            if begin || !self.move_to_overflow() {
                self.publish();
            }
        }
    }

    fn open(&self, slot: usize, body: *mut Body) {
        // SAFETY: the body is this client's to fill (slot/mod.rs); so is the buffer at the same index, whose
        // continuations were handled before the slot was released.
        let (primary, continuations) = unsafe { (&raw mut (*body).primary, &mut *self.continuations[slot].get()) };
        self.body.set(body);
        self.slot.set(slot);
        self.at.set(primary.cast());
        self.end.set(primary.wrapping_add(1).cast());
        let continuations = continuations.as_mut_ptr_range();
        self.continuation_at.set(continuations.start.cast());
        self.continuation_end.set(continuations.end.cast());
    }

    /// Moves from the primary part of the open slot to the overflow part. False if it is there already, or the batch is
    /// in a chunk.
    fn move_to_overflow(&self) -> bool {
        // SAFETY: the open body is this client's.
        let overflow = unsafe { &raw mut (*self.body.get()).overflow };
        let has_chunk = self.chunks[self.slot.get()].borrow().is_some();
        if has_chunk || self.end.get() == overflow.wrapping_add(1).cast() {
            return false;
        }
        self.written_in_primary.set(self.written.get());
        // The trustee's core has read these lines last: fetching them one by one would mean a wait for each.
        prefetch::will_write(overflow.cast(), OVERFLOW_BYTES / prefetch::LINE_BYTES);
        self.at.set(overflow.cast());
        self.end.set(overflow.wrapping_add(1).cast());
        true
    }

    fn grow_continuations(&self, bytes: usize) {
        let used = self.continuation_at.get().addr();
        if used + bytes <= self.continuation_end.get().addr() {
            return;
        }
        // SAFETY: the buffer of the open slot is used by this client's thread alone, and not while a
        // continuation of another slot runs (that one has a buffer of its own).
        let continuations = unsafe { &mut *self.continuations[self.slot.get()].get() };
        let offset = used - continuations.as_ptr().addr();
        // Enough for one more: the initial size has room for any (see `CONTINUATION_BLOCKS`).
        continuations.resize(continuations.len() * 2, Block::EMPTY);
        let range = continuations.as_mut_ptr_range();
        self.continuation_at.set(range.start.cast::<u8>().wrapping_add(offset));
        self.continuation_end.set(range.end.cast());
    }

    /// Sends the open batch if it holds anything and nothing else is in flight: a request goes as soon as it may, and
    /// batches grow by themselves while an earlier one is with the trustee.
    #[inline]
    pub(crate) fn flush(&self) {
        if self.written.get() > 0 && self.side.in_flight() == 0 {
            self.publish();
        }
    }

    /// Sends the open batch if it holds anything, even with others in flight: it has a slot.
    #[inline]
    pub(crate) fn send_open(&self) {
        if self.written.get() > 0 {
            self.publish();
        }
    }

    fn publish(&self) {
        let written = self.seal();
        let published = self.published.get() + u64::from(written);
        self.published.set(published);
        self.side.note_published(published);
        // A closing trustee is dealt with in `collect`.
        let _ = self.peer.parker.publish(|| self.side.publish());
        let counters = &self.client.counters;
        counters.requests_sent.add(u64::from(written));
        counters.batches_sent.add(1);
    }

    /// Closes the open batch: writes its head. Returns its number of requests.
    #[inline(always)]
    fn seal(&self) -> u32 {
        let written = self.written.replace(0);
        let body = self.body.replace(ptr::null_mut());
        // SAFETY: the open body is this client's.
        unsafe {
            if let Some(chunk) = &mut *self.chunks[self.slot.get()].borrow_mut() {
                Requests::write_chunk(body, chunk.start(), written);
            } else {
                let in_overflow = self.end.get() == (&raw mut (*body).overflow).wrapping_add(1).cast();
                let in_primary = if in_overflow { self.written_in_primary.get() } else { written };
                Requests::write(body, in_primary, written);
            }
        }
        self.counts[self.slot.get()].set(written);
        self.at.set(ptr::null_mut());
        self.end.set(ptr::null_mut());
        written
    }

    /// Queues a request for which there is no slot, for callers that must not wait.
    pub(crate) fn enqueue<C: Request, R: Response>(&self, property: *mut Header, request: C, response: R) {
        let queue = &mut *self.queue.borrow_mut();
        let is_noted = if const { travels_inline::<C>() && travels_inline::<R>() } {
            let head = self.side.head(OperationOf::<C>::INLINE);
            queue.push(head, property, request, ContinuationOf::<R>::INLINE, response)
        } else {
            let head = self.side.head(OperationOf::<C>::BOXED);
            queue.push(head, property, Box::new(request), ContinuationOf::<R>::BOXED, Box::new(response))
        };
        if !is_noted {
            self.side.note_queued(property.addr());
        }
        self.client.counters.requests_queued.add(1);
    }

    /// Handles all responses that have come, and sends the requests that waited for a slot. True if there were any.
    #[inline]
    pub(crate) fn collect(&self) -> bool {
        if self.collecting.replace(true) {
            return false;
        }
        let mut any = false;
        loop {
            while let Some((slot, body)) = self.side.response() {
                any = true;
                self.resume(slot, body);
                self.release(slot);
                self.drain_queue();
            }
            if !self.is_outstanding() || self.peer.parker.presence() != Presence::Closed {
                break;
            }
            // The last answers may have come just before the end (visible now: `presence` is an Acquire).
            if !self.side.has_response() {
                any = true;
                self.abandon();
            }
        }
        self.collecting.set(false);
        any
    }

    /// Releases the oldest slot, which is this one, and keeps its chunk for requests to come.
    fn release(&self, slot: usize) {
        self.side.release();
        if let Some(chunk) = self.chunks[slot].take() {
            self.queue.borrow_mut().keep(chunk);
        }
    }

    /// Gives queued requests to slots that are free, a chunk each: the last chunk stays open, for more requests.
    fn drain_queue(&self) {
        while !self.queue.borrow().is_empty() {
            // Its requests were made before.
            self.send_open();
            let Some((slot, body)) = self.side.filling() else { return };
            let Some(chunk) = self.queue.borrow_mut().pop() else { return };
            self.open_chunk(slot, body, chunk);
            if !self.queue.borrow().is_empty() {
                self.publish();
            }
        }
    }

    /// Opens a batch in this free slot with the requests of a chunk.
    fn open_chunk(&self, slot: usize, body: *mut Body, mut chunk: Chunk) {
        // SAFETY: the buffer of a free slot: its continuations were handled before the slot was released.
        let continuations = unsafe { &mut *self.continuations[slot].get() };
        let written = chunk.count();
        chunk.swap_continuations(continuations);
        let continuations = continuations.as_mut_ptr_range();
        self.continuation_at.set(continuations.start.cast::<u8>().wrapping_add(chunk.continuation_bytes()));
        self.continuation_end.set(continuations.end.cast());
        self.body.set(body);
        self.slot.set(slot);
        self.written.set(written);
        let (at, end) = chunk.room();
        self.at.set(at);
        // Each further request takes 8 bytes at least, so that it has a mark.
        let marks = (REQUESTS_MAX - written as usize) * 8;
        self.end.set(at.wrapping_add(marks.min(end.addr() - at.addr())));
        let mut last = 0;
        for (place, property) in (0..written).zip(chunk.properties().map(Some).chain(std::iter::repeat(None))) {
            last = property.unwrap_or(last);
            // SAFETY: [mark-in-range]: a chunk has as many requests at most.
            unsafe { self.side.mark(place, last) };
        }
        // Only now, as they are all marked.
        chunk.properties().for_each(|_| self.side.note_drained());
        *self.chunks[slot].borrow_mut() = Some(chunk);
    }

    fn resume(&self, slot: usize, body: *mut Body) {
        // SAFETY: the answered body is this client's, and each batch is read once.
        let mut resuming = Resuming { responses: unsafe { Reader::new(body) }, next: self.continuations(slot) };
        let faults = resuming.responses.take_faults();
        // SAFETY: [continuation-read-once]; the continuations of a batch lie in the order of its responses.
        unsafe { resume_batch(&mut resuming, faults, self.counts[slot].get()) };
    }

    fn continuations(&self, slot: usize) -> *mut u8 {
        // SAFETY: the buffer of a slot in flight is not touched while its continuations run.
        unsafe { (*self.continuations[slot].get()).as_mut_ptr().cast() }
    }

    /// Sends a message in place of a request for which there is no slot. False if the trustee is gone.
    pub(crate) fn send(&self, message: Message) -> bool {
        self.peer.send(message).is_ok()
    }

    /// The pair, and its trustee.
    pub(crate) fn shared_pair(&self) -> (Arc<Pair>, &Shared) {
        (self.side.shared_pair(), &self.peer)
    }

    /// Tells the trustee that this client goes away, with all its requests published.
    pub(crate) fn leave(&self) {
        let _ = self.peer.parker.publish(|| self.side.leave());
    }
}
