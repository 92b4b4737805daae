//! Shares over verbs, both ends.
//!
//! The owner registers a share's commit map when it opens the share, and its bytes in chunks of
//! [`CHUNK_BYTES`] when it commits in them; nothing is ever deregistered. It writes the places of all that
//! into its own memory: a line for each share in the directory, at the beginning of its board
//! ([`Directory`]), and in the line the place of a table of keys, two words a chunk. It sends no message: a
//! peer that needs a key reads directory, map and table one-sidedly, once.
//!
//! A read lands in a ring of registered memory, one for each link that reads, and is copied out when it is
//! complete. So the memory of a read id is ordinary memory, and may be forgotten. Reads that find no room wait
//! in the link.
//!
//! Order: one queue pair executes writes and reads in the order they were posted, and a read's completion is
//! its end. So a read sees earlier writes [read-after-message]; a later write may overtake it.

use super::core::Core;
use super::endpoint::Remote;
use super::lane::{Lane, give_way};
use super::raw::{Access, MemoryRegion, ProtectionDomain};
use crate::SHARE_UNIT_BYTES;
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::{Region, WORD_BYTES};
use crate::share::{
    self, ASKED_WORDS, CachedShares, Landing, Outcome, PendingReads, ReadId, SHARES_MAX, Share, ShareId, ShareState,
    Verdict, map,
};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Unit of registration; the last chunk of a share may be shorter.
const CHUNK_BYTES: usize = 64 << 20;
/// Memory in which reads land, for each link that reads.
const RING_BYTES: usize = 1 << 20;
/// Most bytes of one read request.
const PART_BYTES: usize = 64 << 10;

/// Words of a line of the directory: length of the share (0: not open), address of its map, address of its
/// table of keys, the keys of both (the map's in the low half).
const LINE_WORDS: usize = 4;
const LINE_BYTES: usize = 64;
pub(super) const DIRECTORY_BYTES: usize = LINE_BYTES * SHARES_MAX;
/// Bytes of an entry of a table: address of the chunk (0: not registered), its key.
const ENTRY_BYTES: usize = 2 * WORD_BYTES;
/// Offset of the bits in a map.
const BITS: usize = WORD_BYTES;

/// Owner's side.
pub(super) struct Directory {
    domain: Arc<ProtectionDomain>,
    board: Arc<Region>,
    open: Mutex<[Option<OwnShare>; SHARES_MAX]>,
    pub(super) registered_bytes: AtomicU64,
}

/// Registrations of an own share.
struct OwnShare {
    keys: Arc<Region>,
    chunks: HashMap<usize, Arc<MemoryRegion>>,
    /// Kept for as long as peers may read them.
    _kept: [Arc<MemoryRegion>; 2],
}

impl Directory {
    /// Makes the directory of a machine with this board.
    pub(super) fn new(domain: Arc<ProtectionDomain>, board: Arc<Region>) -> Directory {
        Directory { domain, board, open: Mutex::default(), registered_bytes: AtomicU64::new(0) }
    }

    fn register(&self, region: &Arc<Region>, part: Range<usize>, access: Access) -> Result<Arc<MemoryRegion>, Error> {
        let bytes = part.len() as u64;
        let memory = MemoryRegion::register_part(&self.domain, Arc::clone(region), part, access)?;
        self.registered_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(memory)
    }

