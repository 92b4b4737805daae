//! The gate of a crate above (`gossamer-heap`): it looks at each frame that leaves this machine, and may hold it back
//! until what the frame names is safe elsewhere (FaRM's order: the backups have it before anybody learns of it).
//!
//! Service threads have no gate: neither their frames nor those to them are looked at, so that they answer whatever
//! waits.

use std::sync::OnceLock;

/// Calls of the crate above, on the worker that sends. None of them waits, or sends anything to a trustee.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Looks at a frame. Returns a number for one that has to wait, or 0.
    pub look: fn(frame: &[u8]) -> u64,
    /// May the frame with this number leave? It is asked for no more after that.
    pub is_open: fn(u64) -> bool,
    /// The frame with this number goes nowhere.
    pub forget: fn(u64),
    /// Goes on with what frames wait for. Returns whether there is more: it is called once a turn while that is so.
    pub turn: fn() -> bool,
}

static GATE: OnceLock<Gate> = OnceLock::new();

/// Sets the gate of all workers that begin from now on. The first one stays.
pub(crate) fn set(gate: Gate) {
    let _ = GATE.set(gate);
}

/// Returns the gate, if there is one.
pub(super) fn get() -> Option<Gate> {
    GATE.get().copied()
}
