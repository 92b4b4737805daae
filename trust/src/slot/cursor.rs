//! Place of the next request or response: first the primary part, then the overflow part, then (responses only) chunks
//! of their own. Writer and reader follow the same rule, so no positions travel: an item goes to the first place in
//! this order, at or after the last item, that has room for the whole of it.
//!
//! The responses to a batch of another machine are *packed* instead: one byte string that grows as needed, without
//! pointers. Both ends hold it in a [`Buffer`], so that an aligned offset is one at both.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::Body;
use crate::buffer::{Buffer, fix_padding};
use crate::config::{CHUNK_BYTES, INLINE_ALIGN, INLINE_BYTES};
use crate::fault::Fault;

/// Memory that a batch of responses needs beyond its slot: the responses that did not fit, and the faults.
#[derive(Default)]
pub(crate) struct Extra {
    chunks: Vec<Chunk>,
    /// Indices of the requests of the batch that failed, in order, and their faults.
    pub(crate) faults: Vec<(u32, Fault)>,
}

struct Chunk(NonNull<u8>);

impl Chunk {
    const LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, INLINE_ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("chunk layout"),
    };
    fn new() -> Self {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc(Self::LAYOUT) };
        Chunk(NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(Self::LAYOUT)))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) }
    }
}

/// `pointer` moved up to a multiple of `align`, a power of two.
#[inline(always)]
pub(crate) fn align_up(pointer: *mut u8, align: usize) -> *mut u8 {
    let pad = pointer.addr().wrapping_neg() & (align - 1);
    pointer.wrapping_add(pad)
}

/// Is a value of this layout carried inline? If not, it is boxed and its pointer is.
pub(crate) const fn is_inline(size: usize, align: usize) -> bool {
    size <= INLINE_BYTES && align <= INLINE_ALIGN
}

/// A walk over the places of one response body.
struct Places {
    at: *mut u8,
    end: *mut u8,
    body: *mut Body,
}

impl Places {
    /// # Safety
    /// The caller owns the response body `body` for as long as it uses the places given out.
    #[inline]
    unsafe fn new(body: *mut Body) -> Self {
        // SAFETY: the caller's promise.
        let primary = unsafe { &raw mut (*body).primary };
        Places { at: primary.cast(), end: primary.wrapping_add(1).cast(), body }
    }

    /// No places at all.
    const NONE: Places = Places { at: ptr::null_mut(), end: ptr::null_mut(), body: ptr::null_mut() };

    /// A place for an item that does not fit the current part: in the next one, or a chunk.
    fn next_part(&mut self, size: usize, align: usize, mut chunk: impl FnMut() -> *mut u8) -> *mut u8 {
        // SAFETY: the body is the caller's (see `new`).
        let (primary, overflow) = unsafe { (&raw mut (*self.body).primary, &raw mut (*self.body).overflow) };
        if self.end == primary.wrapping_add(1).cast() {
            self.at = overflow.cast();
            self.end = overflow.wrapping_add(1).cast();
        }
        let mut at = align_up(self.at, align);
        if at.addr() + size > self.end.addr() {
            at = chunk();
            self.end = at.wrapping_add(CHUNK_BYTES);
        }
        self.at = at.wrapping_add(size);
        at
    }
}

/// Writes the responses of one batch.
pub(crate) struct Writer {
    places: Places,
    extra: Option<Box<Extra>>,
    packed: Option<Buffer>,
}

impl Writer {
    /// # Safety
    /// The caller owns the response body `body` until it publishes it.
    #[inline]
    pub(crate) unsafe fn new(body: *mut Body) -> Self {
        // SAFETY: the caller's promise.
        Writer { places: unsafe { Places::new(body) }, extra: None, packed: None }
    }

    /// A writer for a batch of another machine, into the memory of this buffer.
    pub(crate) fn packed(mut buffer: Buffer) -> Self {
        let at = buffer.start();
        let places = Places { at, end: at.wrapping_add(buffer.capacity()), body: ptr::null_mut() };
        Writer { places, extra: None, packed: Some(buffer) }
    }

    #[inline(always)]
    fn place(&mut self, size: usize, align: usize) -> *mut u8 {
        let at = align_up(self.places.at, align);
        if at.addr() + size <= self.places.end.addr() {
            self.places.at = at.wrapping_add(size);
            at
        } else {
            self.place_slow(size, align)
        }
    }

