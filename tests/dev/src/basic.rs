//! The tiers that any cargo project has: formatting, lints, documentation, tests.
//!
//! Here: their commands. Not here: the models, sanitizers and house rules.
//!
//! Invariant: all of them use the default target folder and profile, so that none rebuilds for another.

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
    // Not in `cargo test`, and so none of "all targets".
    let hosts = ["clippy", "--quiet", "--package", "gossamer-tests", "--test", "hosts", "--", "-D", "warnings"];
    let verbs = ["clippy", "--quiet", "--package", "comm", "--features", "conformance", "--all-targets"];
    let verbs = context.cargo(&verbs).args(&["--", "-D", "warnings"]).check()?;
    Ok(documentation.and(clippy).and(context.cargo(&hosts).check()?).and(verbs))
}

/// The tests of the default members, documentation included.
pub fn test(context: &Context) -> anyhow::Result<Verdict> {
    context.cargo(&["test", "--no-fail-fast"]).tests()
}

/// The benchmarks at their smallest size, as tests of their answers.
pub fn bench_smoke(context: &Context) -> anyhow::Result<Verdict> {
    context.cargo(&["test", "--no-fail-fast", "--package", "gossamer-bench"]).tests()
}
