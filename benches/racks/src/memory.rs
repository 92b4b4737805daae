//! Memory and queue pairs of a machine, computed.

use gossamer_ways::machine::{WRITE_BYTES, WRITES_MAX};
use gossamer_ways::news::News;
use gossamer_ways::route::Route;
use gossamer_ways::ways::{Limits, PAIRING_BYTES};

use crate::costs::look_ns;

/// A slot with the distance to the next, and the slots of a ring between hosts (`gossamer/src/remote/layout.rs`).
pub const SLOT_BYTES: usize = 8192 + 64;
/// See [`SLOT_BYTES`].
pub const RING_SLOTS: usize = 16;
/// Limit of a machine's slots: rings get shorter above it, down to one slot.
const SLOTS_BYTES_MAX: usize = 512 << 20;

/// Slots that a pair has today, and the bytes of all slots of a machine.
pub fn slots_today((machines, workers): (u16, u16)) -> (usize, usize) {
    let (w, m) = (usize::from(workers), usize::from(machines));
    let others = w * (m - 1);
    let bytes = |slots: usize| 2 * (w * others * slots + (w + 1) * (m - 1) + others) * SLOT_BYTES;
    let mut slots = RING_SLOTS;
    while slots > 1 && bytes(slots) > SLOTS_BYTES_MAX {
        slots /= 2;
    }
    (slots, bytes(slots))
}

/// Flags at which an idle worker looks today.
pub fn flags_today((machines, workers): (u16, u16)) -> usize {
    2 * (usize::from(machines) - 1) * (usize::from(workers) + 1)
}

/// Queue pairs of a machine today: for each other one, those of its workers and of its service thread, one for its
/// starting thread, and one for heartbeats.
pub fn queue_pairs_today((machines, workers): (u16, u16)) -> usize {
    (usize::from(machines) - 1) * (usize::from(workers) + 3)
}

/// Machine ways of a machine.
pub fn machine_ways((machines, _): (u16, u16)) -> usize {
    Route::new(machines, Route::DIRECT_MAX).channels(0)
}

/// Bytes of a machine whose workers have so many rings together, and of whom each knows so many peers.
pub fn bytes(rack: (u16, u16), rings: usize, known: usize) -> usize {
    let rings = rings * RING_SLOTS * SLOT_BYTES;
    let machine_rings = machine_ways(rack) * WRITES_MAX as usize * WRITE_BYTES;
    // A table of a hash is full to seven eighths at most, has a power of two of buckets, and a byte besides for each.
    let buckets = (known * 8).div_ceil(7).next_power_of_two();
    rings + machine_rings + usize::from(rack.1) * buckets * (PAIRING_BYTES + 1)
}

/// The same where all pairs are in use, and each worker has as many direct ways as it may.
pub fn bytes_at_most(rack: (u16, u16)) -> usize {
    let others = usize::from(rack.1) * (usize::from(rack.0) - 1);
    bytes(rack, usize::from(rack.1) * Limits::of_machine(rack.1).rings.min(others), others)
}

/// A look of an idle worker with all direct ways that it may have.
pub fn look_at_most_ns((machines, workers): (u16, u16)) -> u64 {
    look_ns(Limits::of_machine(workers).rings + News::bytes(usize::from(machines)).div_ceil(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/scaling.md` has these, computed by the product's own layout.
    #[test]
    fn the_present_scheme_is_computed_as_the_product_does() {
        let page = include_str!("../../../docs/scaling.md");
        for rack in crate::RACKS {
            let (slots, bytes) = slots_today(rack);
            let row = format!("| {} x {} | {slots} | {} |", rack.0, rack.1, crate::tables::size(bytes));
            assert!(page.contains(&row), "docs/scaling.md has no {row}");
            let rest = page.split_once(&row).map_or("", |(_, rest)| rest.lines().next().unwrap_or(""));
            assert!(rest.contains(&format!(" {} |", queue_pairs_today(rack))), "queue pairs: {rest}");
            let flags = format!("| {} x {} | {} |", rack.0, rack.1, flags_today(rack));
            assert!(page.contains(&flags), "docs/scaling.md has no {flags}");
        }
    }

    #[test]
    fn large_racks_fit() {
        assert!(bytes_at_most((64, 64)) <= 512 << 20, "{}", bytes_at_most((64, 64)));
        assert_eq!(machine_ways((1000, 128)), 63);
        assert!(bytes_at_most((1000, 128)) <= 4 << 30, "{}", bytes_at_most((1000, 128)));
    }
}
