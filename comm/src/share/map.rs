//! Commit map of a share: one bit for each unit that may be touched, in words that the owner of the share
//! writes and others read, some of them in other processes.
//!
//! Here: setting, clearing, testing. Not here: the place of the words (`share/mod.rs`), and commits (`fabric.rs`).
//!
//! Pair [bit-after-pages]: a bit is set with `Release` after everything is there that a use of the unit needs (its
//! pages, the device's key), and loaded with `Acquire`. A reader that finds it set may use the unit. A bit is cleared
//! before the unit's pages go; a reader that found it set a moment earlier gets old bytes or zeros, for
//! nothing is unmapped (`share/mod.rs`). `model.rs` of this folder checks it in every interleaving.

#[cfg(loom)]
mod model;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Units per word of the map.
pub(crate) const UNITS_PER_WORD: usize = u64::BITS as usize;

/// Returns the words that have the bits of these units.
pub(crate) fn words_of(units: &Range<usize>) -> Range<usize> {
    units.start / UNITS_PER_WORD..units.end.div_ceil(UNITS_PER_WORD)
}

/// Returns the bits of these units in word `word`, which has some of them.
fn mask(word: usize, units: &Range<usize>) -> u64 {
    let first = units.start.saturating_sub(word * UNITS_PER_WORD);
    let end = (units.end - word * UNITS_PER_WORD).min(UNITS_PER_WORD);
    u64::MAX << first & u64::MAX >> (UNITS_PER_WORD - end)
}

/// Sets the bits of `units`: they may be used from now on.
pub(crate) fn set(words: &[AtomicU64], units: &Range<usize>) {
    for word in words_of(units) {
        // Release of [bit-after-pages], with the Acquire in `covers`.
        words[word].fetch_or(mask(word, units), Ordering::Release);
    }
}

/// Clears the bits of `units`: they may no longer be used.
pub(crate) fn clear(words: &[AtomicU64], units: &Range<usize>) {
    for word in words_of(units) {
        // Relaxed: a reader that still finds a bit set does no harm.
        words[word].fetch_and(!mask(word, units), Ordering::Relaxed);
    }
}

/// Returns whether all of `units` may be used.
#[inline]
pub(crate) fn covers(words: &[AtomicU64], units: &Range<usize>) -> bool {
    // Acquire of [bit-after-pages], with the Release in `set`.
    covered(units, |word| words[word].load(Ordering::Acquire))
}

/// Returns whether the bits of all of `units` are set in a map; `load` returns its words.
#[inline]
pub(crate) fn covered(units: &Range<usize>, load: impl Fn(usize) -> u64) -> bool {
    words_of(units).all(|word| {
        let mask = mask(word, units);
        load(word) & mask == mask
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Compares the map with a plain `Vec<bool>`.
    #[test]
    fn ranges_are_as_in_a_vec() {
        const UNITS: usize = 300;
        let words: Vec<AtomicU64> = (0..UNITS.div_ceil(UNITS_PER_WORD)).map(|_| AtomicU64::new(0)).collect();
        let mut expected = [false; UNITS];
        let mut random = SmallRng::seed_from_u64(19);
        let (mut covered, mut bare) = (0, 0);
        for _ in 0..3_000 {
            let start = random.random_range(0..UNITS);
            let units = start..random.random_range(start + 1..=UNITS.min(start + 100));
            match random.random_range(0..3) {
                0 => {
                    set(&words, &units);
                    expected[units].fill(true);
                }
                1 => {
                    clear(&words, &units);
                    expected[units].fill(false);
                }
                _ => {
                    let is_covered = covers(&words, &units);
                    assert_eq!(is_covered, expected[units.clone()].iter().all(|unit| *unit), "{units:?}");
                    if is_covered { covered += 1 } else { bare += 1 }
                }
            }
        }
        assert!(covered > 100 && bare > 100, "{covered} covered, {bare} not: one of the two was hardly tested");
    }
}
