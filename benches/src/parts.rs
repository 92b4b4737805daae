//! `parts`: the cost of one request beside the least possible. A lone `apply` beside bare
//! cache-line transfers, the local shortcut beside an uncontended lock, and one client with one
//! dedicated trustee beside the bare slots; all of them interleaved.

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::contenders::{Apply, ApplyThen, Mode};
use crate::{
    contender::{Contender, Workload},
    contenders::{AtomicCounter, BareSlots, Channel, MutexCounter, ParkingLotCounter, PingPong, SharedCounters},
    harness::{Entry, interleave},
    machine::Machine,
    options::{Common, Strict},
    pick::Dist,
    report::Series,
    rounds::{Compared, Skipped},
    targets::verdicts,
    verdict::conclude,
};

/// A round trip with nothing else to do.
pub const LONE: &str = "lone round trip";
/// One thread, one object, nobody else.
pub const LOCAL: &str = "uncontended, one thread";
/// One client, one trustee that only serves.
pub const PAIR: &str = "one client, one dedicated trustee";

/// Options of `parts`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Parts {
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; counters that are wrong after a run; a file that cannot be written.
pub fn command(mut options: Parts) -> Result<()> {
    options.common = options.common.prepare()?;
    let machine = Machine::here();
    println!("{machine}");
    let series = interleave(entries(&options.common)?, &options.common, "parts")?;
    print(&series);
    let targets = verdicts(&series, &machine, &[]);
    let measured = Compared { series: &series, skipped: &Skipped::default() };
    conclude(
        "parts",
        &machine,
        &options,
        measured,
        targets,
        options.common.comparison.json.as_deref(),
        Strict { strict: false },
    )
}

/// The contenders of all parts.
///
/// # Errors
/// Options out of range.
pub fn entries(common: &Common) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut add = |group: &str, workload: &Workload, contenders: Vec<Box<dyn Contender>>| {
        entries.extend(contenders.into_iter().map(|contender| Entry {
            group: group.to_owned(),
            contender,
            workload: workload.clone(),
        }));
    };

    let mut lone = common.workload(2, 1, Dist::Uniform)?;
    (lone.dedicated, lone.fibers, lone.batch) = (1, 1, 1);
    add(
        LONE,
        &lone,
        vec![
            Box::new(PingPong::one_line()),
            Box::new(PingPong::two_lines()),
            Box::new(BareSlots::dedicated()),
            Box::new(Channel::one_at_a_time()),
            Box::new(Apply::new(Mode::Lone)),
            Box::new(Apply::new(Mode::Dedicated)),
        ],
    );

    let mut local = common.workload(1, 1, Dist::Uniform)?;
    local.fibers = 1;
    add(
        LOCAL,
        &local,
        vec![
            Box::new(SharedCounters::<MutexCounter>::new()),
            Box::new(SharedCounters::<ParkingLotCounter>::new()),
            Box::new(SharedCounters::<AtomicCounter>::new()),
            Box::new(Apply::new(Mode::Shared)),
            Box::new(ApplyThen::new(Mode::Shared)),
        ],
    );

    let mut pair = common.workload(2, 1, Dist::Uniform)?;
    pair.dedicated = 1;
    add(PAIR, &pair, vec![Box::new(BareSlots::dedicated()), Box::new(ApplyThen::new(Mode::Dedicated))]);
    Ok(entries)
}

/// Prints the groups of `parts`, in nanoseconds an operation.
pub fn print(series: &[Series]) {
    for group in [LONE, LOCAL, PAIR] {
        println!("\n{group}");
        println!("  {:<22} {:>10} {:>10} {:>10} {:>10}", "ns/op", "median", "fastest", "slowest", "Mops/s");
        for series in series.iter().filter(|series| series.group == group) {
            println!(
                "  {:<22} {:>10.2} {:>10.2} {:>10.2} {:>10.2}",
                series.contender,
                series.median_ns(),
                1e3 / series.max_mops,
                1e3 / series.min_mops,
                series.median_mops
            );
        }
    }
}
