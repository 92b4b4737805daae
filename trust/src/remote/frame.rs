//! A batch of requests to another machine as bytes, written in place, and back (thesis 3.2.7).
//!
//! ```text
//! frame:    run, run, ..
//! run:      [name u32][number of requests u32][position u64, if the name is new] request, request, ..
//! request:  [property u64][length u32, unless all of the operation have the same] [captures and arguments]
//! ```
//!
//! Requests of one kind that follow one another share a head. A *position* names an operation, relative to the
//! program's image; the first few different ones of a frame are named from then on by the order in which they came.
//! Here are pure functions on bytes, which know neither the senders of frames nor the meaning of positions.
//!
//! Invariant: [`Cursor::next`] returns requests that lie inside the frame, one behind the other, or an error.

#![allow(unsafe_code)]

use std::ptr;

use crate::buffer::{Buffer, fix_padding};
use crate::request::Operation;

/// Operations that a frame has names for.
const NAMES: usize = 16;
/// The name of later operations: the position follows each time.
const NAMELESS: u32 = u32::MAX;
const HEAD_BYTES: usize = 8;
const POSITION_BYTES: usize = 8;
pub(super) const PROPERTY_BYTES: usize = 8;
pub(super) const LENGTH_BYTES: usize = 4;

/// A frame being written.
pub(super) struct Writer {
    buffer: Buffer,
    /// Bytes written.
    at: usize,
    requests: u32,
    /// Operation of the open run, the place of its number of requests, and that number.
    run: *const Operation,
    run_number_at: usize,
    run_requests: u32,
    names: [*const Operation; NAMES],
    named: usize,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer {
            buffer: Buffer::default(),
            at: 0,
            requests: 0,
            run: ptr::null(),
            run_number_at: 0,
            run_requests: 0,
            names: [ptr::null(); NAMES],
            named: 0,
        }
    }

    /// Begins anew, keeping the memory.
    pub(super) fn clear(&mut self) {
        self.at = 0;
        self.requests = 0;
        self.run = ptr::null();
        self.named = 0;
    }

    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    /// Takes in one request of this many bytes behind its run's head, and returns where they are to be written:
    /// property, length if it varies, captures. `None`, and nothing taken, if the frame holds requests and would be
    /// longer than `room`.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        operation: &'static Operation,
        bytes: usize,
        room: usize,
        position: impl FnOnce() -> u64,
    ) -> Option<*mut u8> {
        if !(ptr::eq(self.run, operation) && self.at + bytes <= room.min(self.buffer.capacity())) {
            self.open_run(operation, bytes, room, position)?;
        }
        let at = self.buffer.start().wrapping_add(self.at);
        self.at += bytes;
        self.requests += 1;
        self.run_requests += 1;
        // SAFETY: the head of the open run lies inside the buffer, which has not shrunk since.
        unsafe {
            let number = self.buffer.start().add(self.run_number_at);
            number.cast::<u32>().write_unaligned(self.run_requests);
        }
        Some(at)
    }

    /// Makes room for the request, in a new run.
    #[cold]
    #[inline(never)]
    fn open_run(
        &mut self,
        operation: &'static Operation,
        bytes: usize,
        room: usize,
        position: impl FnOnce() -> u64,
    ) -> Option<()> {
        let known = self.names[..self.named].iter().position(|&name| ptr::eq(name, operation));
        let position_bytes = if known.is_some() { 0 } else { POSITION_BYTES };
        let start = self.at;
        let end = start + HEAD_BYTES + position_bytes + bytes;
        if self.requests > 0 && end > room {
            return None;
        }
        let name = known.unwrap_or(self.named);
        // All of the room at once, and the bytes that a carrier may put behind the data.
        self.buffer.reserve(end.max(room) + super::BEHIND_BYTES);
        self.buffer.set_len(end);
        let head = &mut self.buffer.bytes_mut()[start..end];
        let number = if name < NAMES { name as u32 } else { NAMELESS };
        head[..4].copy_from_slice(&number.to_ne_bytes());
        head[4..8].copy_from_slice(&0u32.to_ne_bytes());
        if known.is_none() {
            head[HEAD_BYTES..HEAD_BYTES + POSITION_BYTES].copy_from_slice(&position().to_ne_bytes());
            if let Some(slot) = self.names.get_mut(self.named) {
                *slot = operation;
                self.named += 1;
            }
        }
        self.at = start + HEAD_BYTES + position_bytes;
        self.run = operation;
        self.run_number_at = start + 4;
        self.run_requests = 0;
        Some(())
    }

    /// The frame. Its bytes may be exchanged for others; the writer is then to be cleared.
    pub(super) fn frame(&mut self) -> &mut Buffer {
        self.buffer.set_len(self.at);
        fix_padding(self.buffer.start());
        &mut self.buffer
    }
}

