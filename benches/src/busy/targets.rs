//! The targets of `busy`. All ratios are ratios of medians of one run; latencies are medians of the runs' quantiles.
//!
//! Not here: how anything is measured.

use super::conditions::Condition;
use super::points::{Who, Work, text_of};
use super::samples::{Series, Split};
use crate::prelude::*;

/// Figures that the verdicts are made of.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub series: &'a [Series],
    pub cores: usize,
    /// How long a thread waits for its core beside another that spins there.
    pub slice: Option<Duration>,
    /// Share of one core that an idle pool uses, in percent.
    pub idle_percent: Option<f64>,
}

/// From so many cores on delegation is compared with locks under the same condition.
const MANY_CORES: usize = 8;
/// Beyond the hog's time slice, for a request to the trustee that shares its core.
const BESIDE_HOG: Duration = Duration::from_micros(100);

/// All targets, each with its figure where its contenders ran.
pub fn verdicts(evidence: &Evidence<'_>, conditions: &[Condition]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    verdicts.extend(conditions.iter().map(|&condition| evidence.worst_over_spins(condition)));
    for &condition in conditions.iter().filter(|&&condition| condition != Condition::StdThreads) {
        verdicts.extend(evidence.over_others(condition));
    }
    if conditions.contains(&Condition::RealTime) {
        verdicts.extend(evidence.beside_real_time());
    }
    for condition in [Condition::HogPinned, Condition::HogFloatingWorkers] {
        if conditions.contains(&condition) {
            verdicts.extend(evidence.beside_hog(condition));
        }
    }
    if conditions.contains(&Condition::Workers2x) {
        verdicts.push(at_least(
            "workers-2x over quiet, apply_then-16",
            0.7,
            evidence.over_quiet(Condition::Workers2x, Work::ApplyThen16),
        ));
    }
    if conditions.contains(&Condition::StdThreads) {
        verdicts.extend(evidence.of_std_threads());
    }
    verdicts.push(at_most("an idle pool, percent of one core", 0.1, evidence.idle_percent));
    verdicts
}

