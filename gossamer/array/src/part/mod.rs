//! Part of an array at one place: the chunks that the place owns, cached chunks of other places, and the calls of its
//! fibers that wait. All of it belongs to the place's worker; other places reach it only by messages (`post.rs`), or
//! use single elements in place (`near.rs`).
//!
//! The path of a call: `local.rs` looks into the table; if the chunk's word allows the access it is a hit. Otherwise
//! [`Part::access`] queues the call for its chunk and requests the right from the home, by a message, or directly if
//! that is this place. The home's directory entry of the chunk (`directory.rs`) determines the recalls and the grant.
//! When the grant arrives, all queued calls that it allows run at once, in the message's handler, before any recall can
//! arrive. So one grant satisfies a call, however many others want the chunk.
//!
//! Invariants:
//! - [part-one-thread] Code in here runs on the part's thread, and no message is handled meanwhile, as handlers are
//!   delegated closures and calls wait outside of it, after which they look up their chunk anew.
//! - No `RefCell` is borrowed while a user's closure runs.
//! - The access bits of a chunk's table word are [`bits`] of its frame; for a busy frame they allow nothing.

#![allow(unsafe_code)]

mod away;
mod chunks;
mod home;
mod line;
mod near;

pub(crate) use home::{Content, Elements};

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use comm::Share;
use gossamer::{Place, Trust};
use memmap2::MmapMut;
use trust::TrusteeReference;

use self::chunks::Chunks;
use self::line::Line;
use crate::directory::{Entry, Right, Step};
use crate::frame::{Cache, Frame, Home, Kept, Slab};
use crate::held::Held;
use crate::lock::Locks;
use crate::make::Root;
use crate::members::Members;
use crate::memory;
use crate::name::Name;
use crate::operator::{OPERATORS, Op};
use crate::post;
use crate::replies::Replies;
use crate::room;
use crate::settings::Settings;
use crate::shape::Shape;
use crate::stats::Counters;
use crate::waits;

/// Bits of a word of the table, beside those of [`OPERATORS`] that may combine; the address of the elements is a
/// multiple of 64, and its upper byte is 0.
pub(crate) const READS: u64 = 1;
pub(crate) const WRITES: u64 = 2;
/// Single elements are read and written, by atomic loads and stores.
pub(crate) const IN_PLACE: u64 = 4;
/// The elements are in a frame of another part (`near.rs`).
const NEAR: u64 = 8;
const BITS: u64 = 63 | 0xff << 56;

/// Hits between two turns for the requests of others to this worker.
const LOOK_EVERY: u32 = 1024;

/// See the file's documentation.
pub(crate) struct Part {
    /// Address of each chunk's elements here, with the allowed accesses; 0 for none.
    words: *const Cell<u64>,
    /// Hits until the next turn for others.
    left: Cell<u32>,
    pub(crate) name: Name,
    pub(crate) shape: Shape,
    /// The number of this place.
    pub(crate) own: usize,
    /// The machines with parts.
    pub(crate) members: Members,
    places: Vec<TrusteeReference>,
    /// Share of each place's machine, if it is mapped here; looked up when first needed.
    shares: Vec<OnceCell<Option<Arc<Share>>>>,
    /// Whether each place maps the share of this machine.
    copies: Vec<Cell<bool>>,
    /// Memory of the other workers' parts that this one has used in place.
    near: Vec<OnceCell<Kept>>,
    settings: Settings,
    home: Home,
    cache: Cache,
    /// Frames of other places' chunks.
    cached: RefCell<Vec<Frame>>,
    /// Position of the search for a frame to evict.
    hand: Cell<usize>,
    /// The directory entries of own chunks; one in its initial state is left out.
    entries: RefCell<Chunks<Entry<Op>>>,
    /// Steps from the directory, still to be executed.
    steps: RefCell<VecDeque<(u32, Step<Op>)>>,
    /// An empty list, kept for its memory.
    fresh: Cell<Vec<Step<Op>>>,
    is_stepping: Cell<bool>,
    lines: RefCell<Chunks<Line>>,
    /// Chunks with a queue to be served later, because a closure had the chunk.
    late: RefCell<Vec<(u32, Right<Op>)>>,
    /// Callbacks deferred until no closure has a chunk.
    callbacks: RefCell<VecDeque<Box<dyn FnOnce()>>>,
    /// Closures that have a chunk now; the running callbacks count as one.
    works: Cell<u32>,
    calls_back: Cell<bool>,
    /// A handle, kept while `holders`, the number of calls in flight without one, is not 0.
    held: RefCell<Option<Trust<Root>>>,
    holders: Cell<u64>,
    /// Next chunk of sequential misses.
    next_in_order: Cell<usize>,
    pub(crate) replies: Replies,
    pub(crate) locks: Locks,
    pub(crate) counters: Counters,
    pub(crate) is_poisoned: Cell<bool>,
    poison: RefCell<Option<String>>,
    /// Pointer to itself, for views.
    this: Weak<Part>,
    /// The memory of `words`. The system allocates its pages as they are used.
    _table: MmapMut,
    /// The last field: the memory that it accounts for is freed before it.
    _held_bytes: Held,
}

