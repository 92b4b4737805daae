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
#[cfg(feature = "stores")]
mod lmdb;
mod own;
mod pmem;
mod puts;
mod rocks;
#[cfg(feature = "stores")]
mod stores;
mod structures;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    harness::Progress,
    machine::Machine,
    options::Timed,
    report::median,
    rounds::{Skipped, interleaved},
    verdict::{Verdict, conclude, ratio, verdict_at_least, verdict_at_most},
};
use bare::Bare;
use basics::{Basic, basics};
use corundum::Corundum;
use own::Own;
use pmem::Pmem;
use puts::{Contender, Work, verified};
use rocks::Rocks;
use structures::Rates;

/// Memory as a file system.
const MEMORY: &str = "/dev/shm";
/// Puts a commit, where the program gathers them by hand.
const BY_HAND: u64 = 1000;
const OWN: &str = "trust-durable";
const FIBERS: &str = "trust-durable-fibers";
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
    /// Puts under way at a time, of the series with many.
    #[arg(long, default_value_t = 4096)]
    pub outstanding: u64,
    /// Only these of the other stores, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Options of such commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// All runs of one contender on one workload.
#[derive(Clone, Debug, Serialize)]
struct Series {
    group: String,
    contender: String,
    outstanding: u64,
    /// Puts a second.
    median: f64,
    samples: Vec<f64>,
    /// Syncs a second and bytes for each put, where they are counted.
    syncs: Option<f64>,
    bytes_a_put: Option<f64>,
    /// The part of the time in which the disk had something to write or to sync, where it is counted.
    disk_busy: Option<f64>,
}

/// Contents of a file of results.
#[derive(Serialize)]
struct Measured {
    series: Vec<Series>,
    structures: Vec<Rates>,
    basics: Vec<Basic>,
    skipped: Skipped,
}

struct Entry<'c> {
    group: &'static str,
    contender: &'c dyn Contender,
    work: Work,
}

const ALONE: &str = "one outstanding";
const MANY: &str = "many outstanding";
const GATHERED: &str = "1,000 puts a commit by hand";

/// Runs it.
///
/// # Errors
/// A run failed or lost puts; with `--strict`, a target was missed.
pub fn command(mut options: DurableBench) -> Result<()> {
    options.timed.prepare(50)?;
    ensure!(options.outstanding > 1, "--outstanding: more than one is needed");
    let entries = if options.timed.comparison.smoke { 2000 } else { 65_536 };
    if options.timed.comparison.smoke {
        options.outstanding = options.outstanding.min(64);
    }
    let machine = Machine::here();
    println!("{machine}");
    let parent = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let mut skipped = Skipped::default();
    let (series, structures, basics) = {
        let (bare, own, fibers) = (Bare::default(), Own::Callbacks, Own::Fibers);
        let stores = others(1, &options.only, &mut skipped)?;
        let gathered = others(BY_HAND, &options.only, &mut skipped)?;
        let rocks = rockses(&options, &mut skipped)?;
        let pmem = skipped.sort(PMEM, Pmem::prepare()?);
        let time = Duration::from_millis(options.timed.millis);
        let work = |outstanding| Work { outstanding, time };
        // Puts and bytes of a group, for the bare loop.
        for outstanding in [1, options.outstanding] {
            let ran = verified(&own, &parent, work(outstanding)).with_context(|| failed(&parent))?;
            bare.learn(work(outstanding), &ran);
        }
        let entry = |group, contender, outstanding| Entry { group, contender, work: work(outstanding) };
        let mut all = Vec::new();
        for (group, outstanding) in [(ALONE, 1), (MANY, options.outstanding)] {
            all.extend([&own as &dyn Contender, &bare].map(|contender| entry(group, contender, outstanding)));
            if outstanding > 1 {
                all.push(entry(group, &fibers, outstanding));
            }
            all.extend(stores.iter().map(|store| entry(group, &**store, outstanding)));
        }
        all.extend(rocks.iter().map(|(group, rocks)| entry(group, rocks, rocks.outstanding())));
        // It has one put under way at a time.
        all.extend(pmem.iter().map(|pmem| entry(ALONE, pmem, 1)));
        all.extend(gathered.iter().map(|store| entry(GATHERED, &**store, BY_HAND)));
        let series = measure(&all, &parent, &options)?;
        let memory = Path::new(MEMORY);
        let place = if memory.is_dir() { memory } else { &parent };
        let rounds = 0..options.timed.comparison.rounds;
        let structures =
            rounds.map(|_| structures::round(place, time, entries, pmem.as_ref())).collect::<Result<Vec<_>>>()?;
        let folder = tempfile::tempdir_in(place)?;
        let mut basics = basics(&folder.path().join("pool"))?;
        if let Some(corundum) = skipped.sort("corundum", Corundum::prepare()?) {
            corundum.add_to(&mut basics, folder.path())?;
        }
        (series, structures, basics)
    };
    print(&series, &structures, &basics);
    let targets = targets(&series, &structures, &basics);
    let json = options.timed.comparison.json.clone();
    let measured = Measured { series, structures, basics, skipped };
    conclude("durable", &machine, &options, measured, targets, json.as_deref(), options.timed.strict)
}

