//! Servers under the same load, each a process of its own, interleaved: the servers, the points, and the verdicts.
//!
//! child.rs starts and ends them; serve.rs is the process of a server, maps.rs the tables behind it that are not its
//! own.

pub mod child;
mod maps;
mod serve;

use std::{collections::BTreeSet, net::SocketAddr};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use self::child::Child;
pub use self::serve::{KvServer, command as serve};
use super::{
    Kv,
    load::{Load, Mix},
};
use crate::{
    pick::Dist,
    plot::{Album, Dot, Picture},
    report::median,
    rounds::{Skipped, interleaved},
    verdict::{Verdict, verdict_at_least},
};

/// Ours, in the tables.
const OURS: &str = "kv";
/// Its reference from outside.
pub const MEMCACHED: &str = "memcached";
/// Servers that the targets measure ours against, beside memcached: the same server with another table.
const OTHERS: [&str; 4] = ["dashmap", "papaya", "mutex", "rwlock"];

/// Results of all runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    series: Vec<ServerSeries>,
    /// Servers that did not run, and why.
    skipped: Skipped,
}

/// One server at one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerSeries {
    /// Its name, or its address where it was there already.
    pub server: String,
    /// How keys were picked.
    pub dist: Dist,
    /// Keys of its table.
    pub keys: usize,
    /// Writes in a hundred, or a workload of YCSB.
    pub mix: Mix,
    /// Medians over the rounds: thousand operations a second,
    pub median_kops: f64,
    /// thousand operations for each second of the server's CPU time (none where it is not our child),
    pub median_kops_per_cpu_second: Option<f64>,
    /// and latencies.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// All runs in the order of their rounds.
    pub samples: Vec<Sample>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Thousand operations a second.
    pub kops: f64,
    /// CPU time of the server meanwhile, user and system.
    pub cpu_seconds: Option<f64>,
    /// How long it was counted.
    pub seconds: f64,
    /// Reads of keys that were just being inserted.
    pub misses: u64,
    /// Quantiles of the latency.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

impl Sample {
    /// Loads a server once.
    ///
    /// # Errors
    /// As [`Load::run`]; a child that has ended.
    pub fn take(load: &Load, address: SocketAddr, child: Option<&Child>) -> Result<Self> {
        let mut marks = Vec::new();
        let outcome = load.run(address, || marks.push(child.map(Child::cpu_seconds)))?;
        let mut cpu = Vec::new();
        for mark in marks.into_iter().flatten() {
            cpu.push(mark.context("the CPU time of the server")?);
        }
        let us = |quantile: f64| outcome.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Self {
            kops: outcome.operations as f64 / outcome.seconds / 1e3,
            cpu_seconds: if let [from, until] = cpu[..] { Some(until - from) } else { None },
            seconds: outcome.seconds,
            misses: outcome.misses,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
        })
    }

    /// Thousand operations for each second of the server's CPU time.
    pub fn kops_per_cpu_second(&self) -> Option<f64> {
        self.cpu_seconds.filter(|seconds| *seconds > 0.0).map(|cpu| self.kops * self.seconds / cpu)
    }
}

/// A server that is there.
struct Server {
    name: String,
    address: SocketAddr,
    child: Option<Child>,
    samples: Vec<Sample>,
}

/// Measures and prints.
///
/// # Errors
/// As `kv`.
pub fn measure(options: &Kv) -> Result<Measured> {
    let mut measured = Measured::default();
    for &dist in &options.dist {
        for &keys in &options.keys {
            let mut load = options.load.load(keys, dist, options.common.seed);
            for &mix in &options.mix {
                load.mix = mix;
                let mut servers = start(options, keys, &mut measured.skipped)?;
                if servers.is_empty() {
                    continue;
                }
                let title = format!("servers, {keys} keys, {dist}, mix {mix}");
                rounds(options, &load, &mut servers, &title)?;
                let series: Vec<_> = servers.into_iter().map(|server| summed_up(server, dist, keys, mix)).collect();
                print(&title, &series);
                measured.series.extend(series);
            }
        }
    }
    Ok(measured)
}

