//! Spans: parts of a region, through which its bytes are reached.
//!
//! Invariant: the bytes of two spans do not overlap, and those of a shared span belong to no other. Only
//! `Region::span`, `split` and `join` make spans; they travel as they are, since their address means the same on every
//! machine.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::{ptr, slice};

use crate::plain::Plain;

/// Elements of a region for one owner, which reads and writes them as a slice on whichever machine it runs. A span
/// travels in closures and as the result of fibers; its bytes stay where they are until they are touched.
///
/// Example: at [`Region`](crate::Region).
pub struct Span<T: Plain> {
    address: usize,
    len: usize,
    elements: PhantomData<T>,
}

/// Elements of a region that all may read, and change as far as `&T` allows: atomics.
///
/// Example: at [`Plain`].
pub struct SharedSpan<T: Plain + Sync> {
    address: usize,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Plain> Span<T> {
    /// The caller guarantees the invariant above.
    pub(crate) fn new(address: usize, len: usize) -> Span<T> {
        Span { address, len, elements: PhantomData }
    }

    /// Ends writing (but for atomics), and lets all read.
    ///
    /// Example: at [`Region`](crate::Region).
    pub fn share(self) -> SharedSpan<T>
    where
        T: Sync,
    {
        SharedSpan { address: self.address, len: self.len, elements: PhantomData }
    }

    /// Divides it into this many parts, whose lengths differ by one at most. Two neighbours may share a page, which
    /// travels between their writers; where that is too slow, make parts that begin on pages: a
    /// [`span`](crate::Region::span) each.
    ///
    /// # Panics
    /// If `parts` is 0.
    ///
    /// ```
    /// gossamer_region::main(
    ///     || {
    ///         let region = gossamer_region::Region::new(1 << 16).unwrap();
    ///         let lens: Vec<usize> = region.span::<u8>(10).split(3).map(|part| part.len()).collect();
    ///         assert_eq!(lens, [4, 3, 3]);
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn split(self, parts: usize) -> impl ExactSizeIterator<Item = Span<T>> {
        assert!(parts > 0, "a span is divided into one part at least");
        let Span { address, len, .. } = self;
        (0..parts).map(move |part| {
            let start = part * (len / parts) + part.min(len % parts);
            let end = (part + 1) * (len / parts) + (part + 1).min(len % parts);
            Span::new(address + start * size_of::<T>(), end - start)
        })
    }

    /// Divides it in two: the first `mid` elements, and the rest.
    ///
    /// # Panics
    /// If it has fewer.
    ///
    /// ```
    /// gossamer_region::main(
    ///     || {
    ///         let region = gossamer_region::Region::new(1 << 16).unwrap();
    ///         let (head, tail) = region.span::<u32>(100).split_at(1);
    ///         assert_eq!((head.len(), tail.len()), (1, 99));
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn split_at(self, mid: usize) -> (Span<T>, Span<T>) {
        let Span { address, len, .. } = self;
        assert!(mid <= len, "a span of {len} elements has no {mid} in front");
        (Span::new(address, mid), Span::new(address + mid * size_of::<T>(), len - mid))
    }

    /// Joins adjacent parts, given in any order, into one span.
    ///
    /// # Errors
    /// [`NotAdjacent`], with the parts, where there is a gap between them, or no part.
    ///
    /// Example: at [`Region`](crate::Region).
    pub fn join(parts: impl IntoIterator<Item = Span<T>>) -> Result<Span<T>, NotAdjacent<T>> {
        let mut parts: Vec<Span<T>> = parts.into_iter().collect();
        parts.sort_by_key(|part| (part.address, part.len));
        let follow = |pair: &[Span<T>]| pair[0].address + pair[0].len * size_of::<T>() == pair[1].address;
        if parts.is_empty() || !parts.windows(2).all(follow) {
            return Err(NotAdjacent { parts });
        }
        Ok(Span::new(parts[0].address, parts.iter().map(Span::len).sum()))
    }

    /// Returns the number of elements. Touches none of them.
    ///
    /// Example: at [`split`](Self::split).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    ///
    /// ```
    /// gossamer_region::main(|| assert!(gossamer_region::Region::new(1).unwrap().span::<u8>(0).is_empty()), 1);
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Returns a pointer to the elements in this process.
fn pointer<T>(address: usize) -> *mut T {
    ptr::with_exposed_provenance_mut(address)
}

impl<T: Plain> Deref for Span<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: mapped until the process ends, and of this span alone (the invariant above); aligned, since a region
        // begins on a page; any bytes are a `T`.
        unsafe { slice::from_raw_parts(pointer(self.address), self.len) }
    }
}

impl<T: Plain> DerefMut for Span<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`.
        unsafe { slice::from_raw_parts_mut(pointer(self.address), self.len) }
    }
}

impl<T: Plain + Sync> Deref for SharedSpan<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for `Span`; the bytes are written only through `&T`.
        unsafe { slice::from_raw_parts(pointer(self.address), self.len) }
    }
}

impl<T: Plain + Sync> Clone for SharedSpan<T> {
    fn clone(&self) -> Self {
        SharedSpan { ..*self }
    }
}

/// Prints no elements, which may be on other machines.
impl<T: Plain> fmt::Debug for Span<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({} at {:#x})", self.len, self.address)
    }
}

/// Prints no elements, which may be on other machines.
impl<T: Plain + Sync> fmt::Debug for SharedSpan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSpan({} at {:#x})", self.len, self.address)
    }
}

/// Error of [`Span::join`]: the parts are not adjacent. Gives them back, by address.
pub struct NotAdjacent<T: Plain> {
    /// The parts.
    pub parts: Vec<Span<T>>,
}

impl<T: Plain> fmt::Debug for NotAdjacent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotAdjacent").field("parts", &self.parts).finish()
    }
}

impl<T: Plain> fmt::Display for NotAdjacent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} parts do not follow each other: join all that one `split` made, or those of spans made in turn without \
             a gap",
            self.parts.len()
        )
    }
}

impl<T: Plain> std::error::Error for NotAdjacent<T> {}