/// Job for a chunk once its right is here. Dropped without running if the array is poisoned.
pub(crate) type Job = Box<dyn FnOnce(&Part, Lent)>;

/// The elements of a chunk, for a job.
#[derive(Clone, Copy)]
pub(crate) enum Lent {
    Frame(Frame),
    /// At another worker's part, for access in place.
    Near(*mut u8),
}

impl Lent {
    pub(crate) fn elements(self) -> *mut u8 {
        match self {
            Lent::Frame(frame) => frame.elements(),
            Lent::Near(elements) => elements,
        }
    }

    /// Returns the frame, to a job for a right other than [`Right::InPlace`] and [`Right::Glance`].
    pub(crate) fn frame(self) -> Frame {
        match self {
            Lent::Frame(frame) => frame,
            Lent::Near(_) => unreachable!("only access in place has no frame"),
        }
    }
}

/// Returns the access bits of a frame's word in the table.
fn bits(frame: Frame) -> u64 {
    match frame.right() {
        _ if frame.is_busy() => 0,
        None => 0,
        Some(Right::Read | Right::Glance) => READS,
        Some(Right::InPlace) => IN_PLACE,
        Some(Right::Write) if frame.is_pinned() => READS,
        Some(Right::Write) => READS | WRITES | OPERATORS,
        Some(Right::Combine(_)) if frame.is_pinned() => 0,
        Some(Right::Combine(op)) => op.0.bit,
    }
}

/// Do [`bits`] depend on the frame's views?
#[inline]
fn pins_change(frame: Frame) -> bool {
    matches!(frame.right(), Some(Right::Write | Right::Combine(_)))
}

impl Part {
    pub(crate) fn new(
        name: Name,
        shape: Shape,
        own: usize,
        members: Members,
        settings: Settings,
        home: Home,
        slab: Slab,
    ) -> std::io::Result<Rc<Part>> {
        let chunks = shape.chunks();
        let places: Vec<_> = members.places().map(Place::trustee).collect();
        let table = MmapMut::map_anon((chunks * size_of::<u64>()).max(1))?;
        let cache = Cache::new(shape.chunk_bytes(), settings.cache_bytes, slab);
        let part = Rc::new_cyclic(|this| Part {
            this: Weak::clone(this),
            words: table.as_ptr().cast(),
            _table: table,
            _held_bytes: Held::new(memory::needed(&shape, &settings, own)),
            left: Cell::new(LOOK_EVERY),
            name,
            own,
            shares: places.iter().map(|_| OnceCell::new()).collect(),
            copies: places.iter().map(|_| Cell::new(false)).collect(),
            near: places.iter().map(|_| OnceCell::new()).collect(),
            members,
            places,
            settings,
            cache,
            home,
            cached: RefCell::default(),
            hand: Cell::new(0),
            entries: RefCell::default(),
            steps: RefCell::default(),
            fresh: Cell::default(),
            is_stepping: Cell::new(false),
            lines: RefCell::default(),
            late: RefCell::default(),
            callbacks: RefCell::default(),
            works: Cell::new(0),
            calls_back: Cell::new(false),
            held: RefCell::default(),
            holders: Cell::new(0),
            next_in_order: Cell::new(usize::MAX),
            replies: Replies::default(),
            locks: Locks::default(),
            counters: Counters::default(),
            is_poisoned: Cell::new(false),
            poison: RefCell::default(),
            shape,
        });
        near::keep(&part, part.home.kept_with(&part.cache));
        let owned = part.shape.owned_chunks(own);
        (0..owned.count).for_each(|index| part.enter(part.home.frame(index)));
        Ok(part)
    }

    // The table.

    #[inline(always)]
    fn word(&self, chunk: usize) -> &Cell<u64> {
        debug_assert!(chunk < self.shape.chunks());
        // SAFETY: callers pass chunks of the array, for each of which there is a word; only this thread has it
        // [part-one-thread].
        unsafe { &*self.words.add(chunk) }
    }