/// RocksDB in each group, if it is wanted and there.
fn rockses(options: &DurableBench, skipped: &mut Skipped) -> Result<Vec<(&'static str, Rocks)>> {
    if !options.only.is_empty() && options.only.iter().all(|name| name != ROCKS) {
        return Ok(Vec::new());
    }
    let Some(program) = skipped.sort(ROCKS, rocks::prepare()?) else { return Ok(Vec::new()) };
    let threads = ROCKS_THREADS.map(|threads| if options.timed.comparison.smoke { threads / 64 + 1 } else { threads });
    let many = threads.map(|threads| (MANY, Rocks::threads(&program, threads)));
    let mut all = vec![(ALONE, Rocks::threads(&program, 1)), (GATHERED, Rocks::gathered(&program, BY_HAND))];
    all.extend(many);
    Ok(all)
}

fn failed(parent: &Path) -> String {
    format!("in {}", parent.display())
}

/// The other stores, so many puts a commit.
#[cfg(feature = "stores")]
fn others(batch: u64, only: &[String], _: &mut Skipped) -> Result<Vec<Box<dyn Contender>>> {
    let suffix = if batch == 1 { String::new() } else { format!("-{batch}") };
    let names: Vec<String> = only.iter().filter(|name| *name != ROCKS).map(|name| format!("{name}{suffix}")).collect();
    if names.is_empty() && !only.is_empty() {
        return Ok(Vec::new());
    }
    crate::rounds::chosen("store", stores::all(batch), |store| store.name(), &names)
}

#[cfg(not(feature = "stores"))]
fn others(_: u64, only: &[String], skipped: &mut Skipped) -> Result<Vec<Box<dyn Contender>>> {
    let why = "built without the feature `stores` (cargo run -p gossamer-bench --features stores)";
    for name in ["lmdb", "redb", "fjall", "sqlite"] {
        skipped.sort::<()>(name, Err(why.to_owned()));
    }
    ensure!(only.iter().all(|name| name == ROCKS), "--only: {why}");
    Ok(Vec::new())
}

