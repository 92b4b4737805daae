//! Runs a test of bytes from a network for the configured number of inputs, and reports the input that made it fail.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::inputs::Random;

/// Default number of inputs.
const INPUTS: u64 = 2_000;
/// Divisor of the number of inputs that each cost a key exchange.
const SLOW: u64 = 10;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")),
        Err(_) => default,
    }
}

/// Calls `test` once for each input, with its own random numbers.
pub(crate) fn run(name: &str, test: impl FnMut(Random<'_>)) {
    repeat(name, number("GOSSAMER_FUZZ", INPUTS), test);
}

/// Same as [`run`], for tests that take long.
pub(crate) fn run_slow(name: &str, test: impl FnMut(Random<'_>)) {
    repeat(name, number("GOSSAMER_FUZZ", INPUTS).div_ceil(SLOW), test);
}

fn repeat(name: &str, inputs: u64, mut test: impl FnMut(Random<'_>)) {
    let seed = number("GOSSAMER_SEED", 1);
    for input in 0..inputs {
        let failing = Failing { name, seed, input };
        test(&mut SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ input));
        std::mem::forget(failing);
    }
    println!("{name}: {inputs} inputs, seed {seed}");
}

/// Prints the input's number when a panic drops it.
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
