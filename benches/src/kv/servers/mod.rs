//! Servers under the same load, each a process of its own, interleaved: the servers, the points, and the verdicts.
//!
//! child.rs starts and ends them; serve.rs is the process of a server, maps.rs the tables behind it that are not its
//! own.

pub mod child;
mod maps;
mod serve;

use self::child::{Child, MEMCACHED};
pub use self::serve::{KvServer, command as serve};
use super::Kv;
use super::load::{Load, Mix};
use crate::prelude::*;
use std::collections::BTreeSet;

/// Ours, in the tables.
const OURS: &str = "kv";
/// Servers that the targets measure ours against, beside memcached: the same server with another table.
const OTHERS: [&str; 4] = ["dashmap", "papaya", "mutex", "rwlock"];

/// One server at one point.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerSeries {
    pub server: String,
    pub dist: Dist,
    pub keys: usize,
    pub mix: Mix,
    pub median_kops: f64,
    /// Thousand operations for each second of the server's CPU time.
    pub median_kops_per_cpu_second: f64,
    pub latency: Quantiles,
    /// In the order of their rounds.
    pub samples: Vec<Sample>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Thousand operations a second.
    pub kops: f64,
    /// CPU time of the server meanwhile, user and system.
    pub cpu_seconds: f64,
    /// How long it was counted.
    pub seconds: f64,
    /// Reads of keys that were just being inserted.
    pub misses: u64,
    pub latency: Quantiles,
}

impl Sample {
    /// Loads a server once.
    pub fn take(load: &Load, server: &Child) -> Result<Self> {
        let mut marks = Vec::new();
        let outcome = load.run(server.address(), || marks.push(server.cpu_seconds()))?;
        let cpu = marks.into_iter().collect::<Result<Vec<f64>>>().context("the CPU time of the server")?;
        Ok(Self {
            kops: outcome.operations as f64 / outcome.seconds / 1e3,
            cpu_seconds: cpu.last().unwrap_or(&0.0) - cpu.first().unwrap_or(&0.0),
            seconds: outcome.seconds,
            misses: outcome.misses,
            latency: Quantiles::of(&outcome.latency_ns),
        })
    }

    /// Thousand operations for each second of the server's CPU time.
    pub fn kops_per_cpu_second(&self) -> f64 {
        if self.cpu_seconds > 0.0 { self.kops * self.seconds / self.cpu_seconds } else { 0.0 }
    }
}

pub fn measure(bench: &mut Bench, options: &Kv) -> Result<Vec<ServerSeries>> {
    let mut all = Vec::new();
    for &dist in &options.dist {
        for &keys in &options.keys {
            let mut load = options.load.load(keys, dist, options.common.seed);
            for &mix in &options.mix {
                load.mix = mix;
                let mut servers = Vec::new();
                for name in child::names(&options.common.only)? {
                    let child = bench.skipped.sort(&name, Child::start(&name, options.threads, keys)?);
                    servers.extend(child.map(|child| (name, child)));
                }
                let title = format!("servers, {keys} keys, {dist}, mix {mix}");
                let samples = loaded(bench, &load, &servers, &title)?;
                let series = servers.iter().zip(samples).map(|((server, _), samples)| ServerSeries {
                    server: server.clone(),
                    dist,
                    keys,
                    mix,
                    median_kops: median(samples.iter().map(|sample| sample.kops)),
                    median_kops_per_cpu_second: median(samples.iter().map(Sample::kops_per_cpu_second)),
                    latency: Quantiles::medians(samples.iter().map(|sample| sample.latency)),
                    samples,
                });
                let series: Vec<_> = series.collect();
                print(&title, &series);
                all.extend(series);
            }
        }
    }
    Ok(all)
}

/// Fills the servers, and loads each once a round.
fn loaded(bench: &Bench, load: &Load, servers: &[(String, Child)], title: &str) -> Result<Vec<Vec<Sample>>> {
    for (name, child) in servers {
        load.fill(child.address()).with_context(|| format!("filling {name}"))?;
    }
    bench.rounds(servers, |(name, _)| format!("{title}: {name}"), |(_, child), _| Sample::take(load, child))
}

