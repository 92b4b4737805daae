//! How `array-kv` runs: the store, the load, the report.

use std::process::ExitCode;

use anyhow::ensure;
use clap::Parser;
use indicatif::HumanCount;

use super::options::Options;
use super::slabs::Slabs;
use super::store::Store;
use crate::machines;
use crate::program::{Program, print};
use crate::progress::{self, Meter};

/// Words of a block beside its value: sequence numbers, lengths and the key.
const WORDS_BESIDE_VALUE: usize = 6;
const SLAB: usize = 512;

/// Runs `array-kv` with the arguments of this process.
pub fn main() -> ExitCode {
    let options = Options::parse(); // exits with status 2 and the usage where they are wrong
    let (program, rack, args) = (Program("array-kv"), options.rack.clone(), options.machine_args());
    program.end(machines::run(program, &rack, args, move || run(&options)))
}

/// Runs on a fiber of the first machine; prints the report, and returns whether all is right.
fn run(options: &Options) -> anyhow::Result<bool> {
    let rack = gossamer::rack();
    let load = options.load(rack.workers());
    let block = Slabs::block_words(WORDS_BESIDE_VALUE + load.value_bytes.div_ceil(8));
    // Half as much again as the values need, for places that put more than others, and a few slabs for each.
    let words = load.keys as usize * block * 3 / 2 + rack.workers() * 8 * SLAB;
    let store = Store::new(load.keys as usize, words)?;
    let all = load.operations * (rack.workers() * load.fibers) as u64;
    let meter = Meter::new(progress::bar(all, progress::NUMBERS, options.rack.progress_on.as_deref()));
    let (done, time) = load.run(&store, &meter.count());
    meter.finish()?;
    ensure!(done.refused == 0, "there was no room for {} puts", done.refused);
    let (keys, bytes, gets) = (HumanCount(load.keys), load.value_bytes, load.gets * 100.0);
    let (machines, workers, fibers) = (rack.machines().len(), rack.workers(), load.fibers);
    let chosen = load.zipf.map_or("all alike".to_owned(), |exponent| format!("zipf {exponent}"));
    let (count, time) = (HumanCount(done.operations), time.as_secs_f64());
    let speed = done.operations as f64 / time.max(1e-9) / 1e6;
    let many = |count: usize, ending| if count == 1 { "" } else { ending };
    let mut text = format!(
        "{keys} keys, {chosen}, values of {bytes} bytes, {gets}% gets\n\
         {machines} process{} with {workers} worker{} in all, {fibers} fiber{} each\n\
         {count} operations, {time:.4} s, {speed:.3} million operations a second\n",
        many(machines, "es"),
        many(workers, "s"),
        many(fibers, "s"),
    );
    if load.verify {
        text += &match done.wrong {
            0 => "right: each value found was put, whole, and none older than one found before\n".to_owned(),
            wrong => format!("WRONG: {wrong} gets found nothing, or what they should not\n"),
        };
    }
    print(&text)?;
    Ok(done.wrong == 0)
}
