//! How `heap-kv` runs: the store, the load, the twin, the report.

use std::process::ExitCode;

use clap::Parser;
use indicatif::HumanCount;
use serde_json::{Map, json};

use super::options::Options;
use super::store::{Client, Store};
use super::twin;
use crate::heaps::options::machine_args;
use crate::heaps::report::{Report, Twin, many};
use crate::heaps::twin::note_cores;
use crate::machines;
use crate::program::Program;
use crate::progress::{self, Meter};

/// Runs `heap-kv` with the arguments of this process.
pub fn main() -> ExitCode {
    run_with(Options::parse()) // exits with status 2 and the usage where they are wrong
}

/// Runs it with these options, which are those among the arguments of this process.
pub fn run_with(options: Options) -> ExitCode {
    note_cores();
    let (program, rack) = (Program("heap-kv"), options.common.rack.clone());
    program.end(machines::run(program, &rack, machine_args(), move || run(&options)))
}

/// Runs on a fiber of the first machine; prints the report, and returns whether all is right.
fn run(options: &Options) -> anyhow::Result<bool> {
    let workers = gossamer::rack().workers();
    let (load, buckets) = (options.load(workers), options.buckets());
    let store = Store::new(buckets)?;
    let count = load.operations * (workers * load.fibers) as u64;
    let terminal = options.common.rack.progress_on.as_deref();
    let meter = Meter::new(progress::bar(count, progress::NUMBERS, terminal));
    let (wrong, time) = load.run(&store, &meter.count())?;
    meter.finish()?;
    let answer = Client::new(&store.parts()).answer();
    let compare = || {
        let (twins, time) = twin::run(load, buckets, workers);
        Twin::compared(&answer, &twins, time, |own, twins| format!("the store has {own:?}, the twin's {twins:?}"))
    };
    let text = format!(
        "{} keys in {}, {}, values of {} bytes, {}% gets, {} at each worker\n",
        HumanCount(load.keys),
        many(buckets, "bucket", "buckets"),
        load.zipf.map_or("all alike".to_owned(), |exponent| format!("zipf {exponent}")),
        load.words * 8,
        load.gets * 100.0,
        many(load.fibers, "fiber", "fibers"),
    );
    let found = [
        ("keys", answer.keys.into()),
        ("puts", answer.puts.into()),
        ("checksum", json!(format!("{:016x}", answer.checksum))),
    ];
    let report = Report {
        text,
        found: found.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>(),
        unit: "operations",
        count,
        time,
        wrong: (wrong > 0).then(|| format!("{wrong} gets found nothing, or what they should not")),
        twin: options.common.verify.then(compare),
    };
    report.print(options.common.json)
}
