//! Real traffic changed at random, for the tests of whatever takes bytes from a network. How often
//! is said by `GOSSAMER_FUZZ` (a number of inputs), the seed by `GOSSAMER_SEED`; what fails prints
//! both.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Inputs where nothing else is said.
const INPUTS: u64 = 2_000;
/// Inputs that cost a key exchange each are this many times fewer.
const SLOW: u64 = 10;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")),
        Err(_) => default,
    }
}

/// Calls `test` once for each input, with its own random numbers.
pub(crate) fn run(name: &str, test: impl FnMut(&mut SmallRng)) {
    repeat(name, number("GOSSAMER_FUZZ", INPUTS), test);
}

/// As [`run`], for tests that take long.
pub(crate) fn run_slow(name: &str, test: impl FnMut(&mut SmallRng)) {
    repeat(name, number("GOSSAMER_FUZZ", INPUTS).div_ceil(SLOW), test);
}

fn repeat(name: &str, inputs: u64, mut test: impl FnMut(&mut SmallRng)) {
    let seed = number("GOSSAMER_SEED", 1);
    for input in 0..inputs {
        let failing = Failing { name, seed, input };
        test(&mut SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ input));
        std::mem::forget(failing);
    }
    println!("{name}: {inputs} inputs, seed {seed}");
}

/// Prints which input it was, when it is dropped by a panic.
struct Failing<'a> {
    name: &'a str,
    seed: u64,
    input: u64,
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        println!("{}: input {} of GOSSAMER_SEED={} failed", self.name, self.input, self.seed);
    }
}

/// `real` with one to four changes, now and then with none.
pub(crate) fn mutate(real: &[u8], random: &mut SmallRng) -> Vec<u8> {
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