fn start(options: &Kv, keys: usize, skipped: &mut Skipped) -> Result<Vec<Server>> {
    if let Some(address) = options.address {
        let name = address.to_string();
        return Ok(vec![Server { name, address, child: None, samples: Vec::new() }]);
    }
    let mut servers = Vec::new();
    for name in child::names(&options.common.only)? {
        let child = Child::start(name, options, keys)?;
        servers.extend(skipped.sort(name, child).map(|child| Server {
            name: name.to_owned(),
            address: child.address(),
            child: Some(child),
            samples: Vec::new(),
        }));
    }
    Ok(servers)
}

fn rounds(options: &Kv, load: &Load, servers: &mut [Server], title: &str) -> Result<()> {
    for server in &*servers {
        eprintln!("{title}: filling {}", server.name);
        load.fill(server.address).with_context(|| format!("filling {}", server.name))?;
    }
    let rounds = options.common.comparison.rounds;
    interleaved(rounds, servers.len(), options.common.seed, |round, index| {
        let server = &mut servers[index];
        let taken = Sample::take(load, server.address, server.child.as_ref());
        let sample = taken.with_context(|| format!("loading {}", server.name))?;
        eprintln!("{title}: round {round}/{rounds} {} {:.0} kops/s", server.name, sample.kops);
        server.samples.push(sample);
        Ok(())
    })
}

fn summed_up(server: Server, dist: Dist, keys: usize, mix: Mix) -> ServerSeries {
    let Server { name, samples, .. } = server;
    let middle = |value: fn(&Sample) -> f64| median(&samples.iter().map(value).collect::<Vec<_>>());
    let per_cpu: Vec<f64> = samples.iter().filter_map(Sample::kops_per_cpu_second).collect();
    ServerSeries {
        server: name,
        dist,
        keys,
        mix,
        median_kops: middle(|sample| sample.kops),
        median_kops_per_cpu_second: (!per_cpu.is_empty()).then(|| median(&per_cpu)),
        p50_us: middle(|sample| sample.p50_us),
        p99_us: middle(|sample| sample.p99_us),
        p999_us: middle(|sample| sample.p999_us),
        samples,
    }
}

fn print(title: &str, all: &[ServerSeries]) {
    println!("\n{title}");
    println!(
        "  {:<22} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "medians", "kops/s", "/ours", "kops/cpu-s", "p50 us", "p99 us", "p99.9 us"
    );
    let ours = all.iter().find(|series| series.server == OURS);
    for series in all {
        let over = ours.map_or("-".to_owned(), |ours| format!("{:.2}", series.median_kops / ours.median_kops));
        let per_cpu = series.median_kops_per_cpu_second.map_or("-".to_owned(), |kops| format!("{kops:.1}"));
        println!(
            "  {:<22} {:>10.1} {over:>10} {per_cpu:>10} {:>10.0} {:>10.0} {:>10.0}",
            series.server, series.median_kops, series.p50_us, series.p99_us, series.p999_us
        );
    }
}

type Rate = fn(&ServerSeries) -> Option<f64>;

/// The targets of the servers: the worst point of each.
pub fn verdicts(measured: &Measured) -> Vec<Verdict> {
    let points: BTreeSet<_> =
        measured.series.iter().map(|series| (series.dist == Dist::Zipf, series.keys, series.mix.to_string())).collect();
    // The least of ours over the best of some others, over the points that are chosen.
    let least = |others: &[&str], rate: Rate, is_chosen: fn(&ServerSeries) -> bool| {
        let ratio = |point: &(bool, usize, String)| {
            let here: Vec<_> = measured
                .series
                .iter()
                .filter(|series| {
                    (series.dist == Dist::Zipf, series.keys, series.mix.to_string()) == *point && is_chosen(series)
                })
                .collect();
            let ours = here.iter().find(|series| series.server == OURS).and_then(|series| rate(series));
            let of = |other: &&str| rate(here.iter().find(|series| series.server == *other)?);
            let best = others.iter().map(of).collect::<Option<Vec<f64>>>()?;
            Some(ours? / best.into_iter().max_by(f64::total_cmp)?)
        };
        // A point where one of them was not measured tells nothing, nor does the worst of the rest.
        let is_point = |point: &&(bool, usize, String)| {
            measured.series.iter().any(|series| {
                is_chosen(series) && (series.dist == Dist::Zipf, series.keys, series.mix.to_string()) == **point
            })
        };
        let ratios = points.iter().filter(is_point).map(ratio).collect::<Option<Vec<f64>>>()?;
        ratios.into_iter().min_by(f64::total_cmp)
    };
    let per_second: Rate = |series| Some(series.median_kops);
    let per_cpu: Rate = |series| series.median_kops_per_cpu_second;
    let is_contended: fn(&ServerSeries) -> bool = |series| series.dist == Dist::Zipf && series.mix == Mix::Writes(50);
    vec![
        verdict_at_least(
            "servers: kv over the best other table, the worst point",
            1.0,
            least(&OTHERS, per_second, |_| true),
        ),
        verdict_at_least("servers: the same, zipf, 50% writes", 1.3, least(&OTHERS, per_second, is_contended)),
        verdict_at_least("servers: kv over memcached, the worst point", 1.2, least(&[MEMCACHED], per_second, |_| true)),
        verdict_at_least(
            "servers: the same for each second of the server's CPU time",
            1.2,
            least(&[MEMCACHED], per_cpu, |_| true),
        ),
    ]
}

