//! Registered memory: a mapping that other machines write while this one reads it.
//!
//! Here: range and alignment checks, and the one place of the crate that turns bytes of a mapping into
//! atomics. Not here: mapping (the fabrics), and the layout (the user of the fabric).
//!
//! Invariants
//! - [mapping-stays] A region is mapped, readable and writable, at one address, from its construction until it
//!   is dropped, and its bytes exist (the file behind it cannot shrink), so every access in range
//!   is valid memory.
//! - [atomics-only] Code of this process makes no Rust reference other than `&AtomicU64`, `&AtomicU32` to bytes of a
//!   region, except by the unsafe [`Region::slice`], whose caller answers for it. Memory shared between
//!   processes has no Rust owner: any value may appear in it at any time, so nothing but integers is ever
//!   read from it here.
//! - [one-word-width] A byte is used as part of a 64-bit word or of a 32-bit park word, never both: park words
//!   have cache lines of their own in the layout.

#![allow(unsafe_code)]

use crate::error::Error;
use memmap2::{Advice, MmapMut, MmapRaw};
#[cfg(all(target_os = "linux", not(loom)))]
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(all(target_os = "linux", not(loom)))]
use {crate::share::Shares, crate::sparse::Sparse, rustix::io::Errno, std::sync::OnceLock};

/// Bytes of a word: every write is made of whole words, and its last word is its flag.
pub const WORD_BYTES: usize = 8;

/// Memory that peers may write, addressed by offset. Its user defines the layout, which is equal on all machines.
#[derive(Debug)]
pub struct Region {
    map: Map,
    /// First byte, in the mapping, and length.
    base: Base,
    bytes: usize,
    /// Shares of the machine that owns the region: none until the first is opened.
    #[cfg(all(target_os = "linux", not(loom)))]
    shares: OnceLock<Box<Shares>>,
}

/// Mapping that ends with the region.
#[derive(Debug)]
enum Map {
    Whole(MmapRaw),
    #[cfg(all(target_os = "linux", not(loom)))]
    Sparse(Sparse),
}

#[derive(Debug)]
struct Base(*mut u8);

// SAFETY: an address of the mapping, which all threads may reach by [mapping-stays], [atomics-only] and
// [one-word-width].
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

/// A huge page of most processors. A region at least as long begins at a multiple of it, so that it can use
/// huge pages.
const HUGE_BYTES: usize = 2 << 20;

