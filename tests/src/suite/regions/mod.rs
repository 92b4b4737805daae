//! Regions over the rack: `gossamer-region`, over any transport.

mod litmus;
mod pages;
mod spans;

pub use litmus::*;
pub use pages::*;
pub use spans::*;

use gossamer::Place;
use gossamer_region::Region;

/// Bytes of a page, and its number of `u64`.
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// Makes a region, or none, with a message, where the system does not allow one.
fn region(bytes: usize) -> Option<Region> {
    match Region::new(bytes) {
        Ok(region) => Some(region),
        Err(error @ (gossamer_region::Error::NotAllowed { .. } | gossamer_region::Error::OldKernel { .. })) => {
            eprintln!("SKIPPED: regions: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a fiber there; returns its result.
fn at<R: gossamer::NoRef + Send + 'static>(
    place: Place,
    f: impl FnOnce() -> R + gossamer::NoRef + Send + 'static,
) -> R {
    gossamer::spawn_on(place, f).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the first place of each machine.
fn machines() -> Vec<Place> {
    let machines = gossamer::rack().machines().len() as u16;
    (0..machines).map(|machine| Place::of(machine, 0)).collect()
}
