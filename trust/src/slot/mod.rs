//! Slots: the fixed memory through which one client talks to one trustee (thesis 2.5.3), and the ready-bit protocol on
//! it. All atomics of the data path are here, but for those that wake a sleeping trustee (`park/`). The meaning of the
//! bytes, and of an operation, is not known here
//! (`request/`).
//!
//! A [`Pair`] has [`SLOTS`] slots, used as a ring; a slot is a request half and a response half. Each half is a
//! ready bit and a body, in a 128-byte primary part and a 1024-byte overflow part.
//!
//! Ownership:
//!
//! | state of a slot | how it is known | owner of both bodies |
//! |---|---|---|
//! | free or filling | request bit == response bit, not in flight | client |
//! | published | request bit != response bit | trustee |
//! | answered | request bit == response bit, in flight | client |
//!
//! | pair | by | how |
//! |---|---|---|
//! | [request-bit] | client | `publish` stores the request bit with Release after the request body |
//! | [request-bit] | trustee | `request` loads it with Acquire before it reads the request body |
//! | [response-bit] | trustee | `respond` stores the response bit with Release after the response body |
//! | [response-bit] | client | `response` loads it with Acquire before it reads the response body |
//!
//! The Release store makes the body that its thread wrote before visible to the thread whose Acquire load sees the bit,
//! and the bit changes the owner of both bodies: no other ordering is needed. Each bit has one writer, so a plain store
//! does: there is no atomic read-modify-write. Request and response
//! bits lie in lines of their own; the line of a bit also carries the first requests or responses.

#![allow(unsafe_code)]

mod cursor;
mod dictionary;
#[cfg(all(test, loom))]
pub(crate) mod model;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use cursor::{Reader, Writer, align_up, is_inline};
pub(crate) use dictionary::RequestHead;

use dictionary::{Dictionary, Names, read_head};

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError};

use crate::config::{ADDRESS_BITS, HEAD_BYTES, OVERFLOW_BYTES, PRIMARY_BYTES, SLOTS};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, UnsafeCell};

/// The bytes of one half of a slot.
#[repr(C, align(8))]
pub(crate) struct Body {
    /// Requests: number of requests in the primary part (low half) and in all (high half). Responses: address of the
    /// `cursor::Extra`, or 0.
    pub(crate) head: u64,
    pub(crate) primary: [MaybeUninit<u8>; PRIMARY_BYTES - HEAD_BYTES],
    pub(crate) overflow: [MaybeUninit<u8>; OVERFLOW_BYTES],
    /// Stands for the bytes above: `model.rs` touches them only inside an access to it, which loom checks.
    #[cfg(loom)]
    pub(crate) watch: UnsafeCell<()>,
}

impl Body {
    fn new() -> Self {
        Body {
            #[cfg(loom)]
            watch: UnsafeCell::new(()),
            head: 0,
            primary: [MaybeUninit::uninit(); PRIMARY_BYTES - HEAD_BYTES],
            overflow: [MaybeUninit::uninit(); OVERFLOW_BYTES],
        }
    }
}

#[repr(C, align(128))]
struct Half {
    ready: AtomicU32,
    body: UnsafeCell<Body>,
}

impl Half {
    fn new() -> Self {
        Half { ready: AtomicU32::new(0), body: UnsafeCell::new(Body::new()) }
    }
    /// Address of the body. For loom this is an access already: only the owner may call it.
    #[inline(always)]
    fn body(&self) -> *mut Body {
        self.body.with_mut(|body| body)
    }
}

struct Slot {
    request: Half,
    response: Half,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Half>() == PRIMARY_BYTES + OVERFLOW_BYTES);

/// The memory shared by one client and one trustee. A request names an operation, an `O`, by its address.
pub(crate) struct Pair<O> {
    slots: [Slot; SLOTS],
    control: Control,
    dictionary: Dictionary<O>,
}

/// The most requests that a body holds: each has a head of 8 bytes.
#[cfg(not(loom))]
pub(crate) const REQUESTS_MAX: usize = (PRIMARY_BYTES - HEAD_BYTES + OVERFLOW_BYTES) / 8;
/// Most requests at once in the models; each costs them time.
#[cfg(loom)]
pub(crate) const REQUESTS_MAX: usize = 3;

/// The client's side of a reclamation: requests that the trustee cannot see yet and must know before it reclaims a
/// property (see `reclaim.rs`). Written by the client alone.
#[repr(align(128))]
struct Control {
    /// Requests the client has published.
    published: AtomicU64,
    /// The queue is not empty.
    has_queue: AtomicBool,
    /// The client is gone and has nothing outstanding: the trustee may forget this pair.
    left: AtomicBool,
    /// Mark of each request of the open batch, in order: the batch's number in the high bits, and the property's
    /// address in the low ones. Behind them lie marks of earlier batches.
    marks: [AtomicU64; REQUESTS_MAX],
    /// The addresses of the properties that queued requests are for: those that found no slot.
    queued: Mutex<VecDeque<usize>>,
}

