//! Reads under way on a connection, by number. A read id that is never taken keeps its entry, and the memory
//! in it, until the connection is dropped.

use super::{ReadId, ShareId};
use crate::error::Error;
use crate::ids::MachineId;
use std::collections::HashMap;
use std::io::ErrorKind;

/// Reads under way. Takes no memory while there are none.
#[derive(Debug)]
pub(crate) struct PendingReads<R> {
    next: u64,
    reads: HashMap<u64, R>,
}

impl<R> Default for PendingReads<R> {
    fn default() -> PendingReads<R> {
        PendingReads { next: 1, reads: HashMap::new() }
    }
}

impl<R> PendingReads<R> {
    /// Adds a read.
    pub(crate) fn add(&mut self, read: R) -> ReadId {
        let read_id = self.next;
        self.next += 1;
        self.reads.insert(read_id, read);
        ReadId(read_id)
    }

    /// Returns a read that has not been taken yet.
    pub(crate) fn get(&mut self, read_id: ReadId) -> Result<&mut R, Error> {
        self.reads.get_mut(&read_id.0).ok_or(Error::NoSuchRead { read_id: read_id.0 })
    }

    /// Removes a read.
    pub(crate) fn remove(&mut self, read_id: ReadId) -> Option<R> {
        self.reads.remove(&read_id.0)
    }
}

/// Checks that the buffer has the length of the read.
pub(crate) fn check_room(read_id: ReadId, bytes: usize, into: &[u8]) -> Result<(), Error> {
    match into.len() == bytes {
        true => Ok(()),
        false => Err(Error::WrongRoom { read_id: read_id.0, bytes, room_bytes: into.len() }),
    }
}

/// A read whose bytes arrive in parts. It allocates memory for them when the first arrive: a read that is
/// refused, or that a dead peer owes, takes none, however long it is.
#[derive(Debug)]
pub(crate) struct Landing {
    share: ShareId,
    offset: usize,
    /// Length of the read.
    bytes: usize,
    missing_bytes: usize,
    /// Number of bytes at the front that the taker's buffer has already.
    handed_bytes: usize,
    /// Received bytes after those, up to the last byte that has arrived.
    come: Vec<u8>,
    fate: Fate,
}

/// State of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Comes,
    /// Some of it is not committed.
    Refused,
    /// There is no memory for it.
    NoMemory,
}

/// Result for a part of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome<'a> {
    /// The bytes of the part.
    Bytes(&'a [u8]),
    /// This many bytes are refused: they are not committed.
    Refused(usize),
}

impl Landing {
    pub(crate) fn new(share: ShareId, offset: usize, bytes: usize) -> Landing {
        let (come, fate) = (Vec::new(), Fate::Comes);
        Landing { share, offset, bytes, missing_bytes: bytes, handed_bytes: 0, come, fate }
    }

    fn take_in(&mut self, at: usize, bytes: &[u8]) {
        if self.fate != Fate::Comes {
            return;
        }
        let at = at - self.handed_bytes;
        if self.come.try_reserve_exact(self.bytes - self.handed_bytes - self.come.len()).is_err() {
            return self.fail(Fate::NoMemory);
        }
        // There is capacity for all of it: nothing moves.
        if self.come.len() < at {
            self.come.resize(at, 0);
        }
        let (again, more) = bytes.split_at(bytes.len().min(self.come.len() - at));
        self.come[at..at + again.len()].copy_from_slice(again);
        self.come.extend_from_slice(more);
    }

    fn fail(&mut self, fate: Fate) {
        (self.fate, self.come) = (fate, Vec::new());
    }
}

impl PendingReads<Landing> {
    /// Takes in the result for the part at `at` of a read. Each part comes once. Returns whether the read may
    /// still succeed: otherwise the parts that were not requested yet need not be, and count as refused.
    pub(crate) fn land(&mut self, read_id: ReadId, at: usize, outcome: Outcome<'_>) -> bool {
        let Ok(landing) = self.get(read_id) else { return false };
        let bytes = match outcome {
            Outcome::Bytes(bytes) => {
                landing.take_in(at, bytes);
                bytes.len()
            }
            Outcome::Refused(bytes) => {
                if landing.fate == Fate::Comes {
                    landing.fail(Fate::Refused);
                }
                bytes
            }
        };
        landing.missing_bytes -= bytes;
        landing.fate == Fate::Comes
    }