    #[cold]
    fn place_slow(&mut self, size: usize, align: usize) -> *mut u8 {
        if let Some(buffer) = &mut self.packed {
            let used = self.places.at.addr() - buffer.start().addr();
            buffer.reserve(used + align + size);
            let start = buffer.start();
            let at = align_up(start.wrapping_add(used), align);
            self.places.end = start.wrapping_add(buffer.capacity());
            self.places.at = at.wrapping_add(size);
            return at;
        }
        let extra = &mut self.extra;
        self.places.next_part(size, align, || {
            let chunk = Chunk::new();
            let at = chunk.0.as_ptr();
            extra.get_or_insert_default().chunks.push(chunk);
            at
        })
    }

    /// Moves `value` into the batch.
    #[inline(always)]
    pub(crate) fn put<U>(&mut self, value: U) {
        if const { is_inline(size_of::<U>(), align_of::<U>()) } {
            self.put_here(value);
        } else if self.packed.is_some() {
            let at = self.place(size_of::<U>(), 1);
            // SAFETY: as in `put_here`.
            unsafe { at.cast::<U>().write_unaligned(value) }
        } else {
            self.put_here(Box::into_raw(Box::new(value)));
        }
    }

    #[inline(always)]
    fn put_here<U>(&mut self, value: U) {
        if const { size_of::<U>() == 0 } {
            return std::mem::forget(value);
        }
        let at = self.place(size_of::<U>(), align_of::<U>());
        // SAFETY: `place` gave out room for a `U` in memory this writer owns.
        unsafe { at.cast::<U>().write_unaligned(value) }
    }

    /// Copies bytes of a length that the reader does not know.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        let at = self.put_room(bytes.len());
        // SAFETY: room for as many bytes, which this writer owns.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) }
    }

    /// Room for bytes of a length that the reader does not know, at a multiple of 8: the length is put, then the bytes,
    /// which are the caller's to write, or a pointer to them.
    pub(crate) fn put_room(&mut self, len: usize) -> *mut u8 {
        self.put_here(len);
        if len == 0 {
            NonNull::<u64>::dangling().as_ptr().cast()
        } else if len <= INLINE_BYTES || self.packed.is_some() {
            self.place(len, 8)
        } else {
            let at = Box::into_raw(Box::<[u64]>::new_uninit_slice(len.div_ceil(8))).cast::<u8>();
            self.put_here(at);
            at
        }
    }

    /// Puts a fault in place of the response to the request at `index` of the batch.
    #[cold]
    pub(crate) fn put_fault(&mut self, index: u32, fault: Fault) {
        self.extra.get_or_insert_default().faults.push((index, fault));
    }

    /// Completes the body. True if the batch went beyond its slot.
    #[inline]
    pub(crate) fn finish(self) -> bool {
        let beyond = self.extra.as_ref().is_some_and(|extra| !extra.chunks.is_empty());
        let head = self.extra.map_or(0, |extra| Box::into_raw(extra).expose_provenance() as u64);
        // SAFETY: the body is ours and valid (see `new`).
        unsafe { (*self.places.body).head = head }
        beyond
    }

    /// The bytes and faults of a batch of another machine.
    pub(crate) fn finish_packed(self) -> (Buffer, Vec<(u32, Fault)>) {
        let faults = self.extra.map_or_else(Vec::new, |mut extra| std::mem::take(&mut extra.faults));
        let mut buffer = self.packed.unwrap_or_default();
        let bytes = self.places.at.addr() - buffer.start().addr();
        buffer.set_len(bytes);
        fix_padding(buffer.start());
        (buffer, faults)
    }
}

/// Reads the responses of one batch, in the order they were written.
pub(crate) struct Reader {
    places: Places,
    extra: Option<Box<Extra>>,
    next_chunk: usize,
    packed: bool,
}

impl Reader {
    /// # Safety
    /// The caller owns the answered response body `body`, and reads each batch once.
    #[inline]
    pub(crate) unsafe fn new(body: *mut Body) -> Self {
        // SAFETY: the body is ours and valid; a head that is not 0 is the box that `Writer::finish` let go.
        let (places, extra) = unsafe {
            let head = (*body).head as usize;
            let extra = (head != 0).then(|| Box::from_raw(ptr::with_exposed_provenance_mut::<Extra>(head)));
            (Places::new(body), extra)
        };
        Reader { places, extra, next_chunk: 0, packed: false }
    }