/// The lowest bit of a batch's number in a mark.
const MARK_BATCH: u64 = 1 << ADDRESS_BITS;

// SAFETY: the bodies are handed over by the ready bits ([request-bit], [response-bit], see the table above); the rest
// is atomic.
unsafe impl<O: Sync> Sync for Pair<O> {}
// SAFETY: as for Sync; a pair owns no thread-bound data.
unsafe impl<O: Sync> Send for Pair<O> {}

impl<O: 'static> Pair<O> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Pair {
            slots: std::array::from_fn(|_| Slot { request: Half::new(), response: Half::new() }),
            control: Control {
                published: AtomicU64::new(0),
                has_queue: AtomicBool::new(false),
                left: AtomicBool::new(false),
                marks: std::array::from_fn(|_| AtomicU64::new(0)),
                queued: Mutex::new(VecDeque::new()),
            },
            dictionary: Dictionary::new(),
        })
    }

    /// Reads the head of a request: its operation, its property, and the start of its captures.
    ///
    /// # Safety
    /// A head of this pair was written at `at`, with a property of type `P`, in a published slot that is the caller's
    /// now.
    #[inline(always)]
    pub(crate) unsafe fn read_head<P>(&self, at: *mut u8) -> (&'static O, *mut P, *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { read_head(&self.dictionary, at) }
    }

    /// Trustee, which has served this many batches: the addresses of the properties that the requests of later ones are
    /// for, each with the number of its batch. Requests of a batch that is published already may be missing.
    pub(crate) fn marks(&self, batches: u64) -> impl Iterator<Item = (u64, usize)> {
        let batch_of = move |mark: u64| {
            // No more batches than slots can be ahead of the open one.
            let ahead = (mark / MARK_BATCH).wrapping_sub(batches) as u16;
            (usize::from(ahead) <= SLOTS).then(|| (batches + u64::from(ahead), (mark % MARK_BATCH) as usize))
        };
        // Acquire: pairs with the Release in `mark`.
        self.control.marks.iter().map_while(move |mark| batch_of(mark.load(Ordering::Acquire)))
    }

    /// Trustee, before it reads the marks: tells `note` the addresses of the properties that queued requests are for.
    pub(crate) fn queued(&self, note: impl FnMut(usize)) {
        // Acquire: pairs with the Release in `note_drained`.
        if self.control.has_queue.load(Ordering::Acquire) {
            self.lock_queue().iter().copied().for_each(note);
        }
    }

    fn lock_queue(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.control.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Trustee, after it has read the marks: number of requests that the client has published. Relaxed is enough: see
    /// the proof in `reclaim.rs`.
    pub(crate) fn published(&self) -> u64 {
        self.control.published.load(Ordering::Relaxed)
    }

    /// Trustee: has the client left for good? Acquire pairs with the Release in [`ClientSide::leave`].
    pub(crate) fn left(&self) -> bool {
        self.control.left.load(Ordering::Acquire)
    }
}

/// The client's end of a pair. Used by the client's thread alone.
pub(crate) struct ClientSide<O: 'static> {
    pair: Arc<Pair<O>>,
    fill: Cell<usize>,
    in_flight: Cell<usize>,
    /// The request bit of each slot, as last stored.
    bits: Cell<u32>,
    /// The number of the open batch, as it stands in marks.
    batch: Cell<u64>,
    names: Names<O>,
}

impl<O> ClientSide<O> {
    pub(crate) fn new(pair: Arc<Pair<O>>) -> Self {
        let (fill, in_flight, bits) = (Cell::new(0), Cell::new(0), Cell::new(0));
        ClientSide { pair, fill, in_flight, bits, batch: Cell::new(0), names: Names::new() }
    }

    pub(crate) fn pair(&self) -> &Pair<O> {
        &self.pair
    }

    /// Slots that are with the trustee.
    #[inline(always)]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// The head of a request for this pair.
    #[inline(always)]
    pub(crate) fn head(&self, operation: &'static O) -> RequestHead<O> {
        RequestHead::new(&self.names, &self.pair.dictionary, operation)
    }

    /// The slot that is filled next.
    pub(crate) fn next_slot(&self) -> usize {
        self.fill.get()
    }

    /// The request body to fill, if a slot is free.
    #[inline]
    pub(crate) fn filling(&self) -> Option<(usize, *mut Body)> {
        let fill = self.fill.get();
        (self.in_flight.get() < SLOTS).then(|| (fill, self.pair.slots[fill].request.body()))
    }

    /// Hands the slot that was being filled to the trustee.
    #[inline]
    pub(crate) fn publish(&self) {
        debug_assert!(self.in_flight.get() < SLOTS);
        let fill = self.fill.get();
        let bits = self.bits.get() ^ (1 << fill);
        self.bits.set(bits);
        // [request-bit]: the Acquire is in `request`.
        self.pair.slots[fill].request.ready.store((bits >> fill) & 1, Ordering::Release);
        self.fill.set((fill + 1) % SLOTS);
        self.in_flight.set(self.in_flight.get() + 1);
        self.batch.set(self.batch.get().wrapping_add(MARK_BATCH));
    }