fn measure(all: &[Entry<'_>], parent: &Path, options: &DurableBench) -> Result<Vec<Series>> {
    let progress = Progress::new("durable");
    let mut samples: Vec<Vec<f64>> = all.iter().map(|_| Vec::new()).collect();
    let mut groups: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    let mut busy: BTreeMap<usize, f64> = BTreeMap::new();
    interleaved(options.timed.comparison.rounds, all.len(), options.timed.seed, |round, index| {
        let Entry { group, contender, work } = &all[index];
        let name = contender.name();
        let ran =
            verified(*contender, parent, *work).with_context(|| format!("{name}, {group}, in {}", parent.display()))?;
        let rate = ran.sum() as f64 / ran.elapsed.as_secs_f64();
        progress.show(&format!("round {round}/{} {group} {name} {rate:.0}/s", options.timed.comparison.rounds));
        samples[index].push(rate);
        if let Some((syncs, bytes)) = ran.groups {
            groups.insert(index, (syncs as f64 / ran.elapsed.as_secs_f64(), bytes as f64 / ran.sum().max(1) as f64));
        }
        if let Some(writing) = ran.writing {
            busy.insert(index, writing.as_secs_f64() / ran.elapsed.as_secs_f64());
        }
        Ok(())
    })?;
    progress.end();
    let series = all.iter().zip(samples).enumerate().map(|(index, (entry, samples))| Series {
        group: entry.group.into(),
        contender: entry.contender.name().into(),
        outstanding: entry.work.outstanding,
        median: median(&samples),
        samples,
        syncs: groups.get(&index).map(|group| group.0),
        bytes_a_put: groups.get(&index).map(|group| group.1),
        disk_busy: busy.get(&index).copied(),
    });
    Ok(series.collect())
}

fn print(series: &[Series], structures: &[Rates], basics: &[Basic]) {
    for group in [ALONE, MANY, GATHERED] {
        let of = || series.iter().filter(|series| series.group == group);
        let own = of().find(|series| series.contender == OWN).map(|own| own.median);
        if of().next().is_none() {
            continue;
        }
        println!(
            "\n{group:<28} {:>12} {:>8} {:>10} {:>10} {:>10}",
            "puts/s", "of own", "syncs/s", "bytes/put", "disk busy"
        );
        for Series { contender, median, syncs, bytes_a_put, disk_busy, .. } in of() {
            let part = own.map_or("-".to_owned(), |own| format!("{:.3}", median / own));
            let count = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
            let busy = disk_busy.map_or("-".to_owned(), |busy| format!("{busy:.2}"));
            println!(
                "{contender:<28} {median:>12.0} {part:>8} {:>10} {:>10} {busy:>10}",
                count(syncs),
                count(bytes_a_put)
            );
        }
    }
    println!("\nbeside the disk                    millions a second");
    for (what, rate) in RATES {
        println!("{what:<34} {:>12.3}", median(&structures.iter().map(rate).collect::<Vec<_>>()));
    }
    println!("\nin a transaction, in memory                        ns     Corundum    its paper");
    for Basic { what, ns, paper_ns, corundum_ns } in basics {
        let here = corundum_ns.map_or("-".to_owned(), |ns| format!("{ns:.1}"));
        println!("{what:<44} {ns:>9.1} {here:>12} {paper_ns:>12.1}");
    }
}

/// A name, and the figure of a round.
type Rate = (&'static str, fn(&Rates) -> f64);

const RATES: [Rate; 11] = [
    ("reads by PBox", |rates| rates.deref_pbox),
    ("reads by Box", |rates| rates.deref_box),
    ("adds, 4,096 outstanding", |rates| rates.adds_durable),
    ("adds on a plain trust", |rates| rates.adds_plain),
    ("inserts, search tree", |rates| rates.bst),
    ("inserts, B+ tree", |rates| rates.bplus),
    ("inserts, map", |rates| rates.map),
    ("reads, map", |rates| rates.map_reads),
    ("inserts, search tree, libpmemobj", |rates| rates.pmem_bst),
    ("inserts, map, libpmemobj", |rates| rates.pmem_map),
    ("reads, map, libpmemobj", |rates| rates.pmem_reads),
];

/// The targets of the design.
fn targets(series: &[Series], structures: &[Rates], basics: &[Basic]) -> Vec<Verdict> {
    let rate = |group: &str, contender: &str| {
        series.iter().find(|series| series.group == group && series.contender == contender).map(|found| found.median)
    };
    let best = |group: &str| {
        let stores = series
            .iter()
            .filter(|series| series.group == group && ![OWN, FIBERS, BARE, PMEM].contains(&&*series.contender));
        stores.map(|series| series.median).reduce(f64::max)
    };
    let middle = |of: fn(&Rates) -> f64| Some(median(&structures.iter().map(of).collect::<Vec<_>>()));
    let has_pmem = structures.iter().all(|rates| rates.pmem_map > 0.0);
    let beside_pmem = |of: fn(&Rates) -> f64| middle(of).filter(|_| has_pmem);
    let (alone, many) = (rate(ALONE, OWN), rate(MANY, OWN));
    vec![
        verdict_at_least("many outstanding: rate over that of the bare loop", 0.85, ratio(many, rate(MANY, BARE))),
        verdict_at_most("one outstanding: time over that of the bare loop", 1.7, ratio(rate(ALONE, BARE), alone)),
        verdict_at_least("many outstanding: rate over that of the best store", 10.0, ratio(many, best(MANY))),
        verdict_at_least("one outstanding: rate over that of the best store", 0.6, ratio(alone, best(ALONE))),
        verdict_at_least(
            "many outstanding: over the best store with 1,000 puts a commit",
            2.0,
            ratio(many, best(GATHERED)),
        ),
        verdict_at_most("reads: time over that of `Box`", 1.1, middle(|rates| rates.deref_box / rates.deref_pbox)),
        verdict_at_least(
            "adds: rate over that of a plain trust",
            0.3,
            middle(|rates| rates.adds_durable / rates.adds_plain),
        ),
        verdict_at_least(
            "in a transaction: the least of Corundum's times over ours (the paper's where it is not here)",
            3.0,
            basics.iter().map(|basic| basic.corundum_ns.unwrap_or(basic.paper_ns) / basic.ns.max(0.1)).reduce(f64::min),
        ),
        verdict_at_least("many outstanding: rate over libpmemobj's on the disk", 100.0, ratio(many, rate(ALONE, PMEM))),
        verdict_at_least(
            "in memory: inserts into a search tree over libpmemobj's",
            3.0,
            beside_pmem(|r| r.bst / r.pmem_bst),
        ),
        verdict_at_least("in memory: inserts into a map over libpmemobj's", 3.0, beside_pmem(|r| r.map / r.pmem_map)),
        verdict_at_least(
            "in memory: reads of a map over libpmemobj's",
            1.5,
            beside_pmem(|r| r.map_reads / r.pmem_reads),
        ),
    ]
}