impl Region {
    /// Returns memory of this process alone, all 0, for fabrics whose peers do not map it: a thread or a
    /// device writes it for them. `bytes` is rounded up to whole words.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn anonymous(bytes: usize) -> Result<Region, Error> {
        let bytes = bytes.next_multiple_of(WORD_BYTES).max(WORD_BYTES);
        let room = if bytes < HUGE_BYTES { 0 } else { HUGE_BYTES };
        let map = MmapMut::map_anon(bytes.saturating_add(room))
            .map_err(Error::system(format!("mapping {bytes} bytes for the own region")))?;
        let start = if room == 0 { 0 } else { map.as_ptr().addr().next_multiple_of(HUGE_BYTES) - map.as_ptr().addr() };
        Ok(Region::part(Map::Whole(map.into()), start, bytes))
    }

    /// Asks for huge pages, before any write, where all of the region will be in use anyway; has no effect
    /// where the system has none or the region is short.
    pub(crate) fn ask_for_huge_pages(&self) {
        if let Map::Whole(map) = &self.map
            && self.bytes >= HUGE_BYTES
        {
            // A refusal costs only speed.
            let start = self.base.0.addr() - map.as_ptr().addr();
            let _ = map.advise_range(Advice::HugePage, start, self.bytes);
        }
    }

    /// Wraps a mapping of a file that cannot shrink [mapping-stays].
    pub(crate) fn new(map: MmapRaw) -> Region {
        let bytes = map.len();
        Region::part(Map::Whole(map), 0, bytes)
    }

    /// Like `new`, for a file most of which never has memory.
    #[cfg(all(target_os = "linux", not(loom)))]
    pub(crate) fn sparse(map: Sparse) -> Region {
        let bytes = map.bytes();
        Region::part(Map::Sparse(map), 0, bytes)
    }

    fn part(map: Map, start: usize, bytes: usize) -> Region {
        let first = match &map {
            Map::Whole(map) => {
                // A core dump would include all of it, and so allocate the pages that the file does not have yet.
                let _ = map.advise(Advice::DontDump); // on a refusal, dumps are large
                map.as_mut_ptr()
            }
            #[cfg(all(target_os = "linux", not(loom)))]
            Map::Sparse(map) => map.start(),
        };
        Region {
            map,
            base: Base(first.wrapping_add(start)),
            bytes,
            #[cfg(all(target_os = "linux", not(loom)))]
            shares: OnceLock::new(),
        }
    }

    /// Returns the shares of the machine that owns this region. All fabrics that serve the region serve them.
    #[cfg(all(target_os = "linux", not(loom)))]
    pub(crate) fn shares(&self) -> &Shares {
        self.shares.get_or_init(Box::default)
    }

    /// Adds shares that other processes map.
    #[cfg(all(target_os = "linux", not(loom)))]
    pub(crate) fn with_shares(self, shares: Shares) -> Region {
        Region { shares: OnceLock::from(Box::new(shares)), ..self }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of the first byte, page-aligned, valid until the region is dropped.
    pub fn base(&self) -> *mut u8 {
        self.base.0
    }

    /// Returns the 64-bit word at `offset`, such as a flag: an `Acquire` load that yields the flag of a write
    /// makes the whole write visible ([`Connection::write`](crate::Connection::write), [flag-last]).
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`].
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, Error> {
        Ok(&self.words(offset, WORD_BYTES)?[0])
    }

    /// Returns the `bytes / 8` words from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] (also for an empty range).
    pub fn words(&self, offset: usize, bytes: usize) -> Result<&[AtomicU64], Error> {
        let start = self.start_of(offset, bytes, WORD_BYTES)?;
        // SAFETY: [mapping-stays] and the check make these bytes valid and 8-aligned for as long as `self` is borrowed;
        // by [atomics-only] and [one-word-width] all other accesses to them are atomics of the same width.
        Ok(unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / WORD_BYTES) })
    }

    /// Returns the 32-bit word at `offset`: a park word, for example [one-word-width].
    pub(crate) fn word32(&self, offset: usize) -> Result<&AtomicU32, Error> {
        check_park_word(self.bytes(), offset)?;
        let start = self.base().wrapping_add(offset);
        // SAFETY: as in `words`, for 4 bytes at a 4-aligned address.
        Ok(unsafe { &*start.cast::<AtomicU32>() })
    }

    /// Copies `into.len()` bytes out, starting at the word at `offset`. Call it after an `Acquire` load of
    /// the flag has shown that they are there. Bytes that a peer overwrites meanwhile come out old or new,
    /// word by word.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] (`offset` is no multiple of 8).
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }
        let words = self.words(offset, into.len().next_multiple_of(WORD_BYTES))?;
        let (whole, rest) = into.as_chunks_mut::<WORD_BYTES>();
        let (body, last) = words.split_at(whole.len());
        copy_out(body, whole);
        if let Some(word) = last.first() {
            rest.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
        }
        Ok(())
    }

    /// Sends `head` and then `bytes` bytes from `offset` on, straight from the mapping, as many as the socket takes
    /// without waiting. Returns their number, those of the head included. Bytes that a peer overwrites meanwhile are
    /// sent old or new.
    #[cfg(all(target_os = "linux", not(loom)))]
    pub(crate) fn send(&self, socket: impl AsFd, head: &[u8], offset: usize, bytes: usize) -> Result<usize, Errno> {
        let start = self.start_of(offset, bytes, 1).map_err(|_| Errno::FAULT)?;
        let mut parts = [
            libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
            libc::iovec { iov_base: start.cast(), iov_len: bytes },
        ];
        // SAFETY: a message of the C library is valid with all bytes 0: no address, no parts, no ancillary data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the kernel reads the parts, and keeps none of them: the head is borrowed, and the bytes are mapped,
        // by [mapping-stays] and the check. No reference to them is made [atomics-only].
        let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
        usize::try_from(sent)
            .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }

    /// Returns `bytes` bytes from `offset` on, to be read in place (no copy).
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`] (multiples of 8 here too).
    ///
    /// # Safety
    /// No machine, this one included, writes any of these bytes while the slice lives. A slot protocol
    /// guarantees that: between its flag and its answer, a slot belongs to the reader.
    pub unsafe fn slice(&self, offset: usize, bytes: usize) -> Result<&[u8], Error> {
        let start = self.start_of(offset, bytes, WORD_BYTES)?;
        // SAFETY: [mapping-stays] and the check make the bytes valid; the caller promises that no machine writes them.
        Ok(unsafe { std::slice::from_raw_parts(start, bytes) })
    }

    /// Stores `source` at `offset`, its last word after all others: the guarantee of `Connection::write`, for
    /// a peer's memory that is mapped here. Stores nothing on error.
    pub(crate) fn publish(&self, offset: usize, source: &[u8]) -> Result<(), Error> {
        let words = self.words(offset, source.len())?;
        let (source, _) = source.as_chunks::<WORD_BYTES>();
        if let (Some((flag, body)), Some((flag_value, body_values))) = (words.split_last(), source.split_last()) {
            copy_in(body_values, body);
            // Release of [flag-last]. The Acquire is the reader's load of the flag word, by `Region::word`.
            flag.store(u64::from_ne_bytes(*flag_value), Ordering::Release);
        }
        Ok(())
    }

    /// Checks an access and returns its address.
    #[inline]
    fn start_of(&self, offset: usize, bytes: usize, align_bytes: usize) -> Result<*mut u8, Error> {
        check_access(self.bytes(), offset, bytes, align_bytes)?;
        Ok(self.base().wrapping_add(offset))
    }
}

