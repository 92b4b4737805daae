//! Access to the shares of peers: a lane's writes, reads and queries. Not here: the owner's side (`directory`), and a
//! link's state (`peer_shares`).
//!
//! Order: one queue pair executes writes and reads in the order they were posted, and a read's completion is
//! its end. So a read sees earlier writes [read-after-message]; a later write may overtake it.

use super::directory::{CHUNK_BYTES, ENTRY_BYTES, Entry, LINE_BYTES, LINE_WORDS, parse_key};
use super::endpoint::Remote;
use super::lane::{Lane, give_way};
use super::lanes::Polled;
use super::peer_shares::PeerShares;
use crate::SHARE_UNIT_BYTES;
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::WORD_BYTES;
use crate::share::{ASKED_WORDS, Landing, Outcome, ReadId, ShareId, ShareState, Verdict, map};

/// Offset of the bits in a map.
const BITS: usize = WORD_BYTES;

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
}
