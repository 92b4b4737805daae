//! Memory that threads of several machines share by pages: loads and stores work as in one process, and pages travel
//! when they are touched.
//!
//! A [`Region`] is at the same address on all machines. Its [`Span`]s are slices of plain values; the owner of a span
//! reads and writes it on whichever machine it runs. Regions suit existing code that computes much for each page;
//! delegate small hot objects instead (`docs/region.md` of the repository).
//!
//! ```
//! use gossamer_region::Region;
//!
//! fn gsm_main() {
//!     let region = Region::new(1 << 20).unwrap();
//!     let mut numbers = region.span::<f64>(1000);
//!     numbers.fill(0.5);
//!     let place = gossamer::rack().places().last().unwrap();
//!     let sum = gossamer::spawn_on(place, move || numbers.iter().sum::<f64>()).join().unwrap();
//!     assert_eq!(sum, 500.0);
//! }
//!
//! gossamer_region::main(gsm_main, 2);
//! ```
//!
//! Inside, in the order to read it:
//!
//! 1. `page.rs`: pages, runs, homes; `message.rs`: the messages between page servers
//! 2. `home.rs`: directory of the holders of each page; `holder.rs`: the pages of one machine; both without I/O, and
//!    `search.rs` tries every order of messages
//! 3. `uffd.rs`: page faults by userfaultfd; `view.rs`: the memory of a region
//! 4. `page_server/`: the page server, the thread of a machine that drives all of that; `linger.rs`: adaptive spinning
//!    before sleep
//! 5. `region.rs`, `span.rs`, `plain.rs`: the API
//!
//! The design is that of STRETCH, cited as "STRETCH".

// `Instant + Duration` panics on large limits, so sums saturate (`deadline.rs`) in all code outside of tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod common;
mod error;
mod holder;
mod home;
mod linger;
#[doc(hidden)]
pub mod link;
mod message;
mod page;
mod page_server;
mod plain;
mod region;
#[cfg(test)]
mod search;
#[cfg(test)]
mod simulated;
mod span;
mod stats;
mod uffd;
mod view;

pub use error::Error;
pub use page::Homes;
pub use page_server::HOLD;
pub use plain::Plain;
pub use region::Region;
pub use span::{NotAdjacent, SharedSpan, Span};
pub use stats::Stats;

/// Runs `gsm_main` as [`gossamer::main`] does, with the page servers that regions need on all machines.
///
/// When it returns, the other machines have ended, with the pages that only they held. A thread that touches such a
/// page of a span afterwards ends the process by SIGABRT, with a message on standard error.
///
/// # Panics, exits
/// Same as [`gossamer::main`].
///
/// Example: at the [crate].
pub fn main<R: gossamer::Termination, F: FnOnce() -> R + Send + 'static>(gsm_main: F, threads: usize) {
    with(gossamer::builder()).main(gsm_main, threads);
}

/// Returns these settings with a page server on each machine of the program.
///
/// ```
/// let settings = gossamer_region::with(gossamer::builder().stack_bytes(2 << 20));
/// settings.main(|| assert!(gossamer_region::Region::new(1).is_ok()), 1);
/// ```
pub fn with(settings: gossamer::Builder) -> gossamer::Builder {
    gossamer::link::with_page_servers(settings)
}
