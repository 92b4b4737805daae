//! The tables of `busy`: a condition each, a row a workload, a column a contender; then latencies and counters of the
//! default.

use clap::ValueEnum;

use super::{
    conditions::Condition,
    points::{Who, Work, name_of, text_of},
    samples::{Quantiles, Sample, Series},
    targets::Evidence,
};
use crate::report::median;

/// Prints all conditions.
pub fn print(evidence: &Evidence<'_>) {
    for &condition in Condition::value_variants() {
        let all: Vec<&Series> = evidence.series.iter().filter(|one| one.condition == condition).collect();
        if !all.is_empty() {
            print_condition(evidence, condition, &all);
        }
    }
    print_machine(evidence.series);
}

fn print_condition(evidence: &Evidence<'_>, condition: Condition, all: &[&Series]) {
    let threads = all[0].threads;
    println!("\n{}: {} ({threads} threads)", name_of(condition), text_of(condition));
    let has = |who: &&Who| all.iter().any(|one| one.contender == **who);
    let columns: Vec<Who> = Who::value_variants().iter().filter(has).copied().collect();
    let header: String = columns.iter().map(|&who| format!(" {:>11}", name_of(who))).collect();
    println!("  {:<18}{header} {:>11}", "Mops/s, medians", "/best spin");
    for &work in Work::value_variants() {
        let row: Vec<&Series> = all.iter().copied().filter(|one| one.work == work).collect();
        if row.is_empty() {
            continue;
        }
        let cell = |what: &dyn Fn(&Series) -> String| {
            let text = |who: &Who| row.iter().find(|one| one.contender == *who).map_or("-".to_owned(), |one| what(one));
            columns.iter().map(|who| format!(" {:>11}", text(who))).collect::<String>()
        };
        let ratio = evidence.over_best_spin(condition, work).map_or("-".to_owned(), |(ratio, _)| format!("{ratio:.2}"));
        println!("  {:<18}{} {ratio:>11}", name_of(work), cell(&|one| digits(one.median_mops)));
        let spread = |one: &Series| format!("{}..{}", digits(one.min_mops), digits(one.max_mops));
        println!("  {:<18}{}", "  min..max", cell(&spread));
        for (title, pick) in LATENCIES {
            if row.iter().any(|one| one.latency.as_ref().and_then(pick).is_some()) {
                let text = |one: &Series| {
                    let us = |ns: f64| digits(ns / 1e3);
                    let quantiles = one.latency.as_ref().and_then(pick);
                    quantiles.map_or("-".to_owned(), |q| format!("{} {} {}", us(q.p50_ns), us(q.p99_ns), us(q.p999_ns)))
                };
                for one in &row {
                    println!("    {title:<36} {:<12} {}", name_of(one.contender), text(one));
                }
            }
        }
    }
    print_counters(all);
}

type PickQuantiles = fn(&super::samples::Split) -> Option<Quantiles>;

const LATENCIES: [(&str, PickQuantiles); 3] = [
    ("us p50 p99 p99.9", |split| split.others),
    ("  to a worker whose core is taken", |split| split.to_taken),
    ("  from one to others", |split| split.from_taken),
];

fn print_counters(all: &[&Series]) {
    println!("  what the workers of `default` counted, a second (all of them together):");
    for one in all.iter().filter(|one| one.contender == Who::Default) {
        let counted = one.stats_per_second.iter().filter(|(_, rate)| **rate > 0.0);
        let text: Vec<String> = counted.map(|(name, rate)| format!("{name} {}", digits(*rate))).collect();
        println!("    {:<18} {}", name_of(one.work), text.join(", "));
    }
}

fn print_machine(series: &[Series]) {
    let samples = || series.iter().flat_map(|one| &one.samples);
    let of = |value: fn(&Sample) -> Option<f64>| {
        let values: Vec<f64> = samples().filter_map(value).collect();
        (median(&values), values.iter().copied().fold(0.0, f64::max))
    };
    let (transfer, slowest) = of(|sample| Some(sample.transfer_ns));
    println!("\na cache line there and back: median {transfer:.0} ns, slowest {slowest:.0} ns");
    let (_, worst) = of(|sample| sample.stolen_ms);
    let stolen: f64 = samples().filter_map(|sample| sample.stolen_ms).sum();
    let seconds: f64 = samples().map(|sample| sample.seconds).sum();
    println!(
        "time that the host took from the cores: {stolen:.0} ms in {seconds:.1} s, at most {worst:.0} ms in one run"
    );
}

/// Three digits, or all before the point.
fn digits(value: f64) -> String {
    match value {
        large if large >= 1e6 => format!("{:.3}M", large / 1e6),
        large if large >= 100.0 => format!("{large:.0}"),
        middle if middle >= 10.0 => format!("{middle:.1}"),
        middle if middle >= 0.1 => format!("{middle:.2}"),
        small => format!("{small:.4}"),
    }
}
