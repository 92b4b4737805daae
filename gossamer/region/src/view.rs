//! The memory of a region on one machine. The *view*, at the address that all machines agreed on, is the mapping that
//! threads use and fault on. It maps a share (`comm::share`), through which page servers reach the same pages and never
//! fault.
//!
//! Where the program runs on one host, all views map the share of machine 0 ([`Store::Common`]): a page that goes from
//! one machine to another is unmapped there and mapped here, without a copy. Otherwise each machine has its own share,
//! and bytes are copied from the holder's.
//!
//! Invariants
//! - [server-off-view] The page server never touches the view.
//! - [access-by-protocol] A page is accessible in the view only as `holder.rs` says; a touch of any other page stops
//!   the thread.
//! - [view-stays] The view stays mapped until the process ends.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::Arc;

use comm::{Error, MachineId, SHARE_UNIT_BYTES, Share};
use gossamer::{Machine, Transport, link};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pwrite, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::common;
use crate::error::{Doing, Failure};
use crate::holder::Pages;
use crate::message::State;
use crate::page::Run;
use crate::stats::COUNTERS;
use crate::uffd::Uffd;

/// Addresses for a region.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Addresses without a mapping.
    Free(Range<usize>),
    /// Replaces a mapping that is no longer used.
    Instead(Range<usize>),
}

impl Place {
    pub(crate) fn range(&self) -> &Range<usize> {
        let (Place::Free(range) | Place::Instead(range)) = self;
        range
    }

    pub(crate) fn reserve(&self) -> Result<Reserved, Failure> {
        if let Place::Instead(range) = self {
            // SAFETY: whole pages that no code uses any more (`link::over`).
            unsafe { munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }
                .map_err(|errno| Failure::system(Doing::Map, errno))?;
        }
        Reserved::at(self.range().clone())
    }
}

/// Addresses that no other part of the process gets, and no code touches.
#[derive(Debug)]
pub(crate) struct Reserved(Range<usize>);

impl Reserved {
    /// Reserves these addresses, if nothing is mapped there.
    pub(crate) fn at(range: Range<usize>) -> Result<Reserved, Failure> {
        let (start, flags) = (
            ptr::without_provenance_mut(range.start),
            MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE,
        );
        // SAFETY: a new mapping that replaces none and cannot be accessed.
        match unsafe { mmap_anonymous(start, range.len(), ProtFlags::empty(), flags) } {
            Ok(at) if at.addr() == range.start => Ok(Reserved(range)),
            // An old kernel takes the address as a hint.
            Ok(at) => {
                drop(Reserved(at.addr()..at.addr() + range.len()));
                Err(Failure::Taken)
            }
            Err(Errno::EXIST) => Err(Failure::Taken),
            Err(errno) => Err(Failure::system(Doing::Map, errno)),
        }
    }

    /// Maps private memory there, for a program that is one process.
    pub(crate) fn map_alone(self) -> Result<(), Failure> {
        let (start, bytes) = (ptr::without_provenance_mut(self.0.start), self.0.len());
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: it replaces the reserved range, which no code uses.
        let mapped = unsafe { mmap_anonymous(start, bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let start = mapped.map_err(|errno| Failure::system(Doing::Map, errno))?;
        leave_out_of_dumps(start, bytes);
        std::mem::forget(self); // [view-stays]
        Ok(())
    }
}

/// Excludes a range from core dumps: a dump would create the missing pages, all that a region may ever have.
fn leave_out_of_dumps(start: *mut std::ffi::c_void, bytes: usize) {
    // SAFETY: the caller has mapped the range; the advice does not change its contents.
    let _ = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: `at` mapped it, and no code has an address in it. If it fails, addresses are lost.
        let _ = unsafe { munmap(ptr::without_provenance_mut(self.0.start), self.0.len()) };
    }
}

/// Memory that holds the bytes of regions.
pub(crate) enum Store {
    /// The share of machine 0, for all machines: they are on one host.
    Common(Arc<Share>),
    /// The share of this machine.
    Own(Arc<Share>),
}

impl Store {
    /// Returns the store of this program, once all machines have opened their shares. All machines find the same kind.
    /// With `copies` it is never common.
    pub(crate) fn find(copies: bool) -> Result<Store, Failure> {
        let rack = gossamer::rack();
        // SAFETY: the share of regions, whose pages are used as the protocol says [protect-then-announce].
        let mapped = |machine| unsafe { link::mapped(machine, link::REGION) };
        let mapped = |machine| mapped(machine).map_err(|error| Failure::tell_share(&error));
        let is_here = |machine: &Machine| matches!(machine.transport, Transport::Here | Transport::Shm);
        if !copies
            && rack.machines().iter().all(is_here)
            && let Some(common) = mapped(0)?
        {
            return Ok(Store::Common(common));
        }
        let missing = || Error::NoSuchShare { machine: MachineId(rack.machine()), share: link::REGION };
        mapped(rack.machine())?.map(Store::Own).ok_or_else(|| Failure::tell_share(&missing()))
    }

