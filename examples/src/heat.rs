//! `heat`: heat spreads over a square plate whose cells are an array over the rack. A stencil, with checkpoints.
//!
//! In a step each cell gets nearer to the temperatures of its four neighbours; the edges keep theirs. Each place
//! computes the cells that it owns, row by row as they lie in the array. Of others it needs the row before its cells
//! and the row behind them, the *halo*. There are two arrays, one read and one written, and after each step they change
//! roles.
//!
//! The result does not depend on the places: each cell is computed by the same operations in the same order, so it is
//! that of one thread, bit for bit.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{Parser, value_parser};
use gossamer_array::Array;
use graph::random::mix;
use serde_json::json;

use crate::heaps::options::{Common, machine_args};
use crate::heaps::report::{Report, Twin, many};
use crate::machines;
use crate::program::Program;
use crate::progress;

/// Spreads heat over a square plate, with its cells in arrays over the workers of several processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "heat", version, after_long_help = HELP)]
pub struct Options {
    /// Rows, and columns, of the plate
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u64).range(3..=1 << 20))]
    pub size: u64,

    /// Number of steps, counted from the cold plate
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u64).range(..=1 << 50))]
    pub steps: u64,

    /// Folder for checkpoints, on a file system that all machines share
    #[arg(long, value_name = "FOLDER")]
    pub checkpoint: Option<PathBuf>,

    /// Steps from one checkpoint to the next
    #[arg(long, value_name = "N", requires = "checkpoint", default_value_t = 50)]
    #[arg(value_parser = value_parser!(u64).range(1..))]
    pub every: u64,

    /// Go on from the checkpoint in the folder
    #[arg(long, requires = "checkpoint")]
    pub restore: bool,

    /// Options that other programs have, too.
    #[command(flatten)]
    pub common: Common,
}

const HELP: &str = "\
Examples:
  heat --verify
      in one process, beside the same on one thread
  heat --local 4 --size 4096 --checkpoint /shared/heat --every 100
      over four processes, with a checkpoint after each hundred steps
  heat --local 2 --size 4096 --checkpoint /shared/heat --restore --steps 400
      goes on from the last of these, over two processes
  gossamer-launch run --rack rack.yaml heat --size 20000
      on the hosts of a rack

Exit status:
  0  all was done, and as on one thread if that was to be verified
  1  there is no memory, a checkpoint cannot be written or restored, or --verify found another temperature
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

/// Degrees of the upper edge; the other cells begin with 0.
const HOT: f64 = 100.0;
/// Share of the difference to each neighbour that a cell takes on in a step.
const RATE: f64 = 0.2;

/// Runs `heat` with the arguments of this process.
pub fn main() -> ExitCode {
    let options = Options::parse(); // exits with status 2 and the usage where they are wrong
    let (program, rack) = (Program("heat"), options.common.rack.clone());
    program.end(machines::run(program, &rack, machine_args(), move || run(&options)))
}

/// Returns the temperature of a cell after a step.
fn after(cell: f64, [above, left, right, below]: [f64; 4]) -> f64 {
    cell + RATE * (above + left + right + below - 4.0 * cell)
}

/// Computes all cells of `new` from those of `old`, each place its own.
fn step(old: &Array<f64>, new: &Array<f64>, size: usize) {
    let (old, to, cells) = (old.clone(), new.clone(), size * size);
    new.on_owners(move |own| {
        for range in own {
            let own = range.start..range.end.min(cells);
            if own.is_empty() {
                continue;
            }
            // 1. The own cells and the halo, in one copy: rows of others come in packets from their owners, and are not
            //    cached, because they will have changed in the next step.
            let (start, end) = (own.start.saturating_sub(size), (own.end + size).min(cells));
            let mut before = vec![0.0; end - start];
            old.copy_to(start, &mut before);
            // 2. The own cells of the other array, chunk by chunk in place.
            to.modify(own, |first, chunk| {
                let mut column = first % size;
                for (i, cell) in (first..).zip(chunk) {
                    let at = i - start;
                    let is_edge = i < size || i >= cells - size || column == 0 || column == size - 1;
                    *cell = if is_edge {
                        before[at]
                    } else {
                        after(before[at], [before[at - size], before[at - 1], before[at + 1], before[at + size]])
                    };
                    column = if column == size - 1 { 0 } else { column + 1 };
                }
            });
        }
    }); // all places have done so: the next step sees their cells
}

