//! The block of a bunch, a slotted page: root and elements from its begin up, from its end down a word for each
//! element, which says where that lies and of which type it is.
//!
//! ```text
//! [head][root][kind of A][A][A][kind of B][B][A] ..... free ..... [word 3][word 2][word 1][word 0]
//! ```
//!
//! Invariants
//! - [word-in-block] A word that was written, of a number below `elements`, names a kind and an element of that kind,
//!   both inside of the block and aligned.
//! - [kind-numbers] Kinds are distinguished by the compiler's number of the type, which is the same on all machines:
//!   they run the very same file.

#![allow(unsafe_code)]

use std::any::TypeId;
use std::mem::{MaybeUninit, needs_drop};

use super::element_id::ElementId;

/// Unit of the blocks' memory.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Grain([MaybeUninit<u8>; GRAIN]);

const GRAIN: usize = 16;
/// Bytes of a word, and the unit in which it says where something lies.
const WORD: usize = 8;
/// Blocks are no longer, for words to reach all of them.
const BYTES_MAX: usize = (u32::MAX as usize) * WORD;

#[repr(C)]
struct Head {
    /// Bytes from the begin on that are in use.
    used: u64,
    elements: u32,
    /// The last kind that was put there, in words from the begin; 0: none.
    kinds: u32,
}

/// A type of elements.
#[repr(C)]
struct Kind {
    id: [u64; 2],
    /// The kind before it, in words from the begin; 0: none.
    next: u64,
}

const _: () = assert!(size_of::<Head>() == GRAIN && size_of::<Kind>() == 24 && align_of::<Kind>() == WORD);

/// [kind-numbers].
fn id_of<E: 'static>() -> [u64; 2] {
    // SAFETY: a number of as many bytes.
    unsafe { std::mem::transmute::<TypeId, [u64; 2]>(TypeId::of::<E>()) }
}

/// Types that a bunch can hold.
pub(super) const fn check<E>() {
    assert!(!needs_drop::<E>(), "what is in a `Bunch` may have no destructor: owners stand beside it");
    assert!(align_of::<E>() <= GRAIN, "what is in a `Bunch` may be aligned to 16 bytes at most");
}

/// Grains of a block with a root and so many bytes more.
pub(super) fn grains_for<R>(bytes: usize) -> usize {
    (size_of::<Head>() + size_of::<R>()).saturating_add(bytes).div_ceil(GRAIN)
}

/// A block, by address. Not its owner.
pub(super) struct Page {
    base: *mut u8,
    bytes: usize,
}

/// Room for an element.
pub(super) struct Free {
    /// Offset of its kind from the start, and whether the kind is new.
    kind: (usize, bool),
    at: usize,
    used: usize,
}

pub(super) enum Room {
    Here(Free),
    /// Room only in a block of this many grains.
    Needs(usize),
}

impl Page {
    pub(super) fn at(base: *mut u8, grains: usize) -> Page {
        Page { base, bytes: grains * GRAIN }
    }

    pub(super) fn of(grains: &mut [Grain]) -> Page {
        Page::at(grains.as_mut_ptr().cast(), grains.len())
    }

    /// Makes a page for reading only.
    pub(super) fn of_ref(grains: &[Grain]) -> Page {
        Page::at(grains.as_ptr().cast_mut().cast(), grains.len())
    }

    fn head(&self) -> *mut Head {
        self.base.cast()
    }

    /// # Safety
    /// The block has been begun.
    pub(super) unsafe fn elements(&self) -> usize {
        // SAFETY: it begins with a head.
        unsafe { (*self.head()).elements as usize }
    }

    pub(super) fn root<R>(&self) -> *mut R {
        self.base.wrapping_add(size_of::<Head>()).cast()
    }

    /// # Safety
    /// The block has room for head and root, and is this caller's alone.
    pub(super) unsafe fn begin<R>(&mut self, root: R) {
        let used = size_of::<Head>() + size_of::<R>();
        debug_assert!(used <= self.bytes);
        // SAFETY: the caller's promise; a root is aligned to a grain at most (`check`).
        unsafe {
            self.head().write(Head { used: used as u64, elements: 0, kinds: 0 });
            self.root::<R>().write(root);
        }
    }

    fn word(&self, index: usize) -> *mut u64 {
        self.base.wrapping_add(self.bytes).cast::<u64>().wrapping_sub(index + 1)
    }

