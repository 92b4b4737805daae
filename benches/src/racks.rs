//! `racks`: racks of up to a thousand machines, simulated: today's rings for all pairs of workers beside machine ways,
//! without and with direct ways. Nothing is measured here; costs are those that `echo` measured.
//!
//! Not here: the simulation (`benches/racks`).

use crate::prelude::*;
use ::racks::tables::{CONTENDERS, HEAD, cells, simulate};
use ::racks::traffic::Traffic;
use ::racks::{Figures as Simulated, RACKS, memory};

/// Options of `racks`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("1")))]
pub struct Racks {
    /// Options of all measuring commands. Each round has another seed.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// Figures of a run that are kept, with their units.
type Kept = (&'static str, fn(&Simulated) -> f64);

const KEPT: [Kept; 6] = [
    ("requests a write", |one| one.requests_a_write),
    ("writes/s", |one| one.writes_a_second),
    ("M/s", |one| one.mops),
    ("us, median", |one| one.p50_us),
    ("us, 99%", |one| one.p99_us),
    ("queue pairs", |one| one.queue_pairs as f64),
];

pub fn command(mut options: Racks) -> Result<()> {
    let bench = Bench::begin("racks", &mut options.comparison)?;
    let racks = if options.comparison.smoke { &RACKS[..1] } else { &RACKS[..] };
    let (mut rows, mut figures) = (Vec::new(), Figures::default());
    for &rack in racks {
        for traffic in Traffic::ALL {
            let mut first = Vec::new();
            for contender in CONTENDERS {
                let name = format!("{} x {} {}, {}", rack.0, rack.1, traffic.name(), contender.0);
                eprintln!("racks: {name}");
                let run = |seed| simulate(contender, rack, traffic, seed).map_err(|error| anyhow!("{name}: {error}"));
                let samples = (1..=options.comparison.rounds as u64).map(run).collect::<Result<Vec<_>>>()?;
                first.extend(samples.first().copied());
                for (unit, figure) in KEPT {
                    let group = group(rack, traffic, unit);
                    figures.add(&group, contender.0, unit, samples.iter().map(figure).collect());
                }
            }
            rows.push(cells(rack, traffic, &first));
        }
    }
    table(&format!("racks: {}", CONTENDERS.map(|contender| contender.0).join(" / ")), &HEAD, rows);
    let of_largest = |traffic, unit| figures.get(&group(RACKS[2], traffic, unit), CONTENDERS[2].0);
    let gib = |bytes: usize| Some(bytes as f64 / f64::from(1 << 30));
    let targets = [
        at_least("requests a write, 1000 x 128, uniform", 16.0, of_largest(Traffic::Uniform, "requests a write")),
        at_most("queue pairs, 1000 x 128, neighbours", 9200.0, of_largest(Traffic::Neighbours, "queue pairs")),
        at_most("GiB a machine, all pairs in use, 64 x 64", 0.5, gib(memory::bytes_at_most(RACKS[1]))),
        at_most("GiB a machine, all pairs in use, 1000 x 128", 4.0, gib(memory::bytes_at_most(RACKS[2]))),
        at_most("ns of an idle look, 1000 x 128", 1000.0, Some(memory::look_at_most_ns(RACKS[2]) as f64)),
    ];
    bench.conclude(&options, json!({"series": figures}), &targets)
}

fn group((machines, workers): (u16, u16), traffic: Traffic, unit: &str) -> String {
    format!("{machines} x {workers} {}, {unit}", traffic.name())
}
