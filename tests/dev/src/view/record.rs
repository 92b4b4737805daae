//! Samples as programs give them that are larger than this machine: a record for `gossamer-launch view --recorded`.
//!
//! Made by a small generator of random numbers, the same each time.

use serde_json::{Value, json};

/// Seconds that are recorded.
const SAMPLES: u64 = 6;
/// Since when the program has run then.
const UP_S: u64 = 5230;

const NAMES: [&str; 10] = [
    "requests_sent",
    "requests_run_here",
    "requests_served",
    "batches_served",
    "requests_queued",
    "fiber_switches",
    "polls",
    "polled_ns",
    "parks",
    "parked_ns",
];

/// Returns a record of machines with workers each, one of which may be stuck.
pub fn of(machines: u64, workers: u64, stuck: Option<(u64, u64)>) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    let load: Vec<f64> = (0..machines * workers)
        .map(|place| {
            let quiet = random.f64() * random.f64() * 0.8 + 0.05;
            let is_hot = place % 37 == 5 || (machines > 4 && place / workers == 3);
            (if is_hot { quiet + 0.45 } else { quiet }).min(0.98)
        })
        .collect();
    let flow: Vec<f64> = (0..machines * machines).map(|_| 0.6 + random.f64()).collect();
    let lines = (0..SAMPLES).map(|second| {
        let all: Vec<Value> =
            (0..machines).map(|machine| machine_at(second, machine, machines, workers, &load, &flow, stuck)).collect();
        json!({"alerts": [], "machines": all}).to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn machine_at(
    second: u64,
    machine: u64,
    machines: u64,
    workers: u64,
    load: &[f64],
    flow: &[f64],
    stuck: Option<(u64, u64)>,
) -> Value {
    let up = (UP_S + second) as f64;
    let worker = |number: u64| {
        let load = load[(machine * workers + number) as usize];
        let served = load * 1.6e6;
        let a_second = [
            served,
            0.0,
            served,
            served / (4.0 + 40.0 * load),
            (load - 0.6).max(0.0) * 1e5,
            served / 3.0,
            1e5,
            (1.0 - load) * 2e8,
            (1.0 - load) * 3000.0,
            (1.0 - load) * 8e8,
        ];
        let values: Vec<u64> = a_second.iter().map(|rate| (rate * up) as u64).collect();
        let mut trips = [0; 11];
        trips[if load < 0.5 { 2 } else { 3 }] = 40;
        let silent_ms = if stuck == Some((machine, number)) { 1700 } else { 0 };
        json!({"values": values, "state": "R", "silent_ms": silent_ms, "round_trips": trips,
               "kept_by": if silent_ms > 0 { "the closure `pagerank::add` on a `Vec<f64>`" } else { "" },
               "memory_bytes": 1_500_000 + (load * 4e6) as u64,
               "round_trips_ns": (40.0 * (20e3 + load * load * 300e3)) as u64})
    };
    let sent = |to: u64| {
        let is_near = machine.abs_diff(to) == 1 || machine.abs_diff(to) == machines - 1;
        let rate = if machine == to {
            0.0
        } else {
            flow[(machine * machines + to) as usize] * if is_near { 7e6 } else { 1.5e6 }
        };
        json!([(rate / 600.0 * up) as u64, (rate * up) as u64])
    };
    json!({"age_ms": 10, "answers": true, "sample": {
        "program": "pagerank", "machine": machine, "host": format!("node{machine:02}"), "pid": 4000 + machine,
        "at_ns": (second + 1) * 1_000_000_000, "clock_ms": 1_795_000_000_000u64 + second * 1000,
        "up_ms": (UP_S + second) * 1000, "resident_bytes": 3_400_000_000u64, "shared_bytes": 2_100_000_000u64,
        "names": NAMES, "workers": (0..workers).map(worker).collect::<Vec<_>>(),
        "sent": (0..machines).map(sent).collect::<Vec<_>>()}})
}
