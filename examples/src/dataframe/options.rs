//! The command line of `dataframe`: arguments and help. Nothing is done here.

use std::path::PathBuf;

use clap::Parser;

use super::generated::Generated;
use super::source::Columns;
use crate::heaps::options::{Common, STATUS_HELP};

/// Filters, groups and joins the rows of a table with columns on the heap, by all workers of several processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "dataframe", version, after_long_help = format!("{HELP}\n\n{STATUS_HELP}"))]
pub struct Options {
    /// Generate a table with this many rows
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1 << 40))]
    pub rows: u64,

    /// Keys of the generated table
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub keys: u32,

    /// Labels of the generated table
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub labels: u32,

    /// Seed of the generated table
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Read the rows from a CSV file with names of columns in its first line; all of it passes through the heap of the
    /// first process
    #[arg(long, value_name = "FILE", requires = "with", conflicts_with_all = ["rows", "keys", "labels"])]
    pub csv: Option<PathBuf>,

    /// The CSV file with the label of each key
    #[arg(long, value_name = "FILE", requires = "csv")]
    pub with: Option<PathBuf>,

    /// The column with the key, in both files
    #[arg(long, value_name = "COLUMN", default_value = "key")]
    pub key: String,

    /// The column with the value, a number
    #[arg(long, value_name = "COLUMN", default_value = "value")]
    pub value: String,

    /// The column with the label
    #[arg(long, value_name = "COLUMN", default_value = "label")]
    pub label: String,

    /// Take only rows with at least this value
    #[arg(long, value_name = "X", default_value_t = 250.0, allow_negative_numbers = true)]
    pub at_least: f64,

    /// Rows of a chunk
    #[arg(long, value_name = "N", default_value_t = 1 << 16)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub chunk: u64,

    /// Options of all programs on the heap.
    #[command(flatten)]
    pub common: Common,
}

const HELP: &str = "\
Examples:
  dataframe --verify
      a generated table with a million rows, in one process, beside its twin
  dataframe --rows 10000000 --local 2 --fabric tcp
      over two processes joined by TCP
  dataframe --csv orders.csv --with customers.csv --key customer --value paid --label country --at-least 0
      rows from a file, joined with the country of each customer
  gossamer-launch run --rack rack.yaml dataframe --rows 1000000000
      on the hosts of a rack

What is computed:
  The rows whose value is at least that of --at-least: how many, sum, least and greatest value for each key; and, \
  joined with the label of their key, for each label.
  Keys without a label are not in the latter.

What --verify checks:
  That all of that is what the twin finds, to the last bit: chunks are merged in the same order however many workers \
  there are.";

impl Options {
    /// The table to generate.
    pub fn generated(&self) -> Generated {
        Generated { rows: self.rows, keys: self.keys, labels: self.labels, seed: self.seed }
    }

    /// The columns of the files.
    pub fn columns(&self) -> Columns<'_> {
        Columns { key: &self.key, value: &self.value, label: &self.label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        for line in
            ["--csv a.csv", "--with a.csv", "--csv a --with b --rows 3", "--keys 0", "--chunk 0", "--at-least x"]
        {
            let line = format!("dataframe {line}");
            assert_eq!(Options::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
        let line = "dataframe --csv a --with b --at-least -3.5";
        assert_eq!(Options::try_parse_from(line.split(' ')).unwrap().at_least, -3.5);
    }
}