    fn oldest(&self) -> usize {
        (self.fill.get() + SLOTS - self.in_flight.get()) % SLOTS
    }

    /// Response body of the oldest slot in flight, if it has been answered.
    #[inline]
    pub(crate) fn response(&self) -> Option<(usize, *mut Body)> {
        if self.in_flight.get() == 0 {
            return None;
        }
        let slot = self.oldest();
        let half = &self.pair.slots[slot].response;
        // [response-bit]: the Release is in `respond`.
        let answered = half.ready.load(Ordering::Acquire) == (self.bits.get() >> slot) & 1;
        answered.then(|| (slot, half.body()))
    }

    /// Is the oldest slot answered? For the check before sleep.
    pub(crate) fn has_response(&self) -> bool {
        self.response().is_some()
    }

    /// Takes back the request body of the oldest slot, which the trustee will never look at again.
    ///
    /// # Safety
    /// The trustee is closed (its `Closed` was seen with Acquire) and did not answer this slot. Nothing is
    /// published on this pair any more: the bits have lost their meaning.
    pub(crate) unsafe fn reclaim(&self) -> Option<(usize, *mut Body)> {
        (self.in_flight.get() > 0).then(|| {
            let slot = self.oldest();
            (slot, self.pair.slots[slot].request.body())
        })
    }

    /// Releases the oldest slot, which may be filled again.
    #[inline]
    pub(crate) fn release(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Marks the request at this place of the open batch with its property's address. A plain store: this thread is the
    /// only writer.
    ///
    /// # Safety
    /// The place is less than [`REQUESTS_MAX`].
    #[inline(always)]
    pub(crate) unsafe fn mark(&self, place: u32, property: usize) {
        // SAFETY: the caller's promise [mark-in-range].
        let mark = unsafe { self.pair.control.marks.get_unchecked(place as usize) };
        // Release: pairs with the Acquire in `Pair::marks`. A trustee that sees this mark instead of one of an earlier
        // batch sees that the earlier one is published.
        mark.store(self.batch.get() | property as u64, Ordering::Release);
    }

    /// Notes the number of requests published, including the batch that is published next.
    #[inline]
    pub(crate) fn note_published(&self, total: u64) {
        self.pair.control.published.store(total, Ordering::Relaxed);
    }

    /// Notes that a request for the property at this address is queued.
    pub(crate) fn note_queued(&self, property: usize) {
        self.pair.lock_queue().push_back(property);
        self.pair.control.has_queue.store(true, Ordering::Relaxed);
    }

    /// Notes that the oldest request of the queue is in the open batch, and marked there, or has been dropped.
    pub(crate) fn note_drained(&self) {
        let mut queued = self.pair.lock_queue();
        queued.pop_front();
        if queued.is_empty() {
            // Release: a trustee that sees it sees the marks.
            self.pair.control.has_queue.store(false, Ordering::Release);
        }
    }

    /// The pair, for an owner that keeps it beyond this.
    pub(crate) fn shared_pair(&self) -> Arc<Pair<O>> {
        Arc::clone(&self.pair)
    }

    /// Leaves, with nothing outstanding. Release pairs with the Acquire in [`Pair::left`].
    pub(crate) fn leave(&self) {
        self.pair.control.left.store(true, Ordering::Release);
    }
}

/// The trustee's end of a pair. Used by the trustee's thread alone.
pub(crate) struct TrusteeSide<O: 'static> {
    pair: Arc<Pair<O>>,
    next: Cell<usize>,
    bits: Cell<u32>,
}

impl<O> TrusteeSide<O> {
    pub(crate) fn new(pair: Arc<Pair<O>>) -> Self {
        TrusteeSide { pair, next: Cell::new(0), bits: Cell::new(0) }
    }

    pub(crate) fn pair(&self) -> &Pair<O> {
        &self.pair
    }

    /// Request and response bodies of the next slot, if the client has published it.
    #[inline(always)]
    pub(crate) fn request(&self) -> Option<(*mut Body, *mut Body)> {
        let next = self.next.get();
        let slot = &self.pair.slots[next];
        // [request-bit]: the Release is in `publish`.
        let bit = slot.request.ready.load(Ordering::Acquire);
        (bit != (self.bits.get() >> next) & 1).then(|| (slot.request.body(), slot.response.body()))
    }

    /// Answers the slot that `request` gave out.
    #[inline]
    pub(crate) fn respond(&self) {
        let next = self.next.get();
        let bits = self.bits.get() ^ (1 << next);
        self.bits.set(bits);
        // [response-bit]: the Acquire is in `response`.
        self.pair.slots[next].response.ready.store((bits >> next) & 1, Ordering::Release);
        self.next.set((next + 1) % SLOTS);
    }
}
