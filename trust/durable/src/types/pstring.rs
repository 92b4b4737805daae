//! `PString`: text in a pool.

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::pvec::PVec;
use crate::layout::{Kind, Types};
use crate::persist::Persist;
use crate::tx::Tx;
use crate::walk::{Damage, Walk};

/// Text in a pool, as `String` is on the heap. 24 bytes.
#[repr(transparent)]
#[derive(PartialEq, Eq, Default)]
pub struct PString<'p> {
    /// UTF-8.
    bytes: PVec<'p, u8>,
}

impl<'p> PString<'p> {
    /// Makes an empty string, without an allocation.
    pub const fn new() -> Self {
        PString { bytes: PVec::new() }
    }

    /// Makes a string of this text.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn of(text: &str, tx: &Tx<'p>) -> Self {
        let mut string = PString::new();
        string.push_str(text, tx);
        string
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        // SAFETY: every method stores UTF-8, and `check` has validated the bytes of a file.
        unsafe { std::str::from_utf8_unchecked(self.bytes.as_slice()) }
    }

    /// Appends text.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn push_str(&mut self, text: &str, tx: &Tx<'p>) {
        self.bytes.extend_from_slice(text.as_bytes(), tx);
    }

    /// Appends a character.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn push(&mut self, c: char, tx: &Tx<'p>) {
        self.push_str(c.encode_utf8(&mut [0; 4]), tx);
    }

    /// Empties the string; the capacity stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Cuts the text to `len` bytes.
    ///
    /// # Panics
    /// If that is in the middle of a character.
    pub fn truncate(&mut self, len: usize) {
        assert!(len >= self.len() || self.is_char_boundary(len), "a PString is cut in the middle of a character");
        self.bytes.truncate(len);
    }
}

impl Deref for PString<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for PString<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

impl Hash for PString<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for PString<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PString<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialEq<str> for PString<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for PString<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for PString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for PString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

// SAFETY: a `PVec<u8>`; `check` has found its bytes to be UTF-8.
unsafe impl<'p> Persist for PString<'p> {
    type At<'q> = PString<'q>;
    const IS_PLAIN: bool = false;
    const DROP_WRITES: bool = false;

    fn describe(_: &mut Types) -> (String, Kind) {
        ("PString".into(), Kind::Of(Vec::new()))
    }

    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
        PVec::<u8>::check(at, walk)?;
        let (to, len) = (walk.word(at)?, walk.word(at + 8)?);
        let text = usize::try_from(len).ok().and_then(|len| walk.memory().opened_slice(to, len));
        match text.map(std::str::from_utf8) {
            Some(Ok(_)) => Ok(()),
            _ => Err(walk.damage(at, "a PString that is not UTF-8")),
        }
    }
}
