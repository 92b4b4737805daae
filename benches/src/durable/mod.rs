//! `durable`: puts that are acknowledged when they are on disk, one and 4,096 outstanding: a durable trust beside a
//! bare loop of `pwrite` and `fdatasync`, LMDB, redb, fjall, SQLite, RocksDB and libpmemobj, on one file system. Then
//! the costs beside the disk.
//!
//! The first four stores need the feature `stores`, RocksDB and libpmemobj their packages, Corundum a compiler of its
//! time; without it they are SKIPPED. Every run is verified: it is opened again, and the last puts of each client are
//! there.

mod bare;
mod basics;
mod corundum;
mod foreign;
mod own;
mod puts;
#[cfg(feature = "stores")]
mod stores;
mod structures;

use crate::prelude::*;
use bare::Bare;
use basics::{Basic, basics};
use foreign::Foreign;
use own::Own;
use puts::{Contender, Ran, Work, verified};
use structures::Rates;

/// Memory as a file system.
const MEMORY: &str = "/dev/shm";
/// Puts under way at a time, of the series with many.
const OUTSTANDING: u64 = 4096;
/// Puts a commit, where the program gathers them by hand.
const BY_HAND: u64 = 1000;
const OWN: &str = "trust-durable";
const BARE: &str = "bare-loop";
const PMEM: &str = "libpmemobj";
const ROCKS: &str = "rocksdb";
/// Numbers of threads of RocksDB, of which the best counts.
const ROCKS_THREADS: [u64; 3] = [64, 512, 2048];

/// Options of `durable`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("millis", |millis| millis.default_value("1000")))]
pub struct DurableBench {
    /// Where all of them write: in folders that are removed after each run [default: the system's folder for temporary
    /// files].
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Options of such commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// All runs of one contender on one workload.
#[derive(Clone, Debug, Serialize)]
struct Series {
    group: &'static str,
    contender: String,
    outstanding: u64,
    /// Puts a second.
    median: f64,
    samples: Vec<f64>,
    /// Of the last run: syncs a second and bytes for each put, where they are counted.
    syncs: Option<f64>,
    bytes_a_put: Option<f64>,
    /// The part of the time in which the disk had something to write or to sync, where it is counted.
    disk_busy: Option<f64>,
}

struct Entry<'c> {
    group: &'static str,
    contender: &'c dyn Contender,
    work: Work,
}

const ALONE: &str = "one outstanding";
const MANY: &str = "many outstanding";
const GATHERED: &str = "1,000 puts a commit by hand";

pub fn command(mut options: DurableBench) -> Result<()> {
    options.timed.prepare(50)?;
    let is_smoke = options.timed.comparison.smoke;
    let outstanding = if is_smoke { 64 } else { OUTSTANDING };
    let mut bench = Bench::begin("durable", &mut options.timed.comparison)?;
    let parent = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let (bare, own) = (Bare::default(), Own);
    let stores = others(1, &mut bench.skipped);
    let gathered = others(BY_HAND, &mut bench.skipped);
    let rocks = rockses(is_smoke, &mut bench.skipped)?;
    let pmem = bench.skipped.sort(PMEM, Foreign::pmem()?);
    let time = Duration::from_millis(options.timed.millis);
    let entry = |group, contender, outstanding| Entry { group, contender, work: Work { outstanding, time } };
    let mut all = Vec::new();
    for (group, outstanding) in [(ALONE, 1), (MANY, outstanding)] {
        // Puts and bytes of a group, for the bare loop.
        let work = Work { outstanding, time };
        bare.learn(work, &verified(&own, &parent, work).with_context(|| format!("in {}", parent.display()))?);
        all.extend([&own as &dyn Contender, &bare].map(|contender| entry(group, contender, outstanding)));
        all.extend(stores.iter().map(|store| entry(group, &**store, outstanding)));
    }
    all.extend(rocks.iter().map(|(group, rocks)| entry(group, rocks, rocks.outstanding)));
    // It has one put under way at a time.
    all.extend(pmem.iter().map(|pmem| entry(ALONE, pmem, 1)));
    all.extend(gathered.iter().map(|store| entry(GATHERED, &**store, BY_HAND)));
    let series = measure(&bench, &all, &parent)?;
    let memory = Path::new(MEMORY);
    let place = if memory.is_dir() { memory } else { &parent };
    let entries = if is_smoke { 2000 } else { 65_536 };
    let round = |_| structures::round(place, time, entries, pmem.as_ref());
    let structures = (0..options.timed.comparison.rounds).map(round).collect::<Result<Vec<_>>>()?;
    let folder = tempfile::tempdir_in(place)?;
    let mut basics = basics(&folder.path().join("pool"))?;
    if let Some(corundum) = bench.skipped.sort("corundum", corundum::prepare()?) {
        corundum::add(&corundum, &mut basics, folder.path())?;
    }
    print(&series, &structures, &basics);
    let targets = targets(&series, &structures, &basics);
    let measured = json!({"series": series, "structures": structures, "basics": basics});
    bench.conclude(&options, measured, &targets)
}

/// RocksDB in each group, if it is there.
fn rockses(is_smoke: bool, skipped: &mut Skipped) -> Result<Vec<(&'static str, Foreign)>> {
    let Some(program) = skipped.sort(ROCKS, foreign::rocks()?) else { return Ok(Vec::new()) };
    let threads = ROCKS_THREADS.map(|threads| if is_smoke { threads / 64 + 1 } else { threads });
    let many = threads.map(|threads| (MANY, Foreign::of_rocks(&program, threads, 1)));
    let mut all = vec![(ALONE, Foreign::of_rocks(&program, 1, 1)), (GATHERED, Foreign::of_rocks(&program, 1, BY_HAND))];
    all.extend(many);
    Ok(all)
}

