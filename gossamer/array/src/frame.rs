//! Frames: the memory of a chunk at one place, with that place's right to it.
//!
//! A frame is a header of 64 bytes and the elements behind it. It belongs to one [`Part`](crate::part::Part), thus to
//! one thread: no other thread touches it, so its fields are plain cells and its elements plain memory. Two exceptions
//! concern elements at home alone: another process may read them while nothing changes them (`room.rs`), and other
//! workers of this process may use them in place, by atomic loads and stores (`word.rs`).
//!
//! Invariants:
//! - [frame-one-thread] A [`Frame`] lies in an arena of its part and is used only on that part's thread, while the part
//!   exists, which each view keeps alive. Where the directory has granted access in place, other workers load and store
//!   its elements, not the header, and this part does no more.
//! - [pinned-unchanged] While `pins` is above 0 the elements do not change and the frame is not reused: a writer makes
//!   a copy first.
//! - [busy-exclusive] While a user's closure has the elements (`busy`), nothing else touches them.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{Advice, MmapMut};

use crate::directory::Right;
use crate::operator::Op;
use crate::room::{Mapping, Room};
use crate::shape::OwnedChunks;

pub(crate) const HEADER_BYTES: usize = 64;
/// Bytes of cache memory allocated at a time, at least one frame, once the initial frames are in use; the first size
/// applies if there were no initial ones.
const FIRST_SLAB_BYTES: usize = 256 << 10;
const SLAB_BYTES: usize = 4 << 20;
const PAGE_BYTES: usize = 4096;

#[repr(C, align(64))]
struct Header {
    right: Cell<Option<Right<Op>>>,
    /// Number of views of it.
    pins: Cell<u32>,
    chunk: Cell<u32>,
    /// Its index among the cached frames of the part.
    position: Cell<u32>,
    busy: Cell<bool>,
    is_home: Cell<bool>,
    /// Whether only views refer to it: it is freed with the last.
    is_orphan: Cell<bool>,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// See the file's documentation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame(NonNull<Header>);

impl Frame {
    /// Returns the frame with its elements at this address.
    ///
    /// # Safety
    /// They are a frame's elements [frame-one-thread].
    #[inline(always)]
    pub(crate) unsafe fn of_elements(elements: *mut u8) -> Frame {
        // SAFETY: the header lies before the elements.
        Frame(unsafe { NonNull::new_unchecked(elements.sub(HEADER_BYTES).cast()) })
    }

    /// Returns the address of its first element.
    #[inline(always)]
    pub(crate) fn elements(self) -> *mut u8 {
        // SAFETY: [frame-one-thread] the elements lie behind the header.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES) }
    }

    #[inline(always)]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: [frame-one-thread]; all fields are cells.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn right(self) -> Option<Right<Op>> {
        self.header().right.get()
    }
    pub(crate) fn set_right(self, right: Option<Right<Op>>) {
        self.header().right.set(right);
    }
    pub(crate) fn chunk(self) -> u32 {
        self.header().chunk.get()
    }
    pub(crate) fn is_pinned(self) -> bool {
        self.header().pins.get() > 0
    }
    pub(crate) fn pin(self) {
        let pins = &self.header().pins;
        pins.set(pins.get().checked_add(1).expect("fewer views than that"));
    }
    /// True if it was the last pin of an orphan.
    #[must_use]
    pub(crate) fn unpin(self) -> bool {
        let pins = &self.header().pins;
        pins.set(pins.get() - 1);
        pins.get() == 0 && self.header().is_orphan.get()
    }
    pub(crate) fn make_orphan(self) {
        self.header().is_orphan.set(true);
    }
    pub(crate) fn is_orphan(self) -> bool {
        self.header().is_orphan.get()
    }
    pub(crate) fn is_busy(self) -> bool {
        self.header().busy.get()
    }
    pub(crate) fn set_busy(self, busy: bool) {
        self.header().busy.set(busy);
    }
    pub(crate) fn is_home(self) -> bool {
        self.header().is_home.get()
    }
    pub(crate) fn position(self) -> usize {
        self.header().position.get() as usize
    }
    pub(crate) fn set_position(self, position: usize) {
        self.header().position.set(position as u32);
    }

    /// Sets the frame up for this chunk, without any right.
    pub(crate) fn begin(self, chunk: u32, is_home: bool) {
        let header = Header {
            right: Cell::new(None),
            pins: Cell::new(0),
            chunk: Cell::new(chunk),
            position: Cell::new(0),
            busy: Cell::new(false),
            is_home: Cell::new(is_home),
            is_orphan: Cell::new(false),
        };
        // SAFETY: [frame-one-thread]; no view of it exists, and no header reference is held across this.
        unsafe { self.0.as_ptr().write(header) }
    }
}

