//! `ElementId`: the number of an element in its bunch, with its type.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU64;

/// Names an element of a [`Bunch`](crate::Bunch): 8 bytes that mean the same wherever the bunch is, also in its
/// elements and its root. An `Option` of it is as long.
///
/// It names nothing in other bunches: there it finds an element of its type, or the look-up panics.
///
/// Example: at [`Bunch`](crate::Bunch).
pub struct ElementId<E> {
    /// Number of the element, from 1.
    number: NonZeroU64,
    element: PhantomData<E>,
}

const _: () = assert!(size_of::<Option<ElementId<[u64; 9]>>>() == 8);

impl<E> ElementId<E> {
    pub(super) fn of(index: u32) -> Self {
        ElementId { number: NonZeroU64::MIN.saturating_add(u64::from(index)), element: PhantomData }
    }

    pub(super) fn index(self) -> u64 {
        self.number.get() - 1
    }
}

impl<E> Clone for ElementId<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for ElementId<E> {}

impl<E> PartialEq for ElementId<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for ElementId<E> {}

impl<E> Hash for ElementId<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<E> fmt::Debug for ElementId<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ElementId({})", self.index())
    }
}
