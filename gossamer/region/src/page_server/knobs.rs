//! Environment variables with which measurements and tests turn things off: runs, the hold time of pages, and memory
//! shared by the machines of one host.

use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use super::HOLD;
use crate::page::BLOCK_PAGES;

/// Pages of the longest run: 1 to 64.
const RUN_PAGES: &str = "GOSSAMER_REGION_RUN_PAGES";
/// Microseconds that replace [`HOLD`].
const HOLD_US: &str = "GOSSAMER_REGION_HOLD_US";
/// Variable that, if set, has pages copied between the machines of one host too.
const COPIES: &str = "GOSSAMER_REGION_COPIES";

struct Knobs {
    run_pages: u32,
    hold: Duration,
    copies: bool,
}

/// Reads the variables when the first region begins, and never again: in a C program whose variables are a region,
/// `environ` may be one of them, and the page server must not touch it.
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

/// Reads the variables.
pub(super) fn read() {
    knobs();
}

/// Returns the pages of the longest run.
pub(super) fn run_pages() -> u32 {
    knobs().run_pages
}

/// Returns how long pages that have just arrived are kept.
pub(super) fn hold() -> Duration {
    knobs().hold
}

/// Whether pages are copied between the machines of one host too.
pub(super) fn copies() -> bool {
    knobs().copies
}
