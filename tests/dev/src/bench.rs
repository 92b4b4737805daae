//! The figures of docs/benchmarks: measured at full size, kept as JSON, drawn as SVG.
//!
//! Here: the documented arguments of each measurement. Not here: the measuring and the drawing
//! (package `gossamer-bench`).
//!
//! Invariant: what is drawn was measured by the same run of this tier.

use crate::command::Context;
use crate::tier::{State, Verdict};

/// Where figures and their data are kept, under the workspace root.
const FOLDER: &str = "docs/benchmarks";

/// The measurements: name of the JSON file, and the arguments that make it. `targets` says of each target
/// of the crate whether it was met, and does not fail over it: a busy machine is no mistake of the code.
const MEASUREMENTS: [(&str, &[&str]); 7] = [
    ("fetch-add", &["fetch-add", "--threads", "2", "--objects", "1,16,64,1024,1000000", "--dist", "uniform,zipf"]),
    ("latency", &["latency"]),
    ("parts", &["parts"]),
    ("targets", &["targets"]),
    ("echo", &["echo"]),
    ("kv-tables", &["kv", "--tables"]),
    ("kv-servers", &["kv"]),
];

/// Measures, then draws.
pub fn figures(context: &Context) -> anyhow::Result<Verdict> {
    std::fs::create_dir_all(context.root.join(FOLDER))?;
    let mut verdict = Verdict::passed();
    for (name, arguments) in MEASUREMENTS {
        let json = format!("{FOLDER}/{name}.json");
        let measured = bench(context, arguments, &["--json", &json])?;
        let failed = !matches!(measured.state, State::Passed);
        verdict = verdict.and(measured);
        if !failed {
            verdict = verdict.and(bench(context, &["plot"], &["--json", &json, "--out", FOLDER])?);
        }
    }
    Ok(verdict)
}

fn bench(context: &Context, arguments: &[&str], more: &[&str]) -> anyhow::Result<Verdict> {
    context
        .cargo(&["run", "--quiet", "--release", "--package", "gossamer-bench", "--"])
        .args(arguments)
        .args(more)
        .check()
}
