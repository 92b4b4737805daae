//! State of a link for its peer's shares: what is known of them, and reads under way. Not here: their use by a lane
//! (`shares`).
//!
//! A read lands in a ring of registered memory, one for each link that reads, and is copied out when it is
//! complete. So the memory of a read id is ordinary memory, and may be forgotten. Reads that find no room wait
//! in the link.

use super::directory::Entry;
use super::endpoint::Remote;
use super::raw::{Access, MemoryRegion, ProtectionDomain};
use crate::error::Error;
use crate::memory::Region;
use crate::share::{CachedShares, Landing, Outcome, PendingReads, ReadId, SHARES_MAX, ShareId};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Memory in which reads land, for each link that reads.
const RING_BYTES: usize = 1 << 20;
/// Most bytes of one read request.
const PART_BYTES: usize = 64 << 10;

/// The rest of a read, of which parts are posted one by one.
struct Part {
    read_id: ReadId,
    at: usize,
    bytes: usize,
    from: Remote,
}

/// A posted part of a read.
struct Posted {
    request: u64,
    read_id: ReadId,
    at: usize,
    bytes: usize,
    /// Its offset in the ring, and the total of bytes of the ring used up to its end.
    offset: usize,
    used: u64,
}

/// State of a link for its peer's shares.
pub(super) struct PeerShares {
    pub(super) cached: CachedShares,
    pub(super) entries: [Option<Entry>; SHARES_MAX],
    pub(super) keys: HashMap<(ShareId, usize), Remote>,
    pub(super) pending: PendingReads<Landing>,
    ring: Arc<MemoryRegion>,
    used: u64,
    freed: u64,
    waiting: VecDeque<Part>,
    posted: VecDeque<Posted>,
}

impl PeerShares {
    /// Registers memory for reads to land in, in the domain of the link's staging memory.
    pub(super) fn new(domain: &Arc<ProtectionDomain>) -> Result<PeerShares, Error> {
        let region = Arc::new(Region::anonymous(RING_BYTES)?);
        Ok(PeerShares {
            cached: CachedShares::default(),
            entries: [None; SHARES_MAX],
            keys: HashMap::new(),
            pending: PendingReads::default(),
            ring: MemoryRegion::register(domain, region, Access::Landing)?,
            used: 0,
            freed: 0,
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
        })
    }

    pub(super) fn ring(&self) -> &Arc<MemoryRegion> {
        &self.ring
    }

    /// Returns the last request of a posted read, if one is under way.
    pub(super) fn last_posted(&self) -> Option<u64> {
        self.posted.back().map(|posted| posted.request)
    }

    /// Queues a read from a place of the peer's memory.
    pub(super) fn queue(&mut self, read_id: ReadId, at: usize, bytes: usize, from: Remote) {
        if bytes > 0 {
            self.waiting.push_back(Part { read_id, at, bytes, from });
        }
    }

    /// Returns the next part that has room in the ring: its source, its length, and its offset in the ring.
    pub(super) fn next(&self) -> Option<(Remote, usize, usize)> {
        let rest = self.waiting.front()?;
        let bytes = PART_BYTES.min(rest.bytes);
        let (start, padding) = self.room(bytes);
        let is_full = self.used + (padding + bytes) as u64 - self.freed > RING_BYTES as u64;
        (!is_full).then_some((rest.from, bytes, start))
    }

    /// Returns the offset in the ring for `bytes` bytes, and the padding before them.
    fn room(&self, bytes: usize) -> (usize, usize) {
        let start = (self.used % RING_BYTES as u64) as usize;
        if start + bytes > RING_BYTES { (0, RING_BYTES - start) } else { (start, 0) }
    }

    /// Notes that the part returned by `next` is in the chain, as request `request`. Reads take turns, so
    /// that a short one does not wait for all of a long one.
    pub(super) fn posted(&mut self, request: u64) {
        let Some(rest) = self.waiting.pop_front() else { return };
        let (read_id, at, bytes) = (rest.read_id, rest.at, PART_BYTES.min(rest.bytes));
        if bytes < rest.bytes {
            let (at, from) = (at + bytes, rest.from.at(bytes));
            self.waiting.push_back(Part { at, from, bytes: rest.bytes - bytes, ..rest });
        }
        let (offset, padding) = self.room(bytes);
        self.used += (padding + bytes) as u64;
        self.posted.push_back(Posted { request, read_id, at, bytes, offset, used: self.used });
    }

    /// Hands over the bytes that have landed: all requests up to this one are done.
    pub(super) fn complete(&mut self, request: u64) {
        let mut bytes = Vec::new();
        while let Some(posted) = self.posted.pop_front_if(|posted| posted.request <= request) {
            bytes.resize(posted.bytes, 0);
            // In range by construction. The completion means that the device has written it.
            let read = self.ring.region().read(posted.offset, &mut bytes);
            debug_assert!(read.is_ok());
            self.pending.land(posted.read_id, posted.at, Outcome::Bytes(&bytes));
            self.freed = posted.used;
        }
    }
}
