//! `Maybe`: an `Option` with a guaranteed layout.

use trust_durable_derive::Persist;

use crate::persist::Persist;

/// An `Option` for a pool. (`Option`s of persistent pointers and of `NonZero` numbers can lie there themselves.)
///
/// ```
/// use trust_durable::Maybe;
///
/// let maybe = Maybe::from(Some(7u32));
/// assert_eq!(Option::from(maybe), Some(7u32));
/// ```
#[derive(Persist, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[persist(crate = crate)]
#[repr(u8)]
pub enum Maybe<T: Persist> {
    /// No value.
    #[default]
    None = 0,
    /// This value.
    Some(T) = 1,
}

impl<T: Persist> Maybe<T> {
    /// Converts to an `Option` of a reference.
    pub fn as_ref(&self) -> Option<&T> {
        match self {
            Maybe::None => None,
            Maybe::Some(value) => Some(value),
        }
    }

    /// Converts to an `Option` of a mutable reference.
    pub fn as_mut(&mut self) -> Option<&mut T> {
        match self {
            Maybe::None => None,
            Maybe::Some(value) => Some(value),
        }
    }

    /// Takes the value out.
    pub fn take(&mut self) -> Option<T> {
        std::mem::replace(self, Maybe::None).into()
    }

    /// Is there a value?
    pub fn is_some(&self) -> bool {
        matches!(self, Maybe::Some(_))
    }
}

impl<T: Persist> From<Option<T>> for Maybe<T> {
    fn from(option: Option<T>) -> Self {
        option.map_or(Maybe::None, Maybe::Some)
    }
}

impl<T: Persist> From<Maybe<T>> for Option<T> {
    fn from(maybe: Maybe<T>) -> Self {
        match maybe {
            Maybe::None => None,
            Maybe::Some(value) => Some(value),
        }
    }
}
