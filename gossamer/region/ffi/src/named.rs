//! `gsm_region_share`: the machines share the ranges that the program names from then on.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use gossamer_region::link::over;

use crate::PAGE_BYTES;
use crate::copy::Changing;
use crate::{copy, report, side, table};

/// Shares whole pages. Returns 0 or an errno, with cause and cure on standard error.
pub(crate) extern "C" fn share(at: *mut c_void, bytes: usize) -> c_int {
    let start = at.expose_provenance();
    match checked(start, bytes).and_then(share_range) {
        Ok(()) => 0,
        Err((errno, cause)) => {
            side::outside(|| eprintln!("gossamer: gsm_region_share({at:p}, {bytes}): {cause} (docs/region.md)"));
            errno
        }
    }
}

/// An errno, with the cause and its cure.
type Refused = (c_int, &'static str);

fn checked(start: usize, bytes: usize) -> Result<Range<usize>, Refused> {
    let end = start.checked_add(bytes);
    match end {
        _ if !start.is_multiple_of(PAGE_BYTES) => Err((
            libc::EINVAL,
            "it does not begin on a page: get the memory by mmap or aligned_alloc(4096, ...), or declare the variable \
             with _Alignas(4096)",
        )),
        _ if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) => {
            Err((libc::EINVAL, "whole pages can be shared: make the length a multiple of 4096, and not 0"))
        }
        None => Err((libc::EINVAL, "it is longer than the addresses that there are")),
        Some(end) => Ok(start..end),
    }
}

const FOREIGN: Refused = (
    libc::EFAULT,
    "it is not all memory of the program: share memory from malloc, aligned_alloc or mmap, or variables",
);

fn share_range(range: Range<usize>) -> Result<(), Refused> {
    if !table::is_explicit() {
        let pages = || range.clone().step_by(PAGE_BYTES);
        return if pages().all(table::is_shared) { Ok(()) } else { Err(FOREIGN) };
    }
    let (heap, heap_bytes) = table::heap();
    let is_within = |all: &Range<usize>| all.start <= range.start && range.end <= all.end;
    if !is_within(&(heap..heap + heap_bytes)) && !table::variables().iter().any(is_within) {
        return Err(FOREIGN);
    }
    let _changing = Changing::begin();
    let named = side::outside(table::named);
    let shared = named.iter().map(|other| range.end.min(other.end).saturating_sub(range.start.max(other.start))).sum();
    side::outside(move || drop(named));
    match shared {
        0_usize => side::outside(|| make_region(range)),
        all if all == range.len() => return Ok(()),
        _ => {
            return Err((
                libc::EEXIST,
                "a part of it is shared already: share each page once, or the same range again",
            ));
        }
    }
    Ok(())
}

/// Turns the range into a region: the calling machine's bytes stay, and all machines have them from now on.
fn make_region(range: Range<usize>) {
    // Its threads leave the memory alone while it is being shared.
    let before = copy::contents(range.clone().step_by(PAGE_BYTES));
    let (start, end) = (range.start, range.end);
    // SAFETY: the program has named memory of its own, and gets its contents back below.
    side::at(side::own_machine(), move || match unsafe { over(start..end) } {
        // Its pages may be gone by now.
        Err(error) => gossamer::link::end(&format!("memory at {start:#x} cannot be shared by the machines: {error}")),
        Ok(region) => side::from_worker(0, move || report::note(region)),
    });
    copy::restore(&before);
    for machine in 0..side::machines() {
        side::at(machine, move || table::note_named(start..end));
    }
}
