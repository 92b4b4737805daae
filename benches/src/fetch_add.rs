//! `fetch-add`: throughput over the number of objects (thesis 2.6.1, figures 6 and 7).

use std::collections::HashSet;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{
    contenders,
    harness::{Entry, interleave},
    machine::Machine,
    options::Common,
    pick::Dist,
    plot::{Album, Picture},
    report::{Field, Report, Series},
};

/// Options of `fetch-add`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct FetchAdd {
    /// Threads, clients and trustees together; a series each.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    pub threads: Vec<usize>,
    /// Counters; a point each.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,1024,1000000")]
    pub objects: Vec<usize>,
    /// How counters are picked; a series each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uniform,zipf")]
    pub dist: Vec<Dist>,
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

/// A series with how its objects were picked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FetchAddSeries {
    /// How objects were picked.
    pub dist: Dist,
    /// The samples.
    #[serde(flatten)]
    pub series: Series,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; counters that are wrong after a run; a file that cannot be written.
pub fn command(mut options: FetchAdd) -> Result<()> {
    options.common = options.common.prepare()?;
    let common = &options.common;
    let machine = Machine::here();
    println!("{machine}");
    contenders::named(&common.only)?;
    let mut results = Vec::new();
    let mut left_out = HashSet::new();
    for &threads in &options.threads {
        for &dist in &options.dist {
            for &objects in &options.objects {
                let title = format!("fetch-add, {threads} threads, {objects} objects, {dist}");
                let workload = common.workload(threads, objects, dist)?;
                let mut entries = Vec::new();
                for contender in contenders::named(&common.only)? {
                    if contender.least_threads() > threads {
                        if left_out.insert((threads, contender.name())) {
                            eprintln!("left out: {} needs {} threads", contender.name(), contender.least_threads());
                        }
                        continue;
                    }
                    entries.push(Entry { group: String::new(), contender, workload: workload.clone() });
                }
                let series = interleave(entries, common, &title)?;
                Field::of(&series, "").print(&title);
                results.extend(series.into_iter().map(|series| FetchAddSeries { dist, series }));
            }
        }
    }
    Report::write("fetch-add", &machine, &options, results, common.comparison.json.as_deref())
}

/// Throughput over the number of objects, for each distribution and number of threads; `has_pause` is whether `--pause`
/// was given.
pub fn pictures(results: &[FetchAddSeries], has_pause: bool) -> Vec<Picture> {
    let inside = if has_pause { ", a spin-loop hint inside" } else { "" };
    let mut album = Album::default();
    for FetchAddSeries { dist, series } in results {
        let threads = series.threads;
        let title = || format!("Fetch-and-add, {threads} threads, {dist}{inside}");
        let axes = ("objects", "million operations a second (median, min to max)");
        let picture = album.picture(format!("{dist}-{threads}-threads"), title, axes);
        picture.add(&series.contender, series.dot(series.objects as f64));
    }
    album.pictures()
}
