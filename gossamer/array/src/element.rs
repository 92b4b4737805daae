//! `Element`: types of array elements.

use gossamer::NoRef;
use zerocopy::{FromBytes, IntoBytes};

use crate::shape::CHUNK_BYTES_MAX;

/// A type that can be an element of an array: plain values of 1 byte to 64 KiB for which any bytes are valid. Numbers,
/// arrays of numbers, and structs of these that derive zerocopy's `FromBytes` and `IntoBytes`. Not `bool` or `char`:
/// use `u8` and `u32`. No references or pointers.
///
/// It is implemented for every such type; no impl needs to be written.
///
/// ```
/// use gossamer_array::Array;
/// use zerocopy::{FromBytes, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes)]
/// #[repr(C)]
/// struct Point { x: f32, y: f32 }
///
/// gossamer::main(|| {
///     let points = Array::new(100, Point { x: 0.0, y: 0.0 }).unwrap();
///     points.update(7, |point| point.x += 1.0);
///     assert_eq!(points.get(7), Point { x: 1.0, y: 0.0 });
/// }, 2);
/// ```
///
/// ```compile_fail
/// gossamer_array::Array::new(100, false);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in an `Array`",
    label = "not a plain value of bytes",
    note = "elements travel as bytes, and any bytes have to be one: for `bool` use `u8`, for `char` use `u32`",
    note = "derive `Clone`, `Copy` and zerocopy's `FromBytes` and `IntoBytes` for a struct of your own, with \
            `#[repr(C)]`"
)]
pub trait Element: FromBytes + IntoBytes + Copy + NoRef + Send + 'static {
    /// Checks at compile time that a chunk can hold an element.
    #[doc(hidden)]
    const FITS: () = {
        assert!(size_of::<Self>() > 0, "an element of an `Array` has one byte at least");
        assert!(size_of::<Self>() <= CHUNK_BYTES_MAX, "an element of an `Array` has 64 KiB at most");
        assert!(align_of::<Self>() <= 64, "an element of an `Array` is aligned to 64 bytes at most");
    };
}

impl<T: FromBytes + IntoBytes + Copy + NoRef + Send + 'static> Element for T {}
