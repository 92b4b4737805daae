//! Contenders in this process: calibrated one by one, then run once a round each, and verified every time.
//!
//! Not here: the work of a contender (contender.rs), orders and files (rounds.rs), how samples become tables
//! (report.rs).

use crate::basics::*;
use crate::contender::{Contender, Run, Workload};
use crate::options::{Common, SMOKE_OPS};
use crate::report::{Sample, Series, median, spread};
use crate::rounds::Bench;

/// A contender with its workload.
pub struct Entry {
    /// Where it is shown: several groups may be interleaved in one run (`targets`).
    pub group: String,
    pub contender: Contender,
    /// `ops` is calibrated.
    pub workload: Workload,
}

/// Runs all entries for all rounds; one series an entry, in the order of `entries`. An entry with wrong counters ends
/// it.
pub fn interleave(bench: &Bench, mut entries: Vec<Entry>, options: &Common) -> Result<Vec<Series>> {
    for entry in &mut entries {
        let is_smoke = options.comparison.smoke;
        entry.workload.ops = if is_smoke { SMOKE_OPS } else { calibrate(entry, options.millis)? };
    }
    let name = |entry: &Entry| format!("{} {}", entry.group, entry.contender.name);
    let samples = bench.rounds(&entries, name, |entry, round| {
        let run = verified(entry)?;
        Ok(Sample { round, mops: run.mops(entry.workload.ops) })
    })?;
    for entry in &entries {
        entry.contender.finish().with_context(|| format!("{} went wrong", name(entry)))?;
    }
    Ok(entries.iter().zip(samples).map(|(entry, samples)| series(entry, samples)).collect())
}

/// Sums up the samples of an entry.
fn series(Entry { group, contender, workload }: &Entry, samples: Vec<Sample>) -> Series {
    let mops = || samples.iter().map(|sample| sample.mops);
    let ((min_mops, max_mops), median_mops) = (spread(mops()), median(mops()));
    Series {
        group: group.clone(),
        contender: contender.name.to_owned(),
        kind: contender.kind,
        threads: workload.threads,
        objects: workload.objects,
        ops: workload.ops,
        median_mops,
        min_mops,
        max_mops,
        samples,
        ..Series::default()
    }
}

fn verified(entry: &Entry) -> Result<Run> {
    let name = entry.contender.name;
    let run = entry.contender.run(&entry.workload).with_context(|| format!("{name} did not run"))?;
    run.verify(entry.workload.ops).with_context(|| format!("{name} counted wrong"))?;
    Ok(run)
}

/// The number of operations that take about `millis`; warms everything up on the way.
fn calibrate(entry: &mut Entry, millis: u64) -> Result<u64> {
    const LARGEST_STEP: f64 = 16.0;
    let wanted = millis as f64 / 1e3;
    entry.workload.ops = 1000;
    loop {
        let ops = entry.workload.ops;
        let seconds = verified(entry)?.elapsed.as_secs_f64();
        let step = wanted / seconds.max(1e-9);
        if seconds >= wanted / 4.0 {
            return Ok(((ops as f64 * step) as u64).max(1));
        }
        entry.workload.ops = (ops as f64 * step.min(LARGEST_STEP)).ceil() as u64;
    }
}