/// Throughput over the number of keys, for each distribution and mix; and over the share of writes, for each
/// distribution and number of keys, where there are several.
pub fn pictures(measured: &Measured) -> Vec<Picture> {
    let (mut keys, mut writes) = (Album::default(), Album::default());
    let y = "thousand operations a second (median, min to max)";
    for series in &measured.series {
        let ServerSeries { server, dist, keys: count, mix, median_kops, .. } = series;
        let dot = |x: f64| Dot::among(x, *median_kops, series.samples.iter().map(|sample| sample.kops));
        let title = || match mix {
            Mix::Writes(share) => format!("Servers, {dist}, {share}% writes"),
            letter => format!("Servers, {dist}, YCSB {letter}"),
        };
        let picture = keys.picture(format!("{dist}-{mix}"), title, ("keys", y));
        picture.add(server, dot(*count as f64));
        if let Mix::Writes(share) = *mix {
            let title = || format!("Servers, {dist}, {count} keys");
            let picture = writes.picture(format!("{dist}-{count}-keys"), title, ("writes, %", y)).linear();
            picture.add(server, dot(f64::from(share)));
        }
    }
    keys.pictures_with_lines().into_iter().chain(writes.pictures_with_lines()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(server: &str, dist: Dist, writes: u32, median_kops: f64, per_cpu: Option<f64>) -> ServerSeries {
        ServerSeries {
            server: server.to_owned(),
            dist,
            keys: 1000,
            mix: Mix::Writes(writes),
            median_kops,
            median_kops_per_cpu_second: per_cpu,
            p50_us: 1.0,
            p99_us: 2.0,
            p999_us: 3.0,
            samples: Vec::new(),
        }
    }

    #[test]
    fn targets_are_compared_at_the_worst_point() {
        let point = |dist, writes, ours: f64, [best, memcached]: [f64; 2]| {
            let of = |server, kops| at(server, dist, writes, kops, Some(kops / 2.0));
            let others = ["dashmap", "papaya", "rwlock"].map(|other| of(other, best / 2.0));
            let rest = [of("kv", ours), of("mutex", best), of(MEMCACHED, memcached)];
            others.into_iter().chain(rest).collect::<Vec<_>>()
        };
        let reached = |series| {
            let verdicts = verdicts(&Measured { series, skipped: Skipped::default() });
            verdicts.into_iter().map(|verdict| verdict.reached).collect::<Vec<_>>()
        };
        let mut all = point(Dist::Uniform, 5, 100.0, [125.0, 50.0]);
        all.extend(point(Dist::Zipf, 50, 100.0, [50.0, 80.0]));
        assert_eq!(reached(all.clone()), [Some(0.8), Some(2.0), Some(1.25), Some(1.25)]);
        // Without one of the others nothing can be said of the best of them.
        all.retain(|series| series.server != "papaya" || series.dist == Dist::Zipf);
        assert_eq!(reached(all), [None, Some(2.0), Some(1.25), Some(1.25)]);
    }
}
