//! Magazines: free blocks of each size that a thread of the program has for itself. `malloc` and `free` of a small
//! block neither lock nor leave the program's stack while the magazine of its size has a block, or room.
//!
//! Magazines are filled from spans of the thread's own machine, so that threads of two machines do not get blocks of
//! one page. Blocks of another machine's spans go back there, many at a time.

use std::sync::atomic::{Ordering, compiler_fence};

use crate::head::{Block, FREED, Head, USED};
use crate::own_heap;
use crate::side::{self, outside};
use crate::size_class::{SMALL_CLASSES, SMALL_MAX, bytes_of, class_of};
use crate::table;
use crate::words::{Words, words};

/// Most blocks of a magazine, and most bytes of those that are longer than a few hundred bytes.
const BLOCKS: usize = 64;
const BYTES: usize = 32 << 10;
/// Blocks of other machines that travel together.
const AWAY: usize = 64;

/// Free blocks of one class.
struct Magazine {
    count: u32,
    capacity: u32,
    /// Beginning of the head of each block.
    head: u32,
    blocks: [usize; BLOCKS],
}

/// Magazines of one thread.
pub(crate) struct Magazines {
    of: [Magazine; SMALL_CLASSES],
    /// Freed blocks of other machines.
    away: Vec<Block>,
}

/// Magazines that the calling thread uses until it drops them.
struct Claim {
    words: &'static Words,
    magazines: *mut Magazines,
}

impl Claim {
    /// Claims the magazines of the calling thread. `None`: it is not in the program's code, has none, or uses them.
    #[inline(always)]
    fn new() -> Option<Claim> {
        let words = words();
        if !words.is_in_program.get() {
            return None;
        }
        let magazines = words.magazines.load(Ordering::Relaxed).cast::<Magazines>();
        if magazines.is_null() {
            return None;
        }
        words.magazines.store(std::ptr::null_mut(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst); // a signal handler of this thread sees the null
        Some(Claim { words, magazines })
    }

    #[inline(always)]
    fn of(&mut self, class: usize) -> &mut Magazine {
        // SAFETY: the thread's own, which nothing else uses while they are claimed; they stay until it ends.
        unsafe { &mut (*self.magazines).of[class] }
    }
}

impl Drop for Claim {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.words.magazines.store(self.magazines.cast(), Ordering::Relaxed);
    }
}

/// Takes a block for this many bytes from the calling thread's magazine, if that has one.
#[inline(always)]
pub(crate) fn take(bytes: usize) -> Option<usize> {
    if bytes > SMALL_MAX - size_of::<Head>() {
        return None;
    }
    let mut claim = Claim::new()?;
    let magazine = claim.of(class_of(bytes + size_of::<Head>()));
    let last = magazine.count.checked_sub(1)?;
    magazine.count = last;
    let start = magazine.blocks[last as usize & (BLOCKS - 1)];
    let head = Head::small(magazine.head);
    // SAFETY: the beginning of a block that no other code has.
    unsafe { std::ptr::with_exposed_provenance_mut::<Head>(start).write(head) };
    Some(start + size_of::<Head>())
}

/// Puts a block into the calling thread's magazine, if that has room for it and the block is one of its machine's. The
/// address behind the head of a block, in the heap.
#[inline(always)]
pub(crate) fn give(block: usize) -> bool {
    let Some(mut claim) = Claim::new() else { return false };
    let at = std::ptr::with_exposed_provenance_mut::<Head>(block - size_of::<Head>());
    // SAFETY: in the heap, where everything may be read.
    let head = unsafe { &mut *at };
    let class = head.class();
    if head.magic != USED || class >= SMALL_CLASSES {
        return false;
    }
    let magazine = claim.of(class);
    let count = magazine.count;
    if magazine.head != head.kind || count >= magazine.capacity {
        return false;
    }
    magazine.blocks[count as usize & (BLOCKS - 1)] = block - head.offset as usize;
    magazine.count = count + 1;
    head.magic = FREED;
    true
}

