//! `fetch-add`: throughput over the number of objects (thesis 2.6.1, figures 6 and 7).

use crate::contenders;
use crate::prelude::*;
use crate::report::{Field, Series};

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

pub fn command(mut options: FetchAdd) -> Result<()> {
    options.common = options.common.prepare()?;
    let common = &mut options.common;
    let bench = Bench::begin("fetch-add", &mut common.comparison)?;
    let mut results = Vec::new();
    for &threads in &options.threads {
        for &dist in &options.dist {
            for &objects in &options.objects {
                let workload = common.workload(threads, objects, dist)?;
                let contenders = contenders::named(&common.only)?.into_iter();
                let fitting = contenders.filter(|contender| contender.least_threads <= threads);
                let entry = |contender| Entry { group: String::new(), contender, workload: workload.clone() };
                let series = interleave(&bench, fitting.map(entry).collect(), common)?;
                Field::of(&series, "").print(&format!("fetch-add, {threads} threads, {objects} objects, {dist}"));
                results.extend(series.into_iter().map(|series| Series { dist: Some(dist), ..series }));
            }
        }
    }
    bench.write(&options, json!(results))
}
