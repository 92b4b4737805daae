//! [`Slabs`]: which blocks of one place's part of the array are free.
//!
//! The part is cut into slabs, as long as a chunk each. A slab has blocks of one length, that asked for in whole cache
//! lines, so no block lies in two chunks, and a freed block has the same length when it is used again.

use std::ops::Range;

/// Words of a cache line; blocks are multiples of it.
const LINE_WORDS: usize = 8;

/// See the file's documentation.
#[derive(Debug)]
pub struct Slabs {
    /// The rest that is not cut yet, in words of the array.
    rest: Range<usize>,
    slab: usize,
    /// Start of the free blocks of each length.
    free: Vec<Vec<usize>>,
}

impl Slabs {
    /// Makes slabs for a range of words that begins with a chunk of `chunk` words.
    pub fn new(words: Range<usize>, chunk: usize) -> Slabs {
        let free = vec![Vec::new(); chunk / LINE_WORDS + 1];
        Slabs { rest: words, slab: chunk, free }
    }

    /// The words of the block that so many are given.
    pub fn block_words(words: usize) -> usize {
        words.max(1).next_multiple_of(LINE_WORDS)
    }

    /// A block of so many words at least, if there is one and slabs are that long.
    pub fn take(&mut self, words: usize) -> Option<usize> {
        let words = Slabs::block_words(words);
        let free = self.free.get_mut(words / LINE_WORDS)?;
        if free.is_empty() && self.rest.len() >= self.slab {
            let start = self.rest.start;
            self.rest.start += self.slab;
            free.extend((0..self.slab / words).rev().map(|block| start + block * words));
        }
        free.pop()
    }

    /// A block of so many words that is not used any more.
    pub fn give_back(&mut self, block: usize, words: usize) {
        self.free[Slabs::block_words(words) / LINE_WORDS].push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_apart_and_in_one_slab_each() {
        let mut slabs = Slabs::new(1024..1024 + 4 * 512, 512);
        let mut taken = vec![false; 1024 + 4 * 512];
        let mut count = 0;
        while let Some((block, words)) = [100, 9, 3, 8].iter().find_map(|&words| Some((slabs.take(words)?, words))) {
            assert!(block >= 1024 && block / 512 == (block + words - 1) / 512);
            for word in &mut taken[block..block + Slabs::block_words(words)] {
                assert!(!std::mem::replace(word, true));
            }
            count += 1;
        }
        assert_eq!(count, 4 * (512 / 104));
    }

    #[test]
    fn a_block_comes_back_to_those_of_its_length() {
        let mut slabs = Slabs::new(0..512, 512);
        let blocks: Vec<usize> = std::iter::from_fn(|| slabs.take(60)).collect();
        assert_eq!((blocks.len(), slabs.take(8)), (8, None));
        slabs.give_back(blocks[3], 64);
        assert_eq!((slabs.take(8), slabs.take(57), slabs.take(57)), (None, Some(blocks[3]), None));
        assert_eq!(slabs.take(513), None, "no slab is that long");
    }
}
