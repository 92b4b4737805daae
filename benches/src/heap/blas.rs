//! The example `gemm` by OpenBLAS, beside ScaLAPACK's product of the same matrices by the same library: two processes
//! of one thread each.

use anyhow::Result;

use super::apps::Way;
use crate::{
    echo::programs::{compile, mpi_arguments, own},
    machine::program,
    rounds::Skipped,
};

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

/// Both of them, or none: a skipped program leaves the other nothing to be compared with.
///
/// # Errors
/// There is no folder to compile in.
pub fn ways(is_smoke: bool, skipped: &mut Skipped) -> Result<Vec<Way>> {
    let (size, tile) = if is_smoke { SMOKE } else { WORK };
    let (Some(mpirun), Some(compiler)) = (program("mpirun.openmpi"), program("mpicc.openmpi")) else {
        skipped.sort::<()>("scalapack", Err(format!("there is no `mpirun.openmpi` or `mpicc.openmpi` ({CURE})")));
        return Ok(Vec::new());
    };
    let built = compile(&compiler, "scalapack/gemm.c", "gemm-scalapack", &LIBRARIES)?;
    let Some(built) = skipped.sort("scalapack", built.map_err(|why| format!("{why} ({CURE})"))) else {
        return Ok(Vec::new());
    };
    let of = |contender: &str, program, arguments| Way {
        work: format!("{NAME}, {contender}"),
        program,
        arguments,
        figure: "a_second",
    };
    let mut all = Vec::new();
    for fabric in ["shm", "tcp"] {
        let arguments = format!(
            "heap-app gemm --json --threads 2 --size {size} --tile {tile} --blas {LIBRARY} --local 2 --fabric {fabric}"
        );
        all.push(of(&format!("2 x 1, {fabric}"), own()?, arguments.split(' ').map(str::to_owned).collect()));
    }
    for (contender, block) in SCALAPACK {
        let mut arguments = mpi_arguments("self,vader", 2, &built);
        arguments.extend([size, tile, 1, block].map(|number| number.to_string()));
        all.push(of(contender, mpirun.clone(), arguments));
    }
    Ok(all)
}
