//! The ways to which a thread has to see though nothing comes by them, as bits: something has not left, or not been
//! acknowledged.
//!
//! Order, as for `gossamer_ways::news`: the bit of a way is cleared before its outbox is looked at, and set behind each
//! frame that is added. So no frame is left without its bit; a bit may be there for nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the file's documentation.
pub(super) struct Arrears(Box<[AtomicU64]>);

impl Arrears {
    pub(super) fn new(machines: usize) -> Arrears {
        Arrears((0..machines.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn bit(&self, machine: u16) -> (&AtomicU64, u64) {
        (&self.0[usize::from(machine) / 64], 1 << (machine % 64))
    }

    // AcqRel, of `set` and `clear` with one another, and no look before: of the two the later one sees what came before
    // the earlier one, the frame or the bit. Relaxed looks: whoever would sleep makes a fence before, as does whoever
    // wakes it after setting a bit.

    pub(super) fn set(&self, machine: u16) {
        let (word, bit) = self.bit(machine);
        word.fetch_or(bit, Ordering::AcqRel);
    }

    pub(super) fn clear(&self, machine: u16) {
        let (word, bit) = self.bit(machine);
        word.fetch_and(!bit, Ordering::AcqRel);
    }

    pub(super) fn machines(&self) -> impl Iterator<Item = u16> {
        let words = (0u16..).step_by(64).zip(&self.0);
        let bits = words.map(|(first, word)| (first, word.load(Ordering::Relaxed)));
        bits.flat_map(|(first, word)| (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| first + bit))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_its_bit() {
        let arrears = Arrears::new(130);
        for machine in [0, 63, 64, 129] {
            assert!(arrears.is_empty() && arrears.machines().next().is_none());
            arrears.set(machine);
            arrears.set(machine);
            assert!(arrears.machines().eq([machine]) && !arrears.is_empty());
            arrears.clear(machine);
            arrears.clear(machine);
        }
        assert!(arrears.is_empty());
    }
}
