//! The jobs of STRETCH's evaluation (Phoenix), over plain slices: the same code runs by threads of one process and over
//! a region. All arithmetic is on whole numbers, so every division of the work has the same answer.
//!
//! A job has items of some words, which its parts fill and then work on; each part has an output of its own. `hot` is a
//! page that all parts read and add to: the means of k-means.

use crate::prelude::*;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Words of the page that all parts share.
pub const HOT_WORDS: usize = 512;
const CLUSTERS: usize = 16;
const COORDINATES: usize = 4;
/// Points that a part sorts before it adds its own to the sums of all.
const POINTS: usize = 4096;
/// Slots of the table of words.
const SLOTS_BITS: u32 = 14;
const COLOURS: usize = 3 * 256;
const KEYS: [u64; 4] = [1, 7, 4242, 65_535];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    Matrix,
    Strings,
    Regression,
    Histogram,
    Kmeans,
    Words,
    Pca,
}

/// A number of no pattern for each `i`.
fn mixed(i: usize) -> u64 {
    let x = (i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

fn hashed(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

impl Job {
    /// How large it is measured: rows of matrices, thousands of items of all else.
    pub fn size(self, smoke: bool) -> usize {
        match (self, smoke) {
            (Job::Matrix, false) => 1024,
            (Job::Pca, false) => 512,
            (Job::Kmeans, false) => 512,
            (Job::Words, false) => 8192,
            (_, false) => 16_384,
            (Job::Matrix | Job::Pca, true) => 48,
            (_, true) => 8,
        }
    }

    pub fn items(self, size: usize) -> usize {
        match self {
            Job::Matrix | Job::Pca => size,
            _ => size << 10,
        }
    }

    /// `u32` of an item.
    pub fn item_words(self, size: usize) -> usize {
        match self {
            Job::Matrix => 2 * size, // a row of one matrix and a row of the other
            Job::Pca => 8 * size,
            Job::Strings | Job::Kmeans => 4,
            Job::Words => 2,
            Job::Regression | Job::Histogram => 1,
        }
    }

    /// `u64` of the output of a part.
    pub fn out_words(self, size: usize, items: &Range<usize>) -> usize {
        match self {
            Job::Matrix | Job::Pca => size * items.len(),
            Job::Strings => KEYS.len(),
            Job::Regression => 5,
            Job::Histogram => COLOURS,
            Job::Kmeans => 1,
            Job::Words => 1 << SLOTS_BITS,
        }
    }

    pub fn rounds(self) -> usize {
        if self == Job::Kmeans { 20 } else { 1 }
    }

    /// The rows of a part: for PCA, in which the first rows cost most, by their cost.
    pub fn part(self, size: usize, part: usize, parts: usize) -> Range<usize> {
        let items = self.items(size);
        let start = |part: usize| match self {
            Job::Pca => items - ((1.0 - part as f64 / parts as f64).sqrt() * items as f64).round() as usize,
            _ => part * items / parts,
        };
        start(part)..start(part + 1)
    }

    pub fn fill(self, size: usize, items: Range<usize>, into: &mut [u32]) {
        let first = items.start * self.item_words(size);
        match self {
            Job::Words => {
                for (word, i) in into.chunks_exact_mut(2).zip(items) {
                    let at = mixed(i) % 4096;
                    word.copy_from_slice(&text(at * at / 4096));
                }
            }
            Job::Strings => into.iter_mut().zip(first..).for_each(|(word, i)| {
                *word = u32::from_ne_bytes((mixed(i) as u32).to_ne_bytes().map(|byte| b'a' + byte % 26));
            }),
            _ => into.iter_mut().zip(first..).for_each(|(word, i)| *word = mixed(i) as u32 >> 8),
        }
    }

    /// Once, before the first round.
    pub fn begin(self, hot: &[AtomicU64]) {
        if self == Job::Kmeans {
            for (i, mean) in hot[..CLUSTERS * COORDINATES].iter().enumerate() {
                mean.store(mixed(i) >> 40, Relaxed);
            }
        }
    }

    pub fn between(self, hot: &[AtomicU64]) {
        if self != Job::Kmeans {
            return;
        }
        let (means, sums) = hot.split_at(CLUSTERS * COORDINATES);
        for cluster in 0..CLUSTERS {
            let sums = &sums[cluster * (COORDINATES + 1)..][..COORDINATES + 1];
            let count = sums[COORDINATES].swap(0, Relaxed);
            for (mean, sum) in means[cluster * COORDINATES..].iter().zip(&sums[..COORDINATES]) {
                let sum = sum.swap(0, Relaxed);
                if let Some(new) = sum.checked_div(count) {
                    mean.store(new, Relaxed);
                }
            }
        }
    }

    pub fn run(self, size: usize, input: &[u32], hot: &[AtomicU64], items: Range<usize>, out: &mut [u64]) {
        let words = self.item_words(size);
        let own = &input[items.start * words..items.end * words];
        match self {
            Job::Matrix => matrix(size, input, items, out),
            Job::Pca => covariances(size, input, items, out),
            Job::Strings => {
                let mut found = [0; KEYS.len()];
                for word in own.chunks_exact(4) {
                    let bytes = word.iter().flat_map(|word| word.to_ne_bytes());
                    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, hashed) & 0xffff;
                    found.iter_mut().zip(KEYS).for_each(|(found, key)| *found += u64::from(hash == key));
                }
                out.copy_from_slice(&found);
            }
            Job::Regression => {
                let mut sums = [0u64; 5];
                for point in own {
                    let (x, y) = (u64::from(*point & 0xff), u64::from(*point >> 8 & 0xff));
                    [x, y, x * x, y * y, x * y].iter().zip(&mut sums).for_each(|(term, sum)| *sum += term);
                }
                out.copy_from_slice(&sums);
            }
            Job::Histogram => {
                let mut counts = [0u64; COLOURS];
                for pixel in own {
                    for (colour, byte) in pixel.to_ne_bytes()[..3].iter().enumerate() {
                        counts[256 * colour + usize::from(*byte)] += 1;
                    }
                }
                out.copy_from_slice(&counts);
            }
            Job::Kmeans => means(own, hot),
            Job::Words => {
                let mut hash = 0u64;
                for byte in own.iter().flat_map(|word| word.to_ne_bytes()) {
                    match (byte, hash) {
                        (b' ', 0) => {}
                        (b' ', _) => {
                            out[(mixed(hash as usize) >> (64 - SLOTS_BITS)) as usize] += 1;
                            hash = 0;
                        }
                        (_, 0) => hash = hashed(0xcbf2_9ce4_8422_2325, byte),
                        _ => hash = hashed(hash, byte),
                    }
                }
            }
        }
    }

    /// One number for the answer, independent of the parts it was found in.
    pub fn digest(self, outs: &[&[u64]], hot: &[AtomicU64]) -> u64 {
        let fold = |digest: u64, word: u64| (digest.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self {
            Job::Matrix | Job::Pca => outs.iter().flat_map(|out| out.iter().copied()).fold(0, fold),
            Job::Kmeans => hot[..CLUSTERS * COORDINATES].iter().map(|mean| mean.load(Relaxed)).fold(0, fold),
            _ => (0..outs[0].len()).map(|i| outs.iter().map(|out| out[i]).sum()).fold(0, fold),
        }
    }
}

/// A word of a rank, and blanks behind it.
fn text(rank: u64) -> [u32; 2] {
    let (mut bytes, mut left) = ([b' '; 8], rank + 1);
    for byte in &mut bytes[..7] {
        if left > 0 {
            (*byte, left) = (b'a' + (left % 26) as u8, left / 26);
        }
    }
    let half = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [half(0), half(4)]
}

fn matrix(size: usize, input: &[u32], rows: Range<usize>, out: &mut [u64]) {
    for (row, out) in rows.zip(out.chunks_exact_mut(size)) {
        out.fill(0);
        for (k, factor) in input[row * 2 * size..][..size].iter().enumerate() {
            let other = &input[k * 2 * size + size..][..size];
            for (sum, element) in out.iter_mut().zip(other) {
                *sum = sum.wrapping_add(u64::from(*factor) * u64::from(*element));
            }
        }
    }
}

/// Of each of these rows with all behind it.
fn covariances(size: usize, input: &[u32], rows: Range<usize>, out: &mut [u64]) {
    let len = 8 * size;
    let row = |i: usize| &input[i * len..][..len];
    let mean = |i: usize| row(i).iter().map(|word| i64::from(*word)).sum::<i64>() / len as i64;
    let means: Vec<i64> = (0..size).map(mean).collect();
    for (i, out) in rows.zip(out.chunks_exact_mut(size)) {
        for j in i..size {
            let product = |(a, b): (&u32, &u32)| (i64::from(*a) - means[i]) as u64 as i64 * (i64::from(*b) - means[j]);
            out[j] = row(i).iter().zip(row(j)).map(product).fold(0i64, i64::wrapping_add) as u64;
        }
    }
}

fn means(points: &[u32], hot: &[AtomicU64]) {
    let (means, sums) = hot.split_at(CLUSTERS * COORDINATES);
    let means: Vec<i64> = means.iter().map(|mean| mean.load(Relaxed) as i64).collect();
    for points in points.chunks(POINTS * COORDINATES) {
        let mut own = [0u64; CLUSTERS * (COORDINATES + 1)];
        for point in points.chunks_exact(COORDINATES) {
            let distance = |mean: &[i64]| -> i64 {
                mean.iter().zip(point).map(|(mean, at)| (mean - i64::from(*at)) * (mean - i64::from(*at))).sum()
            };
            let nearest = means.chunks_exact(COORDINATES).map(distance).enumerate().min_by_key(|(_, far)| *far);
            let own = &mut own[nearest.map_or(0, |(cluster, _)| cluster) * (COORDINATES + 1)..][..COORDINATES + 1];
            own[..COORDINATES].iter_mut().zip(point).for_each(|(sum, at)| *sum += u64::from(*at));
            own[COORDINATES] += 1;
        }
        for (sum, own) in sums.iter().zip(own) {
            sum.fetch_add(own, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_of_it() {
        for job in Job::value_variants() {
            let (size, mut next) = (job.size(true), 0);
            for part in 0..3 {
                let range = job.part(size, part, 3);
                assert!(range.start == next && !range.is_empty(), "{job:?}: {range:?}");
                next = range.end;
            }
            assert_eq!(next, job.items(size), "{job:?}");
        }
    }

    #[test]
    fn a_matrix_is_multiplied() {
        // Rows of the one, each with a row of the other behind it.
        let (input, mut out) = ([1, 2, 5, 6, 3, 4, 7, 8], [0; 4]);
        matrix(2, &input, 0..2, &mut out);
        assert_eq!(out, [19, 22, 43, 50]);
    }

    #[test]
    fn words_are_counted() {
        let (mut out, hot) = (vec![0; 1 << SLOTS_BITS], []);
        let input: Vec<u32> = [3, 9, 3, 3, 700].into_iter().flat_map(text).collect();
        Job::Words.run(1, &input, &hot, 0..5, &mut out);
        let mut counts: Vec<u64> = out.into_iter().filter(|count| *count > 0).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 3]);
    }
}
