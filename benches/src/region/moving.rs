//! `region-moves`: threads of C programs that move between machines (`--move`), beside pages that come by faults, and
//! the seven programs of `examples/c/region` with threads that may move, do, and stay.
//!
//! A move and a page are timed by `benches/region/moves.c`, a program by its own clock.

use super::locks::{self, Library, built, launch};
use super::{Answer, Contender, conclude, line_of_json, programs};
use crate::prelude::*;

const SOURCE: &str = "region/moves.c";
const FABRICS: [&str; 2] = ["shm", "tcp"];
/// Modes of that program, with the number of times, and that of a smoke run.
const TIMED: [(&str, u64, u64); 3] = [("page", 2000, 20), ("call", 2000, 20), ("signal", 300, 5)];
const ALLOCATIONS: (u64, u64) = (5_000_000, 1000);
const ALLOCATE: &str = "malloc and free";

/// The programs, with sizes for about two seconds of two threads, and those of a smoke run.
const PROGRAMS: [(&str, u64, u64); 7] = [
    ("matrix_multiply", 1400, 48),
    ("string_match", 40_000_000, 8192),
    ("linear_regression", 400_000_000, 8192),
    ("histogram", 400_000_000, 8192),
    ("kmeans", 4_000_000, 4096),
    ("word_count", 400_000_000, 8192),
    ("pca", 2000, 48),
];

/// Ways of a program: name, options of the launcher, threads.
const WAYS: [(&str, &str, u32); 4] = [
    ("never", "--local 2 --move never", 2),
    ("asked", "--local 2 --move asked", 2),
    ("placed at start", "--local 2 --pretend-hosts 2 --threads-at 2,2 --move never", 4),
    ("from machine 0", "--local 2 --pretend-hosts 2 --threads-at 4,0 --move self", 4),
];

/// Options of `region-moves`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("5")))]
pub struct RegionMoves {
    /// Only these contenders, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
}

pub fn command(mut options: RegionMoves) -> Result<()> {
    let mut bench = Bench::begin("region-moves", &mut options.comparison)?;
    let all = contenders(options.comparison.smoke, &mut bench.skipped)?;
    let all = chosen("contender", all, |one| &one.name, &options.only)?;
    conclude(bench, &options, &all, "of a page, of a move, of a block, else of the whole", targets)
}

fn contenders(is_smoke: bool, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let library = locks::library(is_smoke)?;
    let mut all = vec![];
    let moves = built(SOURCE, "moves-region", &[])?;
    let mut add = |name: String, words: &str, mode: &str, (times, smoke): (u64, u64)| -> Result<()> {
        let times = if is_smoke { smoke } else { times };
        let program = moves.clone().and_then(|moves| Ok((moves, library.clone()?)));
        let Some((moves, library)) = skipped.sort(&name, program) else { return Ok(()) };
        let program = launch(words, "auto", &library)?.with([moves]).say(&format!("{mode} {times}"));
        all.push(Contender { name, program, answer: Answer::Is(times), told: line_of_json });
        Ok(())
    };
    for fabric in FABRICS {
        for (mode, times, smoke) in TIMED {
            let words = format!("--local 2 --fabric {fabric} --move asked");
            add(format!("{mode}: {fabric}"), &words, mode, (times, smoke))?;
        }
    }
    for way in ["never", "asked"] {
        add(format!("{ALLOCATE}: {way}"), &format!("--local 2 --move {way}"), "allocate", ALLOCATIONS)?;
    }
    all.extend(of_programs(is_smoke, &library, skipped)?);
    Ok(all)
}

fn of_programs(is_smoke: bool, library: &Library, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let mut all = vec![];
    for (file, size, smoke) in PROGRAMS {
        let size = if is_smoke { smoke } else { size };
        let built = built(&format!("../examples/c/region/{file}.c"), &format!("{file}-moves"), &[])?;
        for (way, words, threads) in WAYS {
            let name = format!("{file}: {way}");
            let program = built.clone().and_then(|built| Ok((built, library.clone()?)));
            let Some((built, library)) = skipped.sort(&name, program) else { continue };
            let program = launch(words, "auto", &library)?.with([built]);
            // Its clock reports on standard error.
            let program = program.say(&format!("--size {size} --threads {threads}")).with_stderr();
            all.push(Contender { name, program, answer: Answer::AsOthers(file.to_owned()), told: programs::told });
        }
    }
    Ok(all)
}

fn targets(figures: &Figures) -> Vec<Verdict> {
    let over = |one: String, other: String| figures.over("", &one, &other);
    let mut targets = vec![];
    for (fabric, most) in [("shm", 3.0), ("tcp", 2.0)] {
        let name = format!("time of a move by a call over a page by a fault, {fabric}");
        targets.push(at_most(name, most, over(format!("call: {fabric}"), format!("page: {fabric}"))));
    }
    let name = format!("time of {ALLOCATE} with --move asked over never");
    targets.push(at_most(name, 1.0, over(format!("{ALLOCATE}: asked"), format!("{ALLOCATE}: never"))));
    for (file, ..) in PROGRAMS {
        let [never, asked, placed, moved] = WAYS.map(|(way, ..)| format!("{file}: {way}"));
        targets.push(at_most(format!("time of {file} with --move asked over never"), 1.02, over(asked, never)));
        targets.push(at_least(format!("{file} that moves by itself over placed at start"), 0.8, over(placed, moved)));
    }
    targets
}
