//! The query of the example `dataframe` by polars, for `gossamer-bench heap`: the same table, filtered, grouped by key,
//! and joined with labels and grouped by them. Both results are of one call, which shares their common parts. Only that
//! call is timed. Prints one JSON object, as the example does.

#[path = "../../../examples/src/dataframe/digest.rs"]
mod digest;
#[path = "../../../examples/src/dataframe/generated.rs"]
mod generated;

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use polars::prelude::*;
use serde_json::{Value, json};

use digest::digest;
use generated::{Generated, NO_LABEL};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Environment variable from which polars reads its number of threads at its start.
const THREADS: &str = "POLARS_MAX_THREADS";
/// Groups that are told one by one.
const TOP: usize = 5;

/// Those of the example, and the engine.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    #[arg(long, default_value_t = 10_000)]
    keys: u32,
    #[arg(long, default_value_t = 20)]
    labels: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 250.0)]
    at_least: f64,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, value_enum, default_value_t = Through::Memory)]
    engine: Through,
}

/// How polars executes a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Through {
    /// Each step on whole columns.
    Memory,
    /// All steps on pieces of columns.
    Stream,
}

/// The answer for one group.
type Group = (u32, u64, f64, f64, f64);

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let threads = options.threads.to_string();
    if std::env::var(THREADS).as_deref() != Ok(&threads) {
        let own = std::env::current_exe()?;
        return Err(Command::new(own).args(std::env::args_os().skip(1)).env(THREADS, threads).exec().into());
    }
    let table = Generated { rows: options.rows, keys: options.keys, labels: options.labels, seed: options.seed };
    let (few, labels) = (rows(Generated { rows: table.rows.min(1000), ..table })?, labels(table)?);
    query(few, labels.clone(), &options)?; // its threads are there then
    let rows = rows(table)?;
    let began = Instant::now();
    let (by_key, by_label) = query(rows, labels, &options)?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{}", report(&by_key, &by_label, options.rows as f64 / seconds));
    Ok(())
}

fn rows(table: Generated) -> PolarsResult<DataFrame> {
    let (keys, values): (Vec<u32>, Vec<f64>) = (0..table.rows).map(|row| table.row(row)).unzip();
    df!("key" => keys, "value" => values)
}

/// The keys that have a label, and that.
fn labels(table: Generated) -> PolarsResult<DataFrame> {
    let labels = (0..).zip(table.labels()).filter(|(_, label)| *label != NO_LABEL);
    let (keys, labels): (Vec<u32>, Vec<u32>) = labels.unzip();
    df!("key" => keys, "label" => labels)
}

/// Groups by key, and by label, each in their order.
fn query(rows: DataFrame, labels: DataFrame, options: &Options) -> PolarsResult<(Vec<Group>, Vec<Group>)> {
    let kept = rows.lazy().filter(col("value").gt_eq(lit(options.at_least)));
    let joined = kept.clone().inner_join(labels.lazy(), col("key"), col("key"));
    let all = [group(kept, "key"), group(joined, "label")];
    let flags = all[0].get_current_optimizations();
    let engine = if options.engine == Through::Stream { Engine::Streaming } else { Engine::InMemory };
    let all = all.into_iter().map(|one| one.logical_plan).collect();
    let found = LazyFrame::collect_all_with_engine(all, engine, flags)?;
    Ok((groups(&found[0], "key")?, groups(&found[1], "label")?))
}

fn group(rows: LazyFrame, by: &str) -> LazyFrame {
    let value = || col("value");
    let of_each = [
        len().alias("rows"),
        value().sum().alias("sum"),
        value().min().alias("least"),
        value().max().alias("greatest"),
    ];
    rows.group_by([col(by)]).agg(of_each).sort([by], SortMultipleOptions::default())
}

fn groups(found: &DataFrame, by: &str) -> PolarsResult<Vec<Group>> {
    let (keys, rows) = (found.column(by)?.u32()?, found.column("rows")?.u32()?);
    let numbers = |name: &str| found.column(name)?.f64();
    let (sums, least, greatest) = (numbers("sum")?, numbers("least")?, numbers("greatest")?);
    let values = keys.no_null_iter().zip(rows.no_null_iter()).zip(sums.no_null_iter());
    let extremes = least.no_null_iter().zip(greatest.no_null_iter());
    Ok(values.zip(extremes).map(|(((key, rows), sum), (least, most))| (key, rows.into(), sum, least, most)).collect())
}

fn report(by_key: &[Group], by_label: &[Group], a_second: f64) -> Value {
    let rows = |groups: &[Group]| groups.iter().map(|group| group.1).sum::<u64>();
    let digest_of = |groups: &[Group]| format!("{:016x}", digest(groups.iter().copied()));
    let mut top = by_label.to_vec();
    top.sort_by(|one, other| other.2.total_cmp(&one.2).then(one.0.cmp(&other.0)));
    top.truncate(TOP);
    let told = |(label, rows, sum, ..): &Group| json!({"name": format!("label {label}"), "rows": rows, "sum": sum});
    json!({
        "kept": rows(by_key),
        "joined": rows(by_label),
        "keys": by_key.len(),
        "labels": by_label.len(),
        "digests": [digest_of(by_key), digest_of(by_label)],
        "top": top.iter().map(told).collect::<Vec<_>>(),
        "a_second": a_second,
    })
}
