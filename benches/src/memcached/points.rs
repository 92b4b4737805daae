//! The servers beside each other: at each point at full speed, then at half of the stock one's rate; and the verdicts.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Memcached;
use crate::{
    kv::{
        load::{Load, Mix},
        servers::{Sample, child::Child},
    },
    pick::Dist,
    plot::{Album, Dot, Picture},
    report::median,
    rounds::interleaved,
    verdict::{Verdict, verdict_at_least, verdict_at_most},
};

/// As it is, and ours.
const STOCK: &str = "stock";
pub const DELEGATED: &str = "delegated";
/// All that are measured. `together` is as it is but for one word: it sends the replies to pipelined `get`s together,
/// which the delegated build does too. So it tells how much of a difference is due to that.
pub const SERVERS: [&str; 3] = [STOCK, "together", DELEGATED];

/// One server at one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Which build.
    pub server: String,
    /// How keys were picked.
    pub dist: Dist,
    /// Keys of its table.
    pub keys: usize,
    /// Writes in a hundred.
    pub writes: u32,
    /// Medians over the rounds: thousand operations a second,
    pub median_kops: f64,
    /// and thousand operations for each second of the server's CPU time.
    pub median_kops_per_cpu_second: f64,
    /// The pace of `paced`: half of the stock server's rate.
    pub pace_kops: f64,
    /// Medians of the latencies at that pace.
    pub paced_p50_us: f64,
    pub paced_p999_us: f64,
    /// All runs, in the order of their rounds: as fast as it goes,
    pub samples: Vec<Sample>,
    /// and paced.
    pub paced: Vec<Sample>,
}

/// Where a build's program lies.
pub fn program(options: &Memcached, server: &str) -> PathBuf {
    options.folder.join(server).join("memcached")
}

/// Measures and prints.
///
/// # Errors
/// A server that does not start, ends, or answers wrongly.
pub fn measure(options: &Memcached) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for &dist in &options.dist {
        for &keys in &options.keys {
            let memory_mib = Child::memory_mib(keys, options.load.value_bytes).to_string();
            let threads = options.threads.to_string();
            let mut children = Vec::new();
            for server in SERVERS {
                children.push(Child::memcached(&program(options, server), &["-t", &threads, "-m", &memory_mib])?);
            }
            let mut load = options.load.load(keys, dist, options.common.seed);
            for (server, child) in SERVERS.iter().zip(&children) {
                eprintln!("{keys} keys, {dist}: filling {server}");
                load.fill(child.address()).with_context(|| format!("filling {server}"))?;
            }
            for &writes in &options.writes {
                load.mix = Mix::Writes(writes);
                let series = point(options, &mut load, &children, dist, writes)?;
                print(&series);
                all.extend(series);
            }
        }
    }
    Ok(all)
}

fn point(options: &Memcached, load: &mut Load, children: &[Child], dist: Dist, writes: u32) -> Result<Vec<Series>> {
    let middle = |samples: &[Sample], value: fn(&Sample) -> f64| median(&samples.iter().map(value).collect::<Vec<_>>());
    load.pace_hz = None;
    let samples = rounds(options, load, children)?;
    let pace_kops = middle(&samples[0], |sample| sample.kops) / 2.0;
    load.pace_hz = Some(pace_kops * 1e3);
    let paced = rounds(options, load, children)?;
    let each = SERVERS.iter().zip(samples).zip(paced);
    let series = each.map(|((server, samples), paced)| Series {
        server: (*server).to_owned(),
        dist,
        keys: load.keys as usize,
        writes,
        median_kops: middle(&samples, |sample| sample.kops),
        median_kops_per_cpu_second: middle(&samples, |sample| sample.kops_per_cpu_second().unwrap_or_default()),
        pace_kops,
        paced_p50_us: middle(&paced, |sample| sample.p50_us),
        paced_p999_us: middle(&paced, |sample| sample.p999_us),
        samples,
        paced,
    });
    Ok(series.collect())
}

/// Each server once a round, in an order shuffled anew.
fn rounds(options: &Memcached, load: &Load, children: &[Child]) -> Result<Vec<Vec<Sample>>> {
    let mut samples: Vec<Vec<Sample>> = children.iter().map(|_| Vec::new()).collect();
    interleaved(options.common.comparison.rounds, children.len(), options.common.seed, |_, index| {
        let sample = Sample::take(load, children[index].address(), Some(&children[index]));
        samples[index].push(sample.with_context(|| format!("loading {}", SERVERS[index]))?);
        Ok(())
    })?;
    Ok(samples)
}