/// Stores these values, one for each word, each word by itself and in any order.
#[inline]
fn copy_in(values: &[[u8; WORD_BYTES]], words: &[AtomicU64]) {
    #[cfg(target_arch = "x86_64")]
    if values.len() >= STRING_WORDS_MIN && values.len() == words.len() {
        // SAFETY: both have the same length; any holder of a shared atomic may write it.
        return unsafe { copy_words(values.as_ptr().cast(), words.as_ptr().cast_mut().cast(), words.len()) };
    }
    for (word, value) in words.iter().zip(values) {
        word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
    }
}

/// Loads these words, one for each value, each by itself and in any order.
#[inline]
fn copy_out(words: &[AtomicU64], values: &mut [[u8; WORD_BYTES]]) {
    #[cfg(target_arch = "x86_64")]
    if words.len() >= STRING_WORDS_MIN && values.len() == words.len() {
        // SAFETY: both have the same length, and the caller has the values to itself.
        return unsafe { copy_words(words.as_ptr().cast(), values.as_mut_ptr().cast(), words.len()) };
    }
    for (value, word) in values.iter_mut().zip(words) {
        *value = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// Least number of words with which the string instruction beats the loop, from core to core;
/// for fewer words its start-up costs as much as it saves.
#[cfg(target_arch = "x86_64")]
const STRING_WORDS_MIN: usize = 512;

/// Does the work of as many relaxed loads and stores, by one instruction that moves whole cache lines where
/// it can. Not by `memcpy`: the compiler may assume that neither side changes meanwhile, but a peer that
/// breaks the protocol can change one.
///
/// # Safety
/// `from` is valid for reads of that many words and `to` for writes, and the ranges do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_words(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: the caller's promise; the direction flag is clear at the start of each `asm!`.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") words => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Checks an access to a region of `region_bytes` bytes, which may be a peer's.
#[inline]
pub(crate) fn check_access(region_bytes: usize, offset: usize, bytes: usize, align_bytes: usize) -> Result<(), Error> {
    if bytes == 0 || !bytes.is_multiple_of(align_bytes) || !offset.is_multiple_of(align_bytes) {
        return Err(Error::Misaligned { offset, bytes, align_bytes });
    }
    if offset > region_bytes || bytes > region_bytes - offset {
        return Err(Error::OutOfRange { offset, bytes, region_bytes });
    }
    Ok(())
}

/// Checks the offset of a park word in a region of `region_bytes` bytes, which may be a peer's.
#[inline]
pub(crate) fn check_park_word(region_bytes: usize, offset: usize) -> Result<(), Error> {
    check_access(region_bytes, offset, size_of::<AtomicU32>(), align_of::<AtomicU32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(bytes: usize) -> Region {
        Region::anonymous(bytes).unwrap()
    }

    #[test]
    fn ranges_are_checked_without_overflow() {
        let region = region(64);
        for (offset, bytes) in [(64, 8), (0, 72), (56, 16), (usize::MAX - 7, 8), (8, usize::MAX - 7)] {
            assert!(matches!(region.words(offset, bytes), Err(Error::OutOfRange { .. })), "{offset} {bytes}");
        }
        for (offset, bytes) in [(4, 8), (0, 12), (0, 0)] {
            assert!(matches!(region.words(offset, bytes), Err(Error::Misaligned { .. })), "{offset} {bytes}");
        }
        assert_eq!(region.words(0, 64).unwrap().len(), 8);
        assert!(region.word32(60).is_ok() && region.word32(62).is_err() && region.word32(64).is_err());
    }

    #[test]
    fn a_long_region_can_have_huge_pages() {
        let bytes = 3 * HUGE_BYTES + 4096;
        let region = region(bytes);
        assert!(region.base().addr().is_multiple_of(HUGE_BYTES) && region.bytes() == bytes);
        region.ask_for_huge_pages();
        region.publish(bytes - 8, &[1; 8]).unwrap();
        assert!(region.words(bytes, 8).is_err(), "no longer than asked for, whatever is mapped");
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            println!("SKIPPED in part: this kernel has no transparent huge pages");
            return;
        }
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", region.base().addr());
        // With its own advice the region is a separate mapping in the kernel's list.
        let lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.into_iter().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
    }

    #[test]
    fn what_is_published_is_read() {
        let region = region(64);
        let source: Vec<u8> = (1..=24).collect();
        region.publish(40, &source).unwrap();
        let mut copy = [0; 21];
        region.read(40, &mut copy).unwrap();
        assert_eq!(copy, source[..21]);
        // SAFETY: only this thread knows this region, and it no longer writes.
        assert_eq!(unsafe { region.slice(40, 24) }.unwrap(), source);
        assert_eq!(region.word(56).unwrap().load(Ordering::Acquire).to_ne_bytes(), source[16..]);
        assert_eq!(region.word(32).unwrap().load(Ordering::Relaxed), 0, "bytes before the write are as they were");
    }

    #[test]
    fn copies_of_every_length_are_whole() {
        let region = region(8192);
        let source: Vec<u8> = (0..4800).map(|n: usize| (n * 7 + n / 251) as u8).collect();
        for words in (1..=600).step_by(7) {
            let bytes = words * WORD_BYTES;
            region.publish(1024, &source[..bytes]).unwrap();
            let mut copy = vec![0; bytes + 1];
            for read in [bytes - 7, bytes] {
                copy.fill(0xEE);
                region.read(1024, &mut copy[..read]).unwrap();
                assert!(
                    copy[..read] == source[..read] && copy[read..].iter().all(|byte| *byte == 0xEE),
                    "{read} bytes"
                );
            }
            assert_eq!(region.word(1024 + bytes).unwrap().load(Ordering::Relaxed), 0, "nothing behind {words} words");
        }
    }

    #[cfg(all(target_os = "linux", not(loom)))]
    #[test]
    fn what_is_sent_follows_its_head() {
        use std::io::Read;
        let region = region(64);
        region.publish(0, &[9; 64]).unwrap();
        region.publish(8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(region.send(&near, b"head", 9, 6), Ok(10));
        assert_eq!(region.send(&near, b"", 63, 1), Ok(1));
        assert_eq!(region.send(&near, b"head", 60, 5), Err(Errno::FAULT), "past the end");
        drop(near);
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, [&b"head"[..], &[2, 3, 4, 5, 6, 7, 9]].concat());
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(far);
        assert_eq!(region.send(&near, b"", 0, 8), Err(Errno::PIPE), "an error, and no signal");
    }

    #[test]
    fn reading_past_the_end_is_refused() {
        let region = region(64);
        assert!(matches!(region.read(56, &mut [0; 9]), Err(Error::OutOfRange { .. })));
        assert!(region.read(64, &mut []).is_ok());
    }
}
