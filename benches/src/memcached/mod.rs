//! `memcached`: stock memcached beside memcached with a delegated cache (examples/memcached), under the same load; and
//! with `--soak` the delegated one alone, under a load that tries to break it.
//!
//! points.rs measures and judges; soak.rs is the long run, talk.rs one of its clients, values.rs their values. The
//! load, and servers as child processes, are those of `kv`.

mod points;
mod soak;
mod talk;
mod values;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

pub use self::points::pictures;
use crate::{
    kv::load::LoadOptions,
    machine::Machine,
    options::{Common, Strict},
    pick::Dist,
    rounds::Skipped,
    verdict::conclude,
};

/// Options of `memcached`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("load_millis", |millis| millis.default_value("500")))]
pub struct Memcached {
    /// The folder that `examples/memcached/build` filled.
    #[arg(long, default_value = "target/memcached")]
    pub folder: PathBuf,
    /// Threads of each server.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Keys; a point each.
    #[arg(long, value_delimiter = ',', default_value = "100,10000,1000000")]
    pub keys: Vec<usize>,
    /// How keys are picked; a series each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uniform,zipf")]
    pub dist: Vec<Dist>,
    /// Writes in a hundred operations; a series each.
    #[arg(long, value_delimiter = ',', default_value = "1,5,10,50")]
    pub writes: Vec<u32>,
    /// The load; of a soak each connection has a thread.
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadOptions,
    /// Instead: so many operations against the delegated build, with clients that vanish, evictions, and every read
    /// verified.
    #[arg(long)]
    pub soak: Option<u64>,
    /// Whether targets have to be met.
    #[command(flatten)]
    #[serde(flatten)]
    pub strict: Strict,
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

/// Contents of the file of results.
#[derive(Debug, Serialize)]
struct Results {
    series: Vec<points::Series>,
    soak: Option<soak::Soaked>,
    /// Servers that did not run, and why.
    skipped: Skipped,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; a server that does not start or answers wrongly; a file that cannot be written; with
/// `--strict`, a target that is missed or was not measured.
pub fn command(mut options: Memcached) -> Result<()> {
    options.common = options.common.prepare()?;
    prepare(&mut options)?;
    let machine = Machine::here();
    println!("{machine}");
    let mut results = Results { series: Vec::new(), soak: None, skipped: Skipped::default() };
    let needed = if options.soak.is_some() { &[points::DELEGATED][..] } else { &points::SERVERS };
    if let Some(name) = needed.iter().find(|name| !points::program(&options, name).is_file()) {
        let path = points::program(&options, name);
        let why = format!("{}: there is no such file; examples/memcached/build makes it", path.display());
        results.skipped.sort::<()>(name, Err(why));
    } else if let Some(operations) = options.soak {
        results.soak = Some(soak::soak(&options, operations)?);
    } else {
        results.series = points::measure(&options)?;
    }
    let targets = if options.soak.is_some() { Vec::new() } else { points::verdicts(&results.series) };
    conclude(
        "memcached",
        &machine,
        &options,
        results,
        targets,
        options.common.comparison.json.as_deref(),
        options.strict,
    )
}

fn prepare(options: &mut Memcached) -> Result<()> {
    if options.common.comparison.smoke {
        options.keys = vec![100];
        options.writes = vec![10];
        options.soak = options.soak.map(|operations| operations.min(200_000));
    }
    ensure!(options.threads > 0, "--threads 0: at least one thread is needed");
    options.load.prepare(options.common.comparison.smoke)?;
    let connections = options.load.connections;
    ensure!(connections <= 1000, "--connections {connections}: 1000 are possible");
    for &keys in &options.keys {
        ensure!((1..1 << 28).contains(&keys), "--keys {keys}: 1 to {} are possible", (1 << 28) - 1);
    }
    for &writes in &options.writes {
        ensure!(writes <= 100, "--writes {writes}: 0 to 100 in a hundred are possible");
    }
    Ok(())
}