impl Evidence<'_> {
    /// Prints a table for each condition, of medians, then latencies and counters of the default.
    pub fn print(&self) {
        for of_one in self.series.chunk_by(|one, next| one.condition == next.condition) {
            let (condition, threads) = (of_one[0].condition, of_one[0].threads);
            let rows = of_one.iter().map(|one| {
                let Series { work, contender, median_mops, min_mops, max_mops, .. } = one;
                let over_spin = (*contender == Who::Default).then(|| self.over_best_spin(condition, *work)).flatten();
                let us =
                    |pick: fn(&Split) -> Option<Quantiles>| Some(one.latency.as_ref().and_then(pick)?.p99_ns / 1e3);
                let (others, to, from) = (us(|one| one.others), us(|one| one.to_taken), us(|one| one.from_taken));
                let name = format!("{}, {}", name_of(*work), name_of(*contender));
                row![name, median_mops, min_mops, max_mops, over_spin.map(|(ratio, _)| ratio), others, to, from]
            });
            let title = format!("{}: {} ({threads} threads)", name_of(condition), text_of(condition));
            let head = ["Mops/s", "median", "min", "max", "/best spin", "p99 us", "to taken", "from taken"];
            table(&title, &head, rows);
            for one in of_one.iter().filter(|one| one.contender == Who::Default) {
                let counted: Vec<String> =
                    one.stats_per_second.iter().map(|(name, rate)| format!("{name} {rate:.0}")).collect();
                println!("    {} counted, a second: {}", name_of(one.work), counted.join(", "));
            }
        }
    }

    fn mops(&self, condition: Condition, work: Work, who: Who) -> Option<f64> {
        let is_it = |one: &&Series| (one.condition, one.work, one.contender) == (condition, work, who);
        self.series.iter().find(is_it).map(|one| one.median_mops)
    }

    /// One contender over another, under the same condition.
    fn over(&self, condition: Condition, work: Work, who: Who, other: Who) -> Option<f64> {
        ratio(self.mops(condition, work, who), self.mops(condition, work, other))
    }

    fn over_quiet(&self, condition: Condition, work: Work) -> Option<f64> {
        ratio(self.mops(condition, work, Who::Default), self.mops(Condition::Quiet, work, Who::Default))
    }

    /// The default over the best of the fixed spins, once all of them ran, with the name of that one.
    pub fn over_best_spin(&self, condition: Condition, work: Work) -> Option<(f64, Who)> {
        let spins: Option<Vec<_>> =
            Who::SPINS.iter().map(|&spin| Some((self.mops(condition, work, spin)?, spin))).collect();
        let (best, spin) = spins?.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((ratio(self.mops(condition, work, Who::Default), Some(best))?, spin))
    }

    fn worst_over_spins(&self, condition: Condition) -> Verdict {
        let ratios = Work::value_variants().iter().filter_map(|&work| {
            let (ratio, spin) = self.over_best_spin(condition, work)?;
            Some((ratio, format!(" ({}, {})", name_of(work), name_of(spin))))
        });
        let worst = ratios.min_by(|a, b| a.0.total_cmp(&b.0));
        let (reached, of) = worst.unzip();
        let (name, of) = (name_of(condition), of.unwrap_or_default());
        at_least(format!("{name}: the default over the best fixed spin, worst workload{of}"), 0.9, reached)
    }

    /// Beside locks where there are cores enough for them to contend, else beside its own quiet figure.
    fn over_others(&self, condition: Condition) -> Vec<Verdict> {
        let name = name_of(condition);
        if self.cores >= MANY_CORES {
            let beside = [
                (Work::ApplyThen1, Who::StdMutex),
                (Work::ApplyThen16, Who::StdMutex),
                (Work::TablesZipf, Who::DashMap),
            ];
            let verdict = |(work, other)| {
                let target = format!("{name}: {} over {}", name_of(work), name_of(other));
                at_least(target, 1.0, self.over(condition, work, Who::Default, other))
            };
            return beside.into_iter().map(verdict).collect();
        }
        if condition == Condition::Quiet {
            return Vec::new();
        }
        let left = condition.cores_left(self.cores) / self.cores as f64;
        [Work::ApplyThen1, Work::ApplyThen16, Work::ApplyThen1024, Work::TablesZipf]
            .into_iter()
            .map(|work| {
                let target = format!("{name}: {} over its quiet figure times {left:.3} (cores left)", name_of(work));
                at_least(target, 0.8, self.over_quiet(condition, work).map(|ratio| ratio / left))
            })
            .collect()
    }

    fn latency(&self, condition: Condition) -> Option<Split> {
        let is_it = |one: &&Series| (one.condition, one.work, one.contender) == (condition, Work::Apply, Who::Default);
        self.series.iter().find(is_it).and_then(|one| one.latency)
    }

    fn beside_real_time(&self) -> Vec<Verdict> {
        let others = self.latency(Condition::RealTime).and_then(|split| split.others);
        vec![
            at_least("real-time over quiet, apply", 0.5, self.over_quiet(Condition::RealTime, Work::Apply)),
            at_most(
                "real-time: p99 of apply, us, but for workers whose core is taken",
                10.0,
                others.map(|others| others.p99_ns / 1e3),
            ),
        ]
    }

    /// Where workers float the hog's core is shared with an unknown worker: the bound for that worker applies to all.
    fn beside_hog(&self, condition: Condition) -> Vec<Verdict> {
        let name = name_of(condition);
        let split = self.latency(condition);
        let bound_us = self.slice.map(|slice| ((slice + BESIDE_HOG).as_secs_f64() * 1e6).round());
        let Some(bound_us) = bound_us else { return Vec::new() };
        let us = |pick: fn(&Split) -> Option<Quantiles>| {
            split.as_ref().and_then(pick).map(|quantiles| quantiles.p99_ns / 1e3)
        };
        if !condition.pins() {
            let target = format!("{name}: p99 of apply, us (time slice + 100 us)");
            return vec![at_most(target, bound_us, us(|split| split.others))];
        }
        let quiet = self.latency(Condition::Quiet).and_then(|split| split.others);
        let over_quiet = |of: Option<f64>| ratio(of, quiet.map(|quiet| quiet.p99_ns / 1e3));
        vec![
            at_most(
                format!("{name}: p99 of apply to the trustee beside the hog, us (time slice + 100 us)"),
                bound_us,
                us(|split| split.to_taken),
            ),
            at_most(
                format!("{name}: p99 of apply from the client beside the hog to others, over quiet"),
                3.0,
                over_quiet(us(|split| split.from_taken)),
            ),
            at_most(
                format!("{name}: p99 of apply between others, over quiet"),
                3.0,
                // On two cores there are no others.
                over_quiet(us(|split| split.others)),
            ),
        ]
    }

    fn of_std_threads(&self) -> Vec<Verdict> {
        let mops = |work| self.mops(Condition::StdThreads, work, Who::Default);
        let mut verdicts = Vec::new();
        let mut works = vec![Work::Trustees2, Work::Trustees16];
        if mops(Work::Shards16).is_some() {
            works.push(Work::Shards16);
        }
        for &work in &works {
            let time = ratio(mops(Work::Trustees1), mops(work));
            let target = format!("std-threads: time of a call, {} over trustees-1", name_of(work));
            verdicts.push(at_most(target, 2.0, time));
        }
        for work in [Work::Trustees1].into_iter().chain(works) {
            let target = format!("std-threads: {} over std-mpsc", name_of(work));
            let ratio = self.over(Condition::StdThreads, work, Who::Default, Who::StdMpsc);
            verdicts.push(at_least(target, 2.0, ratio));
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(condition: Condition, work: Work, contender: Who, median_mops: f64) -> Series {
        Series { median_mops, ..Series::new(condition, work, contender, 2) }
    }

    fn reached(verdicts: &[Verdict], target: &str) -> Option<f64> {
        let found: Vec<_> = verdicts.iter().filter(|verdict| verdict.target.starts_with(target)).collect();
        assert_eq!(found.len(), 1, "{target}: {verdicts:?}");
        found[0].reached
    }

    fn verdicts_of(series: &[Series], cores: usize, condition: Condition) -> Vec<Verdict> {
        let slice = Some(Duration::from_millis(4));
        verdicts(&Evidence { series, cores, slice, idle_percent: Some(0.01) }, &[condition])
    }

    #[test]
    fn the_default_is_held_against_the_best_spin_of_its_worst_workload() {
        let condition = Condition::Noise;
        let point = |work, mops: [f64; 5]| {
            let all = [Who::Default].into_iter().chain(Who::SPINS);
            all.zip(mops).map(move |(who, mops)| series(condition, work, who, mops))
        };
        let good = point(Work::Apply, [10.0, 1.0, 5.0, 8.0, 2.0]);
        let bad = point(Work::ApplyThen16, [3.0, 6.0, 5.0, 4.0, 2.0]);
        let all: Vec<_> = good.chain(bad).collect();
        let verdicts = verdicts_of(&all, 2, condition);
        let target = "noise: the default over the best fixed spin, worst workload (apply_then-16, spin-0)";
        assert_eq!(reached(&verdicts, target), Some(0.5));
        // A spin that did not run could have been the best.
        let verdicts = verdicts_of(&all[1..5], 2, condition);
        assert_eq!(reached(&verdicts, "noise: the default over the best"), None);
    }

    #[test]
    fn few_cores_are_held_against_quiet_and_many_against_locks() {
        let all = [
            series(Condition::Quiet, Work::ApplyThen16, Who::Default, 100.0),
            series(Condition::HogPinned, Work::ApplyThen16, Who::Default, 45.0),
            series(Condition::HogPinned, Work::ApplyThen16, Who::StdMutex, 30.0),
        ];
        let verdicts = verdicts_of(&all, 2, Condition::HogPinned);
        assert_eq!(reached(&verdicts, "hog-pinned: apply_then-16 over its quiet figure"), Some(0.9));
        let verdicts = verdicts_of(&all, 8, Condition::HogPinned);
        assert_eq!(reached(&verdicts, "hog-pinned: apply_then-16 over std-mutex"), Some(1.5));
    }

    #[test]
    fn latencies_beside_a_hog_are_judged_by_whose_core_it_has() {
        let at = |p99_us: f64| {
            let ns = p99_us * 1e3;
            Some(Quantiles { p99_ns: ns, ..Quantiles::default() })
        };
        let with =
            |condition, latency| Series { latency: Some(latency), ..series(condition, Work::Apply, Who::Default, 1.0) };
        let all = [
            with(Condition::Quiet, Split { others: at(2.0), ..Split::default() }),
            with(Condition::HogPinned, Split { others: None, to_taken: at(4000.0), from_taken: at(8.0) }),
        ];
        let verdicts = verdicts_of(&all, 2, Condition::HogPinned);
        let beside = verdicts.iter().find(|verdict| verdict.target.contains("beside the hog, us")).unwrap();
        assert_eq!((beside.wanted, beside.reached, beside.met), (4100.0, Some(4000.0), Some(true)));
        assert_eq!(reached(&verdicts, "hog-pinned: p99 of apply from the client"), Some(4.0));
        assert_eq!(reached(&verdicts, "hog-pinned: p99 of apply between others"), None);
    }

    #[test]
    fn plain_threads_are_held_against_one_trustee_and_against_channels() {
        let all = [
            series(Condition::StdThreads, Work::Trustees1, Who::Default, 3.0),
            series(Condition::StdThreads, Work::Trustees2, Who::Default, 2.0),
            series(Condition::StdThreads, Work::Trustees2, Who::StdMpsc, 0.5),
        ];
        let verdicts = verdicts_of(&all, 16, Condition::StdThreads);
        assert_eq!(reached(&verdicts, "std-threads: time of a call, trustees-2"), Some(1.5));
        assert_eq!(reached(&verdicts, "std-threads: trustees-2 over std-mpsc"), Some(4.0));
        assert_eq!(reached(&verdicts, "std-threads: time of a call, trustees-16"), None);
    }
}
