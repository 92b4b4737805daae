//! `PVec` as the slice of its elements: indices, ranges, iteration.

use std::ops::{Bound, Deref, Index, IndexMut, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo};

use super::PVec;
use crate::persist::Persist;

impl<T: Persist> Deref for PVec<'_, T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Persist> Index<usize> for PVec<'_, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: usize) -> &T {
        &self.as_slice()[index]
    }
}

impl<T: Persist> IndexMut<usize> for PVec<'_, T> {
    #[inline(always)]
    fn index_mut(&mut self, index: usize) -> &mut T {
        let len = self.len();
        self.get_mut(index).unwrap_or_else(|| panic!("index out of bounds: the len is {len} but the index is {index}"))
    }
}

macro_rules! ranges {
    ($($range:ty)*) => { $(
        impl<T: Persist> Index<$range> for PVec<'_, T> {
            type Output = [T];

            fn index(&self, range: $range) -> &[T] {
                &self.as_slice()[range]
            }
        }

        impl<T: Persist> IndexMut<$range> for PVec<'_, T> {
            fn index_mut(&mut self, range: $range) -> &mut [T] {
                // Panics with the message of a slice.
                let len = self.as_slice()[range.clone()].len();
                let start = match range.start_bound() {
                    Bound::Included(&start) => start,
                    _ => 0,
                };
                self.touched(start..start + len)
            }
        }
    )* };
}

ranges!(Range<usize> RangeFrom<usize> RangeTo<usize> RangeInclusive<usize> RangeFull);

impl<'a, T: Persist> IntoIterator for &'a PVec<'_, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.as_slice().iter()
    }
}