/// Returns the distance in bytes from one frame to the next.
pub(crate) fn frame_bytes(chunk_bytes: usize) -> usize {
    HEADER_BYTES + chunk_bytes.next_multiple_of(HEADER_BYTES)
}

/// The frames of the chunks that a place owns, in order, with their initial values written.
pub(crate) struct Home {
    memory: Arc<Memory>,
    frame_bytes: usize,
}

/// Keeps the memory of all frames of a part, for other workers that use its chunks in place.
#[derive(Clone)]
pub(crate) struct Kept {
    _home: Arc<Memory>,
    _slabs: Arc<Mutex<Vec<Slab>>>,
}

/// Memory of these frames.
enum Memory {
    /// Memory of this process.
    Own(MmapMut),
    /// An allocation in the share, which is freed after the mapping.
    Share(Mapping, Room),
}

impl Memory {
    /// Allocates in the share if possible, else memory with huge pages if the system grants them.
    fn take(bytes: usize) -> io::Result<Memory> {
        if let Some((room, mapping)) = Room::take(bytes) {
            return Ok(Memory::Share(mapping, room));
        }
        let memory = MmapMut::map_anon(bytes.max(1))?;
        let _ = memory.advise(Advice::HugePage);
        let _ = memory.advise(Advice::DontDump); // as with a share: an array may be most of the host's memory
        Ok(Memory::Own(memory))
    }

    fn start(&self) -> *mut u8 {
        match self {
            Memory::Own(memory) => memory.as_ptr().cast_mut(),
            Memory::Share(mapping, _) => mapping.start(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Memory::Own(memory) => memory.len(),
            Memory::Share(mapping, _) => mapping.len(),
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Memory::Own(memory) => memory,
            Memory::Share(mapping, _) => mapping.as_mut_slice(),
        }
    }
}

impl Home {
    /// Allocates the memory and writes each element, so that its pages exist when the array does. Slow; runs on a
    /// thread of its own.
    pub(crate) fn new(chunks: OwnedChunks, chunk_bytes: usize, value: &[u8]) -> io::Result<Home> {
        let (frame_bytes, frames) = (frame_bytes(chunk_bytes), chunks.count);
        let bytes = frames.checked_mul(frame_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut memory = Memory::take(bytes)?;
        for frame in memory.as_mut_slice().chunks_exact_mut(frame_bytes).take(frames) {
            let elements = &mut frame[HEADER_BYTES..HEADER_BYTES + chunk_bytes];
            elements.chunks_exact_mut(value.len()).for_each(|element| element.copy_from_slice(value));
        }
        let home = Home { memory: Arc::new(memory), frame_bytes };
        for index in 0..frames {
            home.frame(index).begin(chunks.chunk(index), true);
            home.frame(index).set_right(Some(Right::Write));
        }
        Ok(home)
    }

    /// Returns the offset of a frame's elements in the share, if they are there.
    pub(crate) fn in_share(&self, frame: Frame) -> Option<usize> {
        let Memory::Share(mapping, room) = &*self.memory else { return None };
        let within = frame.elements().addr().checked_sub(mapping.start().addr())?;
        (within < mapping.len()).then_some(room.start() + within)
    }

    pub(crate) fn kept_with(&self, cache: &Cache) -> Kept {
        Kept { _home: Arc::clone(&self.memory), _slabs: Arc::clone(&cache.slabs) }
    }

    pub(crate) fn frame(&self, index: usize) -> Frame {
        let header = self.memory.start().wrapping_add(index * self.frame_bytes);
        assert!(self.memory.len() >= (index + 1) * self.frame_bytes, "it has fewer frames");
        // SAFETY: within the mapping, so not null; a mapping begins at a page, and frames are multiples of 64 bytes.
        Frame(unsafe { NonNull::new_unchecked(header.cast()) })
    }
}

/// Memory for frames that is allocated at once.
pub(crate) struct Slab {
    memory: MmapMut,
    frames: usize,
}

impl Slab {
    /// Allocates memory for `frames` frames, in huge pages if it is long. Its pages come into being when they are
    /// written.
    fn new(frames: usize, frame_bytes: usize) -> io::Result<Slab> {
        let bytes = frames.checked_mul(frame_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = MmapMut::map_anon(bytes.max(1))?;
        if bytes >= SLAB_BYTES / 2 {
            let _ = memory.advise(Advice::HugePage);
            let _ = memory.advise(Advice::DontDump); // mostly empty
        }
        Ok(Slab { memory, frames })
    }

    /// Allocates it with all of its pages, so that a first write costs no more than a later one. Slow, as
    /// [`Home::new`].
    pub(crate) fn touched(frames: usize, chunk_bytes: usize) -> io::Result<Slab> {
        let mut slab = Slab::new(frames, frame_bytes(chunk_bytes))?;
        slab.memory.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 0);
        Ok(slab)
    }
}

/// Frames for chunks of other places, and for copies of pinned ones.
pub(crate) struct Cache {
    frame_bytes: usize,
    /// Locked where the cache grows.
    slabs: Arc<Mutex<Vec<Slab>>>,
    free: RefCell<Vec<Frame>>,
    used: Cell<usize>,
    /// Number of frames at which chunks are evicted.
    pub(crate) frames_max: usize,
}

impl Cache {
    /// Makes a cache with its first frames in `first`.
    pub(crate) fn new(chunk_bytes: usize, cache_bytes: usize, first: Slab) -> Cache {
        let frames_max = Cache::frames_max(chunk_bytes, cache_bytes);
        let frame_bytes = frame_bytes(chunk_bytes);
        let cache =
            Cache { frame_bytes, slabs: Arc::default(), free: RefCell::default(), used: Cell::new(0), frames_max };
        cache.add(first);
        cache
    }

