//! `heap-copied`: an object of 1 KiB that two of three machines of one worker each write and hand on to each other, and
//! one that stays where it is written; for `heap`, with copies and without. Each turn checks the words of the one
//! before.

use crate::machines::{outcome, start};
use crate::prelude::*;
use gossamer::Place;
use gossamer::bootstrap::{FabricChoice, LAUNCHER};
use gossamer::sync::Channel;
use gossamer_heap::{self as heap, Global};

/// Options of `heap-copied`.
#[derive(Clone, Debug, Args)]
pub struct HeapCopied {
    /// The fabric between the processes: shm or tcp.
    #[arg(long)]
    pub fabric: FabricChoice,
    /// Keep copies of what leaves a machine.
    #[arg(long)]
    pub copies: bool,
    /// Rounds.
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// Turns of a run, a multiple of two.
    #[arg(long, default_value_t = 1 << 14)]
    pub turns: u64,
}

/// Name of the way without copies.
pub const PLAIN: &str = "no copies";
/// Name of the way with copies.
pub const COPIED: &str = "copies";
/// Names of the works, without the fabric.
pub const HANDED_ON: &str = "1 KiB written and handed on";
pub const KEPT: &str = "1 KiB written and kept";

type Words = [u64; 128];

/// Nanoseconds a turn by work.
pub type Told = BTreeMap<String, Vec<f64>>;

/// Runs it, or starts its machines.
pub fn command(options: HeapCopied) -> Result<()> {
    if std::env::var_os(LAUNCHER).is_none() {
        return start(3, 3, options.fabric);
    }
    let builder = gossamer::builder().survives(1);
    let builder = if options.copies { heap::with_copies(builder) } else { builder };
    let told = outcome(move || measure(&options), |run| builder.main(run, 3))?;
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}

fn measure(options: &HeapCopied) -> Result<Told> {
    let (turns, saved) = (options.turns, if options.copies { options.turns / 2 } else { 0 });
    let mut told = Told::new();
    for _ in 0..options.rounds {
        told.entry(HANDED_ON.to_owned()).or_default().push(handed_on(turns, saved)?);
        let kept = gossamer::spawn_on(Place::of(1, 0), move || kept(turns * 16));
        told.entry(KEPT.to_owned()).or_default().push(kept.join().map_err(|_| anyhow!("a fiber panicked"))?);
    }
    Ok(told)
}

/// Each machine writes the object when it comes, and sends it to the other. Returns nanoseconds a hand-over.
fn handed_on(turns: u64, saved: u64) -> Result<f64> {
    let (one, other) = (Place::of(1, 0), Place::of(2, 0));
    let (to_one, at_one) = Channel::new().at(one).open_plain::<Global<Words>>();
    let (to_other, at_other) = Channel::new().at(other).open_plain::<Global<Words>>();
    let answers = gossamer::spawn_on(other, move || {
        for (mut object, turn) in at_other.into_iter().zip((1..).step_by(2)) {
            write(&mut object, turn);
            if to_one.send(object).is_err() {
                break;
            }
        }
    });
    let first = gossamer::spawn_on(one, move || {
        let mut object = Global::new([0; 128]);
        let before = heap::stats().saves;
        let began = Instant::now();
        for turn in (0..turns).step_by(2) {
            write(&mut object, turn);
            if to_other.send(object).is_err() {
                return None;
            }
            object = at_one.recv().ok()?;
        }
        let ns = began.elapsed().as_nanos() as f64 / turns as f64;
        let is_right = *object.read() == [turns; 128] && heap::stats().saves - before == saved;
        is_right.then_some(ns)
    });
    let ns = first.join().map_err(|_| anyhow!("a fiber panicked"))?;
    answers.join().map_err(|_| anyhow!("a fiber panicked"))?;
    ns.context("the object that came back is another one, or has another number of copies")
}

/// Nanoseconds for each write of an object that stays.
fn kept(turns: u64) -> f64 {
    let mut object = Global::new([0; 128]);
    let began = Instant::now();
    for turn in 0..turns {
        write(&mut object, turn);
    }
    began.elapsed().as_nanos() as f64 / turns as f64
}

/// The object's words are the number of this turn; then that of the next.
fn write(object: &mut Global<Words>, turn: u64) {
    let words = &mut *object.write();
    assert!(words[0] == turn && words[127] == turn, "turn {turn} has another object");
    words.fill(turn + 1);
}
