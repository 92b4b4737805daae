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

/// One worker's side of the gate: which of its streams (`S`) have a frame there.
pub(super) struct AtGate<S> {
    gate: Option<Gate>,
    /// The gate has something to do.
    works: bool,
    /// Each with the number of its frame.
    held: Vec<(S, u64)>,
}

impl<S: Copy> AtGate<S> {
    pub(super) fn new(gate: Option<Gate>) -> AtGate<S> {
        AtGate { gate, works: false, held: Vec::new() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.gate.is_some()
    }

    /// Shows a frame of this stream to the gate. Returns whether it has to wait.
    pub(super) fn holds(&mut self, frame: &[u8], stream: S) -> bool {
        let Some(gate) = self.gate else { return false };
        let number = (gate.look)(frame);
        self.works = true;
        if number != 0 {
            self.held.push((stream, number));
        }
        number != 0
    }

    /// Goes on with what frames wait for, and passes on each stream whose frame may go.
    pub(super) fn let_go(&mut self, mut go: impl FnMut(S)) {
        let Some(gate) = self.gate.filter(|_| self.has_work()) else { return };
        self.works = (gate.turn)();
        self.held.extract_if(.., |(_, number)| (gate.is_open)(*number)).for_each(|(stream, _)| go(stream));
    }

    pub(super) fn has_work(&self) -> bool {
        self.works || !self.held.is_empty()
    }

    /// The frames of these streams go nowhere.
    pub(super) fn lose(&mut self, is_lost: impl Fn(S) -> bool) {
        for (_, number) in self.held.extract_if(.., |(stream, _)| is_lost(*stream)) {
            self.gate.into_iter().for_each(|gate| (gate.forget)(number));
        }
    }
}
