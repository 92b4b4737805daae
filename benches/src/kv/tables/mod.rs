//! The tables alone: which there are, one point for each number of keys, distribution and share of writes, and the
//! verdicts.
//!
//! shared.rs and delegated.rs hold the two kinds of client, kinds.rs the tables in shared memory, ledger.rs the proof
//! that all of them answered rightly.

mod delegated;
pub mod kinds;
mod ledger;
mod shared;

pub use self::delegated::delegated;
use self::kinds::{Dash, Map, Sharded};
use self::shared::shared;
use super::Kv;
use super::load::Mix;
use crate::contenders::Mode;
use crate::prelude::*;
use crate::report::{Field, Series};
use std::sync::Mutex;

/// All tables, in the order they are shown in; marked operations are writes.
fn contenders(operations: &Picks) -> Vec<Contender> {
    let operations = || operations.clone();
    vec![
        of_mutexes(operations()),
        of_dashmap(operations()),
        delegated(Mode::Shared, operations()),
        delegated(Mode::Dedicated, operations()),
    ]
}

pub fn of_dashmap(operations: Picks) -> Contender {
    shared::<Dash>("dashmap", Kind::Other, operations)
}

pub fn of_mutexes(operations: Picks) -> Contender {
    shared::<Sharded<Mutex<Map>>>("mutex-std", Kind::Lock, operations)
}

pub fn measure(bench: &Bench, options: &Kv) -> Result<Vec<Series>> {
    let mut results = Vec::new();
    for &dist in &options.dist {
        for &keys in &options.keys {
            let workload = options.common.workload(options.threads, keys, dist)?;
            for mix in &options.mix {
                let Mix::Writes(writes) = *mix else {
                    bail!("--mix {mix}: with --tables it is a number of writes in a hundred");
                };
                let title = format!("tables, {} threads, {keys} keys, {dist}, {writes}% writes", options.threads);
                let operations = workload.picks.marked(writes, options.common.seed);
                let tables = chosen("table", contenders(&operations), |table| table.name, &options.common.only)?;
                let fitting = tables.into_iter().filter(|table| table.least_threads <= options.threads);
                let entry = |contender| Entry { group: String::new(), contender, workload: workload.clone() };
                let series = interleave(bench, fitting.map(entry).collect(), &options.common)?;
                print(&title, &series);
                results.extend(series.into_iter().map(|series| Series {
                    dist: Some(dist),
                    writes: Some(writes),
                    ..series
                }));
            }
        }
    }
    Ok(results)
}

fn print(title: &str, all: &[Series]) {
    let field = Field(all.iter().collect());
    let bases = [field.get("dashmap"), field.best(|series| series.kind != Kind::Trust)];
    let rows = all.iter().map(|Series { contender, median_mops, min_mops, max_mops, .. }| {
        let [dashmap, best] = bases.map(|base| base.map(|base| median_mops / base.median_mops));
        row![contender, median_mops, min_mops, max_mops, dashmap, best]
    });
    table(title, &["Mops/s", "median", "min", "max", "/dashmap", "/best"], rows);
}

/// The targets of the tables alone, at 5% writes.
pub fn verdicts(results: &[Series]) -> Vec<Verdict> {
    let verdict = |keys: usize, dist: Dist, wanted: f64| {
        let mops = |contender: &str| {
            let is_it = |one: &&Series| (one.dist, one.writes, one.objects) == (Some(dist), Some(5), keys);
            let mut there = results.iter().filter(is_it);
            there.find(|one| one.contender == contender).map(|one| one.median_mops)
        };
        let reached = ratio(mops("apply_then"), mops("dashmap"));
        at_least(format!("tables: apply_then over DashMap, {keys} keys, {dist}, 5% writes"), wanted, reached)
    };
    vec![verdict(1000, Dist::Zipf, 1.5), verdict(1_000_000, Dist::Uniform, 1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(contender: &str, keys: usize, dist: Dist, median_mops: f64) -> Series {
        let contender = contender.to_owned();
        Series { contender, objects: keys, median_mops, dist: Some(dist), writes: Some(5), ..Series::default() }
    }

    #[test]
    fn targets_are_compared_at_their_points() {
        let results = [
            point("apply_then", 1000, Dist::Zipf, 30.0),
            point("dashmap", 1000, Dist::Zipf, 10.0),
            point("dashmap", 1000, Dist::Uniform, 50.0),
            point("apply_then", 1_000_000, Dist::Uniform, 5.0),
        ];
        let reached: Vec<_> = verdicts(&results).into_iter().map(|verdict| verdict.reached).collect();
        assert_eq!(reached, [Some(3.0), None]);
    }
}
