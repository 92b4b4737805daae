//! Contenders in this process: calibrated one by one, then run once a round each, and verified every time.
//!
//! Not here: the work of a contender (contender.rs), orders and files (rounds.rs), how samples become tables
//! (report.rs).

use crate::prelude::*;
use crate::report::{Sample, Series};

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
        entry.workload.ops = match options.ops {
            Some(ops) => ops,
            None => calibrate(entry, options.millis)?,
        };
    }
    let name = |entry: &Entry| format!("{} {}", entry.group, entry.contender.name);
    let samples = bench.rounds(&entries, name, |entry, round| {
        let run = verified(entry)?;
        Ok(Sample { round, mops: run.mops(entry.workload.ops), fairness: run.fairness })
    })?;
    for entry in &entries {
        entry.contender.finish().with_context(|| format!("{} went wrong", name(entry)))?;
    }
    Ok(entries.iter().zip(samples).map(|(entry, samples)| Series::new(entry, samples)).collect())
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
