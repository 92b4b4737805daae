//! Inputs of the tests: real bytes with random changes, and the sources of random decisions.

use rand::{Rng, RngCore};

/// Function that a fuzzer calls with each of its inputs.
pub type Target = Box<dyn FnMut(&[u8])>;

/// Source of a test's random decisions.
pub(crate) type Random<'a> = &'a mut dyn RngCore;

/// A fuzzer's input in place of random numbers; zeros after its end.
pub(crate) struct Script<'a>(pub(crate) &'a [u8]);

impl RngCore for Script<'_> {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill_bytes(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        let (taken, rest) = self.0.split_at(bytes.len().min(self.0.len()));
        bytes[..taken.len()].copy_from_slice(taken);
        bytes[taken.len()..].fill(0);
        self.0 = rest;
    }
}

/// Returns `real` with one to four changes, now and then with none.
pub(crate) fn mutate(real: &[u8], random: Random<'_>) -> Vec<u8> {
    let mut bytes = real.to_vec();
    for _ in 0..random.random_range(0..5) {
        let at = random.random_range(0..=bytes.len());
        let piece = random.random_range(1..=32);
        match random.random_range(0..8) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            2 if at < bytes.len() => bytes[at] = random.random(),
            3 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
            4 => drop(bytes.splice(at..at, std::iter::repeat_with(|| random.random()).take(piece))),
            5 => drop(bytes.drain(at..(at + piece).min(real.len().max(at)).min(bytes.len()))),
            6 => {
                let from = random.random_range(0..=bytes.len());
                let copy = bytes[from..(from + piece).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            _ => bytes.iter_mut().skip(at).take(piece).for_each(|byte| *byte = random.random()),
        }
    }
    bytes
}