    /// # Safety
    /// The block has been begun.
    pub(super) unsafe fn element<E: 'static>(&self, id: ElementId<E>) -> *mut E {
        // SAFETY: the caller's promise.
        let elements = unsafe { self.elements() };
        let index = id.index();
        if index >= elements as u64 {
            panic!("an element id of another bunch: this one has {elements} elements, and none of number {index}");
        }
        // SAFETY: [word-in-block].
        let word = unsafe { self.word(index as usize).read() };
        let (at, kind) = ((word as u32) as usize * WORD, (word >> 32) as usize * WORD);
        // SAFETY: [word-in-block].
        let kind_id = unsafe { (*self.base.wrapping_add(kind).cast::<Kind>()).id };
        if kind_id != id_of::<E>() {
            let name = std::any::type_name::<E>();
            panic!("an element id of another bunch: element {index} of this one is no `{name}`");
        }
        self.base.wrapping_add(at).cast()
    }

    /// Is there room for one more?
    ///
    /// # Safety
    /// The block has been begun.
    pub(super) unsafe fn room_for<E: 'static>(&self) -> Room {
        // SAFETY: the caller's promise.
        let (head, known) = unsafe { (&*self.head(), self.find_kind(id_of::<E>())) };
        let mut used = head.used as usize;
        let kind = match known {
            Some(kind) => (kind, false),
            None => {
                let kind = used.next_multiple_of(WORD);
                used = kind + size_of::<Kind>();
                (kind, true)
            }
        };
        let at = used.next_multiple_of(align_of::<E>().max(WORD));
        let used = at + size_of::<E>();
        let needed = used.next_multiple_of(WORD) + (head.elements as usize + 1) * WORD;
        assert!(
            needed <= BYTES_MAX && head.elements < u32::MAX,
            "a bunch has {BYTES_MAX} bytes at most: begin another one"
        );
        if needed <= self.bytes {
            Room::Here(Free { kind, at, used })
        } else {
            Room::Needs(needed.max(self.bytes.saturating_mul(2)).min(BYTES_MAX).div_ceil(GRAIN))
        }
    }

    /// # Safety
    /// The block has been begun.
    unsafe fn find_kind(&self, id: [u64; 2]) -> Option<usize> {
        // SAFETY: the caller's promise.
        let mut next = unsafe { (*self.head()).kinds as usize };
        while next != 0 {
            // SAFETY: kinds name kinds.
            let kind = unsafe { &*self.base.wrapping_add(next * WORD).cast::<Kind>() };
            if kind.id == id {
                return Some(next * WORD);
            }
            next = kind.next as usize;
        }
        None
    }

    /// Puts an element there.
    ///
    /// # Safety
    /// `room_for` has just said so, and the block is this caller's alone.
    pub(super) unsafe fn put<E: 'static>(&mut self, room: Free, element: E) -> ElementId<E> {
        let (kind, is_new) = room.kind;
        // SAFETY: the caller's promise: all these lie inside of the block, aligned, where nothing is yet. The word is
        // written before it counts [word-in-block].
        unsafe {
            let head = &mut *self.head();
            if is_new {
                let new = Kind { id: id_of::<E>(), next: u64::from(head.kinds) };
                self.base.wrapping_add(kind).cast::<Kind>().write(new);
                head.kinds = (kind / WORD) as u32;
            }
            self.base.wrapping_add(room.at).cast::<E>().write(element);
            let index = head.elements;
            self.word(index as usize).write((room.at / WORD) as u64 | ((kind / WORD) as u64) << 32);
            head.used = room.used as u64;
            head.elements = index + 1;
            ElementId::of(index)
        }
    }

    /// Takes over the contents of a shorter block.
    ///
    /// # Safety
    /// That has been begun; this one is longer, and the caller's alone.
    pub(super) unsafe fn take_from(&mut self, other: &Page) {
        debug_assert!(self.bytes >= other.bytes);
        // SAFETY: the caller's promise; two blocks do not overlap.
        unsafe {
            let (used, elements) = ((*other.head()).used as usize, other.elements());
            self.base.copy_from_nonoverlapping(other.base, used);
            if elements > 0 {
                let last = elements - 1;
                self.word(last).copy_from_nonoverlapping(other.word(last), elements);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of its own, which grows as a bunch does.
    struct Block {
        grains: Vec<Grain>,
    }

    impl Block {
        fn new<R>(root: R, bytes: usize) -> Block {
            let mut block = Block { grains: vec![Grain([MaybeUninit::uninit(); GRAIN]); grains_for::<R>(bytes)] };
            // SAFETY: it is new, and so long.
            unsafe { block.page().begin(root) };
            block
        }

        fn page(&mut self) -> Page {
            Page::of(&mut self.grains)
        }

        fn add<E: 'static>(&mut self, element: E) -> ElementId<E> {
            loop {
                // SAFETY: begun, and this test's alone.
                match unsafe { self.page().room_for::<E>() } {
                    // SAFETY: as above.
                    Room::Here(room) => return unsafe { self.page().put(room, element) },
                    Room::Needs(grains) => {
                        let mut new = Block { grains: vec![Grain([MaybeUninit::uninit(); GRAIN]); grains] };
                        // SAFETY: as above; it is longer.
                        unsafe { new.page().take_from(&self.page()) };
                        *self = new;
                    }
                }
            }
        }

        fn get<E: Copy + 'static>(&mut self, id: ElementId<E>) -> E {
            // SAFETY: begun.
            unsafe { *self.page().element(id) }
        }
    }

    /// For Miri, too: elements of several types and alignments, the block growing under them.
    #[test]
    fn elements_are_found_however_often_the_block_grows() {
        let mut block = Block::new(7u16, 0);
        let (mut bytes, mut words, mut wide, mut none) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for i in 0..60u32 {
            bytes.push(block.add(i as u8));
            words.push(block.add([i; 3]));
            wide.push(block.add(u128::from(i) << 64));
            none.push(block.add(()));
        }
        // SAFETY: begun with this root.
        assert_eq!(unsafe { (*block.page().root::<u16>(), block.page().elements()) }, (7, 240));
        for (i, id) in bytes.into_iter().enumerate() {
            assert_eq!(block.get(id), i as u8);
            assert_eq!((block.get(words[i]), block.get(wide[i])), ([i as u32; 3], (i as u128) << 64));
            block.get(none[i]);
        }
    }

    /// Trap 8.
    #[test]
    fn ties_of_other_bunches_find_nothing_of_another_type() {
        let (mut one, mut other) = (Block::new((), 100), Block::new((), 100));
        let (_, long) = (one.add(1u64), one.add(2u64));
        let id = one.add([1u8; 100]);
        other.add(5u64);
        other.add(6u32);
        let refused = |f: &mut dyn FnMut()| {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
            panic.downcast_ref::<String>().cloned().unwrap()
        };
        assert!(refused(&mut || _ = other.get(long)).contains("element 1 of this one is no `u64`"));
        assert!(refused(&mut || _ = other.get(id)).contains("has 2 elements, and none of number 2"));
    }
}