    /// Returns the number of frames of a cache of `cache_bytes`.
    pub(crate) fn frames_max(chunk_bytes: usize, cache_bytes: usize) -> usize {
        (cache_bytes / frame_bytes(chunk_bytes)).max(4)
    }

    /// Returns the number of frames in use.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Takes a frame for this chunk.
    ///
    /// # Panics
    /// If the system has no memory.
    pub(crate) fn take(&self, chunk: u32, is_home: bool) -> Frame {
        if self.free.borrow().is_empty() {
            self.grow();
        }
        let frame = self.free.borrow_mut().pop().unwrap_or_else(|| unreachable!("it has just grown"));
        self.used.set(self.used.get() + 1);
        frame.begin(chunk, is_home);
        frame
    }

    #[cold]
    fn grow(&self) {
        let has_none = self.with_slabs(|slabs| slabs.iter().all(|slab| slab.frames == 0));
        let bytes = if has_none { FIRST_SLAB_BYTES } else { SLAB_BYTES };
        let frames = (bytes / self.frame_bytes).clamp(1, self.frames_max);
        let slab = Slab::new(frames, self.frame_bytes);
        self.add(slab.unwrap_or_else(|error| panic!("no memory for chunks of other places: {error}")));
    }

    fn add(&self, mut slab: Slab) {
        let start = slab.memory.as_mut_ptr();
        self.free.borrow_mut().extend((0..slab.frames).rev().map(|index| {
            let header = start.wrapping_add(index * self.frame_bytes).cast();
            // SAFETY: within the mapping, aligned as in `Home::frame`.
            Frame(unsafe { NonNull::new_unchecked(header) })
        }));
        self.with_slabs(|slabs| slabs.push(slab));
    }

    fn with_slabs<R>(&self, f: impl FnOnce(&mut Vec<Slab>) -> R) -> R {
        f(&mut self.slabs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a frame back, also one of the home's memory, as all have the same size.
    pub(crate) fn give_back(&self, frame: Frame) {
        debug_assert!(!frame.is_pinned() && !frame.is_busy(), "neither pinned nor lent to a closure");
        self.used.set(self.used.get().saturating_sub(1));
        self.free.borrow_mut().push(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BYTES: usize = 4096;

    /// Returns the page faults of the calling thread so far.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let behind_name = stat.rsplit_once(')').unwrap().1;
        behind_name.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    /// Writes `frames` frames of a cache; returns the number of faults.
    fn fill(cache: &Cache, frames: u32) -> u64 {
        let before = faults();
        for chunk in 0..frames {
            let frame = cache.take(chunk, false);
            // SAFETY: [frame-one-thread] a frame has a chunk's bytes.
            unsafe { frame.elements().write_bytes(7, CHUNK_BYTES) };
        }
        faults() - before
    }

    #[test]
    fn the_first_frames_of_a_cache_have_their_pages() {
        let frames = 200;
        let slab = Slab::touched(frames as usize, CHUNK_BYTES).unwrap();
        let cache = Cache::new(CHUNK_BYTES, 64 << 20, slab);
        let of_first = fill(&cache, frames);
        assert_eq!((cache.used(), cache.with_slabs(|slabs| slabs.len())), (200, 1));
        assert!(of_first < 50, "{of_first} faults: memory was taken in a turn");
        let beyond = fill(&cache, 1);
        assert_eq!((cache.used(), cache.with_slabs(|slabs| slabs.len())), (201, 2), "there is more where it is needed");
        assert!(beyond > 0, "the count of faults tells nothing");
    }

    #[test]
    fn a_cache_may_begin_with_nothing() {
        let cache = Cache::new(CHUNK_BYTES, 1 << 20, Slab::touched(0, CHUNK_BYTES).unwrap());
        assert_eq!(cache.take(3, false).chunk(), 3);
    }
}
