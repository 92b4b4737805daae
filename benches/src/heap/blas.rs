//! The example `gemm` by OpenBLAS, beside ScaLAPACK's product of the same matrices by the same library: two processes
//! of one thread each.

use crate::prelude::*;

/// Name of both programs.
pub const NAME: &str = "gemm by OpenBLAS";
/// ScaLAPACK by the columns of a block, which each rank has by turns; the last is half the matrix.
pub const SCALAPACK: [(&str, usize); 3] = [("scalapack, 64", 64), ("scalapack, 256", 256), ("scalapack, 1536", 1536)];

const LIBRARY: &str = "libopenblas.so.0";
const LIBRARIES: [&str; 2] = ["-lscalapack-openmpi", "-lopenblas"];
const CURE: &str = "on Debian: apt-get install openmpi-bin libopenmpi-dev libscalapack-openmpi-dev libopenblas-dev";

/// Rows of the matrices, and of a tile.
const WORK: (usize, usize) = (3072, 384);
const SMOKE: (usize, usize) = (100, 16);

/// A way to run a program, and where its report says how many were done a second.
pub struct Way {
    pub name: String,
    pub program: Program,
    pub figure: &'static str,
}

/// Both of them, or none: a skipped program leaves the other nothing to be compared with.
pub fn ways(is_smoke: bool, skipped: &mut Skipped) -> Result<Vec<Way>> {
    let (size, tile) = if is_smoke { SMOKE } else { WORK };
    let built = Program::mpi_of_c("scalapack/gemm.c", "gemm-scalapack", &LIBRARIES)?;
    let Some(built) = skipped.sort("scalapack", built.map_err(|why| format!("{why} ({CURE})"))) else {
        return Ok(Vec::new());
    };
    let way = |name: &str, program| Way { name: name.to_owned(), program, figure: "a_second" };
    let own = format!("heap-app gemm --json --threads 2 --size {size} --tile {tile} --blas {LIBRARY} --local 2");
    let mut all = Vec::new();
    for fabric in ["shm", "tcp"] {
        all.push(way(&format!("2 x 1, {fabric}"), Program::own(&format!("{own} --fabric {fabric}"))?));
    }
    for (contender, block) in SCALAPACK {
        all.push(way(contender, built.clone().say(&format!("{size} {tile} 1 {block}"))));
    }
    Ok(all)
}
