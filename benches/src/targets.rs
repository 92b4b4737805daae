//! `targets`: everything the crate's speed is judged by, interleaved in one run, and the verdicts.
//!
//! All ratios are ratios of medians. Not here: how anything is measured.

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::{
    contenders,
    harness::{Entry, interleave},
    machine::Machine,
    options::Common,
    parts::{self, Judged, LOCAL, LONE, PAIR},
    pick::Dist,
    report::{Field, Report, Series},
};

/// Options of `targets`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Targets {
    /// Exit with an error where a target is missed or was not measured.
    #[arg(long)]
    pub strict: bool,
    /// What all commands share.
    #[command(flatten)]
    pub common: Common,
}

/// A target and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What is compared.
    pub target: String,
    /// `at least` or `at most`.
    pub bound: &'static str,
    /// The bound.
    pub wanted: f64,
    /// The figure, if its contenders ran.
    pub reached: Option<f64>,
    /// Whether the bound holds.
    pub met: Option<bool>,
}

const AT_LEAST: &str = "at least";
const AT_MOST: &str = "at most";

fn verdict(target: impl Into<String>, bound: &'static str, wanted: f64, reached: Option<f64>) -> Verdict {
    Verdict {
        target: target.into(),
        bound,
        wanted,
        reached,
        met: reached.map(|reached| if bound == AT_LEAST { reached >= wanted } else { reached <= wanted }),
    }
}

/// A target that asks for at least so much.
pub fn verdict_at_least(target: impl Into<String>, wanted: f64, reached: Option<f64>) -> Verdict {
    verdict(target, AT_LEAST, wanted, reached)
}

/// A target that asks for at most so much.
pub fn verdict_at_most(target: impl Into<String>, wanted: f64, reached: Option<f64>) -> Verdict {
    verdict(target, AT_MOST, wanted, reached)
}

/// Objects of the fetch-and-add targets; the last is where nothing is contended.
const OBJECTS: [usize; 3] = [1, 16, 1_000_000];
const SMOKE_OBJECTS: [usize; 3] = [1, 16, 10_000];

fn group_of(objects: usize) -> String {
    format!("{objects} objects")
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; counters that are wrong after a run; a file that cannot be written; with
/// `--strict`, a target that is missed or was not measured.
pub fn command(mut options: Targets) -> Result<()> {
    options.common = options.common.prepare()?;
    let common = &options.common;
    let machine = Machine::here();
    println!("{machine}");
    let fetch_add_objects = if common.smoke { SMOKE_OBJECTS } else { OBJECTS };
    let mut entries = parts::entries(common)?;
    for objects in fetch_add_objects {
        let mut workload = common.workload(2, objects, Dist::Uniform)?;
        workload.dedicated = 1;
        entries.extend(contenders::named(&common.only)?.into_iter().map(|contender| Entry {
            group: group_of(objects),
            contender,
            workload: workload.clone(),
        }));
    }
    let series = interleave(entries, common, "targets")?;
    for objects in fetch_add_objects {
        Field::of(&series, &group_of(objects)).print(&format!("fetch-add, 2 threads, {objects} objects, uniform"));
    }
    parts::print(&series);
    let targets = judge(&series, &machine, &fetch_add_objects);
    print_verdicts(&targets);
    let missed = targets.iter().filter(|verdict| verdict.met != Some(true)).count();
    let results = Judged { series: &series, targets };
    Report::write("targets", &machine, &options, results, common.json.as_deref())?;
    if options.strict && missed > 0 {
        bail!("{missed} targets are missed or were not measured");
    }
    Ok(())
}

/// The targets that can be told from `series`, each with its figure where its contenders ran.
pub fn judge(series: &[Series], machine: &Machine, fetch_add_objects: &[usize]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for &objects in fetch_add_objects {
        let field = Field::of(series, &group_of(objects));
        let of = |contender: &str| field.get(contender).map(|series| series.median_mops);
        let lock = field.best_lock();
        let lock_name = lock.map_or("the best lock", |lock| lock.contender.as_str());
        let lock_mops = lock.map(|lock| lock.median_mops);
        let few = objects <= 16;
        verdicts.push(verdict(
            format!("apply_then over the best lock ({lock_name}), {objects} objects"),
            AT_LEAST,
            if few { 2.5 } else { 1.0 },
            ratio(of("apply_then"), lock_mops),
        ));
        if objects == 1 {
            verdicts.push(verdict(
                "apply_then over the contended atomic, 1 object",
                AT_LEAST,
                1.5,
                ratio(of("apply_then"), of("atomic")),
            ));
        }
        if few {
            verdicts.push(verdict(
                format!("apply with 64 fibers a worker over the best lock ({lock_name}), {objects} objects"),
                AT_LEAST,
                1.2,
                ratio(of("apply"), lock_mops),
            ));
        }
    }
    let pair = Field::of(series, PAIR);
    let of_pair = |contender: &str| pair.get(contender).map(|series| series.median_mops);
    verdicts.push(verdict(
        "one client, one dedicated trustee: apply_then over bare-slots",
        AT_LEAST,
        0.6,
        ratio(of_pair("apply_then-dedicated"), of_pair("bare-slots-dedicated")),
    ));
    verdicts.push(verdict(
        format!("the same in Mops/s (set for a 2.5 GHz Cascade Lake; here {})", machine.cpu),
        AT_LEAST,
        40.0,
        of_pair("apply_then-dedicated"),
    ));
    let lone = Field::of(series, LONE);
    let of_lone = |contender: &str| lone.get(contender).map(Series::median_ns);
    for (transfers, lines) in [("ping-pong", "one line"), ("ping-pong-two-lines", "two lines")] {
        verdicts.push(verdict(
            format!("a lone apply over a round trip of transfers, {lines} each way"),
            AT_MOST,
            3.0,
            ratio(of_lone("apply-lone"), of_lone(transfers)),
        ));
    }
    let local = Field::of(series, LOCAL);
    let of_local = |contender: &str| local.get(contender).map(Series::median_ns);
    verdicts.push(verdict(
        "local shortcut over an uncontended std Mutex, time",
        AT_MOST,
        2.0,
        ratio(of_local("apply"), of_local("std-mutex")),
    ));
    verdicts
}

fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to?)
}

/// Prints target, figure and yes or no.
pub fn print_verdicts(verdicts: &[Verdict]) {
    println!("\n{:<84} {:>14} {:>9}  met", "target", "wanted", "reached");
    for verdict in verdicts {
        let bound = format!("{} {}", verdict.bound, verdict.wanted);
        let reached = verdict.reached.map_or("-".to_owned(), |reached| format!("{reached:.2}"));
        let met = match verdict.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        println!("{:<84} {bound:>14} {reached:>9}  {met}", verdict.target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_in_their_direction() {
        assert_eq!(verdict("a", AT_LEAST, 2.0, Some(2.5)).met, Some(true));
        assert_eq!(verdict("a", AT_LEAST, 2.0, Some(1.5)).met, Some(false));
        assert_eq!(verdict("a", AT_MOST, 2.0, Some(1.5)).met, Some(true));
        assert_eq!(verdict("a", AT_MOST, 2.0, Some(2.5)).met, Some(false));
        assert_eq!(verdict("a", AT_MOST, 2.0, None).met, None);
    }
}