    fn share(&self) -> &Share {
        let (Store::Common(share) | Store::Own(share)) = self;
        share
    }
}

/// One region on one machine.
pub(crate) struct View {
    /// Its addresses for threads.
    addresses: Range<usize>,
    /// Its offset in the shares of all machines.
    offset: usize,
    store: Store,
    uffd: &'static Uffd,
    /// Pages to read from machines of other hosts.
    pub(crate) to_read: Vec<(Run, u16, State)>,
}

impl View {
    /// Maps the store from `offset` on at the reserved addresses.
    pub(crate) fn map(reserved: Reserved, store: Store, offset: usize, uffd: &'static Uffd) -> Result<View, Failure> {
        let addresses = reserved.0.clone();
        let start = ptr::without_provenance_mut(addresses.start);
        let (file, at) = store.share().file();
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: it replaces the reserved range, which no code uses.
        let mapped = unsafe {
            mmap(start, addresses.len(), ProtFlags::READ | ProtFlags::WRITE, flags, file, at + offset as u64)
        };
        mapped.map_err(|errno| Failure::system(Doing::Map, errno))?;
        let advise = |advice| {
            // SAFETY: the range was mapped just now, and neither advice changes its contents.
            unsafe { madvise(start, addresses.len(), advice) }.map_err(|errno| Failure::system(Doing::Advise, errno))
        };
        advise(Advice::LinuxDontFork)?;
        leave_out_of_dumps(start, addresses.len());
        let _ = advise(Advice::LinuxNoHugepage); // a kernel without huge pages lacks this advice
        // SAFETY: a mapping of a memory file that stays [view-stays]; pages come through this crate alone
        // [access-by-protocol].
        unsafe { uffd.register(&addresses) }.map_err(|errno| Failure::system(Doing::Register, errno))?;
        std::mem::forget(reserved); // [view-stays]
        if let Store::Common(share) = &store {
            common::note(addresses.clone(), share, offset);
        }
        Ok(View { addresses, offset, store, uffd, to_read: vec![] })
    }

    /// Returns its addresses for threads.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// Returns the page at an address, if it belongs to this region.
    pub(crate) fn page_at(&self, address: usize) -> Option<u32> {
        self.addresses.contains(&address).then(|| ((address - self.addresses.start) / crate::page::PAGE_BYTES) as u32)
    }

    /// Returns the pages of this region that these addresses touch.
    pub(crate) fn pages_at(&self, addresses: &Range<usize>) -> Range<u32> {
        let start = addresses.start.max(self.addresses.start);
        let end = addresses.end.min(self.addresses.end);
        if start >= end {
            return 0..0;
        }
        let page = |address: usize| ((address - self.addresses.start) / crate::page::PAGE_BYTES) as u32;
        page(start)..page(end - 1) + 1
    }

    fn addresses_of(&self, run: Run) -> Range<usize> {
        let Range { start, end } = run.bytes();
        self.addresses.start + start..self.addresses.start + end
    }

    /// Returns the offsets of a run in the shares.
    pub(crate) fn offsets_of(&self, run: Run) -> Range<usize> {
        let Range { start, end } = run.bytes();
        self.offset + start..self.offset + end
    }

    /// Makes the memory of a run usable, in this machine's own share. In a common one, pages are made at their first
    /// touch.
    fn commit(&self, run: Run) {
        let Store::Own(share) = &self.store else { return };
        let Range { start, end } = self.offsets_of(run);
        if share.is_committed(start, end - start) {
            return;
        }
        let units = start / SHARE_UNIT_BYTES * SHARE_UNIT_BYTES..end.next_multiple_of(SHARE_UNIT_BYTES);
        if let Err(error) = link::commit(link::REGION, units) {
            link::end(&format!("there is no memory for pages of a region: {error}"));
        }
    }

    /// Writes bytes to pages that no thread has mapped. By a system call: in the mapping of the share, each page would
    /// first fault, which costs as much as all else.
    pub(crate) fn put(&self, run: Run, bytes: &[u8]) {
        self.commit(run);
        let (file, at) = self.store.share().file();
        let (mut at, mut left) = (at + self.offsets_of(run).start as u64, bytes);
        while !left.is_empty() {
            match retry_on_intr(|| pwrite(file, left, at)) {
                Ok(written) if written > 0 => (at, left) = (at + written as u64, &left[written..]),
                Ok(_) => return self.or_end("written", run, Err(Errno::NOSPC)),
                Err(errno) => return self.or_end("written", run, Err(errno)),
            }
        }
    }

    /// Takes the pages at these addresses out of a common store, if it has them: they become zeros for all machines,
    /// whatever their state. Of a store of its own a device may have pinned pages, and other machines have copies.
    pub(crate) fn discard(&self, addresses: &Range<usize>) -> bool {
        let is_here = self.addresses.start <= addresses.start && addresses.end <= self.addresses.end;
        let (Store::Common(share), true) = (&self.store, is_here) else { return false };
        let (file, at) = share.file();
        let at = at + (self.offset + addresses.start - self.addresses.start) as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| fallocate(file, flags, at, addresses.len() as u64)).is_ok()
    }

