//! `heat`: heat spreads over a square plate whose cells are an array over the rack. A stencil, with checkpoints.
//!
//! In a step each cell gets nearer to the temperatures of its four neighbours; the edges keep theirs. Each place
//! computes the cells that it owns, row by row as they lie in the array. Of others it needs the row before its cells
//! and the row behind them, the *halo*. There are two arrays, one read and one written, and after each step they change
//! roles.
//!
//! The result does not depend on the places: each cell is computed by the same operations in the same order, so it is
//! that of one thread, bit for bit.
//!
//! With `--survives N` it goes on when up to N of its processes are lost. The arrays had parts there and are lost with
//! them, so it makes them anew on the processes that are left, from the last checkpoint ([`spread`]).

use std::ops::Range;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{Parser, value_parser};
use gossamer::sync::Channel;
use gossamer_array::{Array, Error};
use graph::random::mix;
use serde_json::json;

use crate::heaps::options::{Common, machine_args};
use crate::heaps::report::{Report, Twin, many};
use crate::heaps::twin::{self, note_cores};
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

    /// Number of processes, other than the first, that may be lost: the others go on from the last checkpoint. To be
    /// set here: `--survives` of gossamer-launch alone makes none
    #[arg(long, value_name = "N", requires = "checkpoint", default_value_t = 0)]
    pub survives: u16,

    /// Options that other programs have, too.
    #[command(flatten)]
    pub common: Common,
}

const HELP: &str = "\
Examples:
  heat --verify
      in one process, beside the same with plain threads
  heat --local 4 --size 4096 --checkpoint /shared/heat --every 100
      over four processes, with a checkpoint after each hundred steps
  heat --local 2 --size 4096 --checkpoint /shared/heat --restore --steps 400
      goes on from the last of these, over two processes
  heat --local 4 --size 4096 --checkpoint /shared/heat --survives 1
      goes on over three processes when one is killed
  gossamer-launch run --rack rack.yaml heat --size 20000
      on the hosts of a rack

Exit status:
  0  all was done, and as with plain threads if that was to be verified
  1  there is no memory, a checkpoint cannot be written or restored, or --verify found another temperature
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

/// Degrees of the upper edge; the other cells begin with 0.
const HOT: f64 = 100.0;
/// Share of the difference to each neighbour that a cell takes on in a step.
const RATE: f64 = 0.2;
/// Longest time from the failure of a call to the news of the loss that was its cause: milliseconds, mostly.
const NEWS: Duration = Duration::from_secs(10);
/// Cells that a place copies at a time, at least a row: they stay in a core's cache until they have been used.
const BAND_CELLS: usize = 16 << 10;

/// Runs `heat` with the arguments of this process.
pub fn main() -> ExitCode {
    note_cores();
    let options = Options::parse(); // exits with status 2 and the usage where they are wrong
    let (program, rack) = (Program("heat"), options.common.rack.clone());
    let builder = gossamer::builder().survives(options.survives);
    let body = move || spread(&options)?.print(options.common.json);
    program.end(machines::run_with(&builder, program, &rack, machine_args(), body))
}

/// Returns the temperature of a cell after a step.
fn after(cell: f64, [above, left, right, below]: [f64; 4]) -> f64 {
    cell + RATE * (above + left + right + below - 4.0 * cell)
}

/// Computes cells of one row, which lie one behind the other from cell `first` of the plate on. `before` has the cells
/// before the step: those of this row from `at` on, the row before it and the row behind it.
fn row(cells: &mut [f64], first: usize, before: &[f64], at: usize, size: usize) {
    let of = |start: usize| &before[start..start + cells.len()];
    let (old, column) = (of(at), first % size);
    if first < size || first >= size * (size - 1) {
        return cells.copy_from_slice(old);
    }
    // The compiler computes several cells at once, as no index is left to check.
    let around = of(at - size).iter().zip(of(at - 1)).zip(of(at + 1)).zip(of(at + size));
    let (left_edge, right_edge) = (old[0], old[old.len() - 1]);
    for ((cell, old), (((above, left), right), below)) in cells.iter_mut().zip(old).zip(around) {
        *cell = after(*old, [*above, *left, *right, *below]);
    }
    if column == 0 {
        cells[0] = left_edge;
    }
    if column + cells.len() == size {
        cells[cells.len() - 1] = right_edge;
    }
}

