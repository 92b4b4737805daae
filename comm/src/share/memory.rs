//! Memory of shares: the file, the mappings, commit and release. Not here: accesses of peers.

use super::{SHARE_BYTES_MAX, SHARE_UNIT_BYTES, SHARES_MAX, ShareId, map};
use crate::error::Error;
use crate::memory::{self, Region, WORD_BYTES};
use crate::sparse::Sparse;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Distance of two shares in the file; the upper half holds the share's map.
const STRIDE: u64 = 2 * SHARE_BYTES_MAX as u64;
const MAP: u64 = SHARE_BYTES_MAX as u64;
/// The first word of a map is the length of the share, once it may be used; the bits follow.
const BITS: usize = WORD_BYTES;

/// Makes an empty file for the shares of a group of machines. It takes no memory until something is committed.
pub(crate) fn create_file() -> Result<OwnedFd, Error> {
    let doing = "creating the memory file for shares";
    let fd = memfd_create("gossamer-shares", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(Error::system(doing))?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::SEAL).map_err(Error::system(doing))?;
    Ok(fd)
}

/// Part of the file for one machine's shares.
#[derive(Debug, Clone)]
pub(crate) struct ShareFile {
    file: Arc<OwnedFd>,
    start: u64,
}

impl ShareFile {
    /// Returns the part of the machine at index `place` of those that share the file.
    pub(crate) fn new(file: Arc<OwnedFd>, place: usize) -> ShareFile {
        ShareFile { file, start: place as u64 * SHARES_MAX as u64 * STRIDE }
    }

    fn length(&self) -> Result<u64, Error> {
        let stat = fstat(&*self.file).map_err(Error::system("asking for the length of the file of shares"))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Extends the file to at least `length` bytes.
    fn grow(&self, id: ShareId, length: u64) -> Result<(), Error> {
        if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| *limit < length) {
            // Beyond the limit, the system would end the process.
            let problem = format!("files may have {limit} bytes only: raise the limit with `ulimit -f unlimited`");
            return Err(Error::Share { share: id, problem });
        }
        while self.length()? < length {
            match retry_on_intr(|| ftruncate(&*self.file, length)) {
                // Refused by the seal: another machine has extended it further meanwhile.
                Ok(()) | Err(Errno::PERM) => {}
                Err(error) => return Err(Error::system("making the file of shares longer")(error)),
            }
        }
        Ok(())
    }

    /// Maps `bytes` bytes of the file, which lie within it.
    fn map(&self, offset: u64, bytes: usize) -> Result<Arc<Region>, Error> {
        let map = Sparse::new(&*self.file, self.start + offset, bytes);
        Ok(Arc::new(Region::sparse(map.map_err(Error::system(format!("mapping {bytes} bytes of a share")))?)))
    }
}

/// Shares of one machine, as seen by itself or by a peer on its host.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    file: OnceLock<ShareFile>,
    /// Lock for opening a share.
    opening: Mutex<()>,
    open: [OnceLock<Arc<Share>>; SHARES_MAX],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn map_bytes(bytes: usize) -> usize {
    BITS + WORD_BYTES * (bytes / SHARE_UNIT_BYTES).div_ceil(map::UNITS_PER_WORD)
}

/// Returns whether a share may have this length.
pub(crate) fn is_length(bytes: usize) -> bool {
    bytes > 0 && bytes.is_multiple_of(SHARE_UNIT_BYTES) && bytes <= SHARE_BYTES_MAX
}

impl Shares {
    pub(crate) fn in_file(file: ShareFile) -> Shares {
        Shares { file: file.into(), ..Shares::default() }
    }

    fn file(&self) -> Result<&ShareFile, Error> {
        if self.file.get().is_none() {
            // It is empty: the caller holds the lock.
            let _ = self.file.set(ShareFile::new(Arc::new(create_file()?), 0));
        }
        self.file.get().ok_or_else(|| Error::bootstrap("there is no file for shares"))
    }

    /// Returns the share of this number, if it is open here.
    #[inline]
    pub(crate) fn get(&self, id: ShareId) -> Option<&Arc<Share>> {
        self.open.get(usize::from(id.0))?.get()
    }

