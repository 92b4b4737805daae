//! Frames: the memory of a chunk at one place, with what that place may do with it.
//!
//! A frame is a header of 64 bytes and the elements behind it. It belongs to one [`Part`](crate::part::Part), thus to
//! one thread: nothing of it is ever touched by another one, so its fields are plain cells and its elements plain
//! memory. (Those at home may be read by another process meanwhile, while nobody changes them: `room.rs`.)
//!
//! Invariants: (A1) a [`Frame`] lies in an arena of its part and is used on that part's thread only, while the part is
//! there, which each view keeps. (A2) While `pins` is above 0 the elements do not change and the frame is not used for
//! anything else: who would write takes a copy. (A3) While a user's closure has the elements (`busy`), nothing else
//! touches them.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io;
use std::ptr::NonNull;

use memmap2::{Advice, MmapMut};

use crate::keeper::Right;
use crate::operator::Op;
use crate::room::{Mapping, Room};
use crate::shape::OwnedChunks;

pub(crate) const HEADER_BYTES: usize = 64;
/// Bytes of cache memory that are taken from the system at a time, at least one frame, when those of the start are in
/// use; at first where there were none.
const FIRST_SLAB_BYTES: usize = 256 << 10;
const SLAB_BYTES: usize = 4 << 20;
const PAGE_BYTES: usize = 4096;

#[repr(C, align(64))]
struct Header {
    right: Cell<Option<Right<Op>>>,
    /// Views of it.
    pins: Cell<u32>,
    chunk: Cell<u32>,
    /// Its place among the cached frames of the part.
    position: Cell<u32>,
    busy: Cell<bool>,
    is_home: Cell<bool>,
    /// Nothing but its views knows it: it goes with the last.
    is_orphan: Cell<bool>,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// See the file's documentation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame(NonNull<Header>);

impl Frame {
    /// The frame whose elements begin here.
    ///
    /// # Safety
    /// They do (A1).
    #[inline(always)]
    pub(crate) unsafe fn of_elements(elements: *mut u8) -> Frame {
        // SAFETY: the header lies before the elements.
        Frame(unsafe { NonNull::new_unchecked(elements.sub(HEADER_BYTES).cast()) })
    }

    /// Its first element.
    #[inline(always)]
    pub(crate) fn elements(self) -> *mut u8 {
        // SAFETY: (A1) the elements lie behind the header.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER_BYTES) }
    }

    #[inline(always)]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: (A1); all fields are cells.
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
    /// True if it was the last one and nothing else knows the frame.
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

    /// Begins its life as the frame of this chunk, nobody having any right.
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
        // SAFETY: (A1); nobody has a view of it or holds its header across this.
        unsafe { self.0.as_ptr().write(header) }
    }
}

/// Bytes from one frame to the next.
pub(crate) fn frame_bytes(chunk_bytes: usize) -> usize {
    HEADER_BYTES + chunk_bytes.next_multiple_of(HEADER_BYTES)
}

/// The frames of the chunks that a place owns, in order, each elements' value written.
pub(crate) struct Home {
    memory: Memory,
    frame_bytes: usize,
}

/// Where they lie.
enum Memory {
    /// In memory of this process.
    Own(MmapMut),
    /// In a room of the share, which goes after the mapping.
    Share(Mapping, Room),
}

