//! A connection's knowledge of its peer's shares, where it cannot look itself: their lengths, and their
//! committed units.
//!
//! The connection reads the peer's commit map where necessary, and caches the answer. A cached bit may be stale when it
//! is used, if the owner has released the unit without an answer from this peer; then the owner's side ensures that the
//! access only meets old bytes or zeros [release-by-hole]. That a unit is not committed is never cached.

use super::{SHARE_BYTES_MAX, SHARES_MAX, ShareId, map, memory::units_of};
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::{self, WORD_BYTES};
use std::ops::Range;

/// Words of a commit map in one query: those of 2 GiB.
pub(crate) const ASKED_WORDS: usize = 512;

/// Answer of the owner: length of the share (0: it is not open), and words of its map from the first one queried.
#[derive(Debug)]
pub(crate) struct ShareState {
    pub(crate) bytes: usize,
    pub(crate) bits: Vec<u64>,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Verdict {
    /// The access may be made.
    Usable,
    /// The owner can no longer be asked.
    Gone,
}

/// Cached lengths and commit maps of a peer's shares. Empty at first.
#[derive(Debug, Default)]
pub(crate) struct CachedShares([Option<CachedShare>; SHARES_MAX]);

#[derive(Debug)]
struct CachedShare {
    bytes: usize,
    bits: Vec<u64>,
}

impl CachedShare {
    fn covers(&self, units: &Range<usize>) -> bool {
        map::covered(units, |word| self.bits.get(word).copied().unwrap_or(0))
    }
}

/// Reads words of a map from the owner, from the first on; `None` when it is gone.
pub(crate) trait Ask: FnMut(usize, usize) -> Result<Option<ShareState>, Error> {}
impl<F: FnMut(usize, usize) -> Result<Option<ShareState>, Error>> Ask for F {}

impl CachedShares {
    /// Checks an access as far as that needs no query: it may lie inside a share of `peer`, and is made of
    /// whole words.
    pub(crate) fn check(
        &self,
        (peer, share): (MachineId, ShareId),
        (offset, bytes): (usize, usize),
    ) -> Result<(), Error> {
        let Some(cached) = self.0.get(usize::from(share.0)) else {
            return Err(Error::NoSuchShare { machine: peer, share });
        };
        let length = cached.as_ref().map_or(SHARE_BYTES_MAX, |cached| cached.bytes);
        memory::check_access(length, offset, bytes, WORD_BYTES)
    }

    /// Returns whether an access lies inside a share of `peer`; queries the length where necessary.
    pub(crate) fn require_inside(
        &mut self,
        of: (MachineId, ShareId),
        access: (usize, usize),
        mut ask: impl Ask,
    ) -> Result<Verdict, Error> {
        self.check(of, access)?;
        let (machine, share) = of;
        if self.0[usize::from(share.0)].is_none() {
            // From the first word on: the offset of the access is no guide, since it may be far outside.
            let Some(state) = ask(0, ASKED_WORDS)? else { return Ok(Verdict::Gone) };
            if state.bytes == 0 {
                return Err(Error::NoSuchShare { machine, share });
            }
            self.learn(share, 0, state);
            self.check(of, access)?;
        }
        Ok(Verdict::Usable)
    }

    /// Returns whether an access may be made; queries the units that are not known to be committed.
    pub(crate) fn require_committed(
        &mut self,
        of: (MachineId, ShareId),
        (offset, bytes): (usize, usize),
        mut ask: impl Ask,
    ) -> Result<Verdict, Error> {
        if self.require_inside(of, (offset, bytes), &mut ask)? == Verdict::Gone {
            return Ok(Verdict::Gone);
        }
        let (share, units) = (of.1, units_of(offset, bytes));
        if self.covers(share, &units) {
            return Ok(Verdict::Usable);
        }
        let words = map::words_of(&units);
        let first = words.start / ASKED_WORDS * ASKED_WORDS;
        for first in (first..words.end).step_by(ASKED_WORDS) {
            let Some(state) = ask(first, ASKED_WORDS)? else { return Ok(Verdict::Gone) };
            self.learn(share, first, state);
        }
        match self.covers(share, &units) {
            true => Ok(Verdict::Usable),
            false => Err(Error::NotCommitted { share, offset, bytes }),
        }
    }

    #[inline]
    fn covers(&self, share: ShareId, units: &Range<usize>) -> bool {
        self.0[usize::from(share.0)].as_ref().is_some_and(|cached| cached.covers(units))
    }

    /// Caches an answer. `share` is a valid number, and the queried words begin inside the share.
    fn learn(&mut self, share: ShareId, first: usize, state: ShareState) {
        let cached = self.0[usize::from(share.0)].get_or_insert(CachedShare { bytes: state.bytes, bits: Vec::new() });
        if state.bits.is_empty() {
            return;
        }
        let end = first + state.bits.len();
        if cached.bits.len() < end {
            cached.bits.resize(end, 0);
        }
        cached.bits[first..end].copy_from_slice(&state.bits);
    }
}

#[cfg(test)]
mod tests {
    use super::super::SHARE_UNIT_BYTES as UNIT;
    use super::*;