    /// Opens a share of the own machine. It may be used after `prepare` returns.
    pub(crate) fn open(
        &self,
        id: ShareId,
        bytes: usize,
        prepare: impl FnOnce(&Share) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let refused = |problem: String| Err(Error::Share { share: id, problem });
        let Some(seat) = self.open.get(usize::from(id.0)) else {
            return refused(format!("shares are numbered from 0 to {}", SHARES_MAX - 1));
        };
        if !is_length(bytes) {
            return refused(format!(
                "{bytes} bytes were asked for: a share has a multiple of {SHARE_UNIT_BYTES}, up to {SHARE_BYTES_MAX}"
            ));
        }
        let _opening = lock(&self.opening);
        if seat.get().is_some() {
            return refused("it is open already".to_owned());
        }
        let file = self.file()?;
        let place = u64::from(id.0) * STRIDE;
        file.grow(id, file.start + place + MAP + map_bytes(bytes) as u64)?;
        let share = Arc::new(Share::map(id, file, bytes)?);
        prepare(&share)?;
        // Release, pairs with the Acquire in `find`: a reader that sees the length may map the share.
        share.map.word(0)?.store(bytes as u64, Ordering::Release);
        let _ = seat.set(share); // it is empty: this thread holds the lock
        Ok(())
    }

    /// Returns the share of this number of a machine of this host, mapped at the first use.
    pub(crate) fn find(&self, id: ShareId) -> Result<Option<&Arc<Share>>, Error> {
        if let Some(share) = self.get(id) {
            return Ok(Some(share));
        }
        let (Some(seat), Some(file)) = (self.open.get(usize::from(id.0)), self.file.get()) else {
            return Ok(None);
        };
        let place = u64::from(id.0) * STRIDE;
        if file.length()? < file.start + place + MAP + BITS as u64 {
            return Ok(None);
        }
        let first = file.map(place + MAP, BITS)?;
        // Acquire, pairs with the Release in `open`.
        let told = first.word(0)?.load(Ordering::Acquire);
        if told == 0 {
            return Ok(None);
        }
        let bytes = usize::try_from(told).ok().filter(|bytes| is_length(*bytes));
        let bytes = bytes.filter(|bytes| {
            file.length().is_ok_and(|length| length >= file.start + place + MAP + map_bytes(*bytes) as u64)
        });
        let Some(bytes) = bytes else {
            return Err(Error::Share { share: id, problem: format!("its owner states a length of {told} bytes") });
        };
        let share = Arc::new(Share::map(id, file, bytes)?);
        // Two threads may have mapped it; one of the mappings is dropped.
        let _ = seat.set(share);
        Ok(seat.get())
    }
}

/// A share that is mapped in this process: an own one, or that of a machine of this host. It stays mapped as
/// long as there is a reference to it, even after the fabric is gone.
#[derive(Debug)]
pub struct Share {
    id: ShareId,
    data: Arc<Region>,
    map: Arc<Region>,
    file: ShareFile,
    /// Lock for commits and releases [commit-map-owner].
    changing: Mutex<()>,
    /// Offsets of the chunks that a device has pinned, with their lengths.
    pinned: Mutex<BTreeSet<(usize, usize)>>,
}

impl Share {
    fn map(id: ShareId, file: &ShareFile, bytes: usize) -> Result<Share, Error> {
        let place = u64::from(id.0) * STRIDE;
        Ok(Share {
            id,
            data: file.map(place, bytes)?,
            map: file.map(place + MAP, map_bytes(bytes))?,
            file: file.clone(),
            changing: Mutex::new(()),
            pinned: Mutex::default(),
        })
    }

    /// Returns its number.
    pub fn id(&self) -> ShareId {
        self.id
    }

    /// Returns its length in bytes.
    pub fn bytes(&self) -> usize {
        self.data.bytes()
    }

    /// Returns all of its words; peers read and write them meanwhile. Touch only committed ranges: elsewhere
    /// each touch takes a page that is not accounted for.
    pub fn words(&self) -> &[AtomicU64] {
        self.data.words(0, self.bytes()).unwrap_or(&[])
    }

    /// Returns its file and its offset there, to map it once more.
    pub fn file(&self) -> (BorrowedFd<'_>, u64) {
        (self.file.file.as_fd(), self.place(0))
    }

