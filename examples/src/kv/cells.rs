//! The cells in which the items of a shard lie, and the order in which they were stored. Which key is in which cell is
//! the shard's business.
//!
//! Invariants: a cell is in use, and then in the list from the newest to the oldest, or free, and then in the list of
//! free ones. Memory for cells is taken in chunks; to give the last one back, the cells in use there are moved to free
//! ones.

use std::mem;
use std::ops::{Index, IndexMut};
use std::rc::Rc;

use super::clock;
use super::item::Found;

/// No cell.
pub const NONE: u32 = u32::MAX;
/// Bytes of key and value together that a cell holds in place.
const INLINE_BYTES: usize = 25;
/// Cells in a chunk, as a power of two.
const CHUNK_BITS: u32 = 10;
const CHUNK_CELLS: usize = 1 << CHUNK_BITS;
/// Number of free cells that are kept and not counted as memory: a full shard takes and frees one again and again.
const SPARE_CELLS: usize = 2 * CHUNK_CELLS;

/// Time of an item's last use, in seconds, with marks of meta commands in the lowest bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used(u32);

const MARKS: u32 = 3;

impl Used {
    /// It was read since it was stored.
    pub const READ: u32 = 1;
    /// It was invalidated.
    pub const STALE: u32 = 2;
    /// A client was told to make it anew.
    pub const SENT: u32 = 4;

    /// Stored now, without marks.
    fn new() -> Used {
        Used(clock::now() << MARKS)
    }

    /// Read now.
    #[inline]
    pub fn again(self) -> Used {
        Used(clock::now() << MARKS | self.marks() | Used::READ)
    }

    /// Returns it with these marks added.
    pub fn with(self, marks: u32) -> Used {
        Used(self.0 | marks)
    }

    /// Returns it with these marks alone.
    pub fn only(self, marks: u32) -> Used {
        Used((self.0 - self.marks()) | marks)
    }

    fn marks(self) -> u32 {
        self.0 & ((1 << MARKS) - 1)
    }

    /// Has it this mark?
    pub fn has(self, mark: u32) -> bool {
        self.0 & mark != 0
    }

    /// Seconds since then; right for 17 years.
    pub fn age(self) -> u32 {
        (clock::now() << MARKS).wrapping_sub(self.0 - self.marks()) >> MARKS
    }
}

/// Key and value, one behind the other.
pub enum Body {
    /// Short ones, in place.
    Inline {
        /// Bytes of the key.
        key: u8,
        /// Bytes of both.
        len: u8,
        /// Time of the last use.
        used: Used,
        /// Those beyond `len` mean nothing.
        bytes: [u8; INLINE_BYTES],
    },
    /// Longer ones; shared with the readers of the value.
    Heap {
        /// Bytes of the key.
        key: u8,
        /// Time of the last use.
        used: Used,
        /// Both.
        bytes: Rc<[u8]>,
    },
}

const EMPTY: Body = Body::Inline { key: 0, len: 0, used: Used(0), bytes: [0; INLINE_BYTES] };

