//! Interleavings: every one of them in a small model (loom), very many of them in the real thing (stress).
//!
//! Here: how the two are built and bounded. Not here: the models (`loom_…` in trust, comm, trust/durable,
//! tests/array-model and tests/heap-model) and the stress tests (those of `trust`, the rack and the array that are
//! named `stress_…`; some read the variables that are set here).
//!
//! Invariant: loom builds have a target folder of their own, because `--cfg loom` changes every crate.

use crate::command::{Command, Context};
use crate::tier::Verdict;
use std::time::{SystemTime, UNIX_EPOCH};

/// The packages that hold models.
const MODELLED: [&str; 5] = ["gossamer-trust", "gossamer-comm", "gossamer-durable", "array-model", "heap-model"];

/// Loom over the models, which are the tests named `loom_…`.
pub fn models(context: &Context) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::passed();
    for package in MODELLED {
        let tests = context
            .cargo(&["test", "--release", "--no-fail-fast", "--package", package, "--lib"])
            .args(&["--target-dir", &context.target.join("loom").to_string_lossy()]);
        verdict = verdict.and(modelled(tests).tests_named(&["loom_"])?);
    }
    Ok(verdict)
}

/// The command, which builds in the profile `release`, with the settings for models.
pub fn modelled(command: Command<'_>) -> Command<'_> {
    command
        .rustflag("--cfg loom")
        .env("LOOM_MAX_PREEMPTIONS", variable("LOOM_MAX_PREEMPTIONS", "3"))
        // The models want an optimised build, not the minutes that whole-program linking takes.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
}

/// The stress tests in release mode, for longer than `cargo test` gives them.
pub fn stress(context: &Context) -> anyhow::Result<Verdict> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let seed = variable("STRESS_SEED", &clock.to_string());
    let seconds = variable("STRESS_SECONDS", "60");
    context
        .cargo(&["test", "--release", "--no-fail-fast", "--lib"])
        .args(&["--package", "gossamer-trust", "--package", "gossamer-rack", "--package", "gossamer-array"])
        .args(&["--test", "stress", "--test", "memory", "--test", "delays"])
        .env("STRESS_SEED", seed)
        .env("STRESS_SECONDS", seconds)
        .args(&["--", "--include-ignored"])
        .tests_named(&["stress_"])
}

/// A variable of the environment, or its default.
fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}
