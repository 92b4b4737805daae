//! Work requests under construction: a chain for one queue pair, posted in one call.
//!
//! Here: the chain, whose pointers are set when it is posted. Not here: its execution by the device. All
//! sources lie in one registered region, checked when they are added, so no read of the device or its library
//! is out of range. Nothing is allocated after `new`.

use super::ffi;
use super::{MemoryRegion, QueuePair};
use crate::error::Error;
use crate::memory::{WORD_BYTES, check_access};
use std::sync::Arc;

/// A chain of writes, reads and wake messages, with the registered memory its sources lie in.
pub(crate) struct WorkRequests {
    memory: Arc<MemoryRegion>,
    /// Memory in which reads land, once there are any.
    landing: Option<Arc<MemoryRegion>>,
    requests: Vec<ffi::SendWr>,
    sources: Vec<ffi::Sge>,
    room: usize,
    inline_bytes: usize,
    /// High bits of the number of every request, so that a failed one shows its peer.
    tag: u64,
}

// SAFETY: the pointers inside requests are set and used within `post` only.
unsafe impl Send for WorkRequests {}

impl WorkRequests {
    /// Makes an empty chain with room for `capacity` requests.
    pub(crate) fn new(memory: Arc<MemoryRegion>, capacity: usize, inline_bytes: usize, tag: u64) -> WorkRequests {
        let (requests, sources) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        WorkRequests { memory, landing: None, requests, sources, room: capacity, inline_bytes, tag }
    }

    pub(crate) fn memory(&self) -> &MemoryRegion {
        &self.memory
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= self.room
    }

    /// Adds a write of `bytes` bytes at `offset` of the memory to `remote` under `key`.
    pub(crate) fn write(&mut self, offset: usize, bytes: usize, remote: u64, key: u32) -> Result<(), Error> {
        check_access(self.memory.region().bytes(), offset, bytes, WORD_BYTES)?;
        let address = self.memory.region().base().expose_provenance() as u64 + offset as u64;
        let inline = if bytes <= self.inline_bytes { ffi::SEND_INLINE } else { 0 };
        let source = ffi::Sge { addr: address, length: bytes as u32, lkey: self.memory.local_key() };
        let request = ffi::SendWr { opcode: ffi::WR_RDMA_WRITE, send_flags: inline, ..ffi::SendWr::EMPTY };
        self.add(request, source, remote, key);
        Ok(())
    }

    /// Adds a read of `bytes` bytes at `remote` under `key`, to land at `offset` of `landing`, which is the
    /// same each time.
    pub(crate) fn read(
        &mut self,
        landing: &Arc<MemoryRegion>,
        offset: usize,
        bytes: usize,
        remote: u64,
        key: u32,
    ) -> Result<(), Error> {
        // Kept, so that it stays registered for longer than the queue pair may write it [registered-memory].
        let landing = self.landing.get_or_insert_with(|| Arc::clone(landing));
        check_access(landing.region().bytes(), offset, bytes, WORD_BYTES)?;
        let address = landing.address() + offset as u64;
        let source = ffi::Sge { addr: address, length: bytes as u32, lkey: landing.local_key() };
        self.add(ffi::SendWr { opcode: ffi::WR_RDMA_READ, ..ffi::SendWr::EMPTY }, source, remote, key);
        Ok(())
    }

    /// Adds a request between `source` and `remote` under `key`.
    #[inline(always)]
    fn add(&mut self, request: ffi::SendWr, source: ffi::Sge, remote: u64, key: u32) {
        self.sources.push(source);
        self.requests.push(ffi::SendWr { wr_id: self.tag, num_sge: 1, remote_addr: remote, rkey: key, ..request });
    }

    /// Adds a message without bytes that shows at the peer as a completion with `number`.
    pub(crate) fn wake_message(&mut self, number: u32) {
        self.sources.push(ffi::Sge::default());
        self.requests.push(ffi::SendWr {
            wr_id: self.tag,
            opcode: ffi::WR_SEND_WITH_IMM,
            imm_data: number.to_be(),
            ..ffi::SendWr::EMPTY
        });
    }

    /// Numbers the last request (below the tag), and requests its completion.
    pub(crate) fn sign_last(&mut self, id: u64) {
        if let Some(last) = self.requests.last_mut() {
            last.wr_id = self.tag | id;
            last.send_flags |= ffi::SEND_SIGNALED;
        }
    }

    /// Posts all of the chain to `queue`, and empties it.
    ///
    /// # Errors
    /// The queue pair takes no more requests, or not all of these: it must not be used again.
    pub(crate) fn post(&mut self, queue: &QueuePair) -> Result<(), Error> {
        let requests = self.requests.as_mut_ptr();
        let sources = self.sources.as_mut_ptr();
        for index in 0..self.requests.len() {
            let is_last = index + 1 == self.requests.len();
            let request = &mut self.requests[index];
            request.next = if is_last { std::ptr::null_mut() } else { requests.wrapping_add(index + 1) };
            request.sg_list = if request.num_sge == 0 { std::ptr::null_mut() } else { sources.wrapping_add(index) };
        }
        let result = if self.requests.is_empty() {
            Ok(())
        } else {
            // SAFETY: the chain just linked lies in the two vectors, which are not touched until the call is
            // over; sources are in range of registered memory that `self` keeps [registered-memory].
            unsafe { queue.post_send(requests) }
        };
        self.requests.clear();
        self.sources.clear();
        result
    }
}
