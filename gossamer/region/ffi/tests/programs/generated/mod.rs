//! Small programs, made from seeds, whose output does not depend on the order of their threads: over several machines
//! each has the output and status of a plain run.
//!
//! Here: the comparison. Not here: the programs (`program`), made of the scenes in `tests/c/scenes`.
//!
//! `GOSSAMER_SEEDS=A..B` chooses the seeds; without it they are 80, and 200 in `cargo dev compare-programs`. A failure
//! prints the seed, the program's path, and both outputs.

mod program;

use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use program::{Scenes, Wanted};

use crate::compared::{Outcome, STARTERS, compare};
use crate::{Place, run_within, start, succeeded};

/// Seeds, as `A..B`.
const SEEDS: &str = "GOSSAMER_SEEDS";
/// Seeds without that variable.
const USUAL: Range<u64> = 0..80;
/// Programs of one test.
const EACH: u64 = 4;
/// Longest time of a program that does not hang.
const LIMIT: Duration = Duration::from_secs(20);

/// Scenes that fail today, and why: programs are made without them, and a scene that no longer fails fails its test.
const FAILING: &[(&str, &str)] = &[];

/// Tests of all seeds, of each scene that fails, and of the comparison.
pub fn trials(place: &Arc<Place>, is_lacking: bool) -> Vec<Trial> {
    let scenes = Arc::new(Scenes::read(&place.root.join("gossamer/region/ffi/tests/c/scenes")));
    let seeds = match std::env::var(SEEDS).ok() {
        Some(text) => range(&text).unwrap_or_else(|| panic!("{SEEDS}={text}: seeds as 0..200")),
        None => USUAL,
    };
    let mut trials = Vec::new();
    let mut from = seeds.start;
    while from < seeds.end {
        let to = seeds.end.min(from + EACH);
        let (place, scenes) = (Arc::clone(place), Arc::clone(&scenes));
        let test = move || (from..to).try_for_each(|seed| holds(&place, &scenes, seed, &wanted()));
        trials.push(Trial::test(format!("generated::seeds_{from}_to_{to}"), test).with_ignored_flag(is_lacking));
        from = to;
    }
    for (scene, why) in FAILING {
        let (place, scenes) = (Arc::clone(place), Arc::clone(&scenes));
        let test = move || fails(&place, &scenes, scene, why);
        trials.push(Trial::test(format!("generated::{scene}_still_fails"), test).with_ignored_flag(is_lacking));
    }
    let place = Arc::clone(place);
    trials.push(Trial::test("generated::other_output_is_found", move || finds(&place)).with_ignored_flag(is_lacking));
    trials
}

fn range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some(from..to)
}

/// All scenes but those that fail.
fn wanted() -> Wanted {
    Wanted::Without(FAILING.iter().map(|(name, _)| *name).collect())
}

/// Builds a program, and runs it plainly and over machines.
fn outcome(
    place: &Place,
    text: &str,
    starter: usize,
    arguments: [&str; 2],
    limit: Duration,
) -> Result<(PathBuf, Outcome), Failed> {
    let source = tempfile::Builder::new().prefix("program").suffix(".c").tempfile_in(place.folder.path())?;
    std::fs::write(source.path(), text)?;
    let source = source.into_temp_path().keep()?;
    let built = source.with_extension("");
    let mut cc = Command::new("gcc");
    cc.args(["-std=gnu17", "-O1", "-w", "-pipe", "-pthread"]).arg(&source).arg("-o").arg(&built);
    succeeded(&crate::run(&mut cc)?)?;
    let plain = run_within(start(place, &[], &built).arg(arguments[0]), b"", limits::HANG)?;
    let plain = plain.ok_or_else(|| format!("{}: the plain run does not end", source.display()))?;
    let mut over = start(place, STARTERS[starter].1, &built);
    let outcome = compare(&plain, run_within(over.arg(arguments[1]), b"", limit)?);
    let _ = std::fs::remove_file(&built); // the folder is removed at the end, and many programs fill it
    Ok((source, outcome))
}

/// The program of a seed is right.
fn holds(place: &Place, scenes: &Scenes, seed: u64, wanted: &Wanted) -> Result<(), Failed> {
    let text = scenes.program(seed, wanted);
    let starter = (seed % STARTERS.len() as u64) as usize;
    let (source, outcome) = outcome(place, &text, starter, [""; 2], limits::bound(LIMIT))?;
    match outcome {
        Outcome::Right => Ok(std::fs::remove_file(source)?),
        Outcome::Refused(why) | Outcome::Wrong(why) => {
            // Where a failed program is found after the test.
            let kept = std::env::temp_dir().join(format!("gossamer-seed-{seed}.c"));
            std::fs::write(&kept, &text)?;
            let title = text.lines().next().unwrap_or_default();
            Err(format!("seed {seed} over {}: {}: {title}\n{why}", STARTERS[starter].0, kept.display()).into())
        }
    }
}

/// Programs of this scene alone fail, with one of a few seeds.
fn fails(place: &Place, scenes: &Scenes, scene: &'static str, why: &str) -> Result<(), Failed> {
    for seed in 0..6 {
        let text = scenes.program(seed, &Wanted::Only(scene));
        let (_, outcome) = outcome(place, &text, (seed % STARTERS.len() as u64) as usize, [""; 2], LIMIT)?;
        if !matches!(outcome, Outcome::Right) {
            return Ok(());
        }
    }
    Err(format!("{scene}: no longer fails ({why}): take it off the list").into())
}

/// Another output, another status, and a run without an end are each found.
fn finds(place: &Place) -> Result<(), Failed> {
    let text = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
                int main(int count, char **words) {\n\
                (void)count; if (words[1][0] == 'x') return 3; puts(words[1]); return 0; }\n";
    for (one, other, is_right) in [("a", "a", true), ("a", "b", false), ("a", "x", false), ("x", "a", false)] {
        let (_, found) = outcome(place, text, 0, [one, other], limits::HANG)?;
        if matches!(found, Outcome::Right) != is_right {
            return Err(format!("plainly {one}, over machines {other}: judged wrongly").into());
        }
    }
    match compare(&run_within(&mut Command::new("true"), b"", limits::HANG)?.ok_or("`true` hangs")?, None) {
        Outcome::Wrong(_) => Ok(()),
        _ => Err("a run without an end counts as right".into()),
    }
}
