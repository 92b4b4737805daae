//! Requests that found no slot, in chunks of memory that later take the place of slots' bodies. Encoded as in a slot,
//! so that they are written once, and without an allocation each.
//!
//! Invariants:
//! - A chunk has at most as many requests as a slot has marks, and is sent as a whole.
//! - The properties of a chunk's requests are noted one for each run of requests for the same property, in the pair's
//!   list of queued ones too, and stay there until the chunk is marked in an open batch.

use std::collections::VecDeque;
use std::mem;

use super::CONTINUATION_BLOCKS;
use super::walk::{Part, Requests};
use crate::buffer::Block;
use crate::config::{INLINE_ALIGN, INLINE_BYTES, QUEUE_CHUNK_BYTES, QUEUE_CHUNKS_KEPT};
use crate::property::Header;
use crate::request::{CONTINUATION_HEAD, Continuation, RequestHead, capture_bytes, write_captures};
use crate::slot::REQUESTS_MAX;

/// Blocks of a chunk.
const BLOCKS: usize = QUEUE_CHUNK_BYTES / size_of::<Block>();
const _: () = assert!(QUEUE_CHUNK_BYTES.is_multiple_of(size_of::<Block>()));
const _: () = assert!(QUEUE_CHUNK_BYTES >= RequestHead::BYTES_MAX + INLINE_BYTES + INLINE_ALIGN);

/// See the file's documentation.
pub(super) struct Chunk {
    /// Not a box: pointers into it stay valid when it is moved.
    requests: Vec<Block>,
    request_bytes: usize,
    continuations: Vec<Block>,
    continuation_bytes: usize,
    count: u32,
    /// Address of the property of each run.
    properties: Vec<usize>,
}

impl Chunk {
    fn new() -> Chunk {
        Chunk {
            requests: vec![Block::EMPTY; BLOCKS],
            request_bytes: 0,
            continuations: vec![Block::EMPTY; CONTINUATION_BLOCKS],
            continuation_bytes: 0,
            count: 0,
            properties: Vec::new(),
        }
    }

    /// Number of its requests when it was queued.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn continuation_bytes(&self) -> usize {
        self.continuation_bytes
    }

    pub(super) fn properties(&self) -> impl Iterator<Item = usize> {
        self.properties.iter().copied()
    }

    /// Exchanges its continuations for the empty buffer of a slot.
    pub(super) fn swap_continuations(&mut self, with: &mut Vec<Block>) {
        mem::swap(&mut self.continuations, with);
    }

    /// Start of its requests.
    pub(super) fn start(&mut self) -> *mut u8 {
        self.requests.as_mut_ptr().cast()
    }

    /// Place of the next request, and the end of the chunk.
    pub(super) fn room(&mut self) -> (*mut u8, *mut u8) {
        let start = self.start();
        (start.wrapping_add(self.request_bytes), start.wrapping_add(QUEUE_CHUNK_BYTES))
    }

    /// Its requests and the start of their continuations.
    pub(super) fn contents(&mut self) -> (Requests, *mut u8) {
        let (start, count) = (self.start(), self.count);
        let part = Part { start, end: start.wrapping_add(QUEUE_CHUNK_BYTES) };
        let requests = Requests { written: count, in_primary: count, primary: part, overflow: part };
        (requests, self.continuations.as_mut_ptr().cast())
    }
}

/// The chunks of a pair.
#[derive(Default)]
pub(super) struct Queue {
    chunks: VecDeque<Chunk>,
    /// Requests in all chunks.
    len: u64,
    empty: Vec<Chunk>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Takes the oldest chunk.
    pub(super) fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.len -= u64::from(chunk.count);
        Some(chunk)
    }

    /// Takes back a chunk with nothing in it that is still needed.
    pub(super) fn keep(&mut self, mut chunk: Chunk) {
        if self.empty.len() < QUEUE_CHUNKS_KEPT {
            (chunk.request_bytes, chunk.continuation_bytes, chunk.count) = (0, 0, 0);
            chunk.properties.clear();
            self.empty.push(chunk);
        }
    }

    /// Appends a request. Returns whether its property is noted already.
    pub(super) fn push<C, R>(
        &mut self,
        head: RequestHead,
        property: *mut Header,
        captures: C,
        continuation: &'static Continuation,
        then: R,
    ) -> bool {
        let bytes = head.bytes() + capture_bytes::<C>();
        let has_room = |chunk: &&mut Chunk| {
            chunk.request_bytes + bytes <= QUEUE_CHUNK_BYTES && (chunk.count as usize) < REQUESTS_MAX
        };
        let chunk = match self.chunks.back_mut().filter(has_room) {
            Some(chunk) => chunk,
            None => self.chunks.push_back_mut(self.empty.pop().unwrap_or_else(Chunk::new)),
        };
        let then_bytes = CONTINUATION_HEAD + capture_bytes::<R>();
        if chunk.continuation_bytes + then_bytes > chunk.continuations.len() * size_of::<Block>() {
            // Enough for one more: the initial size has room for any (see `CONTINUATION_BLOCKS`).
            chunk.continuations.resize(chunk.continuations.len() * 2, Block::EMPTY);
        }
        let at = chunk.requests.as_mut_ptr().cast::<u8>().wrapping_add(chunk.request_bytes);
        let then_at = chunk.continuations.as_mut_ptr().cast::<u8>().wrapping_add(chunk.continuation_bytes);
        // SAFETY: there is room at both places, and all records are multiples of 8 bytes.
        unsafe {
            write_captures(head.write(at, property), captures);
            then_at.cast::<&'static Continuation>().write(continuation);
            write_captures(then_at.add(CONTINUATION_HEAD), then);
        }
        chunk.request_bytes += bytes;
        chunk.continuation_bytes += then_bytes;
        chunk.count += 1;
        self.len += 1;
        let is_noted = chunk.properties.last() == Some(&property.addr());
        if !is_noted {
            chunk.properties.push(property.addr());
        }
        is_noted
    }
}
