//! The fuzzer over all code that takes bytes from a network, another process or a file.
//!
//! Here: whether it can run on this machine, and its command. Not here: the targets (`tests/fuzz`).
//!
//! Invariant: without cargo-fuzz the tier is SKIPPED with the reason, before anything is built.

use crate::command::Context;
use crate::tier::Verdict;

/// The programs of `tests/fuzz`.
const TARGETS: [&str; 6] =
    ["secure_frames", "handshake", "tcp_frames", "daemon_messages", "control_messages", "durable_files"];

/// Time that each target runs, in seconds.
const SECONDS: &str = "60";

/// Each target, one after the other, for `FUZZ_SECONDS`. Inputs that cover new code are kept in
/// `tests/fuzz/corpus`, input that breaks something in `tests/fuzz/artifacts`.
pub fn targets(context: &Context) -> anyhow::Result<Verdict> {
    if !context.command("cargo", &["fuzz", "--version"]).capture()?.success {
        return Ok(Verdict::skipped("no cargo-fuzz: `cargo install cargo-fuzz`"));
    }
    let seconds = std::env::var("FUZZ_SECONDS").unwrap_or_else(|_| SECONDS.to_owned());
    let target_dir = context.target.join("fuzz");
    let mut verdict = Verdict::passed();
    for target in TARGETS {
        let run = context
            .command(
                "cargo",
                &["fuzz", "run", "--fuzz-dir", "tests/fuzz", "--target-dir", &target_dir.to_string_lossy(), target],
            )
            // The compiler flags of cargo-fuzz need a nightly, or this.
            .env("RUSTC_BOOTSTRAP", "1")
            .args(&[
                "--",
                &format!("-max_total_time={seconds}"),
                "-timeout=30",
                "-rss_limit_mb=2048",
                "-print_final_stats=1",
            ]);
        verdict = verdict.and(run.check()?);
    }
    Ok(verdict)
}
