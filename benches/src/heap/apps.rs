//! The four programs on the heap (the examples `gemm`, `dataframe`, `heap-kv`, `social`) as contenders of `heap`: two
//! workers of one process, and one of each of two (DRust, figure 7), beside their twins in plain Rust and beside
//! foreign programs that do the same. The answers of all programs of a kind are compared.

use super::blas::{self, Way};
use crate::prelude::*;
use crate::programs::build_unless;
use clap::Subcommand;
use gossamer_examples::{dataframe, gemm, heap_kv, social};
use std::process::ExitCode;

/// The examples, each as it is.
#[derive(Debug, Subcommand)]
pub enum HeapApp {
    Gemm(gemm::options::Options),
    Dataframe(dataframe::options::Options),
    HeapKv(heap_kv::options::Options),
    Social(social::options::Options),
}

pub fn app_command(app: HeapApp) -> Result<()> {
    let status = match app {
        HeapApp::Gemm(options) => gemm::start::run_with(options),
        HeapApp::Dataframe(options) => dataframe::start::run_with(options),
        HeapApp::HeapKv(options) => heap_kv::start::run_with(options),
        HeapApp::Social(options) => social::start::run_with(options),
    };
    ensure!(status == ExitCode::SUCCESS, "the program failed");
    Ok(())
}

struct App {
    name: &'static str,
    arguments: &'static str,
    smoke: &'static str,
    /// The foreign programs that do the same.
    foreign: Option<Foreign>,
}

struct Foreign {
    /// Its name where it is skipped.
    contender: &'static str,
    package: &'static str,
    binary: &'static str,
    /// Ways to run it, and the arguments of each beside the work.
    ways: &'static [(&'static str, &'static str)],
}

/// polars, by each of its engines.
pub const POLARS: [&str; 2] = ["polars, memory", "polars, stream"];

const APPS: [App; 4] = [
    App { name: "gemm", arguments: "--size 1536 --tile 128", smoke: "--size 40 --tile 8", foreign: None },
    App {
        name: "dataframe",
        arguments: "--rows 10000000 --at-least 0",
        smoke: "--rows 5000 --keys 100 --at-least 0 --chunk 1000",
        foreign: Some(Foreign {
            contender: "polars",
            package: "polars",
            binary: "dataframe-polars",
            ways: &[(POLARS[0], "--engine memory"), (POLARS[1], "--engine stream")],
        }),
    },
    App {
        name: "heap-kv",
        arguments: "--operations 400000",
        smoke: "--keys 100 --operations 2000 --fibers 2",
        foreign: None,
    },
    App {
        name: "social",
        arguments: "--requests 20000",
        smoke: "--users 50 --requests 600 --connections 2",
        foreign: Some(Foreign { contender: "tonic", package: "tonic", binary: "social-tonic", ways: &[("tonic", "")] }),
    },
];

/// Fields of the answer on which all programs of a kind must agree, those that print them.
const FOUND: [&str; 10] = ["checksum", "kept", "joined", "keys", "labels", "digests", "top", "puts", "posted", "read"];
/// More rounds say little, and each takes a minute.
const ROUNDS_MAX: usize = 5;

/// Adds nanoseconds for each operation, row or request. One that has found something else is an error.
pub fn measure(bench: &mut Bench, comparison: &Comparison, all: &mut Figures) -> Result<()> {
    let mut kinds = Vec::new();
    for app in &APPS {
        kinds.push((app.name, ways(app, comparison.smoke, &mut bench.skipped)?));
    }
    kinds.push((blas::NAME, blas::ways(comparison.smoke, &mut bench.skipped)?));
    for (kind, ways) in kinds {
        let mut first: Option<(String, Value)> = None;
        let name = |way: &Way| format!("{kind}, {}", way.name);
        let samples = bench.some_rounds(comparison.rounds.min(ROUNDS_MAX), &ways, name, |way, _| {
            // Each worker, or rank, multiplies on its own thread; else the library begins with more, which spin.
            let report: Value = way.program.clone().set("OPENBLAS_NUM_THREADS", "1").told()?;
            let (of_first, found) = first.get_or_insert_with(|| (way.name.clone(), report.clone()));
            agree(found, &report).with_context(|| format!("beside {of_first}"))?;
            Ok(1e9 / report[way.figure].as_f64().context("it has no speed")?)
        })?;
        for (way, samples) in ways.iter().zip(samples) {
            all.add(kind, &way.name, "ns", samples);
        }
    }
    Ok(())
}

fn ways(app: &App, is_smoke: bool, skipped: &mut Skipped) -> Result<Vec<Way>> {
    let App { name, arguments, smoke, foreign } = app;
    let work = if is_smoke { smoke } else { arguments };
    let own = Program::own(&format!("heap-app {name} --json --threads 2 {work}"))?;
    let way = |name: &str, figure, program: &Program, more: &str| {
        let program = program.clone().say(more);
        Way { name: name.to_owned(), program, figure }
    };
    let mut all = vec![
        way("1 x 2", "a_second", &own, ""),
        way("2 x 1, shm", "a_second", &own, "--local 2 --fabric shm"),
        way("2 x 1, tcp", "a_second", &own, "--local 2 --fabric tcp"),
        // Both in one run; with it the store also checks each get, as its twin does.
        way("1 x 2, verified", "a_second", &own, "--verify"),
        way("twin", "twin_a_second", &own, "--verify"),
    ];
    if let Some(Foreign { contender, package, binary, ways }) = foreign
        && let Some(program) = skipped.sort(contender, build_unless(is_smoke, package, binary, "")?)
    {
        let program = Program::at(program).say(&format!("--threads 2 {work}"));
        all.extend(ways.iter().map(|(name, more)| way(name, "a_second", &program, more)));
    }
    Ok(all)
}

/// Have both found the same, where both say it? Sums of many numbers may differ in their last bits.
fn agree(one: &Value, other: &Value) -> Result<()> {
    let is_same = FOUND.into_iter().filter(|what| !one[what].is_null() && !other[what].is_null());
    for what in is_same {
        ensure!(is_alike(&one[what], &other[what]), "{what}: {} and {}", one[what], other[what]);
    }
    Ok(())
}

fn is_alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_alike(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(name, one)| is_alike(one, &other[name]))
        }
        (Value::Number(number), _) if number.is_f64() => {
            let (one, other) = (number.as_f64().unwrap_or(f64::NAN), other.as_f64().unwrap_or(f64::NAN));
            (one - other).abs() <= 1e-9 * one.abs()
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_told() {
        let one = json!({"checksum": "a", "kept": 3, "top": [{"name": "x", "sum": 1.5}], "time_s": 1});
        assert!(agree(&one, &json!({"kept": 3, "top": [{"name": "x", "sum": 1.500_000_000_1}], "time_s": 2})).is_ok());
        for other in [json!({"checksum": "b"}), json!({"kept": 4}), json!({"top": []})] {
            assert!(agree(&one, &other).is_err(), "{other}");
        }
        for sum in [json!(1.6), json!(null), json!("1.5")] {
            assert!(agree(&one, &json!({"top": [{"name": "x", "sum": sum}]})).is_err());
        }
    }
}