/// One request of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<O> {
    pub(super) operation: O,
    pub(super) property: u64,
    /// Start of its captures and arguments.
    pub(super) start: usize,
    pub(super) len: usize,
}

/// The part of an operation that a cursor needs.
pub(super) trait Kind: Copy {
    /// The number of bytes of each, or `None` if they differ.
    fn packed_bytes(self) -> Option<usize>;
}

impl Kind for &'static Operation {
    #[inline(always)]
    fn packed_bytes(self) -> Option<usize> {
        Operation::packed_bytes(self)
    }
}

/// Reads along a frame that came from another machine.
pub(super) struct Cursor<O> {
    at: usize,
    /// Open run: operation, bytes of each request, requests left.
    run: Option<(O, Option<usize>)>,
    left: u32,
    names: [Option<O>; NAMES],
    named: usize,
}

impl<O: Kind> Cursor<O> {
    pub(super) fn new() -> Self {
        Cursor { at: 0, run: None, left: 0, names: [None; NAMES], named: 0 }
    }

    /// The next request, or `None` at the end of the frame; `resolve` finds the operation at a position.
    #[inline(always)]
    pub(super) fn next(
        &mut self,
        frame: &[u8],
        resolve: impl Fn(u64) -> Option<O>,
    ) -> Result<Option<Item<O>>, Malformed> {
        if self.left == 0 {
            if self.at == frame.len() {
                return Ok(None);
            }
            self.open_run(frame, resolve)?;
        }
        let Some((operation, len)) = self.run else { return Err(Malformed("a frame without a run")) };
        self.left -= 1;
        let property = u64::from_ne_bytes(self.array(frame)?);
        let len = match len {
            Some(len) => len,
            None => u32::from_ne_bytes(self.array(frame)?) as usize,
        };
        let start = self.at;
        if len > frame.len() - start {
            return Err(Malformed("a request that goes beyond its frame"));
        }
        self.at += len;
        Ok(Some(Item { operation, property, start, len }))
    }

    #[inline(never)]
    fn open_run(&mut self, frame: &[u8], resolve: impl Fn(u64) -> Option<O>) -> Result<(), Malformed> {
        let name = u32::from_ne_bytes(self.array(frame)?);
        self.left = u32::from_ne_bytes(self.array(frame)?);
        if self.left == 0 {
            return Err(Malformed("a run of no requests"));
        }
        let is_new = name == NAMELESS || name as usize == self.named;
        let operation = if is_new {
            let position = u64::from_ne_bytes(self.array(frame)?);
            let operation = resolve(position).ok_or(Malformed("a position that is not that of a closure"))?;
            if let Some(slot) = self.names.get_mut(name as usize) {
                *slot = Some(operation);
                self.named += 1;
            }
            operation
        } else {
            let named = self.names[..self.named].get(name as usize).copied().flatten();
            named.ok_or(Malformed("a closure's name that was not given"))?
        };
        self.run = Some((operation, operation.packed_bytes()));
        Ok(())
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self, frame: &[u8]) -> Result<[u8; N], Malformed> {
        let bytes = frame.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at += N;
        bytes.copied().ok_or(Malformed("a frame that ends within a request"))
    }
}

/// Error in bytes that another machine sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

#[cfg(test)]
mod tests;
