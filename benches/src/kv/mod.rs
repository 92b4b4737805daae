//! `kv`: key-value stores (thesis 2.6.3, figures 10 to 13; figures 27 and 28): the tables alone, and servers under
//! load.
//!
//! record.rs has the keys and values of the tables, tables/ the tables and their measurement; load/ is
//! the load generator, servers/ its targets.

pub mod load;
mod record;
pub mod servers;
pub mod tables;

use self::load::{LoadOptions, Mix};
pub use self::servers::{KvServer, serve};
use crate::prelude::*;

/// Options of `kv`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Kv {
    /// The tables alone, without sockets.
    #[arg(long)]
    pub tables: bool,
    /// Threads of the tables' run, clients and trustees together; or of each server.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Keys; a point each [default: 1 to 10,000,000 for tables, 1,000 and 1,000,000 for servers].
    #[arg(long, value_delimiter = ',')]
    pub keys: Vec<usize>,
    /// How keys are picked; a series each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uniform,zipf")]
    pub dist: Vec<Dist>,
    /// Writes in a hundred operations, or a workload of YCSB (C, D; servers only); a series each
    /// [default: 5 for tables, 5 and 50 for servers].
    #[arg(long, value_delimiter = ',')]
    pub mix: Vec<Mix>,
    /// The load on servers.
    #[command(flatten, next_help_heading = "Servers")]
    #[serde(flatten)]
    pub load: LoadOptions,
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

pub fn command(mut options: Kv) -> Result<()> {
    options.common = options.common.prepare()?;
    prepare(&mut options)?;
    let mut bench = Bench::begin("kv", &mut options.common.comparison)?;
    if options.tables {
        let tables = tables::measure(&bench, &options)?;
        let targets = tables::verdicts(&tables);
        return bench.conclude(&options, json!({"tables": tables, "servers": {"series": []}}), &targets);
    }
    let servers = servers::measure(&mut bench, &options)?;
    let targets = servers::verdicts(&servers);
    bench.conclude(&options, json!({"tables": [], "servers": {"series": servers}}), &targets)
}

fn prepare(options: &mut Kv) -> Result<()> {
    if options.common.comparison.smoke {
        options.keys = vec![1, 1000];
    }
    if options.keys.is_empty() {
        let tables = [1, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
        options.keys = if options.tables { tables.to_vec() } else { vec![1000, 1_000_000] };
    }
    if options.mix.is_empty() {
        options.mix = if options.tables { vec![Mix::Writes(5)] } else { vec![Mix::Writes(5), Mix::Writes(50)] };
    }
    for &keys in &options.keys {
        ensure!((1..MARK as usize).contains(&keys), "--keys {keys}: 1 to {} are possible", MARK - 1);
    }
    ensure!(options.threads > 0, "--threads 0: at least one thread is needed");
    options.load.prepare(options.common.comparison.smoke)?;
    Ok(())
}
