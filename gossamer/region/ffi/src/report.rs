//! Report at the program's end for `gossamer-launch run --region-stats`: counts of pages that travelled, and the most
//! requested pages.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossamer_region::Region;
use gossamer_region::link::address;

use crate::PAGE_BYTES;
use crate::{arena, objects, own_heap, side, symbols, table};

/// Variable with the number of pages to name.
const PAGES: &str = "GOSSAMER_REGION_STATS";

/// Regions, on machine 0.
static REGIONS: Mutex<Vec<Region>> = Mutex::new(vec![]);
/// Starts of the threads' stacks on this machine, past and present.
static STACKS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
/// Messages from this machine to others at barriers.
pub(crate) static BARRIER_MESSAGES: AtomicU64 = AtomicU64::new(0);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On machine 0: records a region.
pub(crate) fn note(region: Region) {
    lock(&REGIONS).push(region);
}

/// Records the stack of a thread.
pub(crate) fn note_stack(start: usize) {
    lock(&STACKS).insert(start);
}

/// In the first fiber, after the program's end: prints the report if asked to.
pub(crate) fn tell_if_asked() {
    let Some(text) = std::env::var_os(PAGES) else { return };
    let Some(count) = text.to_str().and_then(|text| text.parse().ok()) else {
        eprintln!("gossamer: {PAGES}={}: how many pages are to be named", text.display());
        return;
    };
    let regions = lock(&REGIONS).clone();
    let Some(first) = regions.first() else { return };
    let messages: u64 = (0..side::machines())
        .map(|machine| side::from_worker(machine, || BARRIER_MESSAGES.load(Ordering::Relaxed)))
        .sum();
    eprintln!("gossamer: pages of all machines: {}", first.stats());
    eprintln!("gossamer: barriers: {messages} messages to other machines, as many answers");
    let mut pages: Vec<(u64, usize)> = regions
        .iter()
        .flat_map(|region| region.hottest(count).into_iter().map(|(offset, asks)| (asks, address(region) + offset)))
        .collect();
    pages.sort_unstable_by(|one, other| other.cmp(one));
    pages.truncate(count);
    if pages.is_empty() {
        return;
    }
    eprintln!("gossamer: how often machines asked for the pages that they asked for most, and what lies there:");
    let variables = symbols::variables(objects::bias());
    for (asks, page) in pages {
        eprintln!("gossamer: {asks:>9} {page:#x} {}", what_is_at(page, &variables));
    }
}

fn what_is_at(page: usize, variables: &[symbols::Variable]) -> String {
    let range: Range<usize> = page..page + PAGE_BYTES;
    if table::variables().iter().any(|pages| pages.contains(&page)) {
        return symbols::names_in(variables, &range);
    }
    if arena::has(page) {
        return "blocks from before main".to_owned();
    }
    if !table::is_in_heap(page) {
        return "of Gossamer: threads, keys, mutexes and barriers of gossamer_region.h".to_owned();
    }
    if let Some(named) = table::named().iter().find(|named| named.contains(&page)) {
        let (at, bytes) = (page - named.start, named.len());
        return format!("byte {at} of the {bytes} bytes from {:#x} on that gsm_region_share has named", named.start);
    }
    let around = (0..side::machines()).find_map(|machine| {
        side::from_worker(machine, move || {
            let found = own_heap::large_around(page);
            found.map(|(start, bytes)| (start, bytes, has_stack(start, bytes)))
        })
    });
    match around {
        Some((start, bytes, true)) => format!("heap: a thread's stack, of {bytes} bytes from {start:#x} on"),
        Some((start, bytes, false)) => {
            format!("heap: byte {} of a block of {bytes} bytes from {start:#x} on", page - start)
        }
        None => "heap: small blocks".to_owned(),
    }
}

fn has_stack(start: usize, bytes: usize) -> bool {
    lock(&STACKS).range(start..start + bytes).next().is_some()
}