/// Computes all cells of `new` from those of `old`, each place its own.
fn step(old: &Array<f64>, new: &Array<f64>, size: usize) {
    let (old, to, cells) = (old.clone(), new.clone(), size * size);
    new.on_owners(move |own| {
        let band = (BAND_CELLS / size).max(1) * size;
        let copy = |range: Range<usize>| {
            let mut copied = vec![0.0; range.len()];
            old.copy_to(range.start, &mut copied);
            copied
        };
        let mut before = Vec::new();
        for own in own.into_iter().map(|own| own.start..own.end.min(cells)).filter(|own| !own.is_empty()) {
            // 1. The halo, first: its owners are at the same point and answer at once. Not cached, because it will have
            //    changed in the next step.
            let (above, below) = (own.start.saturating_sub(size)..own.start, own.end..(own.end + size).min(cells));
            let [above, below] = [above, below].map(copy);
            for first in own.clone().step_by(band) {
                // 2. A band of own cells, with the row before it and the row behind, in one piece.
                let now = first..(first + band).min(own.end);
                let (start, end) = (first.saturating_sub(size), (now.end + size).min(cells));
                before.resize(end - start, 0.0);
                let (from_above, from_below) = (own.start.saturating_sub(start), end.saturating_sub(own.end));
                let (first_rows, rest) = before.split_at_mut(from_above);
                let (inner, last_rows) = rest.split_at_mut(end - start - from_above - from_below);
                first_rows.copy_from_slice(&above[above.len() - from_above..]);
                old.copy_to(start + from_above, inner);
                last_rows.copy_from_slice(&below[..from_below]);
                // 3. The same cells of the other array, in place: chunk by chunk, and row by row in each.
                to.modify(now, |mut first, mut chunk| {
                    while !chunk.is_empty() {
                        let (cells, rest) = chunk.split_at_mut(chunk.len().min(size - first % size));
                        row(cells, first, &before, first - start, size);
                        first += cells.len();
                        chunk = rest;
                    }
                });
            }
        }
    }); // all places have done so: the next step sees their cells
}

/// Runs on a fiber of the first machine. An attempt that loses a machine is followed by another one, on the machines
/// that are left.
///
/// # Errors
/// There is no memory, or a checkpoint cannot be written or restored.
pub fn spread(options: &Options) -> anyhow::Result<Report> {
    // 1. Each loss comes here. Only this machine sends, so the loss of another one does not end the wait for it.
    let (tell, losses) = Channel::new().at(gossamer::here()).open();
    tell.among(&[gossamer::here().machine]);
    gossamer::on_loss(move |loss| tell.post(loss.machine));
    // Set once the folder has a checkpoint of this plate.
    let is_saved = Arc::new(AtomicBool::new(options.restore));
    loop {
        // 2. In a fiber of its own, since each call of an array that has lost a machine panics.
        let (own, saved) = (options.clone(), Arc::clone(&is_saved));
        let ended = gossamer::spawn(move || attempt(&own, &saved)).join();
        let may_be_loss = match &ended {
            Err(_) => true,
            Ok(Err(error)) => matches!(error.downcast_ref(), Some(Error::Lost { .. })),
            Ok(Ok(_)) => false,
        };
        // 3. Was it a loss? The news of it may be on the way.
        let is_loss = may_be_loss && options.survives > 0 && losses.recv_timeout(NEWS).is_ok();
        if !is_loss {
            return ended.unwrap_or_else(|panic| resume_unwind(panic));
        }
        // 4. Again, from the last checkpoint.
    }
}

