//! A program to look at: counters on all workers of a rack, some far busier than others, and fibers that count. See
//! docs/watching.md.
//!
//! ```sh
//! gossamer-launch run --local 4 --threads 16 --view target/debug/watched 600
//! ```
//!
//! The first argument says for how many seconds, default 20. With a second one, `stuck`, the last worker gets into a
//! closure that does not end before the program does: `gossamer-launch top` names it.

use std::time::{Duration, Instant};

use gossamer::{Place, Trust};
use graph::random::Random;

/// Fibers on each worker.
const FIBERS: usize = 4;
/// Requests that a fiber sends before it rests.
const BURST: usize = 400;

const USAGE: &str = "\
Usage: watched [SECONDS [stuck]]
Counters on all workers, some asked far more often than others, for SECONDS (20); with `stuck` the last worker gets into
a closure that ends as late.
";

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--help" | "-h") => print!("{USAGE}"),
        Some(text) if text.parse::<u64>().is_err() => {
            eprint!("watched: {text:?} is no number of seconds\n{USAGE}");
            std::process::exit(2);
        }
        _ => gossamer::main(gsm_main, 0),
    }
}

fn gsm_main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20u64);
    let is_stuck = std::env::args().nth(2).is_some_and(|text| text == "stuck");
    let places: Vec<Place> = gossamer::rack().places().collect();
    let counters: Vec<Trust<u64>> = places.iter().map(|place| gossamer::entrust_on(*place, 0)).collect();
    let stuck = (is_stuck && places.len() > 1).then(|| counters[counters.len() - 1].clone());
    let counted = if stuck.is_some() { &counters[..counters.len() - 1] } else { &counters[..] };

    let fibers: Vec<_> = places[..counted.len()]
        .iter()
        .flat_map(|place| (0..FIBERS).map(|number| (*place, number)))
        .map(|(place, number)| gossamer::spawn_with(place, count, (counted.to_vec(), number, seconds)))
        .collect();
    if let Some(stuck) = stuck {
        stuck.apply_then(
            move |_| {
                let end = Instant::now() + Duration::from_secs(seconds);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            },
            |()| (),
        );
    }
    let sent: u64 = fibers.into_iter().map(|fiber| fiber.join().expect("it does not panic")).sum();
    let counted: u64 = counted.iter().map(|counter| counter.apply(|count| *count)).sum();
    assert_eq!(counted, sent);
    println!("{counted} requests were counted");
}

/// Counts for so long, on low numbers more than on high ones; says how often.
fn count((counters, number, seconds): (Vec<Trust<u64>>, usize, u64)) -> u64 {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random::new(1, number as u64);
    let mut sent = 0;
    while Instant::now() < end {
        for _ in 0..BURST {
            // Of two, the lower: the first is asked most.
            let mut any = || random.next_u64() as usize % counters.len();
            let (a, b) = (any(), any());
            counters[a.min(b)].apply_then(|count| *count += 1, |()| ());
            sent += 1;
        }
        gossamer::wait_all();
        gossamer::sleep(Duration::from_millis(2 + number as u64 * 3));
    }
    sent
}
