//! The command line of `heap-kv`: arguments and help. Nothing is done here.

use clap::Parser;

use super::load::Load;
use crate::array_kv::options::{exponent, share};
use crate::heaps::options::{Common, STATUS_HELP};

/// Gets and puts of keys in a store on the heap, with a mutex for each bucket, by fibers at all workers of several
/// processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "heap-kv", version, after_long_help = format!("{HELP}\n\n{STATUS_HELP}"))]
pub struct Options {
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub keys: u64,

    /// Number of buckets [default: one for three keys]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub buckets: Option<u64>,

    /// Bytes of a value, made a multiple of 8
    #[arg(long, value_name = "N", default_value_t = 104, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub value_bytes: u64,

    /// The share of gets; the others are puts
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = share)]
    pub gets: f64,

    /// Exponent of Zipf's distribution, by which some keys are requested more often than others; 0: all alike
    #[arg(long, value_name = "S", default_value_t = 0.99, value_parser = exponent)]
    pub zipf: f64,

    /// Operations of all fibers together
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub operations: u64,

    /// Fibers of each worker
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub fibers: u16,

    /// Seed of the choice of keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Options of all programs on the heap.
    #[command(flatten)]
    pub common: Common,
}

const HELP: &str = "\
Examples:
  heap-kv --verify
      in one process, beside its twin
  heap-kv --local 2 --fabric tcp --gets 0.5 --zipf 0 --verify
      over two processes joined by TCP, half of the operations are puts, all keys alike
  gossamer-launch run --rack rack.yaml heap-kv --keys 10000000
      on the hosts of a rack

What --verify checks:
  That each value found is whole, and none older than one that the same fiber has found before; and that the store is \
  at the end what the twin's is. The
  checks take time in both, so take no figures of the program alone with it.";

impl Options {
    /// The load of the fibers of so many workers.
    pub fn load(&self, workers: usize) -> Load {
        let fibers = usize::from(self.fibers);
        Load {
            keys: self.keys,
            words: self.value_bytes.div_ceil(8) as usize,
            gets: self.gets,
            zipf: (self.zipf > 0.0).then_some(self.zipf),
            operations: self.operations.div_ceil((workers * fibers) as u64),
            fibers,
            seed: self.seed,
            verify: self.common.verify,
        }
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.unwrap_or_else(|| self.keys.div_ceil(3)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let line = "heap-kv --keys 10 --value-bytes 30 --zipf 0 --operations 7 --fibers 2";
        let options = Options::try_parse_from(line.split(' ')).unwrap();
        let load = options.load(3);
        assert_eq!((options.buckets(), load.words, load.zipf, load.operations, load.gets), (4, 4, None, 2, 0.9));
    }

    #[test]
    fn impossible_wishes_are_refused() {
        for line in ["--gets 1.1", "--zipf -1", "--keys 0", "--buckets 0", "--value-bytes 0", "--fibers 0"] {
            let line = format!("heap-kv {line}");
            assert_eq!(Options::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
