//! Heads in the memory of this machine's partitions: each before its object.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::head::{HEAD_BYTES, Head};
use crate::name::{At, Name};

/// Returns a number that no other process knows. Checks of heads are made of it.
pub(super) fn secret() -> u64 {
    static SECRET: OnceLock<u64> = OnceLock::new();
    *SECRET.get_or_init(|| RandomState::new().build_hasher().finish())
}

/// Returns the check of the head of an object there.
pub(super) fn check(secret: u64, at: At) -> u64 {
    secret ^ at.to_word()
}

/// Units of each worker's partition that were ever used.
static TOPS: [AtomicUsize; 1 << 16] = [const { AtomicUsize::new(0) }; 1 << 16];

/// So many units of a worker's partition have memory, or had.
pub(crate) fn set_top(worker: u16, units: usize) {
    // Release: pairs with the Acquire in `top`: they are accessible.
    TOPS[usize::from(worker)].store(units, Ordering::Release);
}

/// Returns the units of a worker's partition that have memory, or had.
pub(super) fn top(worker: u16) -> usize {
    // Acquire: pairs with the Release in `set_top`.
    TOPS[usize::from(worker)].load(Ordering::Acquire)
}

/// The worker that writes replicas of the objects of each worker's partition, and for which epoch; 0: none.
static WRITERS: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];

fn writer(epoch: u8) -> u32 {
    u32::from(epoch) << 17 | (u32::from(gossamer::here().worker) + 1)
}

/// The calling worker is the one that writes replicas of these objects from now on; false if it is another one.
pub(super) fn begin_to_write(partition: u16, epoch: u8) -> bool {
    let (word, own) = (&WRITERS[usize::from(partition)], writer(epoch));
    let now = word.load(Ordering::Relaxed);
    // One of an earlier epoch writes to another machine, which is lost.
    let is_free = now == 0 || now >> 17 < own >> 17;
    // Acquire: pairs with the Release in `end_to_write`: its writes have arrived.
    now == own || is_free && word.compare_exchange(now, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// It is not any more: all that it has written has arrived.
pub(super) fn end_to_write(partition: u16, epoch: u8) {
    // Release: pairs with the Acquire in `begin_to_write`. Another one may have it, if the epoch is over.
    let _ = WRITERS[usize::from(partition)].compare_exchange(writer(epoch), 0, Ordering::Release, Ordering::Relaxed);
}

/// Bytes between the start of a room and its object, which has a head.
#[inline]
pub(crate) fn gap(layout: Layout) -> usize {
    HEAD_BYTES.max(layout.align())
}

/// The layout of a room for an object with a head.
#[inline]
pub(crate) fn with_head(layout: Layout) -> Layout {
    let align = layout.align().max(16);
    let with = layout.size().checked_add(gap(layout)).map(|bytes| Layout::from_size_align(bytes, align));
    match with {
        Some(Ok(with)) => with,
        _ => layout, // no room is as long as that
    }
}

/// Returns the head of an object that has one.
#[inline]
fn head<'a>(object: *mut u8) -> &'a Head {
    // SAFETY: objects of this machine, which this is about, have heads before them, in memory that stays [base-stays];
    // these are used as atomics only.
    unsafe { &*object.wrapping_sub(HEAD_BYTES).cast::<Head>() }
}

/// A new object, which is being written: its head.
pub(crate) fn make(object: *mut u8, name: Name, bytes: usize) {
    head(object).make(name.version.get(), bytes, check(secret(), name.at));
}

/// The object has ended.
pub(crate) fn clear(object: *mut u8) {
    head(object).clear();
}

/// An object that is being written, and says so; of one without a head nothing.
#[derive(Debug)]
pub(crate) struct Busy(Option<NonNull<u8>>);

impl Busy {
    /// Of an object without a head.
    #[inline(always)]
    pub(crate) fn none() -> Busy {
        Busy(None)
    }

    /// A write begins, under this name.
    pub(crate) fn begin(object: *mut u8, name: Name) -> Busy {
        head(object).begin(name.version.get());
        Busy(NonNull::new(object))
    }

    /// Of an object that [`make`] has just been called for.
    pub(crate) fn made(object: *mut u8) -> Busy {
        Busy(NonNull::new(object))
    }
}

impl Drop for Busy {
    /// The write has ended.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(object) = self.0 {
            head(object.as_ptr()).end();
        }
    }
}
