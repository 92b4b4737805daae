//! The tiers that any cargo project has: formatting, lints, documentation, tests.
//!
//! Here: their commands. Not here: the models, sanitizers and house rules.
//!
//! Invariant: all of them use the default target folder and profile and the whole workspace, for which cargo chooses
//! other features than for a part of it, so that none rebuilds for another.

use crate::command::Context;
use crate::tier::Verdict;

/// `cargo fmt`, checking only.
pub fn fmt(context: &Context) -> anyhow::Result<Verdict> {
    if !context.cargo(&["fmt", "--version"]).capture()?.success {
        return Ok(Verdict::skipped("this toolchain has no rustfmt: `cargo dev install-tools`"));
    }
    context.cargo(&["fmt", "--all", "--", "--check"]).check()
}

/// Clippy over every target of the workspace, and the documentation.
pub fn lint(context: &Context) -> anyhow::Result<Verdict> {
    let documentation =
        context.cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings").check()?;
    if !context.cargo(&["clippy", "--version"]).capture()?.success {
        return Ok(documentation.and(Verdict::skipped("this toolchain has no clippy: `cargo dev install-tools`")));
    }
    let clippy =
        context.cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]).check()?;
    // As programs in Rust have it, without the parts for the C API, which `trust-ffi` brings in above.
    let alone =
        context.cargo(&["clippy", "--quiet", "--package", "gossamer-trust", "--all-targets", "--", "-D", "warnings"]);
    let bare = ["clippy", "--quiet", "--package", "gossamer-trust", "--no-default-features", "--all-targets"];
    let bare = context.cargo(&bare).args(&["--", "-D", "warnings"]).check()?;
    // Not in `cargo test`, and so none of "all targets".
    let hosts = ["clippy", "--quiet", "--workspace", "--test", "hosts", "--", "-D", "warnings"];
    let verbs = ["clippy", "--quiet", "--workspace", "--features", "gossamer-comm/devices", "--test", "verbs"];
    let verbs = context.cargo(&verbs).args(&["--", "-D", "warnings"]).check()?;
    Ok(documentation.and(clippy).and(alone.check()?).and(bare).and(context.cargo(&hosts).check()?).and(verbs))
}

/// Builds the tests, but for those in the documentation.
pub fn build(context: &Context) -> anyhow::Result<Verdict> {
    context.cargo(&["test", "--workspace", "--no-run"]).check()
}

/// Builds the programs, as the tests have them: of the whole workspace, and with a test, for which alone cargo turns on
/// the features that tests want of libraries. Else all libraries would be built anew.
pub fn programs(context: &Context) -> anyhow::Result<Verdict> {
    context.cargo(&["build", "--quiet", "--workspace", "--bins", "--test", "lacks"]).check()
}

/// All tests, documentation included, and the benchmarks at their smallest size.
pub fn test(context: &Context) -> anyhow::Result<Verdict> {
    context.cargo(&["test", "--workspace", "--no-fail-fast"]).tests()
}

/// Racks of the suite in [`quick_test`]: one process, two on each fabric that needs no device.
const QUICK_RACKS: &str = "alone,shm2,tcp2";

/// The unit tests, the suite on few racks, and the examples of the documentation.
pub fn quick_test(context: &Context) -> anyhow::Result<Verdict> {
    // No other programs have unit tests, and `--bins` would build a test program of each.
    let unit = context.cargo(&["test", "--workspace", "--no-fail-fast", "--lib", "--bin", "dev", "--bin"]);
    let unit = unit.args(&["gossamer-bench", "--test", "suite"]).env("SUITE_WAYS", QUICK_RACKS).tests()?;
    Ok(unit.and(context.cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]).tests()?))
}
