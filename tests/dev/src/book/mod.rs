//! `cargo dev bench-book`: every measurement of docs/benchmarks.md at full size, kept as JSON, drawn as SVG, written
//! into the document.
//!
//! Here: which measurements there are, in which order, and how they are run. Not here: the measuring and the drawing
//! (package `gossamer-bench`), the tables of the document (`tables`), how they get into it (`document`).
//!
//! Invariant: figures of a quick run never reach docs/.

pub mod document;
mod tables;

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;

use crate::command::Context;
use crate::tier::{State, Verdict};

/// Folder of figures and their data, under the workspace root.
const FOLDER: &str = "docs/benchmarks";
/// Folder of those of a quick run, under the target folder.
const QUICK_FOLDER: &str = "bench-book";
/// A measurement may take so many times as long as it should, and this long to be built.
const OVERRUN_MAX: u64 = 4;
const BUILD_S: u64 = 1800;

/// Options of `bench-book`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct BenchBook {
    /// Only these measurements (repeatable, or with commas); a wrong name lists them all
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// At their smallest size, into target/bench-book: shows that all of it works, and says nothing about speed
    #[arg(long)]
    quick: bool,
    /// Measures nothing: writes the tables of the document anew from the files there are
    #[arg(long, conflicts_with_all = ["only", "quick"])]
    tables: bool,
}

/// A measurement: the file it makes, how long it takes on two cores, and the arguments of `gossamer-bench`.
struct Measurement {
    name: &'static str,
    seconds: u64,
    arguments: &'static [&'static str],
}

const fn measurement(name: &'static str, seconds: u64, arguments: &'static [&'static str]) -> Measurement {
    Measurement { name, seconds, arguments }
}

const KEYS: &str = "1,100,1000,10000,100000,1000000,10000000";

/// All of them, the quick ones first. They judge targets and do not fail over them: a busy machine is no mistake of the
/// code.
const MEASUREMENTS: [Measurement; 20] = [
    measurement("targets", 80, &["targets"]),
    measurement("fetch-add", 180, &["fetch-add"]),
    measurement("fetch-add-pause", 180, &["fetch-add", "--pause"]),
    measurement("latency", 160, &["latency"]),
    measurement("echo", 480, &["echo"]),
    measurement("sssp", 600, &["sssp", "--workers", "1,2"]),
    measurement("kv-tables", 400, &["kv", "--tables", "--keys", KEYS, "--mix", "5"]),
    measurement("kv-tables-writes", 60, &["kv", "--tables", "--keys", "1000", "--dist", "uniform", "--mix", WRITES]),
    measurement("kv-tables-many-writes", 300, &["kv", "--tables", "--keys", MANY, "--dist", "zipf", "--mix", WRITES]),
    measurement("kv-servers", 260, &["kv", "--mix", "5,50", "--rounds", "3"]),
    measurement("kv-servers-keys", 600, &["kv", "--keys", KEYS, "--mix", "5", "--rounds", "3"]),
    measurement(
        "kv-servers-writes",
        120,
        &["kv", "--keys", "1000", "--dist", "uniform", "--mix", WRITES, "--rounds", "3"],
    ),
    measurement(
        "kv-servers-many-writes",
        420,
        &["kv", "--keys", MANY, "--dist", "zipf", "--mix", WRITES, "--rounds", "3"],
    ),
    measurement("kv-ycsb", 260, &["kv", "--mix", "C,D", "--rounds", "3"]),
    measurement("memcached", 300, &["memcached"]),
    measurement("array", 900, &["array"]),
    measurement("busy", 600, &["busy", "--rounds", "5", "--millis", "150"]),
    measurement("tune", 210, &["tune", "--loads", "fetch-add", "--millis", "5000"]),
    measurement("tune-loads", 210, &["tune", "--loads", "kv,echo,hog", "--millis", "5000"]),
    measurement("tune-phases", 90, &["tune", "--loads", "phases,pauses", "--millis", "8000"]),
];
/// Keys of the thesis' figure 13, and shares of writes.
const MANY: &str = "10000000";
const WRITES: &str = "0,5,50,100";

/// Files of commands that the book does not run: of other machines, of programs that take long to build.
const KEPT: [&str; 9] = [
    "16-cores/fetch-add",
    "16-cores/memcached",
    "async",
    "durable",
    "heap",
    "operations",
    "region",
    "region-moves",
    "transfers",
];

/// The command that makes the file of this name.
fn command(file: &str) -> String {
    if KEPT.contains(&file) {
        format!("cargo gossamer-bench {file} --json docs/benchmarks/{file}.json")
    } else {
        format!("cargo dev bench-book --only {file}")
    }
}

/// Measures, draws, and writes the document.
///
/// # Errors
/// A name that no measurement has; a folder or document that cannot be written.
pub fn make(context: &Context, options: &BenchBook) -> anyhow::Result<Verdict> {
    let folder = if options.quick { context.target.join(QUICK_FOLDER) } else { context.root.join(FOLDER) };
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let chosen = if options.tables { Vec::new() } else { chosen(&options.only)? };
    let mut verdict = Verdict::passed();
    let (begun, mut expected) = (Instant::now(), 0);
    let total: u64 = chosen.iter().map(|measurement| measurement.seconds).sum();
    for (index, measurement) in chosen.iter().enumerate() {
        let left = if options.quick { None } else { Some(left_s(begun.elapsed().as_secs(), expected, total)) };
        announce(index + 1, chosen.len(), measurement, left);
        verdict = verdict.and(measure(context, measurement, &folder, options.quick)?);
        expected += measurement.seconds;
    }
    let source = context.root.join(document::PATH);
    let text = fs::read_to_string(&source).with_context(|| format!("{} cannot be read", source.display()))?;
    let target = if options.quick { folder.join("benchmarks.md") } else { source };
    let written = document::written(&text, &folder).with_context(|| document::PATH)?;
    remove_unlinked(&folder, &written)?;
    fs::write(&target, written).with_context(|| format!("{} cannot be written", target.display()))?;
    println!("written: {}", target.display());
    Ok(verdict)
}

/// Removes the pictures that the document does not link; `gossamer-bench plot` draws them again from the file of
/// results.
fn remove_unlinked(folder: &Path, document: &str) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".svg") && !document.contains(&format!("/{name})")) {
            fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))?;
        }
    }
    Ok(())
}

fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Measurement>> {
    if let Some(unknown) = only.iter().find(|name| MEASUREMENTS.iter().all(|known| known.name != *name)) {
        let known: Vec<_> = MEASUREMENTS.iter().map(|known| known.name).collect();
        anyhow::bail!("no measurement is called {unknown:?}; there are {}", known.join(", "));
    }
    let is_chosen = |known: &&Measurement| only.is_empty() || only.iter().any(|name| name == known.name);
    Ok(MEASUREMENTS.iter().filter(is_chosen).collect())
}

/// Seconds that are left, by how fast it went so far; the first measurement, which waits for the build, says little.
fn left_s(elapsed: u64, expected: u64, total: u64) -> u64 {
    let rest = total - expected;
    (rest * elapsed.max(1)).checked_div(expected).unwrap_or(rest)
}

fn announce(number: usize, of: usize, measurement: &Measurement, left: Option<u64>) {
    let minutes = |seconds: u64| seconds.div_ceil(60);
    let Measurement { name, seconds, .. } = measurement;
    match left {
        Some(left) => {
            println!("\n[{number}/{of}] {name}: about {} min; about {} min left", minutes(*seconds), minutes(left))
        }
        None => println!("\n[{number}/{of}] {name}, quick"),
    }
}

fn measure(context: &Context, measurement: &Measurement, folder: &Path, quick: bool) -> anyhow::Result<Verdict> {
    // Named as in the document's commands where it can be: from the root, which all programs run in.
    let folder = folder.strip_prefix(&context.root).unwrap_or(folder).display().to_string();
    let json = format!("{folder}/{}.json", measurement.name);
    let limit_s = BUILD_S + OVERRUN_MAX * measurement.seconds;
    let bench = |arguments: &[&str], more: &[&str]| {
        let run = context.cargo(&["run", "--quiet", "--release", "--package", "gossamer-bench", "--"]);
        run.within(limit_s).args(arguments).args(more).check()
    };
    let size: &[&str] = if quick { &["--smoke"] } else { &[] };
    let measured = bench(measurement.arguments, &[&["--json", &json], size].concat())?;
    if !matches!(measured.state, State::Passed) {
        return Ok(measured);
    }
    Ok(measured.and(bench(&["plot"], &["--json", &json, "--out", &folder])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own_and_the_unknown_is_answered_with_all() {
        for (index, one) in MEASUREMENTS.iter().enumerate() {
            assert!(MEASUREMENTS[..index].iter().all(|other| other.name != one.name), "{}", one.name);
        }
        assert_eq!(chosen(&[]).expect("all").len(), MEASUREMENTS.len());
        assert_eq!(chosen(&["sssp".to_owned()]).expect("one").len(), 1);
        let error = chosen(&["bfs".to_owned()]).err().expect("unknown").to_string();
        assert!(error.contains("fetch-add-pause") && error.contains("kv-ycsb"), "{error}");
    }

    #[test]
    fn what_is_left_follows_the_pace() {
        assert_eq!(left_s(0, 0, 100), 100);
        assert_eq!(left_s(20, 10, 100), 180);
        assert_eq!(left_s(5, 100, 100), 0);
    }

    #[test]
    fn pictures_stay_where_the_document_links_them() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["linked.svg", "unlinked.svg", "figures.json"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        remove_unlinked(folder.path(), "Plotted: [linked](benchmarks/linked.svg).").expect("removed");
        let is_there = |name: &str| folder.path().join(name).exists();
        assert_eq!([is_there("linked.svg"), is_there("unlinked.svg"), is_there("figures.json")], [true, false, true]);
    }

    #[test]
    fn each_table_is_of_a_measurement_or_of_a_file_that_is_kept() {
        for table in tables::ALL {
            let is_measured = MEASUREMENTS.iter().any(|known| known.name == table.file);
            assert!(is_measured != KEPT.contains(&table.file), "{}: no file {}", table.name, table.file);
        }
    }
}