fn print(title: &str, all: &[ServerSeries]) {
    let ours = all.iter().find(|series| series.server == OURS).map(|ours| ours.median_kops);
    let rows = all.iter().map(|ServerSeries { server, median_kops, median_kops_per_cpu_second, latency, .. }| {
        let [p50, p99, p999] = [latency.p50_ns, latency.p99_ns, latency.p999_ns].map(|ns| ns / 1e3);
        row![server, median_kops, ours.map(|ours| median_kops / ours), median_kops_per_cpu_second, p50, p99, p999]
    });
    table(title, &["medians", "kops/s", "/ours", "kops/cpu-s", "p50 us", "p99 us", "p99.9 us"], rows);
}

type Rate = fn(&ServerSeries) -> f64;

/// The targets of the servers: the worst point of each.
pub fn verdicts(all: &[ServerSeries]) -> Vec<Verdict> {
    let point = |series: &ServerSeries| (series.dist == Dist::Zipf, series.keys, series.mix.to_string());
    // The least of ours over the best of some others, over the points that are chosen. A point where one of them was
    // not measured tells nothing, nor does the worst of the rest.
    let least = |others: &[&str], rate: Rate, is_chosen: fn(&ServerSeries) -> bool| {
        let points: BTreeSet<_> = all.iter().filter(|series| is_chosen(series)).map(point).collect();
        let ratio = |here: &(bool, usize, String)| {
            let of = |server: &str| all.iter().find(|one| one.server == server && point(one) == *here).map(rate);
            let best = others.iter().map(|other| of(other)).collect::<Option<Vec<f64>>>()?;
            Some(of(OURS)? / best.into_iter().max_by(f64::total_cmp)?)
        };
        points.iter().map(ratio).collect::<Option<Vec<f64>>>()?.into_iter().min_by(f64::total_cmp)
    };
    let (per_second, per_cpu): (Rate, Rate) = (|one| one.median_kops, |one| one.median_kops_per_cpu_second);
    let is_contended: fn(&ServerSeries) -> bool = |series| series.dist == Dist::Zipf && series.mix == Mix::Writes(50);
    let over_tables = least(&OTHERS, per_second, |_| true);
    let over_memcached = least(&[MEMCACHED], per_cpu, |_| true);
    vec![
        at_least("servers: kv over the best other table, the worst point", 1.0, over_tables),
        at_least("servers: the same, zipf, 50% writes", 1.3, least(&OTHERS, per_second, is_contended)),
        at_least("servers: kv over memcached, the worst point", 1.2, least(&[MEMCACHED], per_second, |_| true)),
        at_least("servers: the same for each second of the server's CPU time", 1.2, over_memcached),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(server: &str, dist: Dist, writes: u32, median_kops: f64, per_cpu: f64) -> ServerSeries {
        let (server, mix) = (server.to_owned(), Mix::Writes(writes));
        let of = ServerSeries { dist, keys: 1000, median_kops, ..ServerSeries::default() };
        ServerSeries { server, mix, median_kops_per_cpu_second: per_cpu, ..of }
    }

    #[test]
    fn targets_are_compared_at_the_worst_point() {
        let point = |dist, writes, ours: f64, [best, memcached]: [f64; 2]| {
            let of = |server, kops| at(server, dist, writes, kops, kops / 2.0);
            let others = ["dashmap", "papaya", "rwlock"].map(|other| of(other, best / 2.0));
            let rest = [of("kv", ours), of("mutex", best), of(MEMCACHED, memcached)];
            others.into_iter().chain(rest).collect::<Vec<_>>()
        };
        let reached = |series: Vec<ServerSeries>| {
            verdicts(&series).into_iter().map(|verdict| verdict.reached).collect::<Vec<_>>()
        };
        let mut all = point(Dist::Uniform, 5, 100.0, [125.0, 50.0]);
        all.extend(point(Dist::Zipf, 50, 100.0, [50.0, 80.0]));
        assert_eq!(reached(all.clone()), [Some(0.8), Some(2.0), Some(1.25), Some(1.25)]);
        // Without one of the others nothing can be said of the best of them.
        all.retain(|series| series.server != "papaya" || series.dist == Dist::Zipf);
        assert_eq!(reached(all), [None, Some(2.0), Some(1.25), Some(1.25)]);
    }
}