    /// A reader of the responses of another machine.
    ///
    /// # Safety
    /// No other code touches the buffer while this reads.
    pub(crate) unsafe fn packed(buffer: &mut Buffer) -> Self {
        let at = buffer.start();
        let places = Places { at, end: at.wrapping_add(buffer.len()), body: ptr::null_mut() };
        Reader { places, extra: None, next_chunk: 0, packed: true }
    }

    /// A batch with no responses: for continuations that are only given faults.
    pub(crate) fn empty() -> Self {
        Reader { places: Places::NONE, extra: None, next_chunk: 0, packed: false }
    }

    /// The faults of the batch, in order of their requests.
    #[inline]
    pub(crate) fn take_faults(&mut self) -> Vec<(u32, Fault)> {
        self.extra.as_mut().map_or_else(Vec::new, |extra| std::mem::take(&mut extra.faults))
    }

    #[inline(always)]
    fn place(&mut self, size: usize, align: usize) -> *mut u8 {
        let at = align_up(self.places.at, align);
        if at.addr() + size <= self.places.end.addr() {
            self.places.at = at.wrapping_add(size);
            at
        } else {
            self.place_slow(size, align)
        }
    }

    #[cold]
    fn place_slow(&mut self, size: usize, align: usize) -> *mut u8 {
        if self.packed {
            too_short();
        }
        let (extra, next_chunk) = (&self.extra, &mut self.next_chunk);
        self.places.next_part(size, align, || {
            let chunk = extra.as_ref().and_then(|extra| extra.chunks.get(*next_chunk));
            *next_chunk += 1;
            chunk.expect("the writer made a chunk for each that the reader asks for").0.as_ptr()
        })
    }

    /// Moves the next response out of the batch.
    ///
    /// # Safety
    /// The writer put a `U` at this place of the order.
    #[inline(always)]
    pub(crate) unsafe fn take<U>(&mut self) -> U {
        if const { is_inline(size_of::<U>(), align_of::<U>()) } {
            // SAFETY: the caller's promise.
            unsafe { self.take_here::<U>() }
        } else if self.packed {
            // SAFETY: as above; the writer put it without regard to its alignment.
            unsafe { self.place(size_of::<U>(), 1).cast::<U>().read_unaligned() }
        } else {
            // SAFETY: the writer boxed it and put the pointer.
            unsafe { *Box::from_raw(self.take_here::<*mut U>()) }
        }
    }

    /// # Safety
    /// Same as `take`, for a value that was put in place.
    #[inline(always)]
    unsafe fn take_here<U>(&mut self) -> U {
        if const { size_of::<U>() == 0 } {
            // SAFETY: a `U` was put here and forgotten by the writer; it has no bytes.
            return unsafe { NonNull::<U>::dangling().as_ptr().read() };
        }
        let at = self.place(size_of::<U>(), align_of::<U>());
        // SAFETY: the caller's promise; writer and reader place alike.
        unsafe { at.cast::<U>().read_unaligned() }
    }

    /// Gives the next byte string of the batch to `f`.
    ///
    /// # Safety
    /// The writer put bytes at this place of the order.
    pub(crate) unsafe fn take_bytes<R>(&mut self, f: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: `put_bytes` put the length first.
        let len = unsafe { self.take_here::<usize>() };
        if len == 0 {
            f(&[])
        } else if len <= INLINE_BYTES || self.packed {
            // A length that came from another machine: the sum in `place` must not overflow.
            if self.packed && len > self.places.end.addr() - self.places.at.addr() {
                too_short();
            }
            let at = self.place(len, 8);
            // SAFETY: the writer gave out `len` bytes at this place.
            f(unsafe { std::slice::from_raw_parts(at, len) })
        } else {
            // SAFETY: the writer put the pointer of a boxed slice of this many words, and gave out the first `len`
            // bytes.
            unsafe {
                let words = self.take_here::<*mut MaybeUninit<u64>>();
                let boxed = Box::from_raw(ptr::slice_from_raw_parts_mut(words, len.div_ceil(8)));
                f(std::slice::from_raw_parts(boxed.as_ptr().cast(), len))
            }
        }
    }
}

/// Another machine runs this program, so its answers are as long as their responses, or its memory is damaged.
#[cold]
fn too_short() -> ! {
    crate::unwind::tell(format_args!("another machine's answer is shorter than its responses; the program ends"));
    std::process::abort();
}