fn print(point: &[Series]) {
    let Some(stock) = point.first() else { return };
    println!("\n{} keys, {}, {}% writes", stock.keys, stock.dist, stock.writes);
    println!(
        "  {:<12} {:>9} {:>7} {:>11} {:>7}   at {:>6.1} kops/s: {:>8} {:>10} {:>7}",
        "medians", "kops/s", "/stock", "kops/cpu-s", "/stock", stock.pace_kops, "p50 us", "p99.9 us", "/stock"
    );
    for series in point {
        println!(
            "  {:<12} {:>9.1} {:>7.2} {:>11.1} {:>7.2}   {:>25.0} {:>10.0} {:>7.2}",
            series.server,
            series.median_kops,
            series.median_kops / stock.median_kops,
            series.median_kops_per_cpu_second,
            series.median_kops_per_cpu_second / stock.median_kops_per_cpu_second,
            series.paced_p50_us,
            series.paced_p999_us,
            series.paced_p999_us / stock.paced_p999_us
        );
    }
}

type Figure = fn(&Series) -> f64;

/// The targets: the worst point of each.
pub fn verdicts(all: &[Series]) -> Vec<Verdict> {
    let ratios = |figure: Figure, is_chosen: fn(&Series) -> bool| -> Vec<f64> {
        let ours = all.iter().filter(|series| series.server == DELEGATED && is_chosen(series));
        ours.filter_map(|ours| {
            let is_same = |other: &&Series| {
                other.server == STOCK && (other.dist, other.keys, other.writes) == (ours.dist, ours.keys, ours.writes)
            };
            Some(figure(ours) / figure(all.iter().find(is_same)?))
        })
        .collect()
    };
    let least = |figure: Figure, is_chosen| ratios(figure, is_chosen).into_iter().min_by(f64::total_cmp);
    let most = |figure: Figure, is_chosen| ratios(figure, is_chosen).into_iter().max_by(f64::total_cmp);
    let all_of: fn(&Series) -> bool = |_| true;
    let written: fn(&Series) -> bool = |series| series.keys == 100 && matches!(series.writes, 10 | 50);
    let (kops, per_cpu): (Figure, Figure) = (|series| series.median_kops, |series| series.median_kops_per_cpu_second);
    vec![
        verdict_at_least("delegated over stock, the worst point", 0.9, least(kops, all_of)),
        verdict_at_least("the same for each second of the server's CPU time", 0.9, least(per_cpu, all_of)),
        verdict_at_least("delegated over stock, 100 keys, 10 and 50% writes, the worst", 1.0, least(kops, written)),
        verdict_at_least("the same for each second of the server's CPU time", 1.0, least(per_cpu, written)),
        verdict_at_most(
            "p99.9 at half of stock's load, delegated over stock, the worst point",
            1.2,
            most(|series| series.paced_p999_us, all_of),
        ),
    ]
}

/// For each distribution and share of writes, throughput over the number of keys.
pub fn pictures(all: &[Series]) -> Vec<Picture> {
    let mut album = Album::default();
    for series in all {
        let Series { dist, writes, .. } = series;
        let rates = series.samples.iter().map(|sample| sample.kops);
        let dot = Dot::among(series.keys as f64, series.median_kops, rates);
        let axes = ("keys", "thousand operations a second (median, min to max)");
        let title = || format!("memcached, {dist}, {writes}% writes");
        album.picture(format!("{dist}-{writes}"), title, axes).add(&series.server, dot);
    }
    album.pictures_with_lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(server: &str, keys: usize, writes: u32, median_kops: f64, p999: f64) -> Series {
        Series {
            server: server.to_owned(),
            dist: Dist::Uniform,
            keys,
            writes,
            median_kops,
            median_kops_per_cpu_second: 2.0 * median_kops,
            pace_kops: 1.0,
            paced_p50_us: 1.0,
            paced_p999_us: p999,
            samples: Vec::new(),
            paced: Vec::new(),
        }
    }

    #[test]
    fn targets_are_compared_at_the_worst_point() {
        let all = [
            at(STOCK, 100, 50, 100.0, 10.0),
            at(DELEGATED, 100, 50, 150.0, 5.0),
            at(STOCK, 1000, 50, 100.0, 10.0),
            at("together", 1000, 50, 10.0, 1000.0),
            at(DELEGATED, 1000, 50, 95.0, 12.0),
        ];
        let reached: Vec<_> = verdicts(&all).into_iter().filter_map(|verdict| verdict.reached).collect();
        assert_eq!(reached, [0.95, 0.95, 1.5, 1.5, 1.2]);
        assert!(verdicts(&all[..1]).iter().all(|verdict| verdict.met.is_none()));
    }
}
