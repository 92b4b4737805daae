//! Costs of single operations in a transaction: table 5 of Corundum's paper, with its figures on memory beside ours,
//! and those of Corundum itself where it can be made (`corundum.rs`).
//!
//! Each figure is the time of whole transactions of a thousand such operations, from the call to the answer that they
//! are on disk (here a file system that is memory), by the number of operations. The paper's machine was another one,
//! so this compares orders of magnitude.

use crate::prelude::*;
use trust::Threadpool;
use trust_durable::{Durable, PBox, PVec, Persist, Prc};

/// Operations of a transaction.
const OPS: usize = 1000;
/// Transactions of a figure.
const TRANSACTIONS: u32 = 50;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    /// Of a line each.
    lines: PVec<'p, PBox<'p, [u64; 8]>>,
    small: PVec<'p, Option<PBox<'p, u64>>>,
    large: PVec<'p, Option<PBox<'p, [u64; 512]>>>,
    counted: PVec<'p, Option<Prc<'p, u64>>>,
    clones: PVec<'p, Option<Prc<'p, u64>>>,
}

/// Drops what lies in these places.
fn clear<'a, T: 'a>(places: impl Iterator<Item = &'a mut Option<T>>) {
    places.for_each(|place| *place = None);
}

fn fill<'a, T: 'a>(places: impl Iterator<Item = &'a mut Option<T>>, make: impl Fn() -> T) {
    places.for_each(|place| *place = Some(make()));
}

/// A figure, in nanoseconds an operation.
#[derive(Clone, Debug, Serialize)]
pub struct Basic {
    pub what: &'static str,
    pub ns: f64,
    pub paper_ns: f64,
    /// By Corundum here, where it can be made.
    pub corundum_ns: Option<f64>,
}

/// Makes `$before` and then `$work` a transaction each, again and again; nanoseconds of each of the operations in
/// `$work`.
macro_rules! timed {
    ($pool:expr, |$root:ident, $tx:ident| $before:expr, $work:expr) => {{
        let mut elapsed = 0.0;
        for _ in 0..TRANSACTIONS {
            $pool.apply(|$root, $tx| {
                let _ = (&$root, &$tx);
                $before
            });
            let began = Instant::now();
            $pool.apply(|$root, $tx| {
                let _ = (&$root, &$tx);
                $work
            });
            elapsed += began.elapsed().as_secs_f64();
        }
        elapsed / f64::from(TRANSACTIONS) / OPS as f64 * 1e9
    }};
}

/// All of them, in a pool in this folder.
pub fn basics(folder: &Path) -> Result<Vec<Basic>> {
    let workers = Threadpool::new(1);
    let pool = Durable::<Root>::builder().limit(1 << 28).open(workers.trustees()[0], folder, |tx| Root {
        lines: PVec::of((0..OPS).map(|_| PBox::new([0; 8], tx)), tx),
        small: PVec::of((0..OPS).map(|_| None), tx),
        large: PVec::of((0..OPS).map(|_| None), tx),
        counted: PVec::of((0..OPS).map(|_| None), tx),
        clones: PVec::of((0..OPS).map(|_| None), tx),
    })?;
    let mut all = Vec::new();
    let mut note = |what, paper_ns, ns| all.push(Basic { what, ns, paper_ns, corundum_ns: None });
    let first = timed!(pool, |root, tx| (), root.lines.iter_mut().for_each(|line| line[0] += 1));
    note("change 8 bytes of a line for the first time", 235.0, first);
    let again = timed!(pool, |root, tx| (), {
        for turn in 0..9 {
            root.lines.iter_mut().for_each(|line| line[turn % 2] += 1);
        }
    });
    note("change them again", 0.4, ((again - first) / 8.0).max(0.0));
    let filled =
        timed!(pool, |root, tx| clear(root.small.iter_mut()), fill(root.small.iter_mut(), || PBox::new(7, tx)));
    let cleared =
        timed!(pool, |root, tx| fill(root.small.iter_mut(), || PBox::new(7, tx)), clear(root.small.iter_mut()));
    note("PBox of 8 bytes, allocated and set", 416.0, filled);
    note("dropped again", 384.0, cleared);
    let large =
        timed!(pool, |root, tx| clear(root.large.iter_mut()), fill(root.large.iter_mut(), || PBox::new([7; 512], tx)));
    note("PBox of 4 KiB, allocated and set", 1907.0, large);
    let counted =
        timed!(pool, |root, tx| clear(root.counted.iter_mut()), fill(root.counted.iter_mut(), || Prc::new(7, tx)));
    note("Prc of 8 bytes, allocated and set", 1210.0, counted);
    let cloned = timed!(pool, |root, tx| clear(root.clones.iter_mut()), {
        let Root { counted, clones, .. } = root;
        for (place, counted) in clones.iter_mut().zip(counted.iter()) {
            *place = counted.as_ref().map(|counted| counted.pclone(tx));
        }
    });
    note("Prc cloned, and its place set", 8.0, cloned);
    let began = Instant::now();
    let empty = 100_000u32;
    (0..empty).for_each(|_| pool.apply_then(|_, _| (), |()| ()));
    pool.sync()?;
    note("an empty transaction, many under way", 198.0, began.elapsed().as_secs_f64() / f64::from(empty) * 1e9);
    let sum = pool.apply(|root, _| root.lines.iter().map(|line| line[0]).sum::<u64>());
    pool.close()?;
    ensure!(sum == OPS as u64 * u64::from(TRANSACTIONS) * 6, "the changes add up to {sum}");
    Ok(all)
}
