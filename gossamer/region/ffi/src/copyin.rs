//! `copyin` of OpenMP (libgomp): the threads of a new team take over the thread-local variables of the thread that
//! starts it. Of arrays the team is given the addresses, at which threads of other machines find variables of their
//! own, or nothing. So the team is given addresses in a copy, which all machines share.
//!
//! The library does not say how many words a team is given, nor which of them are for `copyin`: all addresses of such
//! variables count on the stack from the first word on, up to [`WORDS`], and up to the page's end on a stack that the
//! program has made for itself. When the team has ended they are as before, and
//! the variables have the bytes that the team has changed in the copy.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::thread_storage::variables_of_this_thread;
use crate::{PAGE_BYTES, heap, side};

/// Words that are looked at.
const WORDS: usize = 128;
/// Alignment of copies, which is that of lines of caches.
const ALIGN: usize = 64;

/// A word on the stack of a team's master.
struct Word {
    at: &'static AtomicUsize,
    before: usize,
    now: usize,
}

/// Copy of a thread's variables, in a block of the program's heap.
struct Copy {
    of: Range<usize>,
    block: usize,
    /// The bytes as the team was given them.
    given: Vec<u8>,
}

/// # Safety
/// The bytes of this block are readable, and no other thread writes them meanwhile.
unsafe fn bytes_at<'a>(start: usize, len: usize) -> &'a [u8] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(start), len) }
}

/// The copies that a team is given in place of its master's thread-local variables.
#[derive(Default)]
struct Given {
    words: Vec<Word>,
    copies: Vec<Copy>,
}

impl Given {
    /// Puts addresses of copies in place of those of the calling thread's variables.
    fn replace(words: impl Iterator<Item = &'static AtomicUsize>) -> Given {
        let (variables, mut given) = (variables_of_this_thread(), Given::default());
        for at in words {
            let before = at.load(Ordering::Relaxed);
            let Some(of) = variables.iter().find(|range| range.contains(&before)) else { continue };
            let now = given.copy_of(of) + (before - of.start);
            // Relaxed, as the program's own: the team begins behind it.
            if at.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                given.words.push(Word { at, before, now });
            }
        }
        given
    }

    /// Returns the block with a copy of these variables.
    fn copy_of(&mut self, of: &Range<usize>) -> usize {
        if let Some(copy) = self.copies.iter().find(|copy| copy.of == *of) {
            return copy.block;
        }
        let Some((block, _)) = heap::allocate(of.len(), ALIGN) else {
            gossamer::link::end("there is no memory for variables that threads take over from another (copyin)")
        };
        // SAFETY: the calling thread's variables.
        let given = unsafe { bytes_at(of.start, of.len()) }.to_vec();
        // SAFETY: a block of that length, which no other code has.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(block).copy_from_nonoverlapping(given.as_ptr(), given.len()) };
        self.copies.push(Copy { of: of.clone(), block, given });
        block
    }

    /// When the team has ended: puts back the words that it has not changed, and the bytes that it has.
    fn put_back(self) {
        for Word { at, before, now } in self.words {
            let _ = at.compare_exchange(now, before, Ordering::Relaxed, Ordering::Relaxed);
        }
        for Copy { of, block, given } in self.copies {
            // SAFETY: the block of `copy_of`, whose team has ended.
            let now = unsafe { bytes_at(block, given.len()) };
            for (at, (now, given)) in of.zip(now.iter().zip(&given)) {
                if now != given {
                    // SAFETY: a byte of the calling thread's variables.
                    unsafe { ptr::with_exposed_provenance_mut::<u8>(at).write(*now) };
                }
            }
            heap::free(block);
        }
    }
}

/// In the program's code, on several machines: starts a team with the words at this address, if it has some, and waits
/// for its end.
pub(crate) fn with_copies<R>(given: usize, start_team: impl FnOnce() -> R) -> R {
    if given == 0 || !given.is_multiple_of(align_of::<usize>()) {
        return start_team();
    }
    let stack = side::stack();
    let end = if stack.contains(&given) { stack.end } else { (given + 1).next_multiple_of(PAGE_BYTES) };
    let count = ((end - given) / size_of::<usize>()).min(WORDS);
    let words = (0..count).map(|at| {
        let word = ptr::with_exposed_provenance_mut::<usize>(given).wrapping_add(at);
        // SAFETY: an aligned word of the frames that wait for the team, or of their page, which stays until `put_back`.
        // Other threads of the program may use it, as memory that is theirs, too.
        unsafe { AtomicUsize::from_ptr(word) }
    });
    let replaced = side::outside(|| Given::replace(words));
    let result = start_team();
    if !replaced.copies.is_empty() {
        side::outside(|| replaced.put_back());
    }
    result
}
