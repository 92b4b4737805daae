//! What measurements and tests turn off, by variables of the environment: runs, that pages are held, and that machines of one host have one
//! memory.

use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use super::HOLD;
use crate::page::BLOCK_PAGES;

/// Pages of the longest run: 1 to 64.
const RUN_PAGES: &str = "GOSSAMER_REGION_RUN_PAGES";
/// Microseconds in the place of [`HOLD`].
const HOLD_US: &str = "GOSSAMER_REGION_HOLD_US";
/// Set: pages are copied from machine to machine on one host too.
const COPIES: &str = "GOSSAMER_REGION_COPIES";

fn number<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// What the longest run has.
pub(super) fn run_pages() -> u32 {
    number(RUN_PAGES).unwrap_or(BLOCK_PAGES).clamp(1, BLOCK_PAGES)
}

/// How long pages that have just come are kept.
pub(super) fn hold() -> Duration {
    static KNOB: OnceLock<Duration> = OnceLock::new();
    *KNOB.get_or_init(|| number(HOLD_US).map_or(HOLD, Duration::from_micros))
}

/// Whether pages are copied from machine to machine on one host too.
pub(super) fn copies() -> bool {
    std::env::var_os(COPIES).is_some()
}