    /// See `Fabric::prepare_share`.
    pub(super) fn prepare(&self, share: &Share, range: Range<usize>) -> Result<(), Error> {
        let index = usize::from(share.id().0);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match &mut open[index] {
            Some(own) => own,
            none => none.insert(self.introduce(share, index)?),
        };
        for chunk in range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES) {
            if own.chunks.contains_key(&chunk) {
                continue;
            }
            let start = chunk * CHUNK_BYTES;
            let bytes = CHUNK_BYTES.min(share.bytes() - start);
            let memory = self.register(share.data(), start..start + bytes, Access::Shared)?;
            share.pin(start, bytes);
            let entry = [memory.address(), u64::from(memory.remote_key())];
            for (word, value) in own.keys.words(chunk * ENTRY_BYTES, ENTRY_BYTES)?.iter().zip(entry) {
                // Relaxed: the bits of the map are set after it, with the Release of [bit-after-pages].
                word.store(value, Ordering::Relaxed);
            }
            own.chunks.insert(chunk, memory);
        }
        Ok(())
    }

    /// Registers map and table of a share, and writes its line.
    fn introduce(&self, share: &Share, index: usize) -> Result<OwnShare, Error> {
        let keys = Arc::new(Region::anonymous(share.bytes().div_ceil(CHUNK_BYTES) * ENTRY_BYTES)?);
        let table = self.register(&keys, 0..keys.bytes(), Access::Read)?;
        let map = self.register(share.map_memory(), 0..share.map_memory().bytes(), Access::Read)?;
        let line = self.board.words(index * LINE_BYTES, LINE_WORDS * WORD_BYTES)?;
        let both = u64::from(table.remote_key()) << 32 | u64::from(map.remote_key());
        for (word, value) in line.iter().zip([share.bytes() as u64, map.address(), table.address(), both]).rev() {
            // Release, pairs with the Acquire that a peer's READ amounts to: the length, which comes last,
            // shows that the other words are there. `Entry::parse` checks all of them.
            word.store(value, Ordering::Release);
        }
        Ok(OwnShare { keys, chunks: HashMap::new(), _kept: [table, map] })
    }
}

/// Data of a peer's share: its length, and the places of its map and its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    bytes: usize,
    map: Remote,
    keys: Remote,
}

