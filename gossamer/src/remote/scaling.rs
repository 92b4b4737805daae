//! Growth of memory, queue pairs and flags with the rack: the tables of docs/scaling.md, computed from the
//! layout and the settings of programs, and compared with the document. None of this runs in a program.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use comm::verbs::Settings;

use super::carrier::{Peer, Watch};
use super::{Layout, Slots};

/// Racks of the document: machines and workers of each.
const RACKS: [(usize, u16); 5] = [(2, 32), (4, 32), (12, 32), (64, 64), (1000, 128)];
const PEER_BYTES: usize = size_of::<Peer>();
const WATCH_BYTES: usize = size_of::<Watch>();
const DOCUMENT: &str = include_str!("../../../docs/scaling.md");

fn layout((machines, workers): (usize, u16)) -> Layout {
    Layout::new(vec![workers; machines], Slots::NETWORK)
}

/// Threads of other machines: their workers, and of each its service thread.
fn other_threads(rack: (usize, u16)) -> usize {
    (rack.0 - 1) * usize::from(layout(rack).threads(0))
}

fn memory() -> String {
    let mut out =
        "\n| machines x workers | slots a pair | slots | in-process pairs | ways | queue pairs | staging | sockets |\n"
            .to_owned();
    out += "|---|---:|---:|---:|---:|---:|---:|---:|\n";
    for rack in RACKS {
        let (machines, workers) = (rack.0, usize::from(rack.1));
        let layout = layout(rack);
        let threads = usize::from(layout.threads(0));
        let here = workers * (workers - 1) * trust::link::PAIR_BYTES;
        let ways = threads * other_threads(rack) * (PEER_BYTES + 2 * WATCH_BYTES);
        // As in `comm::verbs`: for each machine one for each thread, one for the starting thread, one for heartbeats.
        let queue_pairs = (machines - 1) * (threads + 2);
        // As in `comm::tcp`: for each machine one for each thread here and there, and one for heartbeats.
        let sockets = (machines - 1) * (2 * threads + 1);
        let staging = (machines - 1) * (threads + 1) * Settings::default().staging_bytes;
        let _ = writeln!(
            out,
            "| {machines} x {workers} | {} | {} | {} | {} | {queue_pairs} | {} | {sockets} |",
            layout.slots().per_pair,
            bytes(layout.slots_bytes(0)),
            bytes(here),
            bytes(ways),
            bytes(staging)
        );
    }
    out
}

fn machine_ways() -> String {
    let mut out =
        "\n| machines x workers | slots | queue pairs | staging | sockets | flags | direct ways a worker | their rings \
         |\n"
            .to_owned();
    out += "|---|---:|---:|---:|---:|---:|---:|---:|\n";
    for (machines, workers) in RACKS {
        let hidden = crate::service::HIDDEN_WORKERS;
        let layout = Layout::choose(vec![workers; machines], hidden, Slots::NETWORK, Some(true));
        let others = machines - 1;
        // For each machine one for both directions, and one for heartbeats.
        let (queue_pairs, staging) = (2 * others, bytes(others * Settings::default().staging_bytes));
        // For each machine one there and one back, and one for heartbeats. A flag a way.
        let (slots, sockets) = (bytes(layout.slots_bytes(0)), 3 * others);
        let (direct_ways, rings) = (layout.limits(0).rings, bytes(layout.direct_bytes(0)));
        let _ = writeln!(
            out,
            "| {machines} x {workers} | {slots} | {queue_pairs} | {staging} | {sockets} | {others} | {direct_ways} | \
             {rings} |"
        );
    }
    out
}

fn looking() -> String {
    let mut out = "\n| machines x workers | flags | lines and entries a look touches |\n|---|---:|---:|\n".to_owned();
    for rack in RACKS {
        let flags = 2 * other_threads(rack);
        let _ = writeln!(out, "| {} x {} | {flags} | {} |", rack.0, rack.1, bytes(flags * (64 + WATCH_BYTES)));
    }
    out
}

fn bytes(count: usize) -> String {
    const UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let (unit, size) = UNITS.into_iter().find(|(_, size)| count >= *size).unwrap_or(("bytes", 1));
    // Rounded up: the need, not less.
    format!("{} {unit}", count.div_ceil(size))
}

#[test]
fn the_document_says_what_the_code_does() {
    for (name, table) in [("memory", memory()), ("machine ways", machine_ways()), ("looking", looking())] {
        let begin = format!("<!-- {name}: gossamer/src/remote/scaling.rs -->\n");
        let told = DOCUMENT.split_once(&begin).and_then(|(_, rest)| rest.split_once("\n<!-- end -->"));
        assert_eq!(told.map(|(told, _)| told), Some(&*table), "docs/scaling.md, {name}: it should be\n{table}");
    }
}

/// `cargo test --release -p gossamer-rack looking_costs -- --ignored --nocapture`: cost of one poll of all flags that
/// finds nothing.
#[test]
#[ignore = "measures, and takes two gigabytes"]
fn looking_costs() {
    for rack in RACKS {
        let flags = 2 * other_threads(rack);
        let stride = layout(rack).slots().stride_bytes() * usize::from(layout(rack).slots().per_pair) / 8;
        let words: Vec<AtomicU64> = (0..flags * stride).map(|_| AtomicU64::new(0)).collect();
        let watched: Vec<(usize, u64)> = (0..flags).map(|flag| (flag * stride + stride - 1, 0)).collect();
        let look = || watched.iter().position(|(word, before)| words[*word].load(Ordering::Acquire) != *before);
        let looks = (20_000_000 / flags).max(3);
        black_box(look());
        let start = Instant::now();
        for _ in 0..looks {
            assert_eq!(black_box(look()), None);
        }
        let ns = start.elapsed().as_nanos() as f64 / looks as f64;
        println!("{} x {}: {flags} flags, {ns:.0} ns a look, {:.2} ns a flag", rack.0, rack.1, ns / flags as f64);
    }
}
