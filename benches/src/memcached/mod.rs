//! `memcached`: stock memcached beside memcached with a delegated cache (examples/memcached), under the same load; and
//! with `--soak` the delegated one alone, under a load that tries to break it.
//!
//! points.rs measures and judges; soak.rs is the long run, talk.rs one of its clients, values.rs their values. The
//! load, and servers as child processes, are those of `kv`.

mod points;
mod soak;
mod talk;
mod values;

use crate::kv::load::LoadOptions;
use crate::prelude::*;

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
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

pub fn command(mut options: Memcached) -> Result<()> {
    options.common = options.common.prepare()?;
    prepare(&mut options)?;
    let mut bench = Bench::begin("memcached", &mut options.common.comparison)?;
    let needed = if options.soak.is_some() { &[points::DELEGATED][..] } else { &points::SERVERS };
    let (mut series, mut soaked) = (Vec::new(), None);
    if let Some(name) = needed.iter().find(|name| !points::program(&options, name).is_file()) {
        let path = points::program(&options, name);
        let why = format!("{}: there is no such file; examples/memcached/build makes it", path.display());
        bench.skipped.sort::<()>(name, Err(why));
    } else if let Some(operations) = options.soak {
        soaked = Some(soak::soak(&options, operations)?);
    } else {
        series = points::measure(&bench, &options)?;
    }
    let targets = if options.soak.is_some() { Vec::new() } else { points::verdicts(&series) };
    bench.conclude(&options, json!({"series": series, "soak": soaked}), &targets)
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