impl Memory {
    /// In the share if that can be had, else memory with huge pages if the system gives them.
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
    /// Takes the memory and writes each element: so it is there when the array is. Takes its time; on a thread of its
    /// own.
    pub(crate) fn new(chunks: OwnedChunks, chunk_bytes: usize, value: &[u8]) -> io::Result<Home> {
        let (frame_bytes, frames) = (frame_bytes(chunk_bytes), chunks.count);
        let bytes = frames.checked_mul(frame_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut memory = Memory::take(bytes)?;
        for frame in memory.as_mut_slice().chunks_exact_mut(frame_bytes).take(frames) {
            let elements = &mut frame[HEADER_BYTES..HEADER_BYTES + chunk_bytes];
            elements.chunks_exact_mut(value.len()).for_each(|element| element.copy_from_slice(value));
        }
        let home = Home { memory, frame_bytes };
        for index in 0..frames {
            home.frame(index).begin(chunks.chunk(index), true);
            home.frame(index).set_right(Some(Right::Write));
        }
        Ok(home)
    }

    /// Where the elements of a frame are in the share, if they are there.
    pub(crate) fn in_share(&self, frame: Frame) -> Option<usize> {
        let Memory::Share(mapping, room) = &self.memory else { return None };
        let within = frame.elements().addr().checked_sub(mapping.start().addr())?;
        (within < mapping.len()).then_some(room.start() + within)
    }

    pub(crate) fn frame(&self, index: usize) -> Frame {
        let header = self.memory.start().wrapping_add(index * self.frame_bytes);
        assert!(self.memory.len() >= (index + 1) * self.frame_bytes, "it has fewer frames");
        // SAFETY: within the mapping, so not null; a mapping begins at a page, and frames are multiples of 64 bytes.
        Frame(unsafe { NonNull::new_unchecked(header.cast()) })
    }
}

/// Memory for frames that comes from the system at once.
pub(crate) struct Slab {
    memory: MmapMut,
    frames: usize,
}

impl Slab {
    /// For so many frames, in huge pages if it is long. The system gives the pages as they are written.
    fn new(frames: usize, frame_bytes: usize) -> io::Result<Slab> {
        let bytes = frames.checked_mul(frame_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = MmapMut::map_anon(bytes.max(1))?;
        if bytes >= SLAB_BYTES / 2 {
            let _ = memory.advise(Advice::HugePage);
            let _ = memory.advise(Advice::DontDump); // mostly empty
        }
        Ok(Slab { memory, frames })
    }

    /// With all of its pages, so that a first write costs no more than a later one. Takes its time, as [`Home::new`].
    pub(crate) fn touched(frames: usize, chunk_bytes: usize) -> io::Result<Slab> {
        let mut slab = Slab::new(frames, frame_bytes(chunk_bytes))?;
        slab.memory.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 0);
        Ok(slab)
    }
}

/// Frames for chunks of other places, and copies of pinned ones.
pub(crate) struct Cache {
    frame_bytes: usize,
    slabs: RefCell<Vec<Slab>>,
    free: RefCell<Vec<Frame>>,
    used: Cell<usize>,
    /// How many there may be before chunks are dropped.
    pub(crate) frames_max: usize,
}

impl Cache {
    /// Whose first frames lie in this memory.
    pub(crate) fn new(chunk_bytes: usize, cache_bytes: usize, first: Slab) -> Cache {
        let frames_max = Cache::frames_max(chunk_bytes, cache_bytes);
        let frame_bytes = frame_bytes(chunk_bytes);
        let cache =
            Cache { frame_bytes, slabs: RefCell::default(), free: RefCell::default(), used: Cell::new(0), frames_max };
        cache.add(first);
        cache
    }

    /// Frames of a cache that may have so many bytes.
    pub(crate) fn frames_max(chunk_bytes: usize, cache_bytes: usize) -> usize {
        (cache_bytes / frame_bytes(chunk_bytes)).max(4)
    }

    /// Frames in use.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// A frame for this chunk.
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
        let has_none = self.slabs.borrow().iter().all(|slab| slab.frames == 0);
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
        self.slabs.borrow_mut().push(slab);
    }

    /// Takes a frame back. One of the home's memory does as well, as all are of one size.
    pub(crate) fn give_back(&self, frame: Frame) {
        debug_assert!(!frame.is_pinned() && !frame.is_busy(), "A2, A3");
        self.used.set(self.used.get().saturating_sub(1));
        self.free.borrow_mut().push(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BYTES: usize = 4096;

    /// Pages that the calling thread has had to wait for so far.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let behind_name = stat.rsplit_once(')').unwrap().1;
        behind_name.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    /// Writes so many frames of a cache, and says how many faults that took.
    fn fill(cache: &Cache, frames: u32) -> u64 {
        let before = faults();
        for chunk in 0..frames {
            let frame = cache.take(chunk, false);
            // SAFETY: (A1) a frame has a chunk's bytes.
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
        assert_eq!((cache.used(), cache.slabs.borrow().len()), (200, 1));
        assert!(of_first < 50, "{of_first} faults: memory was taken in a turn");
        let beyond = fill(&cache, 1);
        assert_eq!((cache.used(), cache.slabs.borrow().len()), (201, 2), "there is more where it is needed");
        assert!(beyond > 0, "the count of faults tells nothing");
    }

    #[test]
    fn a_cache_may_begin_with_nothing() {
        let cache = Cache::new(CHUNK_BYTES, 1 << 20, Slab::touched(0, CHUNK_BYTES).unwrap());
        assert_eq!(cache.take(3, false).chunk(), 3);
    }
}
