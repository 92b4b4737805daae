//! The tables alone: which there are, one point for each number of keys, distribution and share of writes, and the
//! verdicts.
//!
//! shared.rs and delegated.rs hold the two kinds of client, kinds.rs the tables in shared memory, ledger.rs the proof
//! that all of them answered rightly.

mod delegated;
pub mod kinds;
mod ledger;
mod shared;

use std::sync::{Mutex, RwLock};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use self::{
    kinds::{Dash, Map, Papaya, Sharded},
    shared::SharedTable,
};
use super::{Kv, load::Mix};
use crate::{
    contender::{Contender, Kind},
    harness::{Entry, interleave},
    pick::{Dist, Picks},
    plot::{Album, Picture},
    report::Series,
    rounds::chosen,
    verdict::{Verdict, verdict_at_least},
};

/// A series with its workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableSeries {
    /// How keys were picked.
    pub dist: Dist,
    /// Writes in a hundred operations.
    pub writes: u32,
    /// The samples; `objects` are keys.
    #[serde(flatten)]
    pub series: Series,
}

/// All tables, in the order they are shown in.
fn contenders(operations: &Picks) -> Vec<Box<dyn Contender>> {
    vec![
        SharedTable::<Sharded<Mutex<Map>>>::boxed("mutex-std", Kind::Lock, operations),
        SharedTable::<Sharded<parking_lot::Mutex<Map>>>::boxed("mutex-parking_lot", Kind::Lock, operations),
        SharedTable::<Sharded<RwLock<Map>>>::boxed("rwlock-std", Kind::Lock, operations),
        SharedTable::<Sharded<parking_lot::RwLock<Map>>>::boxed("rwlock-parking_lot", Kind::Lock, operations),
        SharedTable::<Dash>::boxed("dashmap", Kind::Table, operations),
        SharedTable::<Papaya>::boxed("papaya", Kind::Table, operations),
        delegated::Delegated::boxed(false, operations),
        delegated::Delegated::boxed(true, operations),
    ]
}

/// DashMap, with these operations.
pub fn dashmap(operations: &Picks) -> Box<dyn Contender> {
    SharedTable::<Dash>::boxed("dashmap", Kind::Table, operations)
}

/// Shards under std's mutex, with these operations.
pub fn std_mutex(operations: &Picks) -> Box<dyn Contender> {
    SharedTable::<Sharded<Mutex<Map>>>::boxed("mutex-std", Kind::Lock, operations)
}

/// A shard a worker, entrusted to it, with these operations.
pub fn delegated(operations: &Picks) -> Box<dyn Contender> {
    delegated::Delegated::boxed(false, operations)
}

/// Measures and prints.
///
/// # Errors
/// As `kv`.
pub fn measure(options: &Kv) -> Result<Vec<TableSeries>> {
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
                let tables = chosen("table", contenders(&operations), |table| table.name(), &options.common.only)?;
                let entries = tables.into_iter().filter(|table| table.least_threads() <= options.threads);
                let entries =
                    entries.map(|contender| Entry { group: String::new(), contender, workload: workload.clone() });
                let series = interleave(entries.collect(), &options.common, &title)?;
                print(&title, &series);
                results.extend(series.into_iter().map(|series| TableSeries { dist, writes, series }));
            }
        }
    }
    Ok(results)
}

/// The best table that is not delegated.
fn best_other<'a>(series: impl Iterator<Item = &'a Series>) -> Option<&'a Series> {
    series.filter(|series| series.kind != Kind::Trust).max_by(|a, b| a.median_mops.total_cmp(&b.median_mops))
}

fn print(title: &str, all: &[Series]) {
    let dashmap = all.iter().find(|series| series.contender == "dashmap");
    let best = best_other(all.iter());
    println!("\n{title}");
    println!("  {:<22} {:>9} {:>9} {:>9} {:>9} {:>9}", "Mops/s", "median", "min", "max", "/dashmap", "/best");
    for series in all {
        let over = |base: Option<&Series>| {
            base.map_or("-".to_owned(), |base| format!("{:.2}", series.median_mops / base.median_mops))
        };
        println!(
            "  {:<22} {:>9.2} {:>9.2} {:>9.2} {:>9} {:>9}",
            series.contender,
            series.median_mops,
            series.min_mops,
            series.max_mops,
            over(dashmap),
            over(best)
        );
    }
}

/// The targets of the tables alone, at 5% writes.
pub fn verdicts(results: &[TableSeries]) -> Vec<Verdict> {
    let verdict = |keys: usize, dist: Dist, wanted: f64| {
        let mops = |contender: &str| {
            let is_it = |point: &&TableSeries| {
                (point.dist, point.writes, point.series.objects) == (dist, 5, keys)
                    && point.series.contender == contender
            };
            results.iter().find(is_it).map(|point| point.series.median_mops)
        };
        let ratio = mops("apply_then").zip(mops("dashmap")).map(|(ours, theirs)| ours / theirs);
        verdict_at_least(format!("tables: apply_then over DashMap, {keys} keys, {dist}, 5% writes"), wanted, ratio)
    };
    vec![verdict(1000, Dist::Zipf, 1.5), verdict(1_000_000, Dist::Uniform, 1.0)]
}

/// Throughput over the number of keys, for each distribution and share of writes; and over the share of writes, for
/// each distribution and number of keys, where there are several.
pub fn pictures(results: &[TableSeries]) -> Vec<Picture> {
    let (mut keys, mut writes) = (Album::default(), Album::default());
    let y = "million operations a second (median, min to max)";
    for TableSeries { dist, writes: share, series } in results {
        let (contender, threads, objects) = (&series.contender, series.threads, series.objects);
        let title = || format!("Tables alone, {threads} threads, {dist}, {share}% writes");
        let picture = keys.picture(format!("{dist}-{share}-writes"), title, ("keys", y));
        picture.add(contender, series.dot(objects as f64));
        let title = || format!("Tables alone, {threads} threads, {dist}, {objects} keys");
        let picture = writes.picture(format!("{dist}-{objects}-keys"), title, ("writes, %", y)).linear();
        picture.add(contender, series.dot(f64::from(*share)));
    }
    keys.pictures_with_lines().into_iter().chain(writes.pictures_with_lines()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(contender: &str, keys: usize, dist: Dist, median_mops: f64) -> TableSeries {
        let kind = if contender == "dashmap" { Kind::Table } else { Kind::Trust };
        let series = Series {
            group: String::new(),
            contender: contender.to_owned(),
            kind,
            threads: 2,
            dedicated: 1,
            objects: keys,
            padded: false,
            ops: 1,
            median_mops,
            min_mops: median_mops,
            max_mops: median_mops,
            samples: Vec::new(),
        };
        TableSeries { dist, writes: 5, series }
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
