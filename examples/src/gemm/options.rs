//! The command line of `gemm`: arguments and help. Nothing is done here.

use std::ffi::OsString;

use clap::Parser;

use super::tile::Shape;
use crate::heaps::options::{Common, STATUS_HELP};

/// Multiplies two square matrices of double precision, with tiles on the heap, by all workers of several processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "gemm", version, after_long_help = format!("{HELP}\n\n{STATUS_HELP}"))]
pub struct Options {
    /// Rows, and columns, of each matrix
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub size: u64,

    /// Rows, and columns, of a tile: a multiple of 8
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = tile)]
    pub tile: u64,

    /// Seed of the elements
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Multiply tiles by `cblas_dgemm` of this shared library, such as libopenblas.so.0, one thread for each worker
    #[arg(long, value_name = "LIBRARY")]
    pub blas: Option<OsString>,

    /// Options of all programs on the heap.
    #[command(flatten)]
    pub common: Common,
}

const HELP: &str = "\
Examples:
  gemm --verify
      in one process, beside its twin
  gemm --size 4096 --local 2 --fabric tcp
      over two processes joined by TCP
  gemm --size 4096 --tile 512 --local 2 --blas libopenblas.so.0
      tiles multiplied by OpenBLAS (Debian: apt-get install libopenblas0)
  gossamer-launch run --rack rack.yaml gemm --size 16384
      on the hosts of a rack

What --verify checks:
  That each element of the product is the twin's. Elements of the factors are whole numbers from -8 to 8, so they are \
  equal to the last bit.
  The twin multiplies without a library, also where --blas names one.";

impl Options {
    /// Shape of the matrices.
    pub fn shape(&self) -> Shape {
        Shape { size: self.size as usize, tile: self.tile as usize, seed: self.seed }
    }
}

fn tile(text: &str) -> Result<u64, String> {
    let tile: u64 = text.parse().map_err(|error| format!("{error}: give a number"))?;
    let is_good = (8..=4096).contains(&tile) && tile.is_multiple_of(8);
    if is_good { Ok(tile) } else { Err("give a multiple of 8 from 8 to 4096".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        for line in ["--size 0", "--tile 7", "--tile 0", "--tile 12", "--tile x"] {
            let line = format!("gemm {line}");
            assert_eq!(Options::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