    /// Copies the bytes that have come into the taker's buffer, which is the same in all calls for this read, and has
    /// its length. Only for reads whose parts come in order.
    pub(crate) fn hand_over(&mut self, read_id: ReadId, into: &mut [u8]) -> Result<(), Error> {
        let landing = self.get(read_id)?;
        check_room(read_id, landing.bytes, into)?;
        if landing.fate == Fate::Comes {
            let (first, end) = (landing.handed_bytes, landing.handed_bytes + landing.come.len());
            into[first..end].copy_from_slice(&landing.come);
            landing.come.clear();
            landing.handed_bytes = end;
        }
        Ok(())
    }

    /// Returns whether bytes for offset `at` of the read may come straight into the taker's buffer: it has all before
    /// them.
    pub(crate) fn is_handed_until(&mut self, read_id: ReadId, at: usize) -> bool {
        self.get(read_id).is_ok_and(|landing| landing.fate == Fate::Comes && landing.handed_bytes == at)
    }

    /// Notes that the next bytes of the read have come into the taker's buffer.
    pub(crate) fn note_handed(&mut self, read_id: ReadId, bytes: usize) {
        if let Ok(landing) = self.get(read_id) {
            landing.handed_bytes += bytes;
            landing.missing_bytes -= bytes;
        }
    }

    /// Returns whether this read still waits for bytes.
    pub(crate) fn is_waiting(&mut self, read_id: ReadId) -> Result<bool, Error> {
        Ok(self.get(read_id)?.missing_bytes > 0)
    }

