//! The targets of `heap` (the ratios of a run), by the medians of the figures.

use super::apps::POLARS;
use super::{MPI, blas};
use crate::prelude::*;

/// Programs over two processes beside two workers of one: the ratios wanted over `shm`, and over `tcp`.
const OVER_PROCESSES: [(&str, Option<f64>, Option<f64>); 3] =
    [("gemm", Some(0.97), Some(0.9)), ("dataframe", Some(0.95), Some(0.7)), ("heap-kv", Some(0.75), None)];

pub fn targets(all: &Figures) -> Vec<Verdict> {
    let of = |work: &str, contender: &str| all.get(work, contender);
    let rack = |work: &str| of(work, "rack");
    let many = "reads of many";
    let few = of("reads of few", "global").zip(of("reads of few", "box")).map(|(global, boxed)| global - boxed);
    let mut targets = vec![
        at_most("time of a read of one of many objects over Box", 1.1, ratio(of(many, "global"), of(many, "box"))),
        at_most("nanoseconds that a read of one of few takes more than Box", 2.0, few),
        at_least(
            "objects made and dropped over Box",
            1.0,
            ratio(of("made and dropped", "box"), of("made and dropped", "global")),
        ),
        at_least(
            "reads of 64 B of the other process, shm, over those of an own slice",
            0.95,
            ratio(rack("64 B of an own slice"), rack("64 B of the other process")),
        ),
        at_least("the same over MPI_Get", 10.0, ratio(of(MPI, "mpi"), rack("64 B of the other process"))),
        at_most(
            "time of a first read of 512 B, tcp, over a socket's",
            1.3,
            ratio(rack("512 B, home idle"), rack("512 B, raw")),
        ),
        at_most("microseconds of it while its home computes", 300.0, rack("512 B, home computing").map(|ns| ns / 1e3)),
        at_least("a first read of 64 MiB, tcp, over a socket", 0.8, ratio(rack("64 MiB, raw"), rack("64 MiB"))),
        at_least(
            "a bunch of 1,000 over as many objects, tcp",
            100.0,
            ratio(rack("1000 owners"), rack("a bunch of 1000")),
        ),
        at_least(
            "64 KiB handed over, shm, over a loan of iceoryx2",
            1.0,
            ratio(of("64 KiB handed over", "iceoryx2"), rack("64 KiB handed over")),
        ),
    ];
    for (name, shm, tcp) in OVER_PROCESSES {
        for (fabric, wanted) in [("shm", shm), ("tcp", tcp)] {
            let reached = ratio(of(name, "1 x 2"), of(name, &format!("2 x 1, {fabric}")));
            let target = format!("{name}: 2 processes, {fabric}, over 2 workers of one");
            targets.extend(wanted.map(|wanted| at_least(target, wanted, reached)));
        }
    }
    for name in ["gemm", "dataframe", "heap-kv", "social"] {
        let reached = ratio(of(name, "twin"), of(name, "1 x 2, verified"));
        targets.push(at_least(format!("{name}: one process over its twin"), 0.98, reached));
    }
    targets.push(at_least(
        "social: 2 processes, tcp, over the same services on tonic",
        3.0,
        ratio(of("social", "tonic"), of("social", "2 x 1, tcp")),
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
