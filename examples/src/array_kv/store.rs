//! [`Store`]: keys and values in two arrays.
//!
//! `entries` has buckets of 16 words: 15 entries, filled from the first one on, and the number of another bucket where
//! these were not enough. An entry is 0, or says where the block of a key is:
//!
//! ```text
//! tag 8 bits, of the key's hash | words of the block 16 | where in `blocks` 40
//! ```
//!
//! A block is sequence number, lengths of key and value, key, value, and the sequence number again. It is never changed
//! while an entry names it: a put writes a new one, then changes the entry at its home in one step, from the one that
//! it has seen, and begins again where that is not there any more. The old block may be used again at once. So a get
//! takes no lock: it reads the entry, the block, and the entry again. Is the entry still the same, the block was that
//! of the key, all of it where the sequence number is the same at both ends.
//!
//! Invariant: keys are never removed, so an entry that is not 0 is one of the same key for ever, and two puts of a new
//! key want the same entry: one of them loses, and finds the other's.

use std::ops::Range;

use gossamer::Trust;
use gossamer_array::{Array, Error, View};
use zerocopy::IntoBytes;

use super::slabs::Slabs;

/// Words of a bucket; the last one is the number of the next bucket.
const BUCKET: usize = 16;
const OVERFLOW: usize = BUCKET - 1;
/// Words of a block beside key and value.
const HEAD_WORDS: usize = 2;
const FRAME_WORDS: usize = HEAD_WORDS + 1;
const WORD: usize = size_of::<u64>();

/// The store, for closures that travel.
#[derive(Clone)]
pub struct Store {
    entries: Array<u64>,
    blocks: Array<u64>,
    /// The buckets that keys are hashed to; those behind them are for overflow.
    buckets: usize,
    /// The next bucket for overflow.
    spare: Trust<Spare>,
    /// The free blocks of each place.
    slabs: Trust<Vec<Trust<Slabs>>>,
}

struct Spare {
    buckets: Vec<usize>,
}

/// The store, for one fiber.
pub struct Client {
    store: Store,
    own: usize,
    slabs: Vec<Trust<Slabs>>,
}

/// There is no room for the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// All blocks of this length are in use, or none is so long.
    #[error("no block for {0} words is left")]
    Blocks(usize),
    /// All buckets for overflow are in use.
    #[error("no bucket is left")]
    Buckets,
}

impl Store {
    /// Makes a store for about `keys` keys, with blocks of `words` words in all.
    ///
    /// # Errors
    /// No memory for it.
    pub fn new(keys: usize, words: usize) -> Result<Store, Error> {
        let rack = gossamer::rack();
        // Two thirds full; one in eight more for overflow, and each place has a bucket.
        let buckets = keys.div_ceil(10).max(rack.workers());
        let all = buckets + buckets.div_ceil(8);
        let entries = Array::new(all * BUCKET, 0)?;
        let blocks: Array<u64> = Array::new(words.next_multiple_of(512), 0)?;
        let make = |place| {
            let array = blocks.clone();
            gossamer::entrust_with(place, move || {
                let words = array.owned(place).next().unwrap_or(0..0);
                Slabs::new(words, array.chunk())
            })
        };
        let slabs = gossamer::entrust(rack.places().map(make).collect());
        let spare = gossamer::entrust(Spare { buckets: (buckets..all).rev().collect() });
        Ok(Store { entries, blocks, buckets, spare, slabs })
    }

    /// The store for this fiber.
    pub fn client(&self) -> Client {
        let here = gossamer::here();
        let own = gossamer::rack().places().position(|place| place == here).unwrap_or_default();
        let slabs = self.slabs.apply_with(|slabs, ()| slabs.clone(), ());
        Client { store: self.clone(), own, slabs }
    }
}

/// Facts of a key before anything is read.
struct Hashed {
    bucket: usize,
    tag: u64,
}

/// An entry that was found, or the place for a new one.
enum Slot<T> {
    /// Entry found, at this index.
    Found(usize, u64, T),
    /// Entry 0.
    Empty(usize),
    /// All are in use; the next bucket is to be named here.
    Overflow(usize),
}

/// Contents of a block.
enum Content<'a> {
    Value(Value<'a>),
    OtherKey,
    /// It was written meanwhile.
    Torn,
}

/// A value, in the block that was read.
struct Value<'a> {
    block: View<'a, u64>,
    /// The words of the block in front of it.
    start: usize,
    bytes: usize,
}

impl Value<'_> {
    fn bytes(&self) -> &[u8] {
        &self.block[self.start..].as_bytes()[..self.bytes]
    }
}

impl Client {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Calls `f` with the value of a key, if it has one: where it lies, without a copy.
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self.find(key) {
            Slot::Found(.., value) => Some(f(value.bytes())),
            Slot::Empty(_) | Slot::Overflow(_) => None,
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// There is no room for it; the key has the value that it had.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        let words = FRAME_WORDS + key.len().div_ceil(WORD) + value.len().div_ceil(WORD);
        let block = self.take(words)?;
        self.write(block..block + words, key, value);
        let tag = self.hash(key).tag;
        let new = tag << 56 | (words as u64) << 40 | block as u64;
        loop {
            let (at, old) = match self.find(key) {
                Slot::Found(at, old, _) => (at, old),
                Slot::Empty(at) => (at, 0),
                Slot::Overflow(at) => {
                    self.extend(at).inspect_err(|_| self.give_back(new))?;
                    continue;
                }
            };
            if self.exchange(at, old, new) {
                if old != 0 {
                    self.give_back(old);
                }
                return Ok(());
            }
        }
    }