    /// Returns whether all of these bytes are committed; false where some lie outside.
    pub fn is_committed(&self, offset: usize, bytes: usize) -> bool {
        let is_inside = memory::check_access(self.bytes(), offset, bytes, 1).is_ok();
        is_inside && map::covers(self.bits(), &units_of(offset, bytes))
    }

    /// Copies bytes out, from a multiple of 8 on, while peers may write them: each word comes out old or new.
    ///
    /// # Errors
    /// [`Error::NotCommitted`], [`Error::OutOfRange`], [`Error::Misaligned`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }
        self.check_committed(offset, into.len().next_multiple_of(WORD_BYTES))?;
        self.data.read(offset, into)
    }

    fn bits(&self) -> &[AtomicU64] {
        self.map.words(BITS, self.map.bytes() - BITS).unwrap_or(&[])
    }

    /// Returns the words of the commit map from word `first` on, as many as there are up to `count`.
    pub(crate) fn bits_from(&self, first: usize, count: usize) -> &[AtomicU64] {
        let bits = self.bits();
        let first = first.min(bits.len());
        &bits[first..bits.len().min(first.saturating_add(count))]
    }

    pub(crate) fn data(&self) -> &Arc<Region> {
        &self.data
    }

    /// Returns the memory of the map: the length in the first word, the bits behind it.
    pub(crate) fn map_memory(&self) -> &Arc<Region> {
        &self.map
    }

    /// Checks that an access lies inside, and is made of whole words.
    pub(crate) fn check(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        memory::check_access(self.bytes(), offset, bytes, WORD_BYTES)
    }

    /// Checks that an access may be made now.
    pub(crate) fn check_committed(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        self.check(offset, bytes)?;
        match map::covers(self.bits(), &units_of(offset, bytes)) {
            true => Ok(()),
            false => Err(Error::NotCommitted { share: self.id, offset, bytes }),
        }
    }

    /// Makes a range of whole units usable. New and released units are 0.
    pub(crate) fn commit(
        &self,
        range: Range<usize>,
        prepare: impl FnOnce(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(units) = self.units(&range)? else { return Ok(()) };
        let _changing = lock(&self.changing);
        let (offset, bytes) = (self.place(range.start), range.len() as u64);
        // A lack of memory shows here, not at a touch. Units with pages keep them.
        let doing = || format!("committing {bytes} bytes of {}", self.id);
        retry_on_intr(|| fallocate(&*self.file.file, FallocateFlags::empty(), offset, bytes))
            .map_err(Error::system(doing()))?;
        if let Err(error) = prepare(range) {
            self.empty_uncommitted(units);
            return Err(error);
        }
        map::set(self.bits(), &units);
        Ok(())
    }

    /// After a failed commit: gives the pages of units that were not committed before back to the system.
    fn empty_uncommitted(&self, units: Range<usize>) {
        let is_committed = |unit: usize| map::covers(self.bits(), &(unit..unit + 1));
        let mut at = units.start;
        while at < units.end {
            let was_committed = is_committed(at);
            let end = (at + 1..units.end).find(|unit| is_committed(*unit) != was_committed).unwrap_or(units.end);
            if !was_committed {
                // If this fails, a release gives them back. The error to report is that of the commit.
                let _ = self.empty(at * SHARE_UNIT_BYTES..end * SHARE_UNIT_BYTES);
            }
            at = end;
        }
    }

    /// Gives a range of whole units back to the system.
    pub(crate) fn release(&self, range: Range<usize>) -> Result<(), Error> {
        let Some(units) = self.units(&range)? else { return Ok(()) };
        let _changing = lock(&self.changing);
        map::clear(self.bits(), &units);
        self.empty(range)
    }

    /// Zeroes a range, and gives its pages back to the system except those that a device has pinned [release-by-hole].
    fn empty(&self, range: Range<usize>) -> Result<(), Error> {
        let pinned: Vec<(usize, usize)> = lock(&self.pinned).iter().copied().collect();
        let mut at = range.start;
        for (start, bytes) in pinned {
            let (first, end) = (start.max(at), (start + bytes).min(range.end));
            if first < end {
                self.punch(at..first)?;
                for word in self.data.words(first, end - first)? {
                    // Relaxed: the message that tells peers of the next commit makes it visible to them.
                    word.store(0, Ordering::Relaxed);
                }
                at = end;
            }
        }
        self.punch(at..range.end)
    }

    /// Gives pages back to the system [release-by-hole].
    fn punch(&self, range: Range<usize>) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, bytes) = (self.place(range.start), range.len() as u64);
        retry_on_intr(|| fallocate(&*self.file.file, flags, offset, bytes))
            .map_err(Error::system(format!("releasing {bytes} bytes of {}", self.id)))
    }

    /// Notes that a device has pinned these bytes: from now on they keep their pages.
    pub(crate) fn pin(&self, offset: usize, bytes: usize) {
        lock(&self.pinned).insert((offset, bytes));
    }

    /// Returns the offset in the file of a byte of the share.
    fn place(&self, offset: usize) -> u64 {
        self.file.start + u64::from(self.id.0) * STRIDE + offset as u64
    }

    /// Returns the units of a range to commit or release; none for an empty range.
    fn units(&self, range: &Range<usize>) -> Result<Option<Range<usize>>, Error> {
        if range.is_empty() {
            return Ok(None);
        }
        memory::check_access(self.bytes(), range.start, range.len(), SHARE_UNIT_BYTES)?;
        Ok(Some(units_of(range.start, range.len())))
    }
}

