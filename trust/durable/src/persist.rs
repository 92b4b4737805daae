//! `Persist`, the trait of types that can lie in a pool, and its implementations for plain types.

#![allow(unsafe_code)]

use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize,
};

use crate::layout::{Kind, Types};
use crate::walk::{Damage, Walk};

/// A type that can lie in a pool: its bytes keep their meaning when the program is started again.
///
/// Derive it for structs with `#[repr(C)]` and enums with `#[repr(u8)]`. They may have one lifetime, the brand of the
/// pool, and type parameters that are `Persist`. Implemented for numbers, `bool`, `char`, arrays, `Option`s of
/// persistent pointers and of `NonZero` numbers, [`Maybe`](crate::Maybe) and the types of this crate.
///
/// ```
/// use trust_durable::{PBox, PVec, Persist};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Node<'p> {
///     key: u64,
///     next: Option<PBox<'p, Node<'p>>>,
///     marks: PVec<'p, u8>,
/// }
/// ```
///
/// # Safety
/// Derive it. An implementation by hand promises: any bytes for which [`check`](Self::check) returned `Ok` are a value
/// of the type; `At<'q>` is the same type with another brand, of the same layout; the layout is that of
/// [`describe`](Self::describe), the same in each build; every pointer in the type, and all of its interior mutability,
/// is a type of this crate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a pool: it does not implement `Persist`",
    label = "this would be written to disk",
    note = "a pool holds numbers, `bool`, `char`, arrays, `PBox`, `PVec`, `PString`, `PMap`, `Prc`, `PCell`, .. and \
            structs and enums with `#[derive(Persist)]`",
    note = "for `Box` use `PBox`, for `Vec` `PVec`, for `String` `PString`, for `Rc` `Prc`, for a tuple a struct, for \
            other `Option`s `Maybe`; references, function pointers, descriptors and trusts mean nothing after a restart"
)]
pub unsafe trait Persist: Sized {
    /// The same type in the pool with the brand `'q`.
    type At<'q>: Persist + 'q;
    /// Are any bytes a valid value?
    #[doc(hidden)]
    const IS_PLAIN: bool;
    /// May dropping a value in place write to it?
    #[doc(hidden)]
    const DROP_WRITES: bool;
    /// Describes the layout.
    #[doc(hidden)]
    fn describe(types: &mut Types) -> (String, Kind);
    /// Checks that the bytes at `at`, in a pool that is being opened, are a value of the type.
    ///
    /// # Errors
    /// The fault, and its place.
    #[doc(hidden)]
    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage>;
}

/// A type without an all-zero value, so that `Option` of it has the same size, by a guaranteed layout.
///
/// # Safety
/// `Option<Self>` has the size of `Self`, and `None` is all zeros.
#[diagnostic::on_unimplemented(
    message = "the layout of `Option<{Self}>` is not promised, so it cannot lie in a pool: use `Maybe<{Self}>`",
    label = "`Maybe` has `From` and `Into` for `Option`"
)]
pub unsafe trait Niche: Persist {
    /// The same type in another pool.
    #[doc(hidden)]
    type NicheAt<'q>: Niche + Persist + 'q;
}

// SAFETY: the contract of `Niche`.
unsafe impl<T: Niche> Persist for Option<T> {
    type At<'q> = Option<T::NicheAt<'q>>;
    const IS_PLAIN: bool = false;
    const DROP_WRITES: bool = T::DROP_WRITES;

    fn describe(types: &mut Types) -> (String, Kind) {
        let of = types.add::<T>();
        ("Option".into(), Kind::Of(vec![of]))
    }

    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
        let is_none =
            walk.memory().opened_slice(at, size_of::<T>()).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0));
        if is_none { Ok(()) } else { T::check(at, walk) }
    }
}

macro_rules! plain {
    ($($type:ident)*) => { $(
        // SAFETY: any bytes are a value, and the layout of a number is its size.
        unsafe impl Persist for $type {
            type At<'q> = $type;
            const IS_PLAIN: bool = true;
            const DROP_WRITES: bool = false;

            fn describe(_: &mut Types) -> (String, Kind) {
                (stringify!($type).into(), Kind::Of(Vec::new()))
            }

            fn check(_: u64, _: &mut Walk<'_>) -> Result<(), Damage> {
                Ok(())
            }
        }
    )* };
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

macro_rules! checked {
    ($($type:ident: $bytes:expr, $is:expr;)*) => { $(
        // SAFETY: `check` accepts only valid values.
        unsafe impl Persist for $type {
            type At<'q> = $type;
            const IS_PLAIN: bool = false;
            const DROP_WRITES: bool = false;

            fn describe(_: &mut Types) -> (String, Kind) {
                (stringify!($type).into(), Kind::Of(Vec::new()))
            }

            fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
                let bytes: [u8; $bytes] = walk.bytes(at)?;
                let is: fn([u8; $bytes]) -> bool = $is;
                if is(bytes) { Ok(()) } else { Err(walk.damage(at, concat!("it is no ", stringify!($type)))) }
            }
        }
    )* };
}

checked! {
    bool: 1, |bytes| bytes[0] < 2;
    char: 4, |bytes| char::from_u32(u32::from_ne_bytes(bytes)).is_some();
    NonZeroU8: 1, |bytes| bytes != [0; 1];
    NonZeroU16: 2, |bytes| bytes != [0; 2];
    NonZeroU32: 4, |bytes| bytes != [0; 4];
    NonZeroU64: 8, |bytes| bytes != [0; 8];
    NonZeroU128: 16, |bytes| bytes != [0; 16];
    NonZeroUsize: size_of::<usize>(), |bytes| bytes != [0; size_of::<usize>()];
    NonZeroI8: 1, |bytes| bytes != [0; 1];
    NonZeroI16: 2, |bytes| bytes != [0; 2];
    NonZeroI32: 4, |bytes| bytes != [0; 4];
    NonZeroI64: 8, |bytes| bytes != [0; 8];
    NonZeroI128: 16, |bytes| bytes != [0; 16];
    NonZeroIsize: size_of::<isize>(), |bytes| bytes != [0; size_of::<isize>()];
}

macro_rules! niche {
    ($($type:ident)*) => { $(
        // SAFETY: guaranteed by the standard library.
        unsafe impl Niche for $type {
            type NicheAt<'q> = $type;
        }
    )* };
}

niche!(NonZeroU8 NonZeroU16 NonZeroU32 NonZeroU64 NonZeroU128 NonZeroUsize);
niche!(NonZeroI8 NonZeroI16 NonZeroI32 NonZeroI64 NonZeroI128 NonZeroIsize);

// SAFETY: an array is its elements, one after the other.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {
    type At<'q> = [T::At<'q>; N];
    const IS_PLAIN: bool = T::IS_PLAIN;
    const DROP_WRITES: bool = T::DROP_WRITES;

    fn describe(types: &mut Types) -> (String, Kind) {
        let of = types.add::<T>();
        (format!("[_; {N}]"), Kind::Of(vec![of]))
    }

    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
        if T::IS_PLAIN {
            return Ok(());
        }
        // Zero-sized elements all lie at one place, and there may be too many to visit: one check is enough.
        let count = if size_of::<T>() == 0 { N.min(1) } else { N };
        (0..count as u64).try_for_each(|index| T::check(at + index * size_of::<T>() as u64, walk))
    }
}
