//! The works of `array`: the contenders of each, its size, and the targets.
//!
//! Not here: how a contender is started (mod.rs), its work (rack.rs, alone.rs, store.rs, run.rs, benches/mpi,
//! benches/shmem, benches/lamellar, benches/graphs).

use super::{ArrayBench, Series};
use crate::prelude::*;
use exchange::array::{Job, Work};

/// One contender in one work.
#[derive(Clone, Debug)]
pub struct Entry {
    pub group: String,
    pub contender: &'static str,
    pub job: Job,
}

/// A work: its size, its contenders, and the operations of each worker. Slow contenders do fewer.
struct Row {
    work: Work,
    what: &'static str,
    elements: usize,
    contenders: &'static [(&'static str, usize)],
}

/// 64 MiB of elements.
const LARGE: usize = 1 << 23;

const fn row(work: Work, what: &'static str, elements: usize, contenders: &'static [(&'static str, usize)]) -> Row {
    Row { work, what, elements, contenders }
}

const ROWS: [Row; 12] = [
    row(
        Work::Hits,
        "one worker reads its own elements in order, 1 MiB; `vec` one at a time",
        1 << 17,
        &[("vec", 1 << 27), ("counted", 1 << 24), ("array", 1 << 26)],
    ),
    row(Work::Sum, "one worker adds up its own elements, 64 MiB", LARGE, &[("vec", 1 << 26), ("array-views", 1 << 26)]),
    row(Work::Pass, "one process reads the other one's elements in order, once, 32 MiB at most", LARGE, &PASS),
    row(Work::Zipf, "two processes increment elements by a Zipf distribution, 8 MiB", 1 << 20, &ZIPF),
    row(Work::Uniform, "two processes increment elements at random, 64 MiB", LARGE, &UNIFORM),
    row(
        Work::Sets,
        "two workers of one process set elements at random, 8 MiB",
        1 << 20,
        &[("array", 1 << 22), ("counted", 1 << 23)],
    ),
    row(
        Work::Ranks,
        "PageRank of a Kronecker graph, scale 20: edges times rounds; two processes, one of two workers, of one; \
         `graph`: two threads",
        1 << 20,
        &GRAPHS,
    ),
    row(Work::Labels, "components of the same graph: edges", 1 << 20, &GRAPHS),
    row(
        Work::Heat,
        "heat over a plate of 1,024 x 1,024 cells: cells times steps; two processes, one of two workers; `vec`: two \
         threads, each with half of the rows",
        1 << 20,
        &[("array", 400), ("array-threads", 400), ("vec", 400)],
    ),
    row(
        Work::Gets,
        "two processes get values of 100 bytes by a Zipf distribution, 131,072 keys; `apply_then`: maps",
        1 << 17,
        &[("array", 1 << 20), ("apply_then", 1 << 20)],
    ),
    row(
        Work::Puts,
        "the same, and of twenty operations one puts",
        1 << 17,
        &[("array", 1 << 17), ("apply_then", 1 << 20)],
    ),
    // 1,024 chunks of the other one.
    row(
        Work::Dense,
        "one process increments elements of each chunk of the other one",
        1 << 20,
        &[("array", 1), ("array-bulk", 1)],
    ),
];
const PASS: [(&str, usize); 6] = [
    ("array", LARGE),
    ("array-views", LARGE),
    ("memcpy", LARGE),
    ("mpi", 1 << 20),
    ("shmem", 1 << 20),
    ("lamellar", 1 << 16),
];
const ZIPF: [(&str, usize); 6] = [
    ("array", 1 << 23),
    ("array-bulk", 1 << 21),
    ("array-lock", 1 << 15),
    ("apply_then", 1 << 21),
    ("mpi", 1 << 19),
    ("lamellar", 1 << 20),
];
const UNIFORM: [(&str, usize); 5] =
    [("array", 1 << 19), ("array-bulk", 1 << 22), ("apply_then", 1 << 21), ("mpi", 1 << 19), ("lamellar", 1 << 20)];
/// With 20 rounds, in `ranks`.
const GRAPHS: [(&str, usize); 4] = [("array", 20), ("array-threads", 20), ("array-single", 20), ("graph", 20)];

/// Increments of a chunk of 4 KiB, before its home looks at it.
const DENSITIES: [usize; 6] = [1, 8, 64, 256, 1024, 4096];
/// In which table of the document a work stands.
pub fn table_of(work: Work) -> &'static str {
    match work {
        Work::Hits | Work::Sum | Work::Sets => "one process",
        Work::Pass | Work::Zipf | Work::Uniform => "two processes",
        Work::Ranks | Work::Labels | Work::Heat | Work::Gets | Work::Puts => "programs",
        Work::Dense => "densities",
    }
}

pub fn what(work: Work) -> &'static str {
    ROWS.iter().find(|row| row.work == work).map_or("", |row| row.what)
}

