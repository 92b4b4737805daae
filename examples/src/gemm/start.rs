//! How `gemm` runs: the factors, the product, the twin, the report.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use gossamer_heap::Global;
use graph::random::mix;
use serde_json::json;

use super::blas;
use super::options::Options;
use super::product::{factor, multiply};
use super::tile::{Factor, Shape};
use super::twin;
use crate::heaps::options::machine_args;
use crate::heaps::report::{Report, Twin};
use crate::heaps::spread::Reader;
use crate::heaps::twin::note_cores;
use crate::machines;
use crate::program::Program;
use crate::progress::{self, Meter};

/// Runs `gemm` with the arguments of this process.
pub fn main() -> ExitCode {
    run_with(Options::parse()) // exits with status 2 and the usage where they are wrong
}

/// Runs it with these options, which are those among the arguments of this process.
pub fn run_with(options: Options) -> ExitCode {
    note_cores();
    let (program, rack) = (Program("gemm"), options.common.rack.clone());
    let loaded = options.blas.as_deref().map_or(Ok(()), blas::load);
    program.end(loaded.and_then(|()| machines::run(program, &rack, machine_args(), move || run(&options))))
}

/// Runs on a fiber of the first machine; prints the report, and returns whether all is right.
fn run(options: &Options) -> anyhow::Result<bool> {
    let shape = options.shape();
    let (left, right) = (factor(shape, Factor::Left)?, factor(shape, Factor::Right)?);
    let tiles = shape.tiles().pow(2) as u64;
    let meter = Meter::new(progress::bar(tiles, progress::NUMBERS, options.common.rack.progress_on.as_deref()));
    let start = Instant::now();
    let product = multiply(shape, &left, &right, meter.count())?;
    let time = start.elapsed();
    meter.finish()?;
    drop((left, right));
    let parts = product.parts();
    let product = Reader::new(&parts);
    let checksum = product
        .iter()
        .fold(0, |sum, tile| tile.read().iter().fold(sum, |sum: u64, element| mix(sum ^ element.to_bits())));
    let compare = || {
        let threads = gossamer::rack().workers();
        let (twins, time) = twin::run(shape, threads);
        Twin { time, threads, difference: differs(shape, &product, &twins) }
    };
    let (size, tile) = (shape.size, shape.tile);
    let report = Report {
        text: format!("{size} x {size} by {size} x {size}, in tiles of {tile} x {tile}\n"),
        found: [("size".to_owned(), size.into()), ("checksum".to_owned(), json!(format!("{checksum:016x}")))]
            .into_iter()
            .collect(),
        unit: "operations",
        count: shape.operations(),
        time,
        wrong: None,
        twin: options.common.verify.then(compare),
    };
    report.print(options.common.json)
}

/// The first element that is not the twin's.
fn differs(shape: Shape, product: &Reader<'_, Global<[f64]>>, twins: &[Box<[f64]>]) -> Option<String> {
    product.iter().zip(twins).enumerate().find_map(|(number, (own, twins))| {
        let own = own.read();
        let at = own.iter().zip(twins).position(|(own, twins)| own != twins)?;
        let row = number / shape.tiles() * shape.tile + at / shape.tile;
        let column = number % shape.tiles() * shape.tile + at % shape.tile;
        Some(format!("row {row}, column {column} is {}, the twin's {}", own[at], twins[at]))
    })
}