/// Runs on a fiber of the first machine; prints the report, and returns whether all is right.
fn run(options: &Options) -> anyhow::Result<bool> {
    let (size, steps) = (options.size as usize, options.steps);
    let cells = size * size;
    // One element more counts the steps, so that a checkpoint has both.
    let mut plate = match &options.checkpoint {
        Some(folder) if options.restore => Array::restore(folder)?,
        _ => {
            let plate = Array::new(cells + 1, 0.0)?;
            plate.copy_from(0, &vec![HOT; size]);
            plate
        }
    };
    ensure!(plate.len() == cells + 1, "the checkpoint is of a plate of another --size");
    let mut other = Array::new(cells + 1, 0.0)?;
    let first = plate.get(cells) as u64;
    ensure!(first <= steps, "the checkpoint is of step {first}, behind the last of --steps {steps}");

    let terminal = options.common.rack.progress_on.as_deref();
    let bar = progress::bar(steps, "{msg} {bar:40} {human_pos}/{human_len} steps", terminal);
    bar.set_position(first);
    let (start, mut checkpoints, mut writing) = (Instant::now(), 0, Duration::ZERO);
    for done in first + 1..=steps {
        step(&plate, &other, size);
        other.set(cells, done as f64);
        std::mem::swap(&mut plate, &mut other);
        if let Some(folder) = &options.checkpoint
            && done.is_multiple_of(options.every)
        {
            // No fiber writes now, so it has exactly this step; the one before is gone when it is on disk.
            let start = Instant::now();
            plate.checkpoint(folder)?;
            (checkpoints, writing) = (checkpoints + 1, writing + start.elapsed());
        }
        bar.inc(1);
    }
    let time = start.elapsed().saturating_sub(writing);
    bar.finish_and_clear();

    let mean = plate.views(0..cells).map(|view| view.iter().sum::<f64>()).sum::<f64>() / cells as f64;
    let bits = plate.views(0..cells).flat_map(|view| view.iter().map(|cell| cell.to_bits()).collect::<Vec<_>>());
    let checksum = bits.fold(0, |sum, bits| mix(sum ^ bits));
    let mut text = format!("{size} x {size} cells, {mean:.3} degrees on average after step {steps}\n");
    if options.restore {
        text += &format!("restored from step {first}\n");
    }
    if checkpoints > 0 {
        text += &format!("{}, {:.4} s\n", many(checkpoints, "checkpoint", "checkpoints"), writing.as_secs_f64());
    }
    let found = json!({
        "size": size, "steps": steps, "restored": first, "checkpoints": checkpoints, "mean": mean,
        "checkpoint_s": writing.as_secs_f64(), "checksum": format!("{checksum:016x}"),
    });
    let report = Report {
        text,
        found: found.as_object().cloned().unwrap_or_default(),
        unit: "cells",
        count: cells as u64 * (steps - first),
        time,
        wrong: None,
        twin: options.common.verify.then(|| verified(&plate, size, steps, first)),
    };
    report.print(options.common.json)
}

/// Does the same on one thread, and compares each bit.
fn verified(plate: &Array<f64>, size: usize, steps: u64, first: u64) -> Twin {
    let (mut expected, mut start) = (vec![0.0; size * size], Instant::now());
    expected[..size].fill(HOT);
    let mut new = expected.clone();
    for done in 0..steps {
        if done == first {
            start = Instant::now(); // as many steps as the other time has
        }
        for row in 1..size - 1 {
            for i in row * size + 1..row * size + size - 1 {
                new[i] = after(expected[i], [expected[i - size], expected[i - 1], expected[i + 1], expected[i + size]]);
            }
        }
        std::mem::swap(&mut expected, &mut new);
    }
    let time = start.elapsed();
    let difference = plate.views(0..size * size).find_map(|view| {
        let (i, cell) = view.indexed().find(|(i, cell)| cell.to_bits() != expected[*i].to_bits())?;
        Some(format!("row {}, column {} has {cell} degrees, the twin's {}", i / size, i % size, expected[i]))
    });
    Twin { time, threads: 1, difference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        for line in ["--size 2", "--every 5", "--restore", "--checkpoint x --every 0", "--steps x"] {
            let line = format!("heat {line}");
            assert_eq!(Options::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
        let options = Options::try_parse_from(["heat", "--checkpoint", "x", "--every", "5", "--restore"]).unwrap();
        assert_eq!((options.every, options.restore), (5, true));
    }

    #[test]
    fn heat_flows_from_the_hotter_cell_to_the_colder() {
        assert_eq!(after(10.0, [10.0; 4]), 10.0);
        assert_eq!(after(0.0, [100.0, 0.0, 0.0, 0.0]), 20.0);
        assert!(after(50.0, [0.0; 4]) < 50.0);
    }
}
