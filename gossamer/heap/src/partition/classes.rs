//! Sizes of small objects: 16 bytes apart up to 128, then four to each doubling, up to half of the unit that is taken
//! from the system at once.

use std::alloc::Layout;

use crate::name::GRAIN;

const FINE_MAX: usize = 128;
/// Larger objects have units of their own.
pub(crate) const SMALL_MAX: usize = 32 << 10;
pub(crate) const CLASSES: usize = FINE_MAX / GRAIN + 4 * (SMALL_MAX / FINE_MAX).ilog2() as usize;

/// The class of an object, none for large ones. No object of 0 bytes is asked for.
#[inline(always)]
pub(crate) const fn class_of(layout: Layout) -> Option<usize> {
    // Slots of a power of two are aligned to it: units are, and they begin there.
    let size = if layout.align() > GRAIN {
        let size = if layout.size() > layout.align() { layout.size() } else { layout.align() };
        size.next_power_of_two()
    } else {
        layout.size()
    };
    if size > SMALL_MAX {
        None
    } else if size <= FINE_MAX {
        Some(size.saturating_sub(1) / GRAIN)
    } else {
        // Within (2^k, 2^(k+1)], the quarter.
        let k = (size - 1).ilog2();
        let quarter = (size - 1 - (1 << k)) >> (k - 2);
        Some(FINE_MAX / GRAIN + 4 * (k - FINE_MAX.ilog2()) as usize + quarter)
    }
}

/// Bytes of its slots.
#[inline]
pub(crate) const fn bytes_of(class: usize) -> usize {
    let fine = FINE_MAX / GRAIN;
    if class < fine {
        (class + 1) * GRAIN
    } else {
        let (doubling, quarter) = ((class - fine) / 4, (class - fine) % 4);
        (FINE_MAX << doubling) / 4 * (5 + quarter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_holds_it() {
        for size in 1..=SMALL_MAX {
            let class = class_of(Layout::from_size_align(size, 8).unwrap()).unwrap();
            assert!(class < CLASSES && bytes_of(class) >= size, "{size}: {class}");
            assert!(class == 0 || bytes_of(class - 1) < size, "{size}: {class}");
        }
        assert_eq!(class_of(Layout::from_size_align(SMALL_MAX + 1, 8).unwrap()), None);
        assert_eq!(bytes_of(CLASSES - 1), SMALL_MAX);
    }

    #[test]
    fn strictly_aligned_objects_have_slots_of_a_power_of_two() {
        for align in [32, 64, 4096] {
            for size in [1, align, align + 1, 3 * align].into_iter().filter(|size| *size <= SMALL_MAX / 2) {
                let class = class_of(Layout::from_size_align(size, align).unwrap()).unwrap();
                assert!(bytes_of(class).is_power_of_two() && bytes_of(class) >= size.max(align));
            }
        }
    }
}
