//! Blocks of a part: runs of its chunks, of about a mebibyte, each with a checksum behind it. A place holds one at a
//! time.

use std::ops::Range;

use super::manifest::Attempt;
use crate::shape::Shape;

/// Approximate bytes of a block.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of the checksum behind a block.
pub(super) const CHECKSUM_BYTES: usize = 8;

/// A block of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// Its number, from 0.
    pub(super) number: u64,
    /// Its chunks, counted from the first of the part.
    pub(super) chunks: Range<usize>,
    /// Its first byte in the file.
    pub(super) offset: u64,
}

/// Returns the blocks of a part, in order.
pub(super) fn blocks(shape: &Shape, part: usize) -> impl Iterator<Item = Block> + use<> {
    let (count, chunk_bytes) = (shape.owned_chunks(part).count, shape.chunk_bytes());
    let each = (BLOCK_BYTES / chunk_bytes).max(1);
    let block_bytes = (each * chunk_bytes + CHECKSUM_BYTES) as u64;
    (0..count).step_by(each).zip(0..).map(move |(first, number)| {
        // Only the last block has fewer chunks, and elements.
        Block { number, chunks: first..(first + each).min(count), offset: number * block_bytes }
    })
}

/// Returns the elements of a block.
pub(super) fn elements(shape: &Shape, part: usize, block: &Block) -> usize {
    shape.ranges(part, block.chunks.clone()).map(|range| range.len()).sum()
}

/// Returns the bytes of the file with a part.
pub(super) fn part_bytes(shape: &Shape, part: usize) -> u64 {
    blocks(shape, part).last().map_or(0, |last| {
        let elements = elements(shape, part, &last) as u64;
        last.offset + elements * shape.element_bytes as u64 + CHECKSUM_BYTES as u64
    })
}

/// Returns the checksum of a block's bytes, which is that of no other block, part or attempt.
pub(super) fn checksum(attempt: Attempt, part: usize, block: &Block, bytes: &[u8]) -> u64 {
    let mut digest = crc64fast::Digest::new();
    for number in [attempt.sequence, attempt.id, part as u64, block.number] {
        digest.write(&number.to_le_bytes());
    }
    digest.write(bytes);
    digest.sum64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Split;

    #[test]
    fn blocks_have_all_elements_of_a_part_once() {
        for (elements, element_bytes) in [(0, 8), (1, 1), (5000, 8), (1 << 20, 3), (300, 64 << 10), (700_001, 16)] {
            for split in [Split::Even, Split::Cyclic] {
                let shape = Shape::new(elements, element_bytes, &split, &[2, 1]).unwrap();
                for part in 0..3 {
                    let (mut all, mut bytes) = (Vec::new(), 0);
                    for (number, block) in blocks(&shape, part).enumerate() {
                        assert_eq!((block.number, block.offset), (number as u64, bytes));
                        all.extend(shape.ranges(part, block.chunks.clone()).flatten());
                        let block_bytes = self::elements(&shape, part, &block) * element_bytes + CHECKSUM_BYTES;
                        assert!(block_bytes <= BLOCK_BYTES + CHECKSUM_BYTES, "{block_bytes}");
                        bytes += block_bytes as u64;
                    }
                    assert_eq!(all, shape.owned(part).flatten().collect::<Vec<_>>());
                    assert_eq!(bytes, part_bytes(&shape, part), "{elements} of {element_bytes}, {split:?}");
                }
            }
        }
    }

    #[test]
    fn a_checksum_is_that_of_its_block() {
        let block = |number| Block { number, chunks: 0..1, offset: 0 };
        let attempt = Attempt { sequence: 1, id: 2 };
        let own = checksum(attempt, 3, &block(4), b"bytes");
        assert_eq!(own, checksum(attempt, 3, &block(4), b"bytes"));
        for other in [
            checksum(Attempt { sequence: 2, ..attempt }, 3, &block(4), b"bytes"),
            checksum(Attempt { id: 1, ..attempt }, 3, &block(4), b"bytes"),
            checksum(attempt, 4, &block(4), b"bytes"),
            checksum(attempt, 3, &block(5), b"bytes"),
            checksum(attempt, 3, &block(4), b"bytfs"),
        ] {
            assert_ne!(own, other);
        }
    }
}
