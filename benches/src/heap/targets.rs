//! The targets of `heap` (the ratios of a run), by the medians of the figures.

use super::apps::POLARS;
use super::copied::{COPIED, HANDED_ON, KEPT, PLAIN};
use super::{MPI, PLACED, blas, placed, tasks};
use crate::prelude::*;

/// Programs over two processes beside two workers of one: the ratios wanted over `shm`, and over `tcp`.
const OVER_PROCESSES: [(&str, Option<f64>, Option<f64>); 3] =
    [("gemm", Some(0.97), Some(0.9)), ("dataframe", Some(0.95), Some(0.7)), ("heap-kv", Some(0.75), None)];

pub fn targets(all: &Figures) -> Vec<Verdict> {
    let of = |work: &str, contender: &str| all.get(work, contender);
    let over = |work: &str, one: &str, other: &str| all.over(work, one, other);
    let rack = |work: &str| of(work, "rack");
    let rack_over = |one: &str, other: &str| ratio(rack(one), rack(other));
    let few = of("reads of few", "global").zip(of("reads of few", "box")).map(|(global, boxed)| global - boxed);
    let own_slice = rack_over("64 B of an own slice", "64 B of the other process");
    let mpi = ratio(of(MPI, "mpi"), rack("64 B of the other process"));
    let (first, bunch) = (rack_over("512 B, home idle", "512 B, raw"), rack_over("1000 owners", "a bunch of 1000"));
    let computing_us = rack("512 B, home computing").map(|ns| ns / 1e3);
    let mut targets = vec![
        at_most("time of a read of one of many objects over Box", 1.1, over("reads of many", "global", "box")),
        at_most("nanoseconds that a read of one of few takes more than Box", 2.0, few),
        at_least("objects made and dropped over Box", 1.0, over("made and dropped", "box", "global")),
        at_least("reads of 64 B of the other process, shm, over those of an own slice", 0.95, own_slice),
        at_least("the same over MPI_Get", 10.0, mpi),
        at_most("time of a first read of 512 B, tcp, over a socket's", 1.3, first),
        at_most("microseconds of it while its home computes", 300.0, computing_us),
        at_least("a first read of 64 MiB, tcp, over a socket", 0.8, rack_over("64 MiB, raw", "64 MiB")),
        at_least("a bunch of 1,000 over as many objects, tcp", 100.0, bunch),
        at_least(
            "64 KiB handed over, shm, over a loan of iceoryx2",
            1.0,
            over("64 KiB handed over", "iceoryx2", "rack"),
        ),
    ];
    let best = placed::SHARES.iter().filter_map(|share| of(PLACED, &placed::share(*share))).reduce(f64::min);
    targets.push(at_most(
        "time of 1,000 jobs by heap::spawn over the best fixed shares, one core of two half busy",
        1.1,
        ratio(of(PLACED, placed::BY_LOAD), best),
    ));
    for fabric in ["shm", "tcp"] {
        let (work, uneven) = (format!("{}, {fabric}", tasks::MOVE), format!("{}, {fabric}", tasks::UNEVEN));
        let reached = over(&work, tasks::TASKS, tasks::ECHO);
        targets.push(at_most(
            format!("time of a move of a task of 256 B, {fabric}, over an echo of them"),
            2.0,
            reached,
        ));
        let reached = over(&uneven, tasks::BY_HAND, tasks::TASKS);
        targets.push(at_least(format!("{uneven}: made on one of two machines, over placed by hand"), 0.9, reached));
    }
    for (work, wanted, fabric) in [(HANDED_ON, 0.5, "shm"), (HANDED_ON, 0.5, "tcp"), (KEPT, 0.9, "shm")] {
        let reached = over(&format!("{work}, {fabric}"), PLAIN, COPIED);
        targets.push(at_least(format!("{work}, {fabric}: with copies over without"), wanted, reached));
    }
    for (name, shm, tcp) in OVER_PROCESSES {
        for (fabric, wanted) in [("shm", shm), ("tcp", tcp)] {
            let reached = over(name, "1 x 2", &format!("2 x 1, {fabric}"));
            let target = format!("{name}: 2 processes, {fabric}, over 2 workers of one");
            targets.extend(wanted.map(|wanted| at_least(target, wanted, reached)));
        }
    }
    for name in ["gemm", "dataframe", "heap-kv", "social"] {
        let reached = over(name, "twin", "1 x 2, verified");
        targets.push(at_least(format!("{name}: one process over its twin"), 0.98, reached));
    }
    targets.push(at_least(
        "social: 2 processes, tcp, over the same services on tonic",
        3.0,
        over("social", "tonic", "2 x 1, tcp"),
    ));
    let polars = POLARS.into_iter().filter_map(|engine| of("dataframe", engine)).reduce(f64::min);
    targets.push(at_least(
        "dataframe: 2 workers of one process over the faster engine of polars, 2 threads",
        1.0,
        ratio(polars, of("dataframe", "1 x 2")),
    ));
    let scalapack = blas::SCALAPACK.into_iter().filter_map(|(blocks, _)| of(blas::NAME, blocks)).reduce(f64::min);
    targets.push(at_least(
        "gemm by OpenBLAS: 2 processes, shm, over ScaLAPACK with the best of its blocks",
        1.0,
        ratio(scalapack, of(blas::NAME, "2 x 1, shm")),
    ));
    targets
}
