//! The tables of docs/scaling.md about machine ways, from computed memory and from simulated runs.

use std::fmt::Write as _;

use gossamer_ways::ways::Limits;

use crate::memory;
use crate::traffic::Traffic;
use crate::{Figures, RACKS, Scheme, Setup};

/// A scheme, and whether pairs may have direct ways, under its name in tables.
pub type Contender = (&'static str, Scheme, bool);

/// All that are compared.
pub const CONTENDERS: [Contender; 3] =
    [("rings", Scheme::Rings, true), ("machine ways", Scheme::Ways, false), ("with direct ways", Scheme::Ways, true)];

/// Runs a contender on a rack, at the size of the tables.
pub fn simulate(
    (_, scheme, has_direct): Contender,
    rack: (u16, u16),
    traffic: Traffic,
    seed: u64,
) -> Result<Figures, String> {
    let setup = Setup { seed, ..Setup::new(rack, traffic, scheme) };
    let rings = if has_direct { setup.limits.rings } else { 0 };
    Setup { limits: Limits { rings, ..setup.limits }, ..setup }.run()
}

/// Title row of the simulated table.
pub const HEAD: [&str; 10] = [
    "machines x workers",
    "traffic",
    "requests a write",
    "thousand writes/s",
    "million requests/s",
    "hops",
    "p50, us",
    "p99, us",
    "memory",
    "queue pairs",
];

/// A row of the simulated table: each cell has the figures of all contenders.
pub fn cells((machines, workers): (u16, u16), traffic: Traffic, figures: &[Figures]) -> Vec<String> {
    let cell = |one: &dyn Fn(&Figures) -> String| figures.iter().map(one).collect::<Vec<_>>().join(" / ");
    vec![
        format!("{machines} x {workers}"),
        traffic.name().to_owned(),
        cell(&|one| digits(one.requests_a_write)),
        cell(&|one| digits(one.writes_a_second / 1e3)),
        cell(&|one| digits(one.mops)),
        cell(&|one| digits(one.hops)),
        cell(&|one| format!("{:.0}", one.p50_us)),
        cell(&|one| format!("{:.0}", one.p99_us)),
        cell(&|one| size(one.bytes)),
        cell(&|one| one.queue_pairs.to_string()),
    ]
}

/// Memory, queue pairs and looks of both schemes, where all pairs are in use.
pub fn computed() -> String {
    let mut out = "\n| machines x workers | machine ways | queue pairs | memory | a look, ns |\n".to_owned();
    out += "|---|---:|---:|---:|---:|\n";
    for rack in RACKS {
        let ways = memory::machine_ways(rack);
        let direct = usize::from(rack.1) * Limits::of_machine(rack.1).rings;
        let _ = writeln!(
            out,
            "| {} x {} | {ways} | {} / {} | {} / {} | {} / {} |",
            rack.0,
            rack.1,
            memory::queue_pairs_today(rack),
            ways + direct,
            size(memory::slots_today(rack).1),
            size(memory::bytes_at_most(rack)),
            crate::costs::look_ns(memory::flags_today(rack)),
            memory::look_at_most_ns(rack),
        );
    }
    out
}

/// Bytes, rounded up: the need, not less.
pub fn size(count: usize) -> String {
    const UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let (unit, size) = UNITS.into_iter().find(|(_, size)| count >= *size).unwrap_or(("bytes", 1));
    format!("{} {unit}", count.div_ceil(size))
}

/// Three digits, or all before the point.
fn digits(value: f64) -> String {
    match value {
        large if large >= 100.0 => format!("{large:.0}"),
        middle if middle >= 10.0 => format!("{middle:.1}"),
        small => format!("{small:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/scaling.md");

    /// Columns that the page has; the command prints all.
    const COLUMNS: [usize; 6] = [0, 1, 2, 3, 6, 7];

    /// A row of the page.
    fn line(cells: &[impl AsRef<str>]) -> String {
        format!("| {} |\n", COLUMNS.map(|column| cells[column].as_ref()).join(" | "))
    }

    fn has(table: &str) {
        assert!(PAGE.contains(table), "docs/scaling.md should have\n{table}");
    }

    fn has_rows_of(racks: &[(u16, u16)]) {
        let rows = racks.iter().flat_map(|rack| Traffic::ALL.map(|traffic| (*rack, traffic)));
        let simulated = |(rack, traffic)| {
            let figures = CONTENDERS.map(|contender| simulate(contender, rack, traffic, 1).unwrap());
            line(&cells(rack, traffic, &figures))
        };
        has(&rows.map(simulated).collect::<String>());
    }

    #[test]
    fn the_page_has_the_computed_table() {
        has(&format!("<!-- ways: benches/racks/src/tables.rs -->\n{}\n<!-- end -->", computed()));
    }

    #[test]
    fn the_page_has_what_the_smallest_rack_gives() {
        has(&format!("<!-- simulated: benches/racks/src/tables.rs -->\n\n{}", line(&HEAD)));
        has_rows_of(&RACKS[..1]);
    }

    #[test]
    #[ignore = "takes a minute: `cargo test --release -p racks -- --ignored`"]
    fn the_page_has_what_the_larger_racks_give() {
        has_rows_of(&RACKS[1..]);
    }
}