/// Returns the units that contain these bytes; at least one byte, inside the share.
pub(crate) fn units_of(offset: usize, bytes: usize) -> Range<usize> {
    offset / SHARE_UNIT_BYTES..(offset + bytes).div_ceil(SHARE_UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = SHARE_UNIT_BYTES;
    const ID: ShareId = ShareId(3);

    fn blocks(share: &Share) -> u64 {
        u64::try_from(fstat(&*share.file.file).unwrap().st_blocks).unwrap() * 512
    }

    fn open(shares: &Shares, bytes: usize) -> &Arc<Share> {
        shares.open(ID, bytes, |_| Ok(())).unwrap();
        shares.get(ID).unwrap()
    }

    #[test]
    fn a_long_share_takes_what_is_committed() {
        let shares = Shares::default();
        let share = open(&shares, 1 << 40);
        let before = blocks(share);
        share.commit(5 * UNIT..9 * UNIT, |_| Ok(())).unwrap();
        let taken = blocks(share) - before;
        assert!((4 * UNIT as u64..6 * UNIT as u64).contains(&taken), "{taken} bytes for 4 units");
        assert!(share.is_committed(5 * UNIT, 4 * UNIT) && !share.is_committed(5 * UNIT - 8, 16));
        assert!(!share.is_committed(9 * UNIT, 8) && !share.is_committed(1 << 40, 8));
        share.words()[7 * UNIT / 8].store(5, Ordering::Relaxed);
        share.release(6 * UNIT..8 * UNIT).unwrap();
        assert!(!share.is_committed(6 * UNIT, 8) && share.is_committed(8 * UNIT, UNIT));
        assert!(blocks(share) <= before + taken - 2 * UNIT as u64, "pages were not given back");
        share.commit(6 * UNIT..8 * UNIT, |_| Ok(())).unwrap();
        assert_eq!(share.words()[7 * UNIT / 8].load(Ordering::Relaxed), 0, "committed again, it is 0");
    }

    #[test]
    fn what_is_pinned_is_cleared_and_keeps_its_pages() {
        let shares = Shares::default();
        let share = open(&shares, 8 * UNIT);
        share.commit(0..8 * UNIT, |_| Ok(())).unwrap();
        share.words().iter().for_each(|word| word.store(7, Ordering::Relaxed));
        share.pin(2 * UNIT, 2 * UNIT);
        share.pin(6 * UNIT, 2 * UNIT);
        let before = blocks(share);
        share.release(UNIT..7 * UNIT).unwrap();
        // Units 1, 4 and 5 are released; 2, 3 and 6 stay.
        assert_eq!(before - blocks(share), 3 * UNIT as u64);
        let values: Vec<u64> = (0..8).map(|unit| share.words()[unit * UNIT / 8].load(Ordering::Relaxed)).collect();
        assert_eq!(values, [7, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_commit_that_fails_keeps_nothing() {
        let shares = Shares::default();
        let share = open(&shares, 8 * UNIT);
        share.commit(2 * UNIT..4 * UNIT, |_| Ok(())).unwrap();
        share.words()[2 * UNIT / 8..4 * UNIT / 8].iter().for_each(|word| word.store(7, Ordering::Relaxed));
        let before = blocks(share);
        let failed = share.commit(0..8 * UNIT, |range| {
            assert_eq!((range, blocks(share) - before), (0..8 * UNIT, 6 * UNIT as u64));
            // Like a device that had no room for the next chunk.
            share.pin(UNIT, UNIT);
            Err(Error::bootstrap("no"))
        });
        assert!(matches!(failed, Err(Error::Bootstrap { .. })), "{failed:?}");
        assert_eq!(blocks(share) - before, UNIT as u64, "what is pinned is all that is kept");
        let is_committed: Vec<bool> = (0..8).map(|unit| share.is_committed(unit * UNIT, UNIT)).collect();
        assert_eq!(is_committed, [false, false, true, true, false, false, false, false]);
        assert!(share.words()[2 * UNIT / 8..4 * UNIT / 8].iter().all(|word| word.load(Ordering::Relaxed) == 7));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let shares = Shares::default();
        for (id, bytes) in [(8, UNIT), (0, 0), (0, UNIT + 8), (0, SHARE_BYTES_MAX + UNIT)] {
            let refused = shares.open(ShareId(id), bytes, |_| Ok(()));
            assert!(matches!(refused, Err(Error::Share { .. })), "{id} {bytes}: {refused:?}");
        }
        let share = open(&shares, 2 * UNIT);
        assert!(matches!(shares.open(ID, UNIT, |_| Ok(())), Err(Error::Share { .. })), "it is open");
        let nothing = |_| panic!("nothing to prepare");
        for (range, is_outside) in
            [(0..3 * UNIT, true), (2 * UNIT..3 * UNIT, true), (0..8, false), (8..UNIT + 8, false)]
        {
            let commit = share.commit(range.clone(), nothing);
            assert_eq!(matches!(commit, Err(Error::OutOfRange { .. })), is_outside, "{range:?}: {commit:?}");
            assert_eq!(matches!(share.release(range), Err(Error::Misaligned { .. })), !is_outside);
        }
        share.commit(UNIT..UNIT, nothing).unwrap();
        let failed = share.commit(0..UNIT, |_| Err(Error::bootstrap("no")));
        assert!(failed.is_err() && !share.is_committed(0, 8), "what could not be prepared may not be used");
    }

    /// Two machines of a host, which share the file.
    #[test]
    fn a_machine_of_the_host_finds_the_share() {
        let file = Arc::new(create_file().unwrap());
        let own = Shares::in_file(ShareFile::new(Arc::clone(&file), 1));
        let seen = Shares::in_file(ShareFile::new(Arc::clone(&file), 1));
        let other = Shares::in_file(ShareFile::new(file, 0));
        assert!(seen.find(ID).unwrap().is_none());
        let share = open(&own, 4 * UNIT);
        assert!(seen.find(ShareId(2)).unwrap().is_none() && other.find(ID).unwrap().is_none());
        assert_eq!(ftruncate(&*own.file().unwrap().file, 0), Err(Errno::PERM), "it would be a SIGBUS");
        let found = Arc::clone(seen.find(ID).unwrap().unwrap());
        assert_eq!(found.bytes(), 4 * UNIT);
        assert!(!found.is_committed(0, 8));
        assert!(matches!(found.read(0, &mut [0; 8]), Err(Error::NotCommitted { .. })));
        share.commit(0..UNIT, |_| Ok(())).unwrap();
        share.words()[1].store(9, Ordering::Relaxed);
        assert!(found.is_committed(0, UNIT) && found.words()[1].load(Ordering::Relaxed) == 9);
        let mut copy = [7; 11];
        found.read(8, &mut copy).unwrap();
        assert_eq!(copy, [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(found.read(UNIT - 8, &mut copy), Err(Error::NotCommitted { .. })));
        drop((own, seen));
        assert_eq!(found.words()[1].load(Ordering::Relaxed), 9, "a mapping outlives its fabric");
        assert!(other.find(ID).unwrap().is_none());
    }
}
