//! For `gossamer-region-ffi`, which has threaded C programs run in regions. Not for programs.

#![allow(unsafe_code)] // a promise

use std::ops::Range;

use crate::error::Error;
use crate::keeper;
use crate::region::Region;

pub use crate::keeper::meet::arrive;
pub use crate::linger::linger;

/// From any thread: asks for the pages at these addresses that are not here, to read them. Does not wait: who touches
/// them does.
pub fn prefetch(addresses: Range<usize>) {
    let keeper = gossamer::link::keeper(gossamer::rack().machine());
    trust::link::post(keeper, move |_| keeper::prefetch_at(&addresses), &[]);
}

/// Where a region begins, on all machines.
pub fn address(region: &Region) -> usize {
    region.address()
}

/// Makes whole pages, whatever they are now, a region on all machines; it is all zero at first.
///
/// # Safety
/// The pages are mapped, and from now on nobody uses what was there.
///
/// # Errors
/// As [`Region::new`].
///
/// # Panics
/// As [`Region::new`].
pub unsafe fn over(pages: Range<usize>) -> Result<Region, Error> {
    Region::over(pages)
}
