//! How `pagerank` and `components` run: the graph, the rounds, the comparison, the report.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use graph::Vertex;
use indicatif::ProgressBar;

use super::build::{Built, Use, build};
use super::options::{Common, Components, PageRank};
use super::report::{Found, Report, Verdict};
use super::{components, pagerank, single};
use crate::machines;
use crate::program::{Program, print};
use crate::progress;

/// Runs `pagerank` with the arguments of this process.
pub fn pagerank() -> ExitCode {
    let options = PageRank::parse(); // exits with status 2 and the usage where they are wrong
    let (program, rack, args) = (Program("pagerank"), options.common.rack.clone(), options.machine_args());
    program.end(machines::run(program, &rack, args, move || shown(&options.common, rank(&options)?)))
}

/// Runs `components` with the arguments of this process.
pub fn components() -> ExitCode {
    let options = Components::parse();
    let (program, rack, args) = (Program("components"), options.common.rack.clone(), options.machine_args());
    program.end(machines::run(program, &rack, args, move || shown(&options.common, label(&options.common)?)))
}

/// Prints the report. Whether all is right.
fn shown(options: &Common, report: Report) -> anyhow::Result<bool> {
    print(&if options.json { format!("{:#}\n", report.json()) } else { report.to_string() })?;
    Ok(report.is_good())
}

/// Runs on a fiber of the first machine.
///
/// # Errors
/// A file that is no graph; arrays that find no memory; a worker that did not do its part.
pub fn rank(options: &PageRank) -> anyhow::Result<Report> {
    let PageRank { common, rounds } = options;
    let terminal = common.rack.progress_on.as_deref();
    let built = build(&common.source, terminal, Use::Ranks, |pages| 1.0 / pages as f64)?;
    let bar = progress::bar(u64::from(*rounds), "{msg} {bar:40} {human_pos}/{human_len} rounds", terminal);
    bar.set_message("ranking");
    let found = pagerank::rank(&built, *rounds, &bar)?;
    bar.finish_and_clear();
    let numbers = built.numbers.clone().context("ranks have numbers")?;
    let top = pagerank::top(&found.ranks, &numbers)
        .into_iter()
        .map(|(page, rank)| (page + built.first as usize, rank))
        .collect();
    let verdict = if common.verify {
        let (pages, links) = single::edges(&common.source)?;
        let expected = single::ranks(pages, &links, *rounds);
        let (mut sum, mut largest, numbers) = (0.0, 0.0_f64, numbers.snapshot()?);
        let numbers = numbers.slice();
        for chunk in found.ranks.views(0..pages) {
            for (number, rank) in chunk.indexed() {
                let page = numbers[number] as usize;
                let difference = (rank - expected[page]).abs();
                sum += difference;
                // `max` would drop NaN.
                let share = difference / expected[page];
                largest = if share > largest || share.is_nan() { share } else { largest };
            }
        }
        Some(Verdict::Ranks { sum, largest })
    } else {
        None
    };
    Ok(report(&built, *rounds, found.time, Found::Ranks(top), verdict))
}

/// Runs on a fiber of the first machine.
///
/// # Errors
/// A file that is no graph; arrays that find no memory; a worker that did not do its part.
pub fn label(options: &Common) -> anyhow::Result<Report> {
    let terminal = options.rack.progress_on.as_deref();
    let built = build(&options.source, terminal, Use::Components, |_| Vertex::MAX)?;
    let bar: ProgressBar = progress::bar(0, "{msg} {human_pos} rounds", terminal);
    bar.set_message("labelling");
    let found = components::label(&built, &bar)?;
    bar.finish_and_clear();
    let (components, largest) = components::summary(&built, &found)?;
    let verdict = if options.verify {
        let (vertices, edges) = single::edges(&options.source)?;
        let expected = single::labels(vertices, &edges);
        let others = |chunk: gossamer_array::View<'_, Vertex>| {
            chunk.indexed().filter(|(vertex, label)| expected[*vertex] != *label).count()
        };
        Some(Verdict::Labels(found.labels.views(0..vertices).map(others).sum()))
    } else {
        None
    };
    Ok(report(&built, found.rounds, found.time, Found::Components(components, largest), verdict))
}

fn report<T: gossamer_array::Element>(
    built: &Built<T>,
    rounds: u32,
    time: std::time::Duration,
    found: Found,
    verdict: Option<Verdict>,
) -> Report {
    let rack = gossamer::rack();
    Report {
        vertices: built.values.len(),
        edges: built.edges,
        machines: rack.machines().len(),
        workers: rack.workers(),
        build_time: built.time,
        rounds,
        time,
        found,
        verdict,
    }
}
