//! Memory for the chunks that a place owns, in its machine's share, which the other machines of its host map. So a
//! place that is granted a chunk copies it itself, once, instead of receiving it in a message.
//!
//! Used only if all machines of the rack are on one host, and only with huge pages for long ranges, without which
//! random accesses would be slower. Otherwise chunks are sent. After the system has refused huge pages for a range,
//! they are not requested again for ranges of that length or more.
//!
//! No synchronisation is needed: from a grant until its place answers a recall, or gives the chunk back, the elements
//! at home do not change (`directory/model.rs` checks this for each order of messages), and they were written before
//! the message was sent.
//!
//! A range of the share belongs to one array's part. When that part ends, a grant without a waiter may still be in
//! flight, because all handles are gone, or all places have stopped using the array (`slots.rs`). Its receiver finds
//! that the range no longer exists, or copies bytes that are never read.

#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use comm::{SHARE_UNIT_BYTES, Share};
use gossamer::link;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

pub(crate) use crate::mapping::Mapping;

const HUGE_BYTES: usize = 2 << 20;
/// Bytes committed at a time. Giving a range back, which a worker may do in its turn, waits for at most one such piece.
const PIECE_BYTES: usize = 64 << 20;

/// Free ranges of the own share: in order, no two adjacent.
struct Free(Vec<Range<usize>>);

static FREE: Mutex<Free> = Mutex::new(Free(Vec::new()));

fn free() -> MutexGuard<'static, Free> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Free {
    /// Takes `bytes` bytes at a multiple of `align`.
    fn take(&mut self, bytes: usize, align: usize) -> Option<Range<usize>> {
        let start = |free: &Range<usize>| free.start.next_multiple_of(align);
        let at = self.0.iter().position(|free| start(free).checked_add(bytes).is_some_and(|end| end <= free.end))?;
        let free = self.0[at].clone();
        let taken = start(&free)..start(&free) + bytes;
        let rest = [free.start..taken.start, taken.end..free.end];
        self.0.splice(at..=at, rest.into_iter().filter(|rest| !rest.is_empty()));
        Some(taken)
    }

    fn give(&mut self, range: Range<usize>) {
        let at = self.0.partition_point(|free| free.start < range.start);
        self.0.insert(at, range);
        if at + 1 < self.0.len() && self.0[at].end == self.0[at + 1].start {
            self.0[at].end = self.0.remove(at + 1).end;
        }
        if at > 0 && self.0[at - 1].end == self.0[at].start {
            self.0[at - 1].end = self.0.remove(at).end;
        }
    }
}

/// Returns the share of this machine, if there is one; opens it on the first call.
fn own() -> Option<&'static Arc<Share>> {
    static OWN: OnceLock<Option<Arc<Share>>> = OnceLock::new();
    OWN.get_or_init(open).as_ref()
}

fn open() -> Option<Arc<Share>> {
    let rack = gossamer::rack();
    let is_other = |machine: &u16| *machine != rack.machine() && !rack.is_lost(*machine);
    let mut others = (0..rack.machines().len() as u16).filter(is_other).peekable();
    others.peek()?;
    // A share takes much address space: where that is limited it is left to the program.
    if !others.all(|machine| link::maps(machine, link::ARRAY)) || getrlimit(Resource::As).current.is_some() {
        return None;
    }
    // More than that cannot be filled.
    let bytes = usize::try_from(trust::memory::limit()?).ok()? / HUGE_BYTES * HUGE_BYTES;
    link::open_share(link::ARRAY, bytes).ok()?;
    // SAFETY: the share of arrays. Their chunks are its only use [frame-one-thread], [pinned-unchanged].
    let share = unsafe { link::mapped(rack.machine(), link::ARRAY) }.ok()??;
    free().give(0..bytes);
    Some(share)
}

/// Returns the share with the chunks of another machine's places, if it is mapped here and its creation is complete.
pub(crate) fn of_machine(machine: u16) -> Option<Arc<Share>> {
    // SAFETY: as in `open`; it is only read.
    let mapped = |machine| unsafe { link::mapped(machine, link::ARRAY) };
    if machine == gossamer::rack().machine() { None } else { mapped(machine).ok().flatten() }
}

