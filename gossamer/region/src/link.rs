//! Interface for `gossamer-region-ffi`, which runs threaded C programs in regions. Not for programs.

#![allow(unsafe_code)] // unsafe in the signature of `over`

use std::ops::Range;

use crate::error::Error;
use crate::page_server;
use crate::region::Region;

pub use crate::common::{common, is_common};
pub use crate::linger::linger;
pub use crate::page_server::accounts::{FaultsOfThread, take_faults};
pub use crate::page_server::barrier::arrive;

/// From any thread: requests the pages at these addresses that are not here, to read them. Does not wait; a thread that
/// touches them does.
pub fn prefetch(addresses: Range<usize>) {
    let server = gossamer::link::page_server(gossamer::rack().machine());
    trust::link::post(server, move |_| page_server::prefetch_at(&addresses), &[]);
}

/// From any thread: has another machine request the pages at these addresses, to write them. Does not wait. Those that
/// have just come here ([`HOLD`](crate::HOLD)) go at once: the thread that they came for goes on there.
pub fn send_along(to: u16, addresses: [Range<usize>; 2]) {
    let server = gossamer::link::page_server(gossamer::rack().machine());
    trust::link::post(server, move |_| page_server::send_along(to, addresses), &[]);
}

/// On the page server: gives the pages at these addresses of a region back to the system; then all of them are zeros on
/// all machines. Returns `false`, and leaves them as they are, where the machines have copies of pages.
///
/// The caller vouches that no thread uses these bytes meanwhile.
pub fn discard(addresses: &Range<usize>) -> bool {
    page_server::discard_at(addresses)
}

/// Returns the address at which a region begins, on all machines.
pub fn address(region: &Region) -> usize {
    region.address()
}

/// Turns whole pages, whatever they are now, into a region on all machines; it is all zero at first.
///
/// # Safety
/// The pages are mapped, and from now on no code uses their old contents.
///
/// # Errors
/// Same as [`Region::new`].
///
/// # Panics
/// Same as [`Region::new`].
pub unsafe fn over(pages: Range<usize>) -> Result<Region, Error> {
    Region::over(pages)
}