impl Body {
    /// Makes a cell of this key and a value in two parts. `scratch` is for its use only.
    pub fn new(key: &[u8], value: [&[u8]; 2], scratch: &mut Vec<u8>) -> Self {
        let parts = [key, value[0], value[1]];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let key = key.len() as u8; // at most 250
        if len <= INLINE_BYTES {
            let (mut bytes, mut at) = ([0; INLINE_BYTES], 0);
            for part in parts {
                bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            return Body::Inline { key, len: len as u8, used: Used::new(), bytes };
        }
        scratch.clear();
        parts.iter().for_each(|part| scratch.extend_from_slice(part));
        Body::Heap { key, used: Used::new(), bytes: Rc::from(&scratch[..]) }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self {
            Body::Inline { key, bytes, .. } => &bytes[..usize::from(*key)],
            Body::Heap { key, bytes, .. } => &bytes[..usize::from(*key)],
        }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self {
            Body::Inline { key, len, bytes, .. } => &bytes[usize::from(*key)..usize::from(*len)],
            Body::Heap { key, bytes, .. } => &bytes[usize::from(*key)..],
        }
    }

    /// Returns the time of the item's last use, and its marks.
    #[inline]
    pub fn used(&self) -> Used {
        let (Body::Inline { used, .. } | Body::Heap { used, .. }) = self;
        *used
    }

    /// Sets these. Writes nothing where they are the same.
    #[inline]
    pub fn set_used(&mut self, now: Used) {
        let (Body::Inline { used, .. } | Body::Heap { used, .. }) = self;
        if *used != now {
            *used = now;
        }
    }

    /// The value as it is, independent of the item's later fate: bytes, and the start of the value in them.
    pub fn share(&self) -> (Rc<[u8]>, usize) {
        match self {
            Body::Inline { .. } => (Rc::from(self.value()), 0),
            Body::Heap { key, bytes, .. } => (Rc::clone(bytes), usize::from(*key)),
        }
    }

    /// Memory beside the cell.
    pub fn allocated_bytes(&self) -> usize {
        match self {
            Body::Inline { .. } => 0,
            Body::Heap { bytes, .. } => allocated_bytes(bytes),
        }
    }

    /// Returns the part of this memory that stays when the item goes, because others fetch the value.
    pub fn orphaned_bytes(&self) -> usize {
        match self {
            Body::Heap { bytes, .. } if Rc::strong_count(bytes) > 1 => allocated_bytes(bytes),
            _ => 0,
        }
    }
}

/// Memory for a body: the bytes, two counts before them, and the allocator's overhead.
pub fn allocated_bytes(body: &Rc<[u8]>) -> usize {
    (body.len() + 16 + 8).next_multiple_of(16)
}

/// Room for one item.
pub struct Cell {
    /// Key and value.
    pub body: Body,
    /// Another one after each change; 0 in a free cell only.
    pub unique: u64,
    /// Hash of the key.
    pub hash: u32,
    /// The next one on the way to the newest; of a free cell, the free one before it.
    pub newer: u32,
    /// The next one on the way to the oldest; of a free cell, the next free one.
    pub older: u32,
    /// Time at which it expires; 0 for never.
    pub expires: u32,
    /// Flags, opaque to the server.
    pub flags: u32,
    /// It was used since it became the newest.
    pub is_used: bool,
}

const _: () = assert!(size_of::<Cell>() == 64);

impl Cell {
    const FREE: Cell =
        Cell { body: EMPTY, unique: 0, hash: 0, newer: NONE, older: NONE, expires: 0, flags: 0, is_used: false };

    /// The item.
    pub fn item(&self) -> Found<'_> {
        Found { flags: self.flags, expires: self.expires, unique: self.unique, value: self.body.value() }
    }
}

/// See the file's documentation.
pub struct Cells {
    chunks: Vec<Box<[Cell]>>,
    newest: u32,
    oldest: u32,
    free: u32,
    free_count: usize,
}

impl Default for Cells {
    fn default() -> Self {
        Cells { chunks: Vec::new(), newest: NONE, oldest: NONE, free: NONE, free_count: 0 }
    }
}

impl Index<u32> for Cells {
    type Output = Cell;
    #[inline]
    fn index(&self, cell: u32) -> &Cell {
        &self.chunks[(cell >> CHUNK_BITS) as usize][(cell % (1 << CHUNK_BITS)) as usize]
    }
}

impl IndexMut<u32> for Cells {
    #[inline]
    fn index_mut(&mut self, cell: u32) -> &mut Cell {
        &mut self.chunks[(cell >> CHUNK_BITS) as usize][(cell % (1 << CHUNK_BITS)) as usize]
    }
}

impl Cells {
    /// The item that became the newest longest ago; [`NONE`] if there is none.
    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Memory for free cells, but for those that are kept.
    pub fn unused_bytes(&self) -> usize {
        self.free_count.saturating_sub(SPARE_CELLS) * size_of::<Cell>()
    }