    /// Installs a run. If the store lacks one of its pages, because they were discarded, makes `like` pages again.
    fn install_from_store(&self, run: Run, state: State, like: u32) -> Result<(), Errno> {
        let install = |run| self.uffd.install(self.addresses_of(run), state == State::Modified);
        match install(run) {
            Err(Errno::FAULT) if matches!(self.store, Store::Common(_)) => {
                let run = Run { count: like, ..run };
                let (file, at) = self.store.share().file();
                let Range { start, end } = self.offsets_of(run);
                // The system makes them zero when they are mapped.
                let flags = FallocateFlags::empty();
                retry_on_intr(|| fallocate(file, flags, at + start as u64, (end - start) as u64))?;
                install(run)
            }
            other => other,
        }
    }

    /// Whether all pages of a run are in the address space; false too where the system does not say.
    fn is_mapped(&self, run: Run) -> bool {
        const WORD: usize = size_of::<u64>();
        let mut words = vec![0; run.count as usize * WORD];
        let first = self.addresses_of(run).start / crate::page::PAGE_BYTES;
        let told =
            File::open("/proc/self/pagemap").and_then(|map| map.read_exact_at(&mut words, (first * WORD) as u64));
        // Bit 63 of each word: the page is present.
        told.is_ok()
            && words
                .chunks_exact(WORD)
                .all(|word| u64::from_ne_bytes(*word.first_chunk().unwrap_or(&[0; WORD])) >> 63 == 1)
    }

    fn or_end(&self, doing: &str, run: Run, done: Result<(), Errno>) {
        if let Err(errno) = done {
            let Range { start, end } = self.addresses_of(run);
            link::end(&format!("pages of a region at {start:#x} to {end:#x} cannot be {doing}: {errno}"));
        }
    }
}

impl Pages for View {
    fn install(&mut self, run: Run, state: State) {
        let range = self.addresses_of(run);
        if state == State::Invalid {
            return self.or_end("woken", run, self.uffd.wake(range));
        }
        self.commit(run);
        self.or_end("installed", run, self.install_from_store(run, state, run.count));
    }

    fn install_zeros(&mut self, run: Run) {
        match self.store {
            Store::Common(_) => self.or_end("made", run, self.uffd.install_zeros(self.addresses_of(run))),
            Store::Own(_) => self.install(run, State::Modified),
        }
    }

    fn install_again(&mut self, run: Run, state: State, like: u32) -> bool {
        if state != State::Shared || self.uffd.can_share() {
            self.commit(run);
            self.or_end("installed", run, self.install_from_store(run, state, like));
            return true;
        }
        let is_mapped = self.is_mapped(run);
        if is_mapped {
            self.install(run, State::Invalid); // the waiters try again
        }
        is_mapped
    }

    fn unprotect(&mut self, run: Run) {
        // Pages that the system has taken out of the address space come back at the next fault.
        self.or_end("made writable", run, self.uffd.protect(&self.addresses_of(run), false));
    }

    fn protect(&mut self, run: Run) {
        self.or_end("protected", run, self.uffd.protect(&self.addresses_of(run), true));
    }

    fn unmap(&mut self, run: Run) {
        let Range { start, end } = self.addresses_of(run);
        // SAFETY: a part of the view. Its pages stay in the file; threads fault on them.
        let done = unsafe { madvise(ptr::without_provenance_mut(start), end - start, Advice::LinuxDontNeed) };
        self.or_end("unmapped", run, done);
    }

    fn fetch(&mut self, run: Run, from: u16, state: State) -> bool {
        COUNTERS.fetched.add(u64::from(run.count));
        if let Store::Common(_) = self.store {
            return true;
        }
        // SAFETY: as in `find`.
        match unsafe { link::mapped(from, link::REGION) } {
            Ok(Some(theirs)) => {
                let Range { start, end } = self.offsets_of(run);
                // SAFETY: these bytes of the holder's share do not change: its threads cannot write the pages
                // [protect-then-announce], and it gets them again only after this machine has said `Done`
                // [busy-until-done].
                let bytes = unsafe {
                    std::slice::from_raw_parts(theirs.words()[start / 8..end / 8].as_ptr().cast::<u8>(), end - start)
                };
                self.put(run, bytes);
                true
            }
            Ok(None) => {
                self.to_read.push((run, from, state));
                false
            }
            Err(error) => cannot_read(from, &error),
        }
    }
}

/// Ends the program: pages of a machine cannot be read, and the fault would wait for them for ever.
pub(crate) fn cannot_read(from: u16, error: &Error) -> ! {
    link::end_by(&format!("pages of machine {from} cannot be read"), error)
}
