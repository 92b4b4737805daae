//! A batch of requests as bytes, and back (thesis 3.2.7).
//!
//! A request is
//!
//! ```text
//! [index into the cache u8, or 255 and position u64] [property u64] [length u32, unless always the same] [bytes]
//! ```
//!
//! A *position* names what to do, relative to the program's image (`image`). The first few different positions of a batch
//! stand once in the cache of the slot's trailer. A frame fits one slot, or it is one request that does not, which
//! travels in pieces (`pair`). Here are pure functions on bytes; slots and closures are not known here.
//!
//! Invariant: [`decode`] returns requests that lie inside the data, in order, and together are the data.

use super::slot::{CACHE, Direction, Head, Kind, Violation};

/// Stands for an index: the position follows.
const NOT_CACHED: u8 = u8::MAX;
const ROOM: usize = Direction::Request.room();

const _: () = assert!(CACHE < NOT_CACHED as usize);
// As many of the shortest requests as fit a slot can be counted.
const _: () = assert!(ROOM / 9 <= u16::MAX as usize);

/// What a request does, as far as its bytes depend on it.
pub(super) trait Operation: Copy {
    /// The number of bytes of each such request, or `None` if they differ.
    fn packed_bytes(self) -> Option<usize>;
}

impl Operation for &'static trust::link::Operation {
    fn packed_bytes(self) -> Option<usize> {
        trust::link::Operation::packed_bytes(self)
    }
}

/// One request, to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) position: u64,
    /// Is the number of bytes known from the operation?
    pub(super) is_fixed: bool,
    pub(super) property: u64,
    pub(super) bytes: &'a [u8],
}

/// One request, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item<K> {
    pub(super) operation: K,
    pub(super) property: u64,
    /// Where its bytes are in the data.
    pub(super) start: usize,
    pub(super) len: usize,
}

/// A frame in the making.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) data: Vec<u8>,
    pub(super) count: u16,
    cached: usize,
    cache: [u64; CACHE],
}

impl Frame {
    /// Starts anew, keeping the memory.
    pub(super) fn clear(&mut self) {
        self.data.clear();
        self.count = 0;
        self.cached = 0;
        self.cache = [0; CACHE];
    }

    /// Adds a request if the frame then still fits a slot, or if it is the first. False if not, and nothing is added.
    pub(super) fn push(&mut self, entry: &Entry<'_>) -> bool {
        let known = self.cache[..self.cached].iter().position(|&position| position == entry.position);
        let index = known.or((self.cached < CACHE).then_some(self.cached));
        let named = if index.is_some() { 1 } else { 9 };
        let length = if entry.is_fixed { 0 } else { 4 };
        let bytes = named + 8 + length + entry.bytes.len();
        if self.count > 0 && self.data.len() + bytes > ROOM {
            return false;
        }
        match index {
            Some(index) => {
                self.cache[index] = entry.position;
                self.cached = self.cached.max(index + 1);
                self.data.push(index as u8);
            }
            None => {
                self.data.push(NOT_CACHED);
                self.data.extend_from_slice(&entry.position.to_ne_bytes());
            }
        }
        self.data.extend_from_slice(&entry.property.to_ne_bytes());
        if !entry.is_fixed {
            // `pair` refuses frames of this size; a cut length would be noticed at the other side.
            self.data.extend_from_slice(&(entry.bytes.len() as u32).to_ne_bytes());
        }
        self.data.extend_from_slice(entry.bytes);
        self.count += 1;
        true
    }

    /// What goes into the trailer.
    pub(super) fn head(&self, kind: Kind) -> Head {
        Head { kind, count: self.count, cached: self.cached as u8, cache: self.cache }
    }
}

/// The requests of a frame; `resolve` finds the operation at a position.
pub(super) fn decode<K: Operation>(
    data: &[u8],
    head: &Head,
    resolve: impl Fn(u64) -> Result<K, Violation>,
) -> Result<Vec<Item<K>>, Violation> {
    let mut cache = [None; CACHE];
    let used = head.cache.get(..usize::from(head.cached)).ok_or_else(|| Violation::new("a cache beyond its size"))?;
    for (operation, &position) in cache.iter_mut().zip(used) {
        *operation = Some(resolve(position)?);
    }
    if head.count == 0 {
        return Err(Violation::new("a batch of no requests"));
    }
    let mut cursor = Cursor { data, at: 0 };
    // Nine bytes is the least a request takes: the data bound the count.
    let mut items = Vec::with_capacity(usize::from(head.count).min(data.len() / 9));
    for _ in 0..head.count {
        let operation = match cursor.array::<1>()? {
            [NOT_CACHED] => resolve(u64::from_ne_bytes(cursor.array()?))?,
            [index] => {
                let cached = cache.get(usize::from(index)).copied().flatten();
                cached.ok_or_else(|| Violation::new(format!("closure {index} of {} in the cache", head.cached)))?
            }
        };
        let property = u64::from_ne_bytes(cursor.array()?);
        let len = match operation.packed_bytes() {
            Some(len) => len,
            None => u32::from_ne_bytes(cursor.array()?) as usize,
        };
        let start = cursor.at;
        cursor.skip(len)?;
        items.push(Item { operation, property, start, len });
    }
    if cursor.at != data.len() {
        return Err(Violation::new(format!("{} bytes behind the last request", data.len() - cursor.at)));
    }
    Ok(items)
}

/// Reads along the data.
struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        match rest.first_chunk::<N>() {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.too_short(N)),
        }
    }

    fn skip(&mut self, len: usize) -> Result<(), Violation> {
        if len > self.data.len() - self.at {
            return Err(self.too_short(len));
        }
        self.at += len;
        Ok(())
    }

    fn too_short(&self, wanted: usize) -> Violation {
        let (at, bytes) = (self.at, self.data.len());
        Violation::new(format!("a request wants {wanted} bytes at {at} of a frame of {bytes}"))
    }
}
