//! What measurements and tests turn off, by variables of the environment: runs, that pages are held, and that machines
//! of one host have one memory.

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

struct Knobs {
    run_pages: u32,
    hold: Duration,
    copies: bool,
}

/// Read when the first region is begun, and never again: of a C program whose variables are a region, `environ` may be
/// one of them, which the keeper must not touch.
fn knobs() -> &'static Knobs {
    static KNOBS: OnceLock<Knobs> = OnceLock::new();
    KNOBS.get_or_init(|| Knobs {
        run_pages: number(RUN_PAGES).unwrap_or(BLOCK_PAGES).clamp(1, BLOCK_PAGES),
        hold: number(HOLD_US).map_or(HOLD, Duration::from_micros),
        copies: std::env::var_os(COPIES).is_some(),
    })
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Reads them.
pub(super) fn read() {
    knobs();
}

/// What the longest run has.
pub(super) fn run_pages() -> u32 {
    knobs().run_pages
}

/// How long pages that have just come are kept.
pub(super) fn hold() -> Duration {
    knobs().hold
}

/// Whether pages are copied from machine to machine on one host too.
pub(super) fn copies() -> bool {
    knobs().copies
}
