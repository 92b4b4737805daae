//! Random samples of behaviours, for racks on which all of them would take too long. `SUITE_SEED` chooses which, the
//! clock without it.

use std::time::SystemTime;

/// Returns the seed of the samples.
pub fn seed() -> u64 {
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    std::env::var("SUITE_SEED").map_or_else(|_| clock(), |seed| seed.parse().expect("SUITE_SEED is a number"))
}

/// Returns how many that variable wants: a number, or `all`.
pub fn size(variable: &str, usual: usize) -> usize {
    match std::env::var(variable).ok().as_deref() {
        Some("all") => usize::MAX,
        Some(count) => count.parse().unwrap_or_else(|_| panic!("{variable} is a number, or `all`")),
        None => usual,
    }
}

/// Returns so many of them.
pub fn of<T>(mut all: Vec<T>, seed: u64, size: usize) -> Vec<T> {
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    all.truncate(size);
    all
}