    /// See `Connection::take`. Bytes that have not arrived never will if the peer is gone.
    pub(crate) fn take(
        &mut self,
        read_id: ReadId,
        into: &mut [u8],
        peer: MachineId,
        is_gone: impl FnOnce() -> bool,
    ) -> Result<bool, Error> {
        let landing = self.get(read_id)?;
        check_room(read_id, landing.bytes, into)?;
        if landing.missing_bytes > 0 {
            if !is_gone() {
                return Ok(false);
            }
            self.remove(read_id);
            return Err(Error::Gone { machine: peer });
        }
        let Some(Landing { share, offset, bytes, handed_bytes, come, fate, .. }) = self.remove(read_id) else {
            return Err(Error::NoSuchRead { read_id: read_id.0 });
        };
        match fate {
            Fate::Comes => {
                into[handed_bytes..].copy_from_slice(&come);
                Ok(true)
            }
            Fate::Refused => Err(Error::NotCommitted { share, offset, bytes }),
            Fate::NoMemory => {
                Err(Error::system(format!("keeping {bytes} bytes that were read of {share}"))(ErrorKind::OutOfMemory))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SHARE_BYTES_MAX;
    use super::*;
    use rand::rngs::SmallRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    const PEER: MachineId = MachineId(1);

    #[test]
    fn parts_come_in_any_order_and_a_read_is_taken_once() {
        let mut pending = PendingReads::default();
        let [first, second] = [16, 8].map(|bytes| pending.add(Landing::new(ShareId(0), 64, bytes)));
        let mut into = [0; 16];
        assert!(!pending.take(first, &mut into, PEER, || false).unwrap());
        assert!(pending.land(first, 8, Outcome::Bytes(&[2; 8])));
        assert!(pending.is_waiting(first).unwrap());
        assert!(!pending.land(second, 0, Outcome::Refused(8)));
        assert!(pending.land(first, 0, Outcome::Bytes(&[1; 8])));
        assert!(matches!(pending.take(first, &mut into[..8], PEER, || false), Err(Error::WrongRoom { .. })));
        assert!(pending.take(first, &mut into, PEER, || panic!("it is there")).unwrap());
        assert_eq!(into, [[1; 8], [2; 8]].concat()[..]);
        assert!(matches!(pending.take(first, &mut into, PEER, || false), Err(Error::NoSuchRead { .. })));
        let refused = pending.take(second, &mut into[..8], PEER, || false);
        assert!(matches!(refused, Err(Error::NotCommitted { offset: 64, bytes: 8, .. })), "{refused:?}");
    }

    #[test]
    fn what_a_dead_peer_owes_is_told_once() {
        let mut pending = PendingReads::default();
        let read_id = pending.add(Landing::new(ShareId(0), 0, 8));
        assert!(matches!(pending.take(read_id, &mut [0; 8], PEER, || true), Err(Error::Gone { machine: PEER })));
        assert!(matches!(pending.take(read_id, &mut [0; 8], PEER, || true), Err(Error::NoSuchRead { .. })));
    }
    /// Compares with a plain copy: parts of random lengths in random order.
    #[test]
    fn what_has_come_is_what_was_sent() {
        let mut random = SmallRng::seed_from_u64(19);
        for _ in 0..200 {
            let sent: Vec<u8> = (0..random.random_range(1..400)).map(|_| random.random()).collect();
            let mut parts: Vec<(usize, &[u8])> = Vec::new();
            let mut at = 0;
            while at < sent.len() {
                let end = sent.len().min(at + random.random_range(1..60));
                parts.push((at, &sent[at..end]));
                at = end;
            }
            parts.shuffle(&mut random);
            let mut pending = PendingReads::default();
            let read_id = pending.add(Landing::new(ShareId(0), 0, sent.len()));
            assert!(parts.into_iter().all(|(at, part)| pending.land(read_id, at, Outcome::Bytes(part))));
            let mut into = vec![0; sent.len()];
            assert!(pending.take(read_id, &mut into, PEER, || panic!("it is there")).unwrap());
            assert_eq!(into, sent);
        }
    }

    #[test]
    fn bytes_that_were_handed_over_are_not_copied_again() {
        let mut pending = PendingReads::default();
        let read_id = pending.add(Landing::new(ShareId(0), 0, 32));
        let mut into = [0; 32];
        assert!(pending.land(read_id, 0, Outcome::Bytes(&[1; 8])));
        assert!(!pending.is_handed_until(read_id, 8));
        assert!(matches!(pending.hand_over(read_id, &mut [0; 8]), Err(Error::WrongRoom { .. })));
        pending.hand_over(read_id, &mut into).unwrap();
        assert!(pending.is_handed_until(read_id, 8));
        into[8..16].fill(2);
        pending.note_handed(read_id, 8);
        assert!(pending.land(read_id, 16, Outcome::Bytes(&[3; 8])));
        assert!(!pending.take(read_id, &mut into, PEER, || false).unwrap());
        assert!(pending.land(read_id, 24, Outcome::Bytes(&[4; 8])));
        assert!(pending.take(read_id, &mut into, PEER, || false).unwrap());
        assert_eq!(into, [[1; 8], [2; 8], [3; 8], [4; 8]].concat()[..]);
    }

    #[test]
    fn what_does_not_come_takes_no_memory() {
        // More than any machine has.
        const LONG: usize = SHARE_BYTES_MAX;
        let mut pending = PendingReads::default();
        let [refused, owed] = [(); 2].map(|()| pending.add(Landing::new(ShareId(0), 0, LONG)));
        assert!(!pending.land(refused, 0, Outcome::Refused(LONG)));
        for read_id in [refused, owed] {
            assert_eq!(pending.get(read_id).unwrap().come.capacity(), 0);
            assert!(matches!(pending.take(read_id, &mut [0; 8], PEER, || true), Err(Error::WrongRoom { .. })));
        }
        // A refused part frees the bytes that came before it, and later parts are ignored.
        let part = pending.add(Landing::new(ShareId(0), 0, 24));
        assert!(pending.land(part, 8, Outcome::Bytes(&[1; 8])));
        assert!(!pending.land(part, 0, Outcome::Refused(8)) && !pending.land(part, 16, Outcome::Bytes(&[1; 8])));
        assert_eq!(pending.get(part).unwrap().come.capacity(), 0);
        assert!(matches!(pending.take(part, &mut [0; 24], PEER, || false), Err(Error::NotCommitted { .. })));
    }

    #[test]
    fn for_what_there_is_no_memory_is_told() {
        let bytes = isize::MAX as usize + 1; // more than a vector may have
        let mut pending = PendingReads::default();
        let read_id = pending.add(Landing { missing_bytes: 8, ..Landing::new(ShareId(0), 0, bytes) });
        assert!(!pending.land(read_id, 0, Outcome::Bytes(&[1; 8])));
        assert_eq!(pending.get(read_id).unwrap().fate, Fate::NoMemory);
        pending.get(read_id).unwrap().bytes = 8;
        let taken = pending.take(read_id, &mut [0; 8], PEER, || false);
        assert!(matches!(taken, Err(Error::System { .. })), "{taken:?}");
    }
}