impl Magazine {
    /// Moves some blocks to the machine's heap, the oldest.
    fn empty_to(&mut self, class: usize, keeps: usize) {
        let count = self.count as usize;
        if let Some(gone) = count.checked_sub(keeps) {
            own_heap::put_blocks(self.blocks[..gone].iter().map(|start| Block::new(class, *start)));
            self.blocks.copy_within(gone..count, 0);
            self.count = keeps as u32;
        }
    }
}

impl Magazines {
    fn new() -> Box<Magazines> {
        let machine = side::own_machine();
        let of = std::array::from_fn(|class| Magazine {
            count: 0,
            capacity: (BYTES / bytes_of(class)).clamp(2, BLOCKS) as u32,
            head: Head::kind_of_small(class, machine),
            blocks: [0; BLOCKS],
        });
        Box::new(Magazines { of, away: Vec::with_capacity(AWAY) })
    }
}

/// Uses the calling thread's magazines on our side; makes them if it has none. `None`: it uses them already, or it is
/// not in the program's code.
fn with<R>(f: impl FnOnce(&mut Magazines) -> R) -> Option<R> {
    if !side::is_in_program() {
        return None;
    }
    let words = words();
    if !words.has_magazines.replace(true) {
        let made = outside(|| Box::into_raw(Magazines::new()));
        words.magazines.store(made.cast(), Ordering::Relaxed);
    }
    let claim = Claim::new()?;
    let magazines = claim.magazines;
    // SAFETY: as in `of`.
    let result = outside(move || f(unsafe { &mut *magazines }));
    drop(claim);
    Some(result)
}

/// Takes a block of a class; fills the magazine if it is empty. `None`: there is no room.
pub(crate) fn refill(class: usize) -> Option<usize> {
    let refilled = with(move |magazines| {
        let magazine = &mut magazines.of[class];
        if magazine.count == 0 {
            let wanted = magazine.capacity as usize / 2;
            magazine.count = own_heap::take_blocks(class, &mut magazine.blocks[..wanted]) as u32;
        }
        magazine.count = magazine.count.checked_sub(1)?;
        Some(magazine.blocks[magazine.count as usize])
    });
    refilled.unwrap_or_else(|| {
        outside(move || {
            let mut block = [0];
            (own_heap::take_blocks(class, &mut block) > 0).then_some(block[0])
        })
    })
}

/// Frees a block of a machine's span, where the magazine had no room for it.
pub(crate) fn free(class: usize, start: usize, machine: u16) {
    let is_own = machine == own_heap::machine();
    if !is_own && table::is_explicit() {
        return; // a copy of a block of another machine, which may reuse its address
    }
    let block = Block::new(class, start);
    let is_freed = with(move |magazines| match is_own {
        true => {
            let magazine = &mut magazines.of[class];
            if magazine.count == magazine.capacity {
                magazine.empty_to(class, magazine.capacity as usize / 2);
            }
            magazine.blocks[magazine.count as usize] = start;
            magazine.count += 1;
        }
        false => {
            magazines.away.push(block.of(machine));
            if magazines.away.len() == AWAY {
                own_heap::send_home(magazines.away.drain(..));
            }
        }
    });
    if is_freed.is_none() {
        outside(move || match is_own {
            true => own_heap::put_blocks([block].into_iter()),
            false => own_heap::send_home([block.of(machine)].into_iter()),
        });
    }
}

/// At the end of a thread, on either side: gives its magazines to the machine's heap.
pub(crate) fn end() {
    let magazines = words().magazines.swap(std::ptr::null_mut(), Ordering::Relaxed).cast::<Magazines>();
    if !magazines.is_null() {
        outside(move || give_back(magazines));
    }
}

/// On our side.
fn give_back(magazines: *mut Magazines) {
    // SAFETY: `with` has made it, and nothing uses it any more.
    let mut magazines = unsafe { Box::from_raw(magazines) };
    magazines.of.iter_mut().enumerate().for_each(|(class, magazine)| magazine.empty_to(class, 0));
    own_heap::send_home(magazines.away.drain(..));
}
