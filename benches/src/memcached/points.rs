//! The servers beside each other: at each point at full speed, then at half of the stock one's rate; and the verdicts.

use super::Memcached;
use crate::kv::load::{Load, Mix};
use crate::kv::servers::Sample;
use crate::kv::servers::child::Child;
use crate::prelude::*;

/// As it is, and ours.
const STOCK: &str = "stock";
pub const DELEGATED: &str = "delegated";
/// All that are measured. `together` is as it is but for one word: it sends the replies to pipelined `get`s together,
/// which the delegated build does too. So it tells how much of a difference is due to that.
pub const SERVERS: [&str; 3] = [STOCK, "together", DELEGATED];

/// One server at one point.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    pub server: &'static str,
    pub dist: Dist,
    pub keys: usize,
    pub writes: u32,
    pub median_kops: f64,
    pub median_kops_per_cpu_second: f64,
    /// The pace of `paced`: half of the stock server's rate.
    pub pace_kops: f64,
    /// Medians at that pace.
    pub paced_latency: Quantiles,
    /// In the order of their rounds: as fast as it goes,
    pub samples: Vec<Sample>,
    /// and paced.
    pub paced: Vec<Sample>,
}

/// Where a build's program lies.
pub fn program(options: &Memcached, server: &str) -> PathBuf {
    options.folder.join(server).join("memcached")
}

pub fn measure(bench: &Bench, options: &Memcached) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for &dist in &options.dist {
        for &keys in &options.keys {
            let memory_mib = Child::memory_mib(keys).to_string();
            let (threads, mut children) = (options.threads.to_string(), Vec::new());
            let mut load = options.load.load(keys, dist, options.common.seed);
            for server in SERVERS {
                let child = Child::memcached(&program(options, server), &["-t", &threads, "-m", &memory_mib])?;
                load.fill(child.address()).with_context(|| format!("filling {server}"))?;
                children.push((server, child));
            }
            for &writes in &options.writes {
                load.mix = Mix::Writes(writes);
                let series = point(bench, &mut load, &children, dist, writes)?;
                print(&series);
                all.extend(series);
            }
        }
    }
    Ok(all)
}

fn point(
    bench: &Bench,
    load: &mut Load,
    children: &[(&'static str, Child)],
    dist: Dist,
    writes: u32,
) -> Result<Vec<Series>> {
    let keys = load.keys as usize;
    let rounds = |load: &Load| {
        let name = |(server, _): &(&str, Child)| format!("{keys} keys, {dist}, {writes}% writes: {server}");
        bench.rounds(children, name, |(_, child), _| Sample::take(load, child))
    };
    let kops = |samples: &[Sample]| median(samples.iter().map(|sample| sample.kops));
    load.pace_hz = None;
    let samples = rounds(load)?;
    let pace_kops = kops(&samples[0]) / 2.0;
    load.pace_hz = Some(pace_kops * 1e3);
    let paced = rounds(load)?;
    let series = children.iter().zip(samples).zip(paced).map(|(((server, _), samples), paced)| Series {
        server,
        dist,
        keys,
        writes,
        median_kops: kops(&samples),
        median_kops_per_cpu_second: median(samples.iter().map(Sample::kops_per_cpu_second)),
        pace_kops,
        paced_latency: Quantiles::medians(paced.iter().map(|sample| sample.latency)),
        samples,
        paced,
    });
    Ok(series.collect())
}

fn print(point: &[Series]) {
    let stock = &point[0];
    let rows = point.iter().map(|series| {
        let Series { server, median_kops, median_kops_per_cpu_second: per_cpu, paced_latency, .. } = series;
        let over = [median_kops / stock.median_kops, per_cpu / stock.median_kops_per_cpu_second];
        let (p50, p999) = (paced_latency.p50_ns / 1e3, paced_latency.p999_ns / 1e3);
        let tail = paced_latency.p999_ns / stock.paced_latency.p999_ns;
        row![server, median_kops, over[0], per_cpu, over[1], p50, p999, tail]
    });
    let Series { keys, dist, writes, pace_kops, .. } = stock;
    let title = format!("{keys} keys, {dist}, {writes}% writes; latencies at {pace_kops:.1} kops/s");
    table(&title, &["medians", "kops/s", "/stock", "kops/cpu-s", "/stock", "p50 us", "p99.9 us", "/stock"], rows);
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
        at_least("delegated over stock, the worst point", 0.9, least(kops, all_of)),
        at_least("the same for each second of the server's CPU time", 0.9, least(per_cpu, all_of)),
        at_least("delegated over stock, 100 keys, 10 and 50% writes, the worst", 1.0, least(kops, written)),
        at_least("the same for each second of the server's CPU time", 1.0, least(per_cpu, written)),
        at_most(
            "p99.9 at half of stock's load, delegated over stock, the worst point",
            1.2,
            most(|series| series.paced_latency.p999_ns, all_of),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(server: &'static str, keys: usize, writes: u32, median_kops: f64, p999_ns: f64) -> Series {
        let paced_latency = Quantiles { p999_ns, ..Quantiles::default() };
        let median_kops_per_cpu_second = 2.0 * median_kops;
        Series { server, keys, writes, median_kops, median_kops_per_cpu_second, paced_latency, ..Series::default() }
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
