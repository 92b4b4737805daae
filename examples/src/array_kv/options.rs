//! The command line of `array-kv`: arguments and help. Nothing is done here.

use std::ffi::OsString;

use clap::Parser;

use super::load::Load;
use crate::machines::RackOptions;

/// Gets and puts of keys in a store on two arrays, by fibers at all workers of several processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "array-kv", version, after_long_help = HELP)]
pub struct Options {
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub keys: u64,

    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(8..=4000))]
    pub value_bytes: u64,

    /// The share of gets; the others are puts
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = share)]
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

    /// Check each value that is found; exit status 1 if one is wrong
    #[arg(long)]
    pub verify: bool,

    /// The rack
    #[command(flatten)]
    pub rack: RackOptions,
}

const HELP: &str = "\
Examples:
  array-kv --verify
      in one process
  array-kv --local 2 --gets 0.5 --zipf 0
      over two processes, half of the operations are puts, all keys alike
  gossamer-launch run --rack rack.yaml array-kv --keys 10000000
      on the hosts of a rack

What --verify checks:
  That a fiber finds its own last value of a key, or one of another fiber, none older than it has found of that one \
  before, and
  each value whole. It takes time, so take no figures with it.

Exit status:
  0  all was done, and right if it was to be verified
  1  there is no memory or no room, or --verify found a wrong value
  2  the command line is wrong
  with several processes also those of gossamer-launch, when one of them dies";

impl Options {
    /// The load of the fibers of so many workers.
    pub fn load(&self, workers: usize) -> Load {
        let fibers = usize::from(self.fibers);
        Load {
            keys: self.keys,
            value_bytes: self.value_bytes as usize,
            gets: self.gets,
            zipf: (self.zipf > 0.0).then_some(self.zipf),
            operations: self.operations.div_ceil((workers * fibers) as u64),
            fibers,
            seed: self.seed,
            verify: self.verify,
        }
    }

    /// The arguments for a machine: those of this process, without the ones for the start.
    pub fn machine_args(&self) -> Vec<OsString> {
        let numbers = [
            ("--keys", self.keys),
            ("--value-bytes", self.value_bytes),
            ("--operations", self.operations),
            ("--fibers", self.fibers.into()),
            ("--seed", self.seed),
        ];
        let shares = [("--gets", self.gets), ("--zipf", self.zipf)];
        let numbers = numbers.map(|(name, value)| (name, value.to_string()));
        let all = numbers.into_iter().chain(shares.map(|(name, value)| (name, value.to_string())));
        let mut args: Vec<OsString> = all.flat_map(|(name, value)| [name.into(), value.into()]).collect();
        args.extend(self.verify.then(|| "--verify".into()));
        args
    }
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}: give a number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("give a number from 0 to 1".to_owned()) }
}

pub(crate) fn exponent(text: &str) -> Result<f64, String> {
    let exponent: f64 = text.parse().map_err(|error| format!("{error}: give a number"))?;
    if (0.0..=100.0).contains(&exponent) { Ok(exponent) } else { Err("give a number from 0 to 100".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn machines_get_what_was_asked_for() {
        let line = "array-kv --keys 9 --value-bytes 30 --gets 0.25 --zipf 1.5 --operations 7 --fibers 2 --seed 3 \
                    --verify --local 2";
        let asked = Options::try_parse_from(line.split(' ')).unwrap();
        let args: Vec<OsString> = [OsString::from("array-kv")].into_iter().chain(asked.machine_args()).collect();
        let told = Options::try_parse_from(&args).unwrap();
        assert_eq!((told.load(3), told.rack.local), (asked.load(3), None));
        assert_eq!((asked.load(3).operations, asked.load(3).zipf), (2, Some(1.5)));
    }

    #[test]
    fn impossible_wishes_are_refused() {
        for line in ["--gets 1.1", "--gets x", "--zipf -1", "--zipf NaN", "--keys 0", "--value-bytes 7", "--fibers 0"] {
            let line = format!("array-kv {line}");
            assert_eq!(Options::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