    /// Looks for a key until nothing changes meanwhile.
    fn find(&self, key: &[u8]) -> Slot<Value<'_>> {
        loop {
            if let Some(slot) = self.look(key) {
                return slot;
            }
        }
    }

    /// Looks for a key; `None` if an entry has changed meanwhile.
    fn look(&self, key: &[u8]) -> Option<Slot<Value<'_>>> {
        let Hashed { mut bucket, tag } = self.hash(key);
        loop {
            let start = bucket * BUCKET;
            let mut entries = [0; BUCKET];
            entries.copy_from_slice(&self.store.entries.view(start..start + BUCKET));
            for (at, entry) in (start..).zip(entries).take(OVERFLOW) {
                if entry == 0 {
                    return Some(Slot::Empty(at));
                }
                if entry >> 56 == tag {
                    let content = self.read(words_of(entry), key);
                    if self.store.entries.get(at) != entry {
                        return None;
                    }
                    match content {
                        Content::Value(value) => return Some(Slot::Found(at, entry, value)),
                        Content::OtherKey => {}
                        Content::Torn => return None,
                    }
                }
            }
            match entries[OVERFLOW] {
                0 => return Some(Slot::Overflow(start + OVERFLOW)),
                next => bucket = next as usize,
            }
        }
    }

    fn hash(&self, key: &[u8]) -> Hashed {
        let mut hash = 0;
        words(key).for_each(|word| hash = graph::random::mix(hash ^ word).wrapping_add(key.len() as u64));
        let bucket = ((u128::from(hash) * self.store.buckets as u128) >> 64) as usize;
        Hashed { bucket, tag: hash & 0xff }
    }

    fn read(&self, at: Range<usize>, key: &[u8]) -> Content<'_> {
        let block = self.store.blocks.view(at);
        let (Some(first), Some(last)) = (block.first(), block.last()) else { return Content::Torn };
        if first != last {
            return Content::Torn;
        }
        let (key_bytes, bytes) = ((block[1] >> 32) as usize, block[1] as u32 as usize);
        let start = HEAD_WORDS + key_bytes.div_ceil(WORD);
        if start + bytes.div_ceil(WORD) + 1 != block.len() {
            return Content::Torn; // it is another block's by now
        }
        let is_key = key_bytes == key.len() && words(key).eq(block[HEAD_WORDS..start].iter().copied());
        if is_key { Content::Value(Value { block, start, bytes }) } else { Content::OtherKey }
    }

    fn write(&self, at: Range<usize>, key: &[u8], value: &[u8]) {
        self.store.blocks.modify(at, |_, block| {
            let sequence = block[0].wrapping_add(1);
            let lengths = (key.len() as u64) << 32 | value.len() as u64;
            let words = [sequence, lengths].into_iter().chain(words(key)).chain(words(value)).chain([sequence]);
            block.iter_mut().zip(words).for_each(|(at, word)| *at = word);
        });
    }

    /// Changes a word from the value seen to another, at its home; false if it has changed meanwhile.
    fn exchange(&self, at: usize, seen: u64, new: u64) -> bool {
        self.store.entries.update(at, move |word| {
            let is_seen = *word == seen;
            *word = if is_seen { new } else { *word };
            is_seen
        })
    }

    /// Names another bucket where a bucket was full; the first caller does.
    fn extend(&self, at: usize) -> Result<(), Full> {
        if self.store.entries.get(at) != 0 {
            return Ok(());
        }
        let bucket = self.store.spare.apply(|spare| spare.buckets.pop()).ok_or(Full::Buckets)?;
        if !self.exchange(at, 0, bucket as u64) {
            self.store.spare.apply(move |spare| spare.buckets.push(bucket));
        }
        Ok(())
    }

    /// A block of this place, or else of another one.
    fn take(&self, words: usize) -> Result<usize, Full> {
        let places = (self.own..self.slabs.len()).chain(0..self.own);
        places
            .map(|place| &self.slabs[place])
            .find_map(|slabs| slabs.apply(move |slabs| slabs.take(words)))
            .ok_or(Full::Blocks(words))
    }

    /// The block of an entry, to the place that it is of.
    fn give_back(&self, entry: u64) {
        let words = words_of(entry);
        let owner = self.store.blocks.owner(words.start);
        let owner = gossamer::rack().places().position(|place| place == owner).unwrap_or_default();
        let (block, words) = (words.start, words.len());
        self.slabs[owner].apply_then(move |slabs| slabs.give_back(block, words), |()| ());
    }
}

/// Returns the block of an entry.
fn words_of(entry: u64) -> Range<usize> {
    let (start, words) = (entry & ((1 << 40) - 1), entry >> 40 & 0xffff);
    start as usize..(start + words) as usize
}

/// Returns these bytes as words in memory, the last one filled up with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks();
    let last = (!rest.is_empty()).then(|| {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        last
    });
    words.iter().copied().chain(last).map(u64::from_ne_bytes)
}
