//! `targets`: everything the crate's speed is measured against, interleaved in one run, and the verdicts: shared
//! counters, and the cost of one request beside the least possible. A lone `apply` beside bare cache-line transfers,
//! the local shortcut beside an uncontended lock, and one client with one dedicated trustee beside the bare slots.
//!
//! All ratios are ratios of medians. Not here: how anything is measured.

use crate::contenders::{self, Mode, MutexCounter, apply, apply_then, bare_slots, ping_pong, shared};
use crate::options::FIBERS;
use crate::prelude::*;
use crate::report::{Field, Series};

/// Options of `targets`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Targets {
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

/// Objects of the fetch-and-add targets; the last is where nothing is contended.
const OBJECTS: [usize; 3] = [1, 16, 1_000_000];
const SMOKE_OBJECTS: [usize; 3] = [1, 16, 10_000];
/// A round trip with nothing else to do.
const LONE: &str = "lone round trip";
/// One thread, one object, nobody else.
const LOCAL: &str = "uncontended, one thread";
/// One client, one trustee that only serves.
const PAIR: &str = "one client, one dedicated trustee";

fn group_of(objects: usize) -> String {
    format!("{objects} objects")
}

pub fn command(mut options: Targets) -> Result<()> {
    options.common = options.common.prepare()?;
    let common = &mut options.common;
    let bench = Bench::begin("targets", &mut common.comparison)?;
    let all_objects = if common.comparison.smoke { SMOKE_OBJECTS } else { OBJECTS };
    let mut entries = parts(common)?;
    for objects in all_objects {
        let mut workload = common.workload(2, objects, Dist::Uniform)?;
        workload.dedicated = 1;
        let entry = |contender| Entry { group: group_of(objects), contender, workload: workload.clone() };
        entries.extend(contenders::named(&common.only)?.into_iter().map(entry));
    }
    let series = interleave(&bench, entries, common)?;
    for objects in all_objects {
        Field::of(&series, &group_of(objects)).print(&format!("fetch-add, 2 threads, {objects} objects, uniform"));
    }
    for group in [LONE, LOCAL, PAIR] {
        let rows = series.iter().filter(|series| series.group == group).map(|series| {
            let Series { contender, median_mops, min_mops, max_mops, .. } = series;
            row![contender, series.median_ns(), 1e3 / max_mops, 1e3 / min_mops, median_mops]
        });
        table(group, &["ns/op", "median", "fastest", "slowest", "Mops/s"], rows);
    }
    let targets = verdicts(&series, &bench.machine, &all_objects);
    bench.conclude(&options, json!({"series": series}), &targets)
}

/// The contenders of single requests.
fn parts(common: &Common) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut add = |group: &str, threads: usize, fibers: usize, contenders: Vec<Contender>| -> Result<()> {
        let workload = common.workload(threads, 1, Dist::Uniform)?;
        let workload = Workload { dedicated: 1, fibers, ..workload };
        entries.extend(contenders.into_iter().map(|contender| {
            let (group, workload) = (group.to_owned(), workload.clone());
            Entry { group, contender, workload }
        }));
        Ok(())
    };
    add(LONE, 2, 1, vec![ping_pong(false), ping_pong(true), apply(Mode::Lone)])?;
    add(LOCAL, 1, 1, vec![shared::<MutexCounter>(), apply(Mode::Shared)])?;
    add(PAIR, 2, FIBERS, vec![bare_slots(true), apply_then(Mode::Dedicated)])?;
    Ok(entries)
}

/// The targets, each with its figure where its contenders ran.
fn verdicts(series: &[Series], machine: &Machine, all_objects: &[usize]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for &objects in all_objects {
        let field = Field::of(series, &group_of(objects));
        let lock = field.best_lock();
        let name = lock.map_or("the best lock", |lock| lock.contender.as_str());
        let mops = |series: Option<&Series>| series.map(|series| series.median_mops);
        let over_lock = |contender: &str| ratio(mops(field.get(contender)), mops(lock));
        let few = objects <= 16;
        let target = format!("apply_then over the best lock ({name}), {objects} objects");
        verdicts.push(at_least(target, if few { 2.5 } else { 1.0 }, over_lock("apply_then")));
        if !few {
            let target = format!("the same by a TrustSlice, {objects} objects");
            verdicts.push(at_least(target, 0.6, over_lock("apply_then-slice")));
        }
        if objects == 1 {
            let over_atomic = ratio(mops(field.get("apply_then")), mops(field.get("atomic")));
            verdicts.push(at_least("apply_then over the contended atomic, 1 object", 1.5, over_atomic));
        }
        if few {
            let target = format!("apply with 64 fibers a worker over the best lock ({name}), {objects} objects");
            verdicts.push(at_least(target, 1.2, over_lock("apply")));
        }
    }
    let of = |group: &str, contender: &str| Field::of(series, group).get(contender).map(|series| series.median_mops);
    let (ours, bare) = (of(PAIR, "apply_then-dedicated"), of(PAIR, "bare-slots-dedicated"));
    verdicts.push(at_least(format!("{PAIR}: apply_then over bare-slots"), 0.6, ratio(ours, bare)));
    let target = format!("the same in Mops/s (set for a 2.5 GHz Cascade Lake; here {})", machine.cpu);
    verdicts.push(at_least(target, 40.0, ours));
    for (transfers, lines) in [("ping-pong", "one line"), ("ping-pong-two-lines", "two lines")] {
        let target = format!("a lone apply over a round trip of transfers, {lines} each way");
        verdicts.push(at_most(target, 3.0, ratio(of(LONE, transfers), of(LONE, "apply-lone"))));
    }
    let shortcut = ratio(of(LOCAL, "std-mutex"), of(LOCAL, "apply"));
    verdicts.push(at_most("local shortcut over an uncontended std Mutex, time", 2.0, shortcut));
    verdicts
}
