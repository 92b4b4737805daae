//! `Prc` and `PWeak`: shared values in a pool, with reference counts beside them.

#![allow(unsafe_code)]

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ops::Deref;

use super::full;
use super::pbox::{drop_values, room};
use super::vweak::VWeak;
use crate::layout::{Kind, Types};
use crate::memory::{Dropping, Memory};
use crate::persist::{Niche, Persist};
use crate::tx::{self, Brand, Tx};
use crate::walk::{Counted, Damage, Walk};

/// A shared value and its counts. All strong pointers together count as one weak one.
#[repr(C)]
struct Shared<T> {
    strong: u64,
    weak: u64,
    value: T,
}

const COUNTS: usize = 16;

/// A reference-counted pointer to a value in the pool, as `Rc` is one to a value on the heap. 8 bytes.
///
/// The value can be changed only through a [`PCell`](crate::PCell) or [`PRefCell`](crate::PRefCell) in it. It is
/// dropped at the end of the transaction that drops its last `Prc`. Values that only a cycle keeps alive are freed when
/// the pool is opened again.
///
/// There is no `Parc`: a pool belongs to one trustee. Threads share the [`Durable`](crate::Durable) handle instead.
#[repr(transparent)]
pub struct Prc<'p, T: Persist> {
    at: NonZeroU64,
    brand: PhantomData<(Brand<'p>, *mut T)>,
}

/// A pointer to a shared value that does not keep it alive. 8 bytes.
#[repr(transparent)]
pub struct PWeak<'p, T: Persist> {
    at: NonZeroU64,
    brand: PhantomData<(Brand<'p>, *mut T)>,
}

/// Returns the counts at `at`, touched.
fn counts<'a>(at: NonZeroU64) -> (&'a mut u64, &'a mut u64) {
    let strong = tx::place(at.get()).cast::<u64>();
    tx::touch(strong, COUNTS);
    // SAFETY: live for as long as there is a pointer of either kind; touched; nothing else borrows the counts, and the
    // caller's borrows end with its statement.
    unsafe { (&mut *strong, &mut *strong.add(1)) }
}

fn add(count: &mut u64) {
    *count = count.checked_add(1).unwrap_or_else(|| panic!("more pointers than a count can tell"));
}

impl<'p, T: Persist> Prc<'p, T> {
    /// Puts `value` into the pool.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn new(value: T, tx: &Tx<'p>) -> Self {
        Self::try_new(value, tx).unwrap_or_else(|_| full(tx, size_of::<Shared<T>>()))
    }

    /// Same as [`new`](Self::new), but does not panic.
    ///
    /// # Errors
    /// Gives the value back if the pool is full.
    pub fn try_new(value: T, tx: &Tx<'p>) -> Result<Self, T> {
        let Some(at) = room::<Shared<T>>(tx) else { return Err(value) };
        // SAFETY: an allocation of its own, aligned, and touched.
        unsafe { tx::place(at.get()).cast::<Shared<T>>().write(Shared { strong: 1, weak: 1, value }) };
        Ok(Prc { at, brand: PhantomData })
    }

    /// Makes another pointer to the same value.
    pub fn pclone(&self, _tx: &Tx<'p>) -> Self {
        add(counts(self.at).0);
        Prc { at: self.at, brand: PhantomData }
    }

    /// Makes a pointer that does not keep the value alive.
    pub fn downgrade(&self, _tx: &Tx<'p>) -> PWeak<'p, T> {
        add(counts(self.at).1);
        PWeak { at: self.at, brand: PhantomData }
    }

    /// Makes a pointer for use outside of the pool, which does not keep the value alive.
    pub fn demote(&self, tx: &Tx<'p>) -> VWeak<T::At<'static>> {
        VWeak::of(tx, self.at.get())
    }

    /// Do both point to the same value?
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.at == other.at
    }

    /// Returns the number of [`Prc`]s of the value.
    pub fn strong_count(&self) -> u64 {
        // SAFETY: live.
        unsafe { *tx::place(self.at.get()).cast::<u64>() }
    }

    /// Returns a pointer to the object at `at`, if it is still alive.
    pub(crate) fn at(at: u64, _tx: &Tx<'p>) -> Option<Self> {
        let at = NonZeroU64::new(at)?;
        let (strong, _) = counts(at);
        if *strong == 0 {
            return None;
        }
        add(strong);
        Some(Prc { at, brand: PhantomData })
    }
}

