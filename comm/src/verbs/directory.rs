//! Directory: the places of a machine's shares, in the machine's own memory, for its peers to read.
//!
//! The owner registers a share's commit map when it opens the share, and its bytes in chunks of
//! [`CHUNK_BYTES`] when it commits in them; nothing is ever deregistered. It writes the places of all that
//! into its own memory: a line for each share in the directory, at the beginning of its board
//! ([`Directory`]), and in the line the place of a table of keys, two words a chunk. It sends no message: a
//! peer that needs a key reads directory, map and table one-sidedly, once.
//!
//! Here: the owner's side, and what a peer makes of the bytes ([`Entry`], [`parse_key`]). Not here: the peer's reads
//! (`shares`).

use super::endpoint::Remote;
use super::raw::{Access, MemoryRegion, ProtectionDomain};
use crate::error::Error;
use crate::memory::{Region, WORD_BYTES};
use crate::share::{self, SHARES_MAX, Share};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Unit of registration; the last chunk of a share may be shorter.
pub(super) const CHUNK_BYTES: usize = 64 << 20;

/// Words of a line of the directory: length of the share (0: not open), address of its map, address of its
/// table of keys, the keys of both (the map's in the low half).
pub(super) const LINE_WORDS: usize = 4;
pub(super) const LINE_BYTES: usize = 64;
pub(super) const DIRECTORY_BYTES: usize = LINE_BYTES * SHARES_MAX;
/// Bytes of an entry of a table: address of the chunk (0: not registered), its key.
pub(super) const ENTRY_BYTES: usize = 2 * WORD_BYTES;

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
pub(super) struct Entry {
    pub(super) bytes: usize,
    pub(super) map: Remote,
    pub(super) keys: Remote,
}

impl Entry {
    /// Parses a line; `None` where the share is not open.
    pub(super) fn parse(line: &[u8]) -> Option<Entry> {
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
pub(super) fn parse_key(entry: &[u8]) -> Option<Remote> {
    let words = entry.as_chunks::<WORD_BYTES>().0;
    let [address, key] = [0, 1].map(|at| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word)));
    (address != 0).then_some(Remote { address, key: key as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SHARE_UNIT_BYTES;

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