    /// Returns the first element of a chunk, if the table allows one of the `wanted` accesses.
    ///
    /// # Safety
    /// The array has this chunk.
    #[inline(always)]
    pub(crate) unsafe fn hit(&self, chunk: usize, wanted: u64) -> Option<*mut u8> {
        let word = self.word(chunk).get();
        if word & wanted == 0 {
            return None;
        }
        self.left.set(self.left.get().checked_sub(1)?);
        Some((word & !BITS) as *mut u8)
    }

    /// Returns the frame of a chunk, if the table allows to read it; counts as a [`hit`](Self::hit).
    ///
    /// # Safety
    /// The array has this chunk.
    #[inline(always)]
    pub(crate) unsafe fn hit_to_view(&self, chunk: usize) -> Option<Frame> {
        // SAFETY: the caller's promise; a word with this bit has the address of elements of an own frame
        // [frame-one-thread].
        unsafe { Some(Frame::of_elements(self.hit(chunk, READS)?)) }
    }

    /// Counts a call that bypasses the table like a hit. True if it is time for the requests of others; a hit that
    /// finds the count at 0 fails and gets here.
    pub(crate) fn is_time_to_look(&self) -> bool {
        let left = self.left.get();
        self.left.set(if left == 0 { LOOK_EVERY } else { left - 1 });
        left == 0
    }

    #[inline]
    fn frame(&self, chunk: u32) -> Option<Frame> {
        let word = self.word(chunk as usize).get();
        let elements = (word & !BITS) as *mut u8;
        // SAFETY: without the bit the table has addresses of elements of own frames only [frame-one-thread].
        (!elements.is_null() && word & NEAR == 0).then(|| unsafe { Frame::of_elements(elements) })
    }

    /// Makes a frame that of its chunk, or updates the table word after a change of its right.
    fn enter(&self, frame: Frame) {
        let elements = frame.elements().expose_provenance() as u64;
        debug_assert_eq!(elements & BITS, 0, "a frame's address");
        self.word(frame.chunk() as usize).set(elements | bits(frame));
    }

    /// Returns the elements of a frame.
    ///
    /// # Safety
    /// Nothing writes them while the slice is in use.
    unsafe fn elements<'a>(&self, frame: Frame) -> &'a [u8] {
        // SAFETY: [frame-one-thread] a frame has a chunk's bytes.
        unsafe { std::slice::from_raw_parts(frame.elements(), self.bytes_of(frame.chunk())) }
    }

    /// Returns the bytes of the elements of this chunk.
    pub(crate) fn bytes_of(&self, chunk: u32) -> usize {
        self.shape.elements_of(chunk).len() * self.shape.element_bytes
    }

    // Access.

    /// Returns the frame of a chunk if this right is here; for a writer, one without views.
    ///
    /// # Panics
    /// If a closure has the chunk, naming `call`.
    #[track_caller]
    pub(crate) fn ready(&self, call: &str, chunk: u32, wanted: Right<Op>) -> Option<Frame> {
        let frame = self.frame(chunk)?;
        if frame.is_busy() {
            waits::refuse_in_use(call);
        }
        if !frame.right()?.covers(wanted) {
            return None;
        }
        Some(self.frame_for(wanted, frame))
    }

    /// Returns a frame of the same chunk in which an access by this right disturbs no view.
    fn frame_for(&self, wanted: Right<Op>, frame: Frame) -> Frame {
        if matches!(wanted, Right::Read | Right::Glance) { frame } else { self.without_views(frame) }
    }

    /// Same as [`ready`](Self::ready) to read, for the plain case: `None` also if the slow path has to decide.
    #[inline]
    pub(crate) fn ready_to_view(&self, chunk: u32) -> Option<Frame> {
        let is_readable = self.word(chunk as usize).get() & READS != 0 && !self.is_poisoned.get();
        if is_readable { self.frame(chunk) } else { None }
    }

    /// Returns itself with a new reference count.
    pub(crate) fn shared(&self) -> Rc<Part> {
        self.this.upgrade().unwrap_or_else(|| unreachable!("it is in use"))
    }

    /// Returns the frame of an own chunk if this right is here, no closure has it, and (for a writer) it has no views.
    #[inline]
    pub(crate) fn own_frame(&self, chunk: u32, wanted: Right<Op>) -> Option<Frame> {
        let frame = self.frame(chunk)?;
        let is_free = !frame.is_busy() && (wanted == Right::Read || !frame.is_pinned());
        (frame.is_home() && is_free && frame.right()?.covers(wanted)).then_some(frame)
    }

