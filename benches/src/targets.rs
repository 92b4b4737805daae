//! `targets`: everything the crate's speed is measured against, interleaved in one run, and the verdicts.
//!
//! All ratios are ratios of medians. Not here: how anything is measured.

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::{
    contenders,
    harness::{Entry, interleave},
    machine::Machine,
    options::{Common, Strict},
    parts::{self, LOCAL, LONE, PAIR},
    pick::Dist,
    report::{Field, Series},
    rounds::{Compared, Skipped},
    verdict::{Verdict, conclude, ratio, verdict_at_least, verdict_at_most},
};

/// Options of `targets`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Targets {
    /// Whether targets have to be met.
    #[command(flatten)]
    #[serde(flatten)]
    pub strict: Strict,
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
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
    let fetch_add_objects = if common.comparison.smoke { SMOKE_OBJECTS } else { OBJECTS };
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
    let targets = verdicts(&series, &machine, &fetch_add_objects);
    let measured = Compared { series: &series, skipped: &Skipped::default() };
    conclude("targets", &machine, &options, measured, targets, common.comparison.json.as_deref(), options.strict)
}

/// The targets that can be told from `series`, each with its figure where its contenders ran.
pub fn verdicts(series: &[Series], machine: &Machine, fetch_add_objects: &[usize]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for &objects in fetch_add_objects {
        let field = Field::of(series, &group_of(objects));
        let of = |contender: &str| field.get(contender).map(|series| series.median_mops);
        let lock = field.best_lock();
        let lock_name = lock.map_or("the best lock", |lock| lock.contender.as_str());
        let lock_mops = lock.map(|lock| lock.median_mops);
        let few = objects <= 16;
        verdicts.push(verdict_at_least(
            format!("apply_then over the best lock ({lock_name}), {objects} objects"),
            if few { 2.5 } else { 1.0 },
            ratio(of("apply_then"), lock_mops),
        ));
        if objects == 1 {
            verdicts.push(verdict_at_least(
                "apply_then over the contended atomic, 1 object",
                1.5,
                ratio(of("apply_then"), of("atomic")),
            ));
        }
        if few {
            verdicts.push(verdict_at_least(
                format!("apply with 64 fibers a worker over the best lock ({lock_name}), {objects} objects"),
                1.2,
                ratio(of("apply"), lock_mops),
            ));
        }
    }
    let pair = Field::of(series, PAIR);
    let of_pair = |contender: &str| pair.get(contender).map(|series| series.median_mops);
    verdicts.push(verdict_at_least(
        "one client, one dedicated trustee: apply_then over bare-slots",
        0.6,
        ratio(of_pair("apply_then-dedicated"), of_pair("bare-slots-dedicated")),
    ));
    verdicts.push(verdict_at_least(
        format!("the same in Mops/s (set for a 2.5 GHz Cascade Lake; here {})", machine.cpu),
        40.0,
        of_pair("apply_then-dedicated"),
    ));
    let lone = Field::of(series, LONE);
    let of_lone = |contender: &str| lone.get(contender).map(Series::median_ns);
    for (transfers, lines) in [("ping-pong", "one line"), ("ping-pong-two-lines", "two lines")] {
        verdicts.push(verdict_at_most(
            format!("a lone apply over a round trip of transfers, {lines} each way"),
            3.0,
            ratio(of_lone("apply-lone"), of_lone(transfers)),
        ));
    }
    let local = Field::of(series, LOCAL);
    let of_local = |contender: &str| local.get(contender).map(Series::median_ns);
    verdicts.push(verdict_at_most(
        "local shortcut over an uncontended std Mutex, time",
        2.0,
        ratio(of_local("apply"), of_local("std-mutex")),
    ));
    verdicts
}
