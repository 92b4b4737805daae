//! Requests with counted instructions: `cargo dev rdma counts` single-steps one worker between two marks.
//!
//! All other threads run at full speed meanwhile, so the traced worker always has something to do, and nobody sleeps.

#![allow(unsafe_code)]

use crate::counters;
use gossamer::Place;
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests between the marks.
const REQUESTS: u64 = 1000;
/// Whether the workers of each machine may sleep.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Returns whether the client's worker is traced, and after how many requests the client lets others run.
fn arguments() -> (bool, u64) {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [end, batch] = &words[..] else { panic!("traced client|trustee BATCH") };
    (end == "client", batch.parse().expect("a number"))
}

/// Prints this thread's id, and waits for a tracer.
fn wait_for_tracer() {
    // A thread's own folder of /proc links to its process and number.
    let thread = std::fs::read_link("/proc/thread-self").expect("Linux");
    println!("trace {}", thread.file_name().and_then(|name| name.to_str()).expect("a number"));
    let is_traced = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
    };
    while !is_traced() {
        std::thread::yield_now();
    }
}

/// Begin and end of the count: the one place with this instruction.
#[inline(never)]
fn mark() {
    // SAFETY: stops the thread for its tracer, which lets it continue behind the instruction.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("int3");
    }
}

/// 1,000 requests of 32 bytes from the first place to the last, counted.
pub fn traced() {
    let (is_client, batch) = arguments();
    let here = gossamer::here();
    let is_other = |place: &Place| (place.machine == here.machine) != is_client;
    let awake: Vec<Place> = gossamer::rack().places().filter(is_other).collect();
    for &place in &awake {
        // Sleep would add wake-ups; the count is about workers that have work.
        drop(gossamer::spawn_on(place, || {
            while !IS_OVER.load(Ordering::Relaxed) {
                gossamer::yield_now();
            }
        }));
    }
    let counters = counters();
    let counter = counters.last().expect("a rack has a worker");
    let request = |round: u64| {
        let values = [1, round, batch, !round];
        counter.apply_then(move |c| *c += values[0] + (values[1] & values[3]), |()| {});
    };
    let served = || counter.apply(|c| *c);
    // The first requests of a kind bring their code along, and fill caches.
    (0..4 * REQUESTS).for_each(request);
    let before = served();
    let stats = || trust::stats(trust::local_trustee()).unwrap_or_default();
    let start = stats();
    if is_client {
        wait_for_tracer();
        mark();
    } else {
        counter.apply(|_| wait_for_tracer());
        counter.apply_then(|_| mark(), |()| {});
    }
    for round in 1..=REQUESTS {
        request(round);
        if round % batch == 0 {
            gossamer::yield_now();
        }
    }
    if !is_client {
        counter.apply_then(|_| mark(), |()| {});
    }
    assert_eq!(served() - before, REQUESTS);
    if is_client {
        mark();
    }
    let end = stats();
    let (requests, batches) =
        (end.requests_sent_remote - start.requests_sent_remote, end.batches_sent - start.batches_sent);
    println!("{requests} requests in {batches} batches");
    awake
        .into_iter()
        .for_each(|place| gossamer::spawn_on(place, || IS_OVER.store(true, Ordering::Relaxed)).join().unwrap());
}