    const OF: (MachineId, ShareId) = (MachineId(1), ShareId(2));
    /// 600 words of map: two queries for all of it.
    const BYTES: usize = 600 * 64 * UNIT;

    /// An owner with a map, and a count of its queries.
    struct Owner {
        bytes: usize,
        bits: Vec<u64>,
        asked: usize,
    }

    impl Owner {
        fn answer(&mut self, first: usize, count: usize) -> Result<Option<ShareState>, Error> {
            self.asked += 1;
            let end = self.bits.len().min(first + count);
            Ok(Some(ShareState { bytes: self.bytes, bits: self.bits[first.min(end)..end].to_vec() }))
        }
    }

    fn require(cached: &mut CachedShares, owner: &mut Owner, offset: usize, bytes: usize) -> Result<Verdict, Error> {
        cached.require_committed(OF, (offset, bytes), |first, count| owner.answer(first, count))
    }

    #[test]
    fn what_is_committed_is_asked_once() {
        let mut owner = Owner { bytes: BYTES, bits: vec![0; 600], asked: 0 };
        owner.bits[0] = 0b110;
        let mut cached = CachedShares::default();
        for _ in 0..3 {
            assert_eq!(require(&mut cached, &mut owner, UNIT, 2 * UNIT).unwrap(), Verdict::Usable);
        }
        assert_eq!(owner.asked, 1);
        let missing = require(&mut cached, &mut owner, 3 * UNIT - 8, 16);
        assert!(matches!(missing, Err(Error::NotCommitted { .. })), "{missing:?}");
        // Committed meanwhile: queried again.
        owner.bits[0] = 0b1110;
        assert_eq!(require(&mut cached, &mut owner, 3 * UNIT - 8, 16).unwrap(), Verdict::Usable);
        assert_eq!(owner.asked, 3);
        // Across the border of two queries.
        owner.bits[511] = u64::MAX;
        owner.bits[512] = u64::MAX;
        assert_eq!(require(&mut cached, &mut owner, 512 * 64 * UNIT - 8, 16).unwrap(), Verdict::Usable);
        assert_eq!(owner.asked, 5);
    }

    #[test]
    fn what_is_outside_is_refused_without_a_question_once_the_length_is_known() {
        let mut owner = Owner { bytes: BYTES, bits: vec![u64::MAX; 600], asked: 0 };
        let mut cached = CachedShares::default();
        for (offset, bytes) in [(BYTES, 8), (BYTES - 8, 16), (usize::MAX - 7, 8), (0, BYTES + 8)] {
            let refused = require(&mut cached, &mut owner, offset, bytes);
            assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{refused:?}");
        }
        for (offset, bytes) in [(4, 8), (0, 12), (0, 0)] {
            let refused = require(&mut cached, &mut owner, offset, bytes);
            assert!(matches!(refused, Err(Error::Misaligned { .. })), "{refused:?}");
        }
        assert_eq!(owner.asked, 1);
        assert_eq!(require(&mut cached, &mut owner, 0, BYTES).unwrap(), Verdict::Usable);
    }

    #[test]
    fn a_first_access_that_is_far_outside_takes_no_memory() {
        let far = [1 << 40, SHARE_BYTES_MAX - 8, SHARE_BYTES_MAX, 1 << 60, usize::MAX - 7];
        for (offset, asked) in far.into_iter().zip([1, 1, 0, 0, 0]) {
            let mut owner = Owner { bytes: BYTES, bits: vec![u64::MAX; 600], asked: 0 };
            let mut cached = CachedShares::default();
            for _ in 0..2 {
                let refused = require(&mut cached, &mut owner, offset, 8);
                assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{offset}: {refused:?}");
            }
            assert_eq!(owner.asked, asked, "{offset}");
            let words = cached.0[2].as_ref().map_or(0, |cached| cached.bits.len());
            assert_eq!(words, asked * ASKED_WORDS, "{offset}");
        }
        // An owner that answers every query with no words at all.
        let mut cached = CachedShares::default();
        let none = cached
            .require_committed(OF, (BYTES - 8, 8), |_, _| Ok(Some(ShareState { bytes: BYTES, bits: Vec::new() })));
        assert!(matches!(none, Err(Error::NotCommitted { .. })), "{none:?}");
        assert_eq!(cached.0[2].as_ref().unwrap().bits.capacity(), 0);
    }

    #[test]
    fn a_share_that_is_not_open_is_asked_for_each_time() {
        let mut owner = Owner { bytes: 0, bits: Vec::new(), asked: 0 };
        let mut cached = CachedShares::default();
        for _ in 0..2 {
            assert!(matches!(require(&mut cached, &mut owner, 0, 8), Err(Error::NoSuchShare { .. })));
        }
        assert_eq!(owner.asked, 2);
        let of = (MachineId(1), ShareId(8));
        let refused = cached.require_inside(of, (0, 8), |_, _| panic!("there is no such number"));
        assert!(matches!(refused, Err(Error::NoSuchShare { .. })), "{refused:?}");
        assert_eq!(cached.require_inside(OF, (0, 8), |_, _| Ok(None)).unwrap(), Verdict::Gone);
    }
}