/// A range of the own share.
pub(crate) struct Room(Range<usize>);

impl Room {
    /// Allocates `bytes` bytes, zeroed, and maps them. `None` where chunks have to be sent.
    pub(crate) fn take(bytes: usize) -> Option<(Room, Mapping)> {
        let share = own()?;
        let is_long = bytes >= HUGE_BYTES;
        if is_long && !REFUSED.may_get(bytes) {
            return None;
        }
        let unit = if is_long { HUGE_BYTES } else { SHARE_UNIT_BYTES };
        let room = Room(free().take(bytes.max(1).checked_next_multiple_of(unit)?, unit)?);
        let (file, start) = share.file();
        // SAFETY: the file cannot shrink (comm, [share-length]). This process has the range to itself; other processes
        // read it as words that may change.
        let memory = unsafe { Mapping::new(file, start + room.0.start as u64, room.0.len(), unit) }.ok()?;
        for first in (0..memory.len()).step_by(PIECE_BYTES) {
            let piece = first..(first + PIECE_BYTES).min(memory.len());
            link::commit(link::ARRAY, room.0.start + piece.start..room.0.start + piece.end).ok()?;
            if is_long {
                memory.collapse(piece).inspect_err(|error| REFUSED.note(bytes, *error)).ok()?;
            }
        }
        Some((room, memory))
    }

    /// Returns the offset of its first byte in the share.
    pub(crate) fn start(&self) -> usize {
        self.0.start
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // A range that cannot be released is not used again.
        // SAFETY: the share of arrays, and a range that this room had to itself.
        if unsafe { link::release(link::ARRAY, self.0.clone()) }.is_ok() {
            free().give(self.0.clone());
        }
    }
}

/// Length from which on the system has refused huge pages.
struct Refused(AtomicUsize);

static REFUSED: Refused = Refused(AtomicUsize::new(usize::MAX));

impl Refused {
    fn may_get(&self, bytes: usize) -> bool {
        // Relaxed, here and below: it only saves work.
        bytes < self.0.load(Ordering::Relaxed)
    }

    fn note(&self, bytes: usize, why: Errno) {
        let refused = match why {
            Errno::AGAIN => return, // pages were in use for a moment
            Errno::NOMEM | Errno::BUSY => bytes,
            _ => 0, // this system never grants them
        };
        self.0.fetch_min(refused, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_at_multiples_and_joined_again() {
        let mut free = Free(Vec::new());
        free.give(0..100);
        let small = free.take(3, 1).unwrap();
        let large = free.take(40, 20).unwrap();
        assert_eq!((small.clone(), large.clone(), &free.0[..]), (0..3, 20..60, &[3..20, 60..100][..]));
        assert_eq!(free.take(17, 1), Some(3..20));
        assert_eq!((free.take(41, 1), free.take(40, 7), free.take(usize::MAX, 2)), (None, None, None));
        free.give(small);
        free.give(3..20);
        assert_eq!(free.0, [0..20, 60..100]);
        free.give(large);
        assert_eq!(free.take(100, 50), Some(0..100));
        assert!(free.0.is_empty());
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again() {
        let refused = Refused(AtomicUsize::new(usize::MAX));
        let asked = |refused: &Refused| [2, 40, 400].map(|huge| refused.may_get(huge * HUGE_BYTES));
        refused.note(40 * HUGE_BYTES, Errno::AGAIN);
        assert_eq!(asked(&refused), [true; 3]);
        refused.note(40 * HUGE_BYTES, Errno::NOMEM);
        refused.note(41 * HUGE_BYTES, Errno::BUSY);
        assert_eq!(asked(&refused), [true, false, false], "less may be there");
        refused.note(2 * HUGE_BYTES, Errno::INVAL);
        assert_eq!(asked(&refused), [false; 3], "there are none");
    }
}