impl Entry {
    /// Parses a line; `None` where the share is not open.
    fn parse(line: &[u8]) -> Option<Entry> {
        let word = |at: usize| line.get(8 * at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
        let [bytes, map, keys, both] = [word(0)?, word(1)?, word(2)?, word(3)?];
        if bytes == 0 || map == 0 || keys == 0 {
            return None;
        }
        let bytes = usize::try_from(bytes).ok().filter(|bytes| share::is_length(*bytes))?;
        let (map, keys) =
            (Remote { address: map, key: both as u32 }, Remote { address: keys, key: (both >> 32) as u32 });
        Some(Entry { bytes, map, keys })
    }
}

/// Parses an entry of a table; `None` where the chunk is not registered.
fn parse_key(entry: &[u8]) -> Option<Remote> {
    let words = entry.as_chunks::<WORD_BYTES>().0;
    let [address, key] = [0, 1].map(|at| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word)));
    (address != 0).then_some(Remote { address, key: key as u32 })
}

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
    cached: CachedShares,
    entries: [Option<Entry>; SHARES_MAX],
    keys: HashMap<(ShareId, usize), Remote>,
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
    fn queue(&mut self, read_id: ReadId, at: usize, bytes: usize, from: Remote) {
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

impl Lane {
    fn shares(&mut self, peer: MachineId) -> Result<&mut PeerShares, Error> {
        let Some(link) = self.link(peer) else { return Err(Error::Gone { machine: peer }) };
        link.shares()
    }

    /// See `Connection::write_share`.
    pub(super) fn write_share(
        &mut self,
        peer: MachineId,
        share: ShareId,
        offset: usize,
        source: &[u8],
    ) -> Result<(), Error> {
        if self.require_committed(peer, share, offset, source.len())? == Verdict::Gone {
            return Ok(());
        }
        let Some(link) = self.link(peer) else { return Ok(()) };
        link.counts.writes += 1;
        link.counts.bytes += source.len() as u64;
        let piece_bytes = link.piece_bytes();
        for (at, bytes) in chunks(offset, source.len()) {
            let Some(to) = self.place(peer, share, offset + at)? else { return Ok(()) };
            for (start, piece) in (0..).step_by(piece_bytes).zip(source[at..at + bytes].chunks(piece_bytes)) {
                self.push(peer, piece, to.at(start))?;
            }
        }
        Ok(())
    }

    /// See `Connection::read_share`.
    pub(super) fn read_share(
        &mut self,
        peer: MachineId,
        share: ShareId,
        offset: usize,
        bytes: usize,
    ) -> Result<ReadId, Error> {
        let verdict = self.require_committed(peer, share, offset, bytes);
        let begin = |shares: &mut PeerShares| shares.pending.add(Landing::new(share, offset, bytes));
        match verdict {
            // `take` reports bytes that will never come.
            Ok(Verdict::Gone) => return self.shares(peer).map(begin),
            Ok(Verdict::Usable) => {}
            Err(Error::NotCommitted { .. }) => {
                let shares = self.shares(peer)?;
                let read_id = begin(shares);
                shares.pending.land(read_id, 0, Outcome::Refused(bytes));
                return Ok(read_id);
            }
            Err(error) => return Err(error),
        }
        let places: Vec<_> = chunks(offset, bytes).collect();
        let mut parts = Vec::with_capacity(places.len());
        for (at, bytes) in places {
            match self.place(peer, share, offset + at)? {
                Some(from) => parts.push((at, bytes, from)),
                None => return self.shares(peer).map(begin),
            }
        }
        let shares = self.shares(peer)?;
        let read_id = begin(shares);
        parts.into_iter().for_each(|(at, bytes, from)| shares.queue(read_id, at, bytes, from));
        self.add_reads(peer)?;
        Ok(read_id)
    }

    /// See `Connection::take`.
    pub(super) fn take(&mut self, peer: MachineId, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
        if self.shares(peer)?.pending.is_waiting(read_id)? {
            self.add_reads(peer)?;
            self.flush(peer)?;
            self.poll()?;
        }
        let is_dead = self.link(peer).is_none_or(|link| link.is_dead);
        self.shares(peer)?.pending.take(read_id, into, peer, || is_dead)
    }

    /// Puts waiting reads into the chain.
    fn add_reads(&mut self, peer: MachineId) -> Result<(), Error> {
        self.link(peer).map_or(Ok(()), |link| link.add_reads())
    }

    /// Reads `bytes` bytes of a peer's memory, and waits for them; `None` when the peer is gone.
    fn read_now(&mut self, peer: MachineId, from: Remote, bytes: usize) -> Result<Option<Vec<u8>>, Error> {
        let shares = self.shares(peer)?;
        let read_id = shares.pending.add(Landing::new(ShareId(0), 0, bytes));
        shares.queue(read_id, 0, bytes, from);
        let (mut into, mut looks) = (vec![0; bytes], 0);
        loop {
            match self.take(peer, read_id, &mut into) {
                Ok(true) => return Ok(Some(into)),
                Ok(false) => give_way(&mut looks),
                Err(Error::Gone { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds out whether a range of a peer's share may be used.
    fn require_committed(
        &mut self,
        peer: MachineId,
        share: ShareId,
        offset: usize,
        bytes: usize,
    ) -> Result<Verdict, Error> {
        if self.link(peer).is_none_or(|link| link.is_dead) {
            // As for a live peer, as far as that needs no query.
            self.shares(peer)?.cached.check((peer, share), (offset, bytes))?;
            return Ok(Verdict::Gone);
        }
        let mut cached = std::mem::take(&mut self.shares(peer)?.cached);
        let verdict = cached
            .require_committed((peer, share), (offset, bytes), |first, count| self.ask(peer, share, first, count));
        self.shares(peer)?.cached = cached;
        verdict
    }

    /// Reads words of a peer's commit map.
    fn ask(
        &mut self,
        peer: MachineId,
        share: ShareId,
        first: usize,
        count: usize,
    ) -> Result<Option<ShareState>, Error> {
        let Some(entry) = self.entry(peer, share)? else { return Ok(None) };
        let Some(entry) = entry else { return Ok(Some(ShareState { bytes: 0, bits: Vec::new() })) };
        let words = (entry.bytes / SHARE_UNIT_BYTES).div_ceil(map::UNITS_PER_WORD);
        let count = count.min(ASKED_WORDS).min(words.saturating_sub(first));
        if count == 0 {
            return Ok(Some(ShareState { bytes: entry.bytes, bits: Vec::new() }));
        }
        let read = self.read_now(peer, entry.map.at(BITS + WORD_BYTES * first), WORD_BYTES * count)?;
        Ok(read.map(|read| {
            let bits = read.as_chunks::<WORD_BYTES>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            ShareState { bytes: entry.bytes, bits }
        }))
    }

    /// Returns the line of a peer's share: `None` when the peer is gone, an inner `None` when the share is not open.
    fn entry(&mut self, peer: MachineId, share: ShareId) -> Result<Option<Option<Entry>>, Error> {
        let index = usize::from(share.0);
        if let Some(entry) = self.shares(peer)?.entries[index] {
            return Ok(Some(Some(entry)));
        }
        let Some(link) = self.link(peer) else { return Ok(None) };
        let directory = link.remote.directory;
        let line = self.read_now(peer, directory.at(index * LINE_BYTES), LINE_WORDS * WORD_BYTES)?;
        let Some(line) = line else { return Ok(None) };
        let entry = Entry::parse(&line);
        self.shares(peer)?.entries[index] = entry;
        Ok(Some(entry))
    }

    /// Returns the place of a byte of a peer's share; a part of its chunk is committed.
    fn place(&mut self, peer: MachineId, share: ShareId, offset: usize) -> Result<Option<Remote>, Error> {
        let chunk = offset / CHUNK_BYTES;
        let key = match self.shares(peer)?.keys.get(&(share, chunk)) {
            Some(key) => *key,
            None => {
                let Some(Some(entry)) = self.entry(peer, share)? else { return Ok(None) };
                let Some(read) = self.read_now(peer, entry.keys.at(chunk * ENTRY_BYTES), ENTRY_BYTES)? else {
                    return Ok(None);
                };
                let Some(key) = parse_key(&read) else {
                    let problem = format!("{peer} has committed a part of it that it has not registered");
                    return Err(Error::Share { share, problem });
                };
                self.shares(peer)?.keys.insert((share, chunk), key);
                key
            }
        };
        Ok(Some(key.at(offset % CHUNK_BYTES)))
    }
}

/// Splits an access by chunks: returns the offset of each part in the access, and its length.
fn chunks(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let part = (CHUNK_BYTES - (offset + at) % CHUNK_BYTES).min(bytes - at);
        let start = at;
        at += part;
        (part > 0).then_some((start, part))
    })
}

impl Core {
    /// See `Fabric::prepare_share`.
    pub(super) fn prepare_share(&self, share: &Share, range: Range<usize>) -> Result<(), Error> {
        self.directory.prepare(share, range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_cut_at_chunks() {
        let cut = |offset, bytes| chunks(offset, bytes).collect::<Vec<_>>();
        assert_eq!(cut(8, 16), [(0, 16)]);
        assert_eq!(cut(CHUNK_BYTES - 8, 16), [(0, 8), (8, 8)]);
        assert_eq!(
            cut(CHUNK_BYTES, 2 * CHUNK_BYTES + 8),
            [(0, CHUNK_BYTES), (CHUNK_BYTES, CHUNK_BYTES), (2 * CHUNK_BYTES, 8)]
        );
        assert_eq!(cut(0, 0), []);
    }

    #[test]
    fn a_line_that_is_not_whole_is_no_share() {
        let line = |words: [u64; 4]| Entry::parse(&words.map(u64::to_ne_bytes).concat());
        let (map, keys) = (Remote { address: 4096, key: 3 }, Remote { address: 8192, key: 7 });
        let whole = [SHARE_UNIT_BYTES as u64, 4096, 8192, 7 << 32 | 3];
        assert_eq!(line(whole), Some(Entry { bytes: SHARE_UNIT_BYTES, map, keys }));
        for word in 0..3 {
            let mut part = whole;
            part[word] = 0;
            assert_eq!(line(part), None);
        }
        for bytes in [u64::MAX, crate::SHARE_BYTES_MAX as u64 + 1, 8] {
            assert_eq!(line([bytes, 1, 1, 1]), None, "no share has {bytes} bytes");
        }
    }

    #[test]
    fn any_address_that_a_peer_tells_is_borne() {
        let key = |address: u64| parse_key(&[address, 7 << 32 | 3].map(u64::to_ne_bytes).concat());
        assert_eq!(key(0), None, "not registered");
        assert_eq!(parse_key(&[]), None);
        assert_eq!(key(4096).map(|key| key.at(8)), Some(Remote { address: 4104, key: 3 }));
        assert_eq!(
            key(u64::MAX - 7).map(|key| key.at(CHUNK_BYTES)),
            Some(Remote { address: CHUNK_BYTES as u64 - 8, key: 3 })
        );
    }
}
