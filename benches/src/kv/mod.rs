//! `kv`: key-value stores (thesis 2.6.3, figures 10 to 13; figures 27 and 28): the tables alone, and servers under
//! load.
//!
//! record.rs has the keys and values of the tables, tables/ the tables and their measurement; load/ is
//! the load generator, servers/ its targets.

pub mod load;
mod record;
pub mod servers;
pub mod tables;

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use self::load::{LoadOptions, Mix};
pub use self::servers::{KvServer, serve};
use crate::{
    machine::Machine,
    options::{Common, Strict},
    pick::{Dist, MARK},
    plot::Picture,
    verdict::conclude,
};

/// Options of `kv`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Kv {
    /// The tables alone, without sockets.
    #[arg(long)]
    pub tables: bool,
    /// Load the server at this address, of any kind, instead of starting some. Its table is filled first.
    #[arg(long, conflicts_with = "tables")]
    pub address: Option<SocketAddr>,
    /// Threads of the tables' run, clients and trustees together; or of each server.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Keys; a point each [default: 1 to 10,000,000 for tables, 1,000 and 1,000,000 for servers].
    #[arg(long, value_delimiter = ',')]
    pub keys: Vec<usize>,
    /// How keys are picked; a series each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uniform,zipf")]
    pub dist: Vec<Dist>,
    /// Writes in a hundred operations, or a workload of YCSB (A, B, C, D, F; servers only); a series each
    /// [default: 5 for tables, 5 and 50 for servers].
    #[arg(long, value_delimiter = ',')]
    pub mix: Vec<Mix>,
    /// The load on servers.
    #[command(flatten, next_help_heading = "Servers")]
    #[serde(flatten)]
    pub load: LoadOptions,
    /// Whether targets have to be met.
    #[command(flatten)]
    #[serde(flatten)]
    pub strict: Strict,
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

/// Contents of the file of results: one of the two.
#[derive(Debug, Default, Serialize)]
struct Results {
    tables: Vec<tables::TableSeries>,
    servers: servers::Measured,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; a server that cannot be loaded; wrong answers; a file that cannot be written; with `--strict`,
/// a target that is missed or was not measured.
pub fn command(mut options: Kv) -> Result<()> {
    options.common = options.common.prepare()?;
    prepare(&mut options)?;
    let machine = Machine::here();
    println!("{machine}");
    let mut results = Results::default();
    let targets = if options.tables {
        results.tables = tables::measure(&options)?;
        tables::verdicts(&results.tables)
    } else {
        results.servers = servers::measure(&options)?;
        servers::verdicts(&results.servers)
    };
    conclude("kv", &machine, &options, results, targets, options.common.comparison.json.as_deref(), options.strict)
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

/// The pictures of a file of results.
pub fn pictures(tables: Vec<tables::TableSeries>, servers: servers::Measured) -> Vec<Picture> {
    tables::pictures(&tables).into_iter().chain(servers::pictures(&servers)).collect()
}