    /// Takes a free cell into use, as the newest. `unique` is not 0.
    pub fn insert(&mut self, hash: u32, unique: u64) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let cell = self.free;
        self.unlink_free(cell);
        (self[cell].hash, self[cell].unique) = (hash, unique);
        self.link(cell);
        cell
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() as u32) << CHUNK_BITS;
        self.chunks.push((0..CHUNK_CELLS).map(|_| Cell::FREE).collect());
        (first..first + CHUNK_CELLS as u32).rev().for_each(|cell| self.link_free(cell));
    }

    /// Gives the last chunk back if enough cells are free elsewhere. Calls `moved` for each item that gets another
    /// cell, with its hash, the old cell, and the new one.
    pub fn shrink(&mut self, mut moved: impl FnMut(u32, u32, u32)) -> bool {
        if self.free_count < SPARE_CELLS {
            return false;
        }
        let first = (self.chunks.len() as u32 - 1) << CHUNK_BITS;
        let last = first..first + CHUNK_CELLS as u32;
        for cell in last.clone() {
            if self[cell].unique == 0 {
                self.unlink_free(cell);
            }
        }
        for cell in last {
            if self[cell].unique == 0 {
                continue;
            }
            let to = self.free;
            self.unlink_free(to);
            let item = mem::replace(&mut self[cell], Cell::FREE);
            let (newer, older) = (item.newer, item.older);
            moved(item.hash, cell, to);
            self[to] = item;
            self.point(newer, older, [to, to]);
        }
        self.chunks.pop();
        true
    }

    /// Makes a cell the newest, and unused.
    pub fn move_to_newest(&mut self, cell: u32) {
        self.unlink(cell);
        self.link(cell);
    }

    /// Frees a cell.
    pub fn remove(&mut self, cell: u32) {
        self.unlink(cell);
        self[cell] = Cell::FREE;
        self.link_free(cell);
    }

    fn link_free(&mut self, cell: u32) {
        let second = mem::replace(&mut self.free, cell);
        self[cell].older = second;
        if second != NONE {
            self[second].newer = cell;
        }
        self.free_count += 1;
    }

    fn unlink_free(&mut self, cell: u32) {
        let (newer, older) = (self[cell].newer, self[cell].older);
        match newer {
            NONE => self.free = older,
            newer => self[newer].older = older,
        }
        if older != NONE {
            self[older].newer = newer;
        }
        self.free_count -= 1;
    }

    fn link(&mut self, cell: u32) {
        let second = mem::replace(&mut self.newest, cell);
        let linked = &mut self[cell];
        (linked.newer, linked.older, linked.is_used) = (NONE, second, false);
        match second {
            NONE => self.oldest = cell,
            second => self[second].newer = cell,
        }
    }

    fn unlink(&mut self, cell: u32) {
        let (newer, older) = (self[cell].newer, self[cell].older);
        self.point(newer, older, [older, newer]);
    }

    /// Has these two, or the ends of the list, point to these.
    fn point(&mut self, newer: u32, older: u32, to: [u32; 2]) {
        match newer {
            NONE => self.newest = to[0],
            newer => self[newer].older = to[0],
        }
        match older {
            NONE => self.oldest = to[1],
            older => self[older].newer = to[1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_oldest(cells: &Cells) -> Vec<u32> {
        let known = |cell: u32| Some(cell).filter(|cell| *cell != NONE);
        std::iter::successors(known(cells.oldest()), |cell| known(cells[*cell].newer)).collect()
    }

    #[test]
    fn cells_are_listed_by_use_and_used_again() {
        let mut cells = Cells::default();
        let made: Vec<u32> = (0..3).map(|hash| cells.insert(hash, 1)).collect();
        assert_eq!(from_oldest(&cells), made);
        cells.move_to_newest(made[0]);
        assert_eq!(from_oldest(&cells), [made[1], made[2], made[0]]);
        cells.remove(made[2]);
        assert_eq!(from_oldest(&cells), [made[1], made[0]]);
        assert_eq!(cells.insert(9, 1), made[2], "the one that was freed");
        for cell in from_oldest(&cells) {
            cells.remove(cell);
        }
        assert_eq!((cells.oldest(), cells.newest), (NONE, NONE));
        let many: Vec<u32> = (0..3000).map(|hash| cells.insert(hash, 1)).collect();
        assert_eq!(from_oldest(&cells), many);
    }

    #[test]
    fn cells_are_given_back() {
        let mut cells = Cells::default();
        let mut at: Vec<u32> = (0..10_000).map(|hash| cells.insert(hash, 1)).collect();
        assert!(!cells.shrink(|_, _, _| ()), "few are free");
        let stays = |hash: &u32| hash % 7 == 3;
        (0..10_000).filter(|hash| !stays(hash)).for_each(|hash| cells.remove(at[hash as usize]));
        let before = cells.unused_bytes();
        while cells.shrink(|hash, from, to| assert_eq!(mem::replace(&mut at[hash as usize], to), from)) {}
        let expected: Vec<u32> = (0..10_000).filter(stays).collect();
        assert_eq!(from_oldest(&cells).into_iter().map(|cell| cells[cell].hash).collect::<Vec<_>>(), expected);
        assert!(expected.iter().all(|hash| cells[at[*hash as usize]].hash == *hash));
        assert!(before > 6000 * size_of::<Cell>(), "{before}");
        assert_eq!((cells.chunks.len(), cells.unused_bytes()), (3, 0), "1,428 in use, and at least 1,024 free");
        let more: Vec<u32> = (0..5000).map(|hash| cells.insert(hash, 1)).collect();
        assert!(from_oldest(&cells).ends_with(&more));
    }

    #[test]
    fn bodies_hold_short_and_long() {
        for value in [&b""[..], b"v", &[7; 24], &[7; 25], &[7; 5000]] {
            let (front, back) = value.split_at(value.len() / 2);
            let body = Body::new(b"k", [front, back], &mut Vec::new());
            assert_eq!((body.key(), body.value()), (&b"k"[..], value));
            let (bytes, start) = body.share();
            assert_eq!(&bytes[start..], value);
            assert_eq!(body.allocated_bytes() == 0, value.len() <= 24);
        }
    }
}
