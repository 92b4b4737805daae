//! Values that may lie in a region.

use gossamer::NoRef;
use zerocopy::{FromBytes, IntoBytes};

use crate::page::PAGE_BYTES;

/// Values that may lie in a region: any bytes are a valid value, and mean the same on every machine. Numbers, atomics,
/// arrays of them, and structs of these that derive zerocopy's `FromBytes` and `IntoBytes`. No references or pointers,
/// no `bool`, no `char`.
///
/// It is implemented for all types that fit; there is nothing to write.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// gossamer_region::main(
///     || {
///         let region = gossamer_region::Region::new(1 << 16).unwrap();
///         let counters = region.span::<AtomicU64>(8).share();
///         for place in gossamer::rack().places() {
///             let counters = counters.clone();
///             gossamer::spawn_on(place, move || counters[0].fetch_add(1, Relaxed)).join().unwrap();
///         }
///         assert_eq!(counters[0].load(Relaxed), 2);
///     },
///     2,
/// );
/// ```
///
/// ```compile_fail
/// fn takes<T: gossamer_region::Plain>() {}
/// takes::<&u8>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a region",
    label = "not a plain value of bytes",
    note = "pages travel as bytes, and begin as zeros, so any bytes have to be a value: for `bool` use `u8`, for \
            `char` use `u32`, in the place of pointers positions",
    note = "derive zerocopy's `FromBytes` and `IntoBytes` for a struct of your own, with `#[repr(C)]`"
)]
pub trait Plain: FromBytes + IntoBytes + NoRef + Send + Sized + 'static {
    /// Checks at compile time that spans of this type can exist.
    #[doc(hidden)]
    const FITS: () = {
        assert!(size_of::<Self>() > 0, "what lies in a region has one byte at least");
        assert!(align_of::<Self>() <= PAGE_BYTES, "what lies in a region is aligned to a page at most");
    };
}

// Keeps the errors in the words above.
#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + NoRef + Send + 'static> Plain for T {}