/// All that was asked for, one work after the other.
pub fn entries(options: &ArrayBench) -> Vec<Entry> {
    let is_small = options.comparison.smoke;
    let size = |elements: usize| if is_small { elements.min(1 << 12) } else { elements };
    let mut entries = Vec::new();
    let mut add = |row: &Row, group: String, per_chunk: usize| {
        if !options.works.is_empty() && !options.works.contains(&row.work) {
            return;
        }
        for &(contender, ops) in row.contenders {
            if options.only.is_empty() || options.only.iter().any(|name| name == contender) {
                let ops = if is_small { ops.min(2000) } else { ops };
                let job = Job { work: row.work, elements: size(row.elements), ops, per_chunk, seed: 1 };
                entries.push(Entry { group: group.clone(), contender, job });
            }
        }
    };
    for row in &ROWS {
        if row.work != Work::Dense {
            add(row, row.work.to_string(), 1);
            continue;
        }
        for density in DENSITIES.into_iter().filter(|&density| !is_small || density < 100) {
            add(row, format!("{}-{density}", row.work), density);
        }
    }
    entries
}

pub fn contenders() -> Vec<&'static str> {
    let mut all: Vec<_> = ROWS.iter().flat_map(|row| row.contenders).map(|(contender, _)| *contender).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn rate(series: &[Series], group: &str, contender: &str) -> Option<f64> {
    series.iter().find(|one| one.group == group && one.contender == contender).map(|one| one.median_mops)
}

/// The targets, as ratios of rates.
pub fn verdicts(series: &[Series]) -> Vec<Verdict> {
    let over = |group: &str, of: &str, to: &str, wanted: f64| {
        let reached = ratio(rate(series, group, of), rate(series, group, to));
        at_least(format!("{group}: {of} over {to}"), wanted, reached)
    };
    let mut verdicts = vec![
        over("hits", "array", "vec", 0.15),
        over("hits", "array", "counted", 4.0),
        over("sum", "array-views", "vec", 0.85),
        over("pass", "array", "mpi", 5.0),
        over("pass", "array", "shmem", 5.0),
        over("pass", "array", "lamellar", 100.0),
        over("pass", "array-views", "memcpy", 0.25),
        over("zipf", "array", "apply_then", 5.0),
        over("zipf", "array", "lamellar", 5.0),
        over("zipf", "array", "mpi", 10.0),
        over("zipf", "array", "array-lock", 20.0),
        over("sets", "array", "counted", 0.3),
        over("ranks", "array", "graph", 1.0),
        over("ranks", "array", "array-single", 1.3),
        over("labels", "array", "graph", 1.0),
        over("labels", "array", "array-single", 1.3),
        over("heat", "array-threads", "vec", 0.8),
        over("gets", "array", "apply_then", 2.0),
        over("puts", "array", "apply_then", 1.0),
    ];
    // A contender that was not measured might have been the best.
    let others = ["array", "apply_then", "mpi", "lamellar"].map(|contender| rate(series, "uniform", contender));
    let best = others.into_iter().try_fold(0f64, |best, rate| Some(best.max(rate?)));
    let reached = ratio(rate(series, "uniform", "array-bulk"), best);
    verdicts.push(at_least("uniform: array-bulk over the best of the others", 1.0, reached));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(group: &str, contender: &'static str, median_mops: f64) -> Series {
        let (work, group) = (Work::Zipf, group.to_owned());
        Series { table: "", group, work, contender, elements: 1, per_chunk: 1, median_mops, samples: Vec::new() }
    }

    #[test]
    fn targets_are_ratios_within_a_group() {
        let series = [at("hits", "array", 3.0), at("hits", "vec", 10.0), at("sum", "counted", 1.0)];
        let verdicts = verdicts(&series);
        let reached = |what: &str| verdicts.iter().find(|verdict| verdict.target == what).unwrap().reached;
        assert_eq!(reached("hits: array over vec"), Some(0.3));
        assert_eq!(reached("hits: array over counted"), None);
    }

    #[test]
    fn the_best_of_the_others_is_known_when_all_are() {
        let mut series = vec![at("uniform", "array-bulk", 6.0), at("uniform", "array", 1.0), at("uniform", "mpi", 3.0)];
        series.push(at("uniform", "apply_then", 2.0));
        assert_eq!(verdicts(&series).last().unwrap().reached, None);
        series.push(at("uniform", "lamellar", 0.5));
        assert_eq!(verdicts(&series).last().unwrap().reached, Some(2.0));
    }
}