/// The other stores, so many puts a commit.
#[cfg(feature = "stores")]
fn others(batch: u64, _: &mut Skipped) -> Vec<Box<dyn Contender>> {
    stores::all(batch)
}

#[cfg(not(feature = "stores"))]
fn others(_: u64, skipped: &mut Skipped) -> Vec<Box<dyn Contender>> {
    let why = "built without the feature `stores` (cargo run -p gossamer-bench --features stores)";
    for name in ["lmdb", "redb", "fjall", "sqlite"] {
        skipped.sort::<()>(name, Err(why.to_owned()));
    }
    Vec::new()
}

fn measure(bench: &Bench, all: &[Entry<'_>], parent: &Path) -> Result<Vec<Series>> {
    let name = |entry: &Entry| format!("{}, {}, in {}", entry.contender.name(), entry.group, parent.display());
    let runs = bench.rounds(all, name, |Entry { contender, work, .. }, _| verified(*contender, parent, *work))?;
    let series = all.iter().zip(runs).map(|(Entry { group, contender, work }, runs)| {
        let a_second = |count: u64, ran: &Ran| count as f64 / ran.elapsed.as_secs_f64();
        let samples: Vec<f64> = runs.iter().map(|ran| a_second(ran.sum(), ran)).collect();
        let last = runs.last();
        let groups = last.and_then(|ran| Some((ran.groups?, ran)));
        Series {
            group,
            contender: contender.name().into(),
            outstanding: work.outstanding,
            median: median(&samples),
            samples,
            syncs: groups.map(|((syncs, _), ran)| a_second(syncs, ran)),
            bytes_a_put: groups.map(|((_, bytes), ran)| bytes as f64 / ran.sum().max(1) as f64),
            disk_busy: last.and_then(|ran| Some(ran.writing?.as_secs_f64() / ran.elapsed.as_secs_f64())),
        }
    });
    Ok(series.collect())
}

fn print(series: &[Series], structures: &[Rates], basics: &[Basic]) {
    for group in [ALONE, MANY, GATHERED] {
        let of = || series.iter().filter(|series| series.group == group);
        let own = of().find(|series| series.contender == OWN).map(|own| own.median);
        let rows = of().map(|Series { contender, median, syncs, bytes_a_put, disk_busy, .. }| {
            row![contender, median, own.map(|own| median / own), syncs, bytes_a_put, disk_busy]
        });
        table(group, &["", "puts/s", "of own", "syncs/s", "bytes/put", "disk busy"], rows);
    }
    let names = structures.first().into_iter().flat_map(BTreeMap::keys);
    let rows = names.map(|what| row![what, median(structures.iter().filter_map(|rates| rates.get(what)))]);
    table("beside the disk", &["", "millions a second"], rows);
    let rows = basics.iter().map(|Basic { what, ns, paper_ns, corundum_ns }| row![what, ns, corundum_ns, paper_ns]);
    table("in a transaction, in memory", &["", "ns", "Corundum", "its paper"], rows);
}

fn targets(series: &[Series], structures: &[Rates], basics: &[Basic]) -> Vec<Verdict> {
    let rate = |group: &str, contender: &str| {
        series.iter().find(|series| series.group == group && series.contender == contender).map(|found| found.median)
    };
    let best = |group: &str| {
        let stores =
            series.iter().filter(|series| series.group == group && ![OWN, BARE, PMEM].contains(&&*series.contender));
        stores.map(|series| series.median).reduce(f64::max)
    };
    // The median of the rounds' ratios, if all have both.
    let over = |one: &str, other: &str| {
        let ratios: Option<Vec<f64>> =
            structures.iter().map(|rates| Some(rates.get(one)? / rates.get(other)?)).collect();
        ratios.map(median)
    };
    let over_pmem = |what: &str| over(what, &format!("{what}, libpmemobj"));
    let (alone, many) = (rate(ALONE, OWN), rate(MANY, OWN));
    vec![
        at_least("many outstanding: rate over that of the bare loop", 0.85, ratio(many, rate(MANY, BARE))),
        at_most("one outstanding: time over that of the bare loop", 1.7, ratio(rate(ALONE, BARE), alone)),
        at_least("many outstanding: rate over that of the best store", 10.0, ratio(many, best(MANY))),
        at_least("one outstanding: rate over that of the best store", 0.6, ratio(alone, best(ALONE))),
        at_least("many outstanding: over the best store with 1,000 puts a commit", 2.0, ratio(many, best(GATHERED))),
        at_most("reads: time over that of `Box`", 1.1, over("reads by Box", "reads by PBox")),
        at_least(
            "adds: rate over that of a plain trust",
            0.3,
            over("adds, 4,096 outstanding", "adds on a plain trust"),
        ),
        at_least(
            "in a transaction: the least of Corundum's times over ours (the paper's where it is not here)",
            3.0,
            basics.iter().map(|basic| basic.corundum_ns.unwrap_or(basic.paper_ns) / basic.ns.max(0.1)).reduce(f64::min),
        ),
        at_least("many outstanding: rate over libpmemobj's on the disk", 100.0, ratio(many, rate(ALONE, PMEM))),
        at_least("in memory: inserts into a search tree over libpmemobj's", 3.0, over_pmem("inserts, search tree")),
        at_least("in memory: inserts into a map over libpmemobj's", 3.0, over_pmem("inserts, map")),
        at_least("in memory: reads of a map over libpmemobj's", 1.5, over_pmem("reads, map")),
    ]
}
