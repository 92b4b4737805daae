//! The four programs on the heap (the examples `gemm`, `dataframe`, `heap-kv`, `social`) as contenders of `heap`: two
//! workers of one process, and one of each of two (DRust, figure 7), beside their twins in plain Rust and beside
//! foreign programs that do the same. The answers of all programs of a kind are compared.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use gossamer_examples::{dataframe, gemm, heap_kv, social};
use serde_json::Value;

use super::rack::Told;
use super::{blas, run};
use crate::echo::programs::{build, own};
use crate::options::Comparison;
use crate::rounds::{Skipped, interleaved};

/// The examples, each as it is.
#[derive(Debug, Subcommand)]
pub enum HeapApp {
    Gemm(gemm::options::Options),
    Dataframe(dataframe::options::Options),
    HeapKv(heap_kv::options::Options),
    Social(social::options::Options),
}

/// Runs one.
///
/// # Errors
/// It failed; it has said why.
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

/// One of the programs.
struct App {
    name: &'static str,
    arguments: &'static str,
    smoke: &'static str,
    /// The foreign programs that do the same.
    foreign: Option<Foreign>,
}

/// A program of others.
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

/// A way to run a program.
pub struct Way {
    pub work: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Where its report says how many were done a second.
    pub figure: &'static str,
}

/// Nanoseconds for each operation, row or request.
///
/// # Errors
/// One that fails, or has found something else.
pub fn measure_apps(comparison: &Comparison, skipped: &mut Skipped) -> Result<Told> {
    let mut told = Told::new();
    let mut kinds = Vec::new();
    for app in &APPS {
        kinds.push((app.name, ways(app, comparison.smoke, skipped)?));
    }
    kinds.push((blas::NAME, blas::ways(comparison.smoke, skipped)?));
    for (name, ways) in kinds {
        eprintln!("heap: {name}");
        let mut first: Option<(String, Value)> = None;
        interleaved(comparison.rounds.min(ROUNDS_MAX), ways.len(), 1, |_, index| {
            let way = &ways[index];
            let arguments: Vec<&str> = way.arguments.iter().map(String::as_str).collect();
            let output = run(&way.program, &arguments).with_context(|| way.work.clone())?;
            let report = output.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
            let report = report.with_context(|| format!("{} tells nothing: {output:?}", way.work))?;
            let (of_first, found) = first.get_or_insert_with(|| (way.work.clone(), report.clone()));
            agree(found, &report).with_context(|| format!("{of_first}, and {}", way.work))?;
            let a_second = report[way.figure].as_f64().with_context(|| format!("{} has no speed", way.work))?;
            told.entry(way.work.clone()).or_default().push(1e9 / a_second);
            Ok(())
        })?;
    }
    Ok(told)
}

/// A program of others, built where its figures are wanted.
///
/// # Errors
/// There is no folder to build in.
pub fn foreign(package: &str, binary: &str, is_smoke: bool) -> Result<std::result::Result<PathBuf, String>> {
    if is_smoke { Ok(Err("a smoke run builds no program of others".to_owned())) } else { build(package, binary) }
}

fn ways(app: &App, is_smoke: bool, skipped: &mut Skipped) -> Result<Vec<Way>> {
    let work: Vec<&str> = (if is_smoke { app.smoke } else { app.arguments }).split(' ').collect();
    let own = own()?;
    let of = |contender: &str, figure, more: &str| Way {
        work: format!("{}, {contender}", app.name),
        program: own.clone(),
        arguments: ["heap-app", app.name, "--json", "--threads", "2"]
            .into_iter()
            .chain(work.iter().copied())
            .chain(more.split_whitespace())
            .map(str::to_owned)
            .collect(),
        figure,
    };
    let mut all = vec![
        of("1 x 2", "a_second", ""),
        of("2 x 1, shm", "a_second", "--local 2 --fabric shm"),
        of("2 x 1, tcp", "a_second", "--local 2 --fabric tcp"),
        // Both in one run; with it the store also checks each get, as its twin does.
        of("1 x 2, verified", "a_second", "--verify"),
        of("twin", "twin_a_second", "--verify"),
    ];
    if let Some(Foreign { contender, package, binary, ways }) = &app.foreign
        && let Some(program) = skipped.sort(contender, foreign(package, binary, is_smoke)?)
    {
        for (name, more) in *ways {
            let words = ["--threads", "2"].into_iter().chain(work.iter().copied()).chain(more.split_whitespace());
            let (program, arguments) = (program.clone(), words.map(str::to_owned).collect());
            all.push(Way { work: format!("{}, {name}", app.name), program, arguments, figure: "a_second" });
        }
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