impl<T: Persist> Deref for Prc<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        let shared = tx::place(self.at.get()).cast::<Shared<T>>();
        // SAFETY: live for as long as there is a `Prc` [brand-entered]. The counts, which change, are not part of the
        // reference.
        unsafe { &(*shared).value }
    }
}

impl<'p, T: Persist> PWeak<'p, T> {
    /// Returns the value, if it is still alive.
    pub fn upgrade(&self, tx: &Tx<'p>) -> Option<Prc<'p, T>> {
        Prc::at(self.at.get(), tx)
    }

    /// Makes another such pointer.
    pub fn pclone(&self, _tx: &Tx<'p>) -> Self {
        add(counts(self.at).1);
        PWeak { at: self.at, brand: PhantomData }
    }
}

/// Drops one weak count: of a weak pointer, or of all strong ones together.
fn release<T>(memory: &Memory, at: NonZeroU64) {
    let (_, weak) = counts(at);
    *weak -= 1;
    if *weak == 0 {
        memory.give(at.get(), size_of::<Shared<T>>());
    }
}

impl<T: Persist> Drop for Prc<'_, T> {
    fn drop(&mut self) {
        let (strong, _) = counts(self.at);
        *strong -= 1;
        if *strong > 0 {
            return;
        }
        tx::with_memory(|memory| {
            memory.with_weak_ids(|weak_ids| weak_ids.end(self.at.get()));
            memory.drop_later(Dropping { at: self.at.get(), count: 1, run: drop_shared::<T> });
        });
    }
}

/// # Safety
/// As for [`drop_values`].
unsafe fn drop_shared<T: Persist>(memory: &Memory, at: u64, count: u64) {
    if let Some(counted) = NonZeroU64::new(at) {
        release::<T>(memory, counted);
    }
    let value = at + std::mem::offset_of!(Shared<T>, value) as u64;
    // SAFETY: the caller's promise. The slot is not free before the transaction ends.
    unsafe { drop_values::<T>(memory, value, count) };
}

impl<T: Persist> Drop for PWeak<'_, T> {
    fn drop(&mut self) {
        tx::with_memory(|memory| release::<T>(memory, self.at));
    }
}

/// Corrects the counts of an object in a pool that is being opened.
pub(crate) fn set_counts(memory: &Memory, at: u64, found: &Counted) {
    let weak = found.weak + u64::from(found.strong > 0);
    let mut counts = found.strong.to_ne_bytes().to_vec();
    counts.extend(weak.to_ne_bytes());
    assert!(memory.copy_in(at as usize, &counts), "the counts of an object whose room was claimed");
}

fn check<T: Persist>(at: u64, walk: &mut Walk<'_>, is_strong: bool) -> Result<(), Damage> {
    let to = walk.word(at)?;
    let kind = TypeId::of::<T::At<'static>>();
    if walk.count(at, to, kind, size_of::<Shared<T>>(), is_strong)? {
        walk.later::<T>(to + std::mem::offset_of!(Shared<T>, value) as u64, 1);
    }
    Ok(())
}

macro_rules! pointer {
    ($name:ident, $is_strong:literal) => {
        // SAFETY: `check` claims the slot for the first pointer, and later ones have to be of the same type; the value
        // is checked if any strong pointer keeps it.
        unsafe impl<'p, T: Persist> Persist for $name<'p, T> {
            type At<'q> = $name<'q, T::At<'q>>;
            const IS_PLAIN: bool = false;
            const DROP_WRITES: bool = false;

            fn describe(types: &mut Types) -> (String, Kind) {
                let of = types.add::<T>();
                (stringify!($name).into(), Kind::Of(vec![of]))
            }

            fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
                check::<T>(at, walk, $is_strong)
            }
        }

        // SAFETY: transparent over a `NonZeroU64`.
        unsafe impl<T: Persist> Niche for $name<'_, T> {
            type NicheAt<'q> = $name<'q, T::At<'q>>;
        }
    };
}

pointer!(Prc, true);
pointer!(PWeak, false);

impl<T: Persist + fmt::Debug> fmt::Debug for Prc<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Persist> fmt::Debug for PWeak<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(PWeak)")
    }
}
