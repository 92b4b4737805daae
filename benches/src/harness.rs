//! Contenders, interleaved: calibrated one by one, then run once a round each, in an order shuffled
//! anew every round, and verified every time.
//!
//! Not here: the work of a contender (contender.rs), how samples become tables and files (report.rs).

use std::io::{IsTerminal, Write, stderr};

use anyhow::{Context, Result};

use crate::{
    contender::{Contender, Run, Workload},
    options::Common,
    report::{Sample, Series},
    rounds::interleaved,
};

/// A contender with its workload.
pub struct Entry {
    /// Where it is shown: several groups may be interleaved in one run (`targets`).
    pub group: String,
    /// The contender.
    pub contender: Box<dyn Contender>,
    /// The workload; `ops` is calibrated.
    pub workload: Workload,
}

/// Runs all entries for all rounds; one series an entry, in the order of `entries`.
///
/// # Errors
/// The first run with wrong counters, by contender; nothing is reported then.
pub fn interleave(mut entries: Vec<Entry>, options: &Common, title: &str) -> Result<Vec<Series>> {
    let progress = Progress::new(title);
    for entry in &mut entries {
        progress.show(&format!("calibrating {} {}", entry.group, entry.contender.name()));
        entry.workload.ops = match options.ops {
            Some(ops) => ops,
            None => calibrate(entry, options.millis)?,
        };
    }
    let mut samples: Vec<Vec<Sample>> = entries.iter().map(|_| Vec::new()).collect();
    interleaved(options.comparison.rounds, entries.len(), options.seed, |round, index| {
        let entry = &entries[index];
        let run = verified(entry)?;
        let sample = Sample { round, mops: run.mops(entry.workload.ops), fairness: run.fairness };
        progress.show(&format!(
            "round {round}/{} {} {} {:.2} Mops/s",
            options.comparison.rounds,
            entry.group,
            entry.contender.name(),
            sample.mops
        ));
        samples[index].push(sample);
        Ok(())
    })?;
    for entry in &entries {
        entry.contender.finish().with_context(|| format!("{} {} went wrong", entry.group, entry.contender.name()))?;
    }
    progress.end();
    Ok(entries.iter().zip(samples).map(|(entry, samples)| Series::new(entry, samples)).collect())
}

fn verified(entry: &Entry) -> Result<Run> {
    let name = entry.contender.name();
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

/// One line on stderr that names the current run; on a terminal it is written over.
pub struct Progress {
    title: String,
    terminal: bool,
}

impl Progress {
    /// Of a command with this title.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), terminal: stderr().is_terminal() }
    }

    /// Names the current run. A closed stderr is no reason to end a measurement: errors are ignored.
    pub fn show(&self, what: &str) {
        let mut stderr = stderr().lock();
        let _ = if self.terminal {
            write!(stderr, "\r\x1b[2K{}: {what}", self.title)
        } else {
            writeln!(stderr, "{}: {what}", self.title)
        };
        let _ = stderr.flush();
    }

    /// Wipes the line away.
    pub fn end(&self) {
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
    }
}