    /// Returns a frame of the same chunk that may be written: if this one has views, a copy replaces it.
    fn without_views(&self, frame: Frame) -> Frame {
        if !frame.is_pinned() {
            return frame;
        }
        let copy = self.cache.take(frame.chunk(), frame.is_home());
        // SAFETY: [frame-one-thread] both have a chunk's bytes; they are different frames.
        unsafe { copy.elements().copy_from_nonoverlapping(frame.elements(), self.shape.chunk_bytes()) };
        copy.set_right(frame.right());
        if !frame.is_home() {
            copy.set_position(frame.position());
            self.cached.borrow_mut()[frame.position()] = copy;
        }
        frame.make_orphan();
        self.enter(copy);
        copy
    }

    /// Runs `work` on the elements of a frame, which nothing else reaches meanwhile; then the deferred callbacks. In
    /// delegated context.
    pub(crate) fn work(&self, frame: Frame, work: impl FnOnce(&Part, Frame)) {
        struct Free<'a>(&'a Part, Frame);
        impl Drop for Free<'_> {
            fn drop(&mut self) {
                self.1.set_busy(false);
                self.0.enter(self.1);
                self.0.works.set(self.0.works.get() - 1);
            }
        }
        let free = Free(self, frame);
        frame.set_busy(true);
        self.enter(frame);
        self.works.set(self.works.get() + 1);
        work(self, frame);
        drop(free);
        for (chunk, right) in self.late.take() {
            self.serve_line(chunk, right);
        }
        // Callbacks may call this in turn: then the outer call runs the callbacks that they defer.
        if self.works.get() > 0 {
            return;
        }
        self.works.set(1);
        self.calls_back.set(true);
        while let Some(callback) = { self.callbacks.borrow_mut().pop_front() } {
            post::quietly(callback);
        }
        self.calls_back.set(false);
        self.works.set(0);
    }

    /// Has a closure a chunk now? Callbacks have none.
    pub(crate) fn has_closure(&self) -> bool {
        self.works.get() > u32::from(self.calls_back.get())
    }

    /// Defers this callback until no closure has a chunk any more.
    pub(crate) fn call_back(&self, callback: Box<dyn FnOnce()>) {
        self.callbacks.borrow_mut().push_back(callback);
    }

    // Views, ends.

    #[inline]
    pub(crate) fn pin(&self, frame: Frame) {
        frame.pin();
        if !frame.is_busy() && pins_change(frame) {
            self.enter(frame);
        }
    }

    #[inline]
    pub(crate) fn unpin(&self, frame: Frame) {
        if frame.unpin() {
            self.cache.give_back(frame);
        } else if pins_change(frame) && !frame.is_orphan() && !frame.is_busy() {
            self.enter(frame);
        }
    }

    pub(crate) fn place(&self, number: usize) -> TrusteeReference {
        self.places[number]
    }

    /// Returns the share with the chunks of a place, if it is mapped here.
    fn share_of(&self, place: usize) -> Option<&Arc<Share>> {
        self.shares[place].get_or_init(|| room::of_machine(self.places[place].id().machine())).as_ref()
    }

    pub(crate) fn sees(&self, place: usize) -> bool {
        self.share_of(place).is_some()
    }

    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// # Panics
    /// If the array is poisoned.
    #[inline]
    #[track_caller]
    pub(crate) fn check_poison(&self) {
        if self.is_poisoned.get() {
            panic!("the array is poisoned: {}", self.poison.borrow().as_deref().unwrap_or_default());
        }
    }

    /// Poisons this part: the waiters are notified.
    pub(crate) fn set_poison(&self, why: &str) {
        self.is_poisoned.set(true);
        self.poison.borrow_mut().get_or_insert_with(|| why.to_owned());
        // First the waiters without code of the program, then code that may panic, one by one.
        self.locks.drop_all();
        let lines = self.lines.take().into_values();
        lines.flat_map(|line| line.waiting).for_each(|(_, job)| post::quietly(|| drop(job)));
        self.replies.take_all().for_each(|reply| post::quietly(|| drop(reply)));
        drop(self.held.take());
    }

    /// Keeps the array alive during a call that has no handle.
    pub(crate) fn hold(&self, root: &Trust<Root>) {
        self.holders.set(self.holders.get() + 1);
        if self.holders.get() == 1 {
            *self.held.borrow_mut() = Some(root.clone());
        }
    }

    /// Ends such a call.
    pub(crate) fn release(&self) {
        self.holders.set(self.holders.get() - 1);
        if self.holders.get() == 0 {
            drop(self.held.take());
        }
    }
}
