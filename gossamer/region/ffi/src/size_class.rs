//! Sizes of small blocks: all multiples of 16 bytes up to 128, then four for each power of two.

/// Alignment of every block.
pub(crate) const ALIGN: usize = 16;
/// Bytes of the longest small block.
pub(crate) const SMALL_MAX: usize = 32 << 10;
/// Sizes in steps of [`ALIGN`], and the power of two up to which they go.
const STEPS: usize = 8;
const STEPS_POWER: usize = 7;
/// Number of sizes.
pub(crate) const SMALL_CLASSES: usize = STEPS + 4 * (SMALL_MAX.ilog2() as usize - STEPS_POWER);

/// Returns the class of blocks of at least this many bytes, from 1 to [`SMALL_MAX`].
#[inline]
pub(crate) fn class_of(bytes: usize) -> usize {
    if bytes <= STEPS * ALIGN {
        return (bytes - 1) / ALIGN;
    }
    let power = (bytes - 1).ilog2() as usize;
    STEPS + (power - STEPS_POWER) * 4 + ((bytes - 1) >> (power - 2) & 3)
}

/// Returns the bytes of blocks of a class.
#[inline]
pub(crate) fn bytes_of(class: usize) -> usize {
    match class.checked_sub(STEPS) {
        None => (class + 1) * ALIGN,
        Some(more) => {
            let power = STEPS_POWER + more / 4;
            (1 << power) + ((more % 4 + 1) << (power - 2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_has_room() {
        for bytes in 1..=SMALL_MAX {
            let class = class_of(bytes);
            assert!(class < SMALL_CLASSES && bytes_of(class) >= bytes && bytes_of(class).is_multiple_of(ALIGN));
            assert!(class == 0 || bytes_of(class - 1) < bytes, "{bytes} bytes are of class {class}");
        }
        assert_eq!(bytes_of(SMALL_CLASSES - 1), SMALL_MAX);
    }
}