/// Does all steps on the machines that are not lost: from the last checkpoint of this plate on, or from the cold plate.
fn attempt(options: &Options, is_saved: &AtomicBool) -> anyhow::Result<Report> {
    let (size, steps) = (options.size as usize, options.steps);
    let cells = size * size;
    let lost =
        (0..gossamer::rack().machines().len() as u16).filter(|machine| gossamer::rack().is_lost(*machine)).count();
    // One element more counts the steps, so that a checkpoint has both.
    let mut plate = match &options.checkpoint {
        Some(folder) if is_saved.load(Ordering::Relaxed) => Array::restore(folder)?,
        folder => {
            let plate = Array::new(cells + 1, 0.0)?;
            plate.copy_from(0, &vec![HOT; size]);
            if let Some(folder) = folder.as_ref().filter(|_| options.survives > 0) {
                plate.checkpoint(folder)?; // the next attempt begins with it, or a later one
                is_saved.store(true, Ordering::Relaxed);
            }
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
    if lost > 0 {
        text += &format!("went on without {} from step {first}\n", many(lost, "process", "processes"));
    }
    if checkpoints > 0 {
        text += &format!("{}, {:.4} s\n", many(checkpoints, "checkpoint", "checkpoints"), writing.as_secs_f64());
    }
    let found = json!({
        "size": size, "steps": steps, "restored": first, "checkpoints": checkpoints, "lost": lost, "mean": mean,
        "checkpoint_s": writing.as_secs_f64(), "checksum": format!("{checksum:016x}"),
    });
    Ok(Report {
        text,
        found: found.as_object().cloned().unwrap_or_default(),
        unit: "cells",
        count: cells as u64 * (steps - first),
        time,
        wrong: None,
        twin: options.common.verify.then(|| verified(&plate, size, steps, first)),
    })
}

/// Does the same with plain threads, as many as there are workers, and compares each bit.
fn verified(plate: &Array<f64>, size: usize, steps: u64, first: u64) -> Twin {
    let threads = gossamer::rack().workers().min(size);
    let (expected, time) = by_threads(size, steps, first, threads);
    let difference = plate.views(0..size * size).find_map(|view| {
        let (i, cell) = view.indexed().find(|(i, cell)| cell.to_bits() != expected[*i].to_bits())?;
        Some(format!("row {}, column {} has {cell} degrees, the twin's {}", i / size, i % size, expected[i]))
    });
    Twin { time, threads, difference }
}

/// Computes the plate after so many steps with plain threads, each with some of the rows. Returns the time of the steps
/// from `first` on, too.
///
/// # Panics
/// If a thread cannot be started.
pub fn by_threads(size: usize, steps: u64, first: u64, threads: usize) -> (Vec<f64>, Duration) {
    let threads = threads.clamp(1, size);
    let mut ways: Vec<[Option<Neighbour>; 2]> = (0..threads).map(|_| [None, None]).collect();
    for thread in 1..threads {
        let (down, up) = Neighbour::pair();
        (ways[thread - 1][BELOW], ways[thread][ABOVE]) = (Some(down), Some(up));
    }
    let ways: Vec<_> = ways.into_iter().map(|ways| Mutex::new(Some(ways))).collect();
    let begin = |thread: usize| {
        let ways = ways[thread].lock().ok().and_then(|mut ways| ways.take());
        let mut band =
            Band::new(size, thread * size / threads..(thread + 1) * size / threads, ways.unwrap_or_default());
        band.go_on(first);
        band
    };
    let (bands, time) = twin::run(threads, begin, |mut band: Band| {
        band.go_on(steps - first);
        band
    });
    (bands.iter().flat_map(|band| band.own_rows().iter().copied()).collect(), time)
}

/// Rows of a plain thread.
struct Band {
    size: usize,
    rows: Range<usize>,
    /// The cells, with the row before them and the row behind.
    old: Vec<f64>,
    new: Vec<f64>,
    /// Threads with the rows before them and behind.
    ways: [Option<Neighbour>; 2],
}

const ABOVE: usize = 0;
const BELOW: usize = 1;

/// The way to a neighbour, on which each step sends one row both ways.
struct Neighbour {
    to: Sender<Vec<f64>>,
    from: Receiver<Vec<f64>>,
}

impl Neighbour {
    /// Returns both ends.
    fn pair() -> (Neighbour, Neighbour) {
        let ((to_one, from_other), (to_other, from_one)) = (mpsc::channel(), mpsc::channel());
        (Neighbour { to: to_other, from: from_other }, Neighbour { to: to_one, from: from_one })
    }

    fn send(&self, row: &[f64]) {
        // If it has ended, `receive` says so.
        let _ = self.to.send(row.to_vec());
    }

    fn receive(&self) -> Vec<f64> {
        self.from.recv().unwrap_or_else(|_| panic!("the thread with the neighbouring rows has ended"))
    }
}

impl Band {
    fn new(size: usize, rows: Range<usize>, ways: [Option<Neighbour>; 2]) -> Band {
        let mut old = vec![0.0; (rows.len() + 2) * size];
        if rows.start == 0 {
            old[size..2 * size].fill(HOT);
        }
        Band { size, rows, new: old.clone(), old, ways }
    }

    fn own_rows(&self) -> &[f64] {
        &self.old[self.size..self.old.len() - self.size]
    }

    /// Computes so many steps.
    fn go_on(&mut self, steps: u64) {
        let (size, behind) = (self.size, self.old.len() - self.size);
        for _ in 0..steps {
            // Both rows are sent before one is waited for.
            for (way, own) in [(ABOVE, size), (BELOW, behind - size)] {
                if let Some(neighbour) = &self.ways[way] {
                    neighbour.send(&self.old[own..own + size]);
                }
            }
            for (way, halo) in [(ABOVE, 0), (BELOW, behind)] {
                if let Some(neighbour) = &self.ways[way] {
                    self.old[halo..halo + size].copy_from_slice(&neighbour.receive());
                }
            }
            for (at, number) in (size..behind).step_by(size).zip(self.rows.clone()) {
                row(&mut self.new[at..at + size], number * size, &self.old, at, size);
            }
            std::mem::swap(&mut self.old, &mut self.new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        for line in ["--size 2", "--every 5", "--restore", "--checkpoint x --every 0", "--steps x", "--survives 1"] {
            let line = format!("heat {line}");
            assert_eq!(Options::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
        let options = Options::try_parse_from(["heat", "--checkpoint", "x", "--every", "5", "--restore"]).unwrap();
        assert_eq!((options.every, options.restore), (5, true));
    }

    /// The cells of a plate after some steps, one by one.
    fn one_by_one(size: usize, steps: u64) -> Vec<f64> {
        let mut plate = vec![0.0; size * size];
        plate[..size].fill(HOT);
        for _ in 0..steps {
            let old = plate.clone();
            for i in (size..size * (size - 1)).filter(|i| i % size != 0 && i % size != size - 1) {
                plate[i] = after(old[i], [old[i - size], old[i - 1], old[i + 1], old[i + size]]);
            }
        }
        plate
    }

    #[test]
    fn any_number_of_plain_threads_computes_each_cell() {
        for (size, steps) in [(3, 5), (4, 7), (17, 40)] {
            let expected = one_by_one(size, steps);
            assert!(expected[size + 1] > 0.0);
            for threads in 1..size + 2 {
                for first in [0, 3, steps] {
                    assert_eq!(by_threads(size, steps, first, threads).0, expected, "{size}, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn heat_flows_from_the_hotter_cell_to_the_colder() {
        assert_eq!(after(10.0, [10.0; 4]), 10.0);
        assert_eq!(after(0.0, [100.0, 0.0, 0.0, 0.0]), 20.0);
        assert!(after(50.0, [0.0; 4]) < 50.0);
    }
}
