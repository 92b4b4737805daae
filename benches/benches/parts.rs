//! Micro-benchmarks of the parts of `trust`, through its public API.
//!
//! Everything is timed inside a fiber of a pinned worker, so that the figures hold for fibers and not
//! for the plain thread that criterion runs on. The ratios that are targets come from
//! `gossamer-bench targets`, where the contenders are interleaved; these here find the part that changed.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use trust::{Threadpool, Trust, TrusteeReference};

const CLIENT: usize = 0;
const TRUSTEE: usize = 1;

struct Stage {
    pool: Threadpool,
}

impl Stage {
    fn new() -> Self {
        Self { pool: Threadpool::builder().workers(2).pin(true).build() }
    }

    fn trustee(&self, worker: usize) -> TrusteeReference {
        self.pool.trustees()[worker]
    }

    /// Runs `body(iterations)` in a fiber of the client's worker and returns the time it measured.
    fn time(&self, iterations: u64, body: impl FnOnce(u64) -> Duration + Send + 'static) -> Duration {
        let fiber = self.pool.spawn_on(CLIENT, move || body(iterations));
        fiber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Times `step`, over and over, in a fiber of the client's worker.
    fn time_each(&self, iterations: u64, mut step: impl FnMut() + Send + 'static) -> Duration {
        self.time(iterations, move |iterations| {
            let start = Instant::now();
            for _ in 0..iterations {
                step();
            }
            start.elapsed()
        })
    }
}

fn fibers(criterion: &mut Criterion) {
    let stage = Stage::new();
    let mut group = criterion.benchmark_group("fiber");
    group.bench_function("spawn and join", |bencher| {
        bencher.iter_custom(|iterations| {
            stage.time_each(iterations, || {
                let one = trust::spawn(|| black_box(1)).join();
                assert!(one.is_ok_and(|one| one == 1));
            })
        });
    });
    for others in [0u64, 1, 63] {
        group.bench_with_input(BenchmarkId::new("yield_now beside others", others), &others, |bencher, &others| {
            bencher.iter_custom(|iterations| stage.time(iterations, move |iterations| switches(iterations, others)));
        });
    }
    group.finish();
}

/// `iterations` switches in all, shared out among this fiber and `others`.
fn switches(iterations: u64, others: u64) -> Duration {
    let each = iterations / (others + 1) + 1;
    let yields = move || (0..each).for_each(|_| trust::yield_now());
    let start = Instant::now();
    let handles: Vec<_> = (0..others).map(|_| trust::spawn(yields)).collect();
    yields();
    for handle in handles {
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    let made = each * (others + 1);
    start.elapsed().mul_f64(iterations as f64 / made as f64)
}

fn requests(criterion: &mut Criterion) {
    let stage = Stage::new();
    let mut group = criterion.benchmark_group("request");
    for (place, worker) in [("local", CLIENT), ("remote", TRUSTEE)] {
        let counter = stage.trustee(worker).entrust(0u64);
        group.bench_function(BenchmarkId::new("apply", place), |bencher| {
            bencher.iter_custom(|iterations| {
                let counter = counter.clone();
                stage.time_each(iterations, move || {
                    black_box(counter.apply(|counter| {
                        *counter += 1;
                        *counter
                    }));
                })
            });
        });
        group.bench_function(BenchmarkId::new("apply_then", place), |bencher| {
            bencher.iter_custom(|iterations| {
                let counter = counter.clone();
                stage.time(iterations, move |iterations| {
                    let start = Instant::now();
                    for _ in 0..iterations {
                        counter.apply_then(|counter| *counter += 1, |()| ());
                    }
                    // Requests of one client run in order: this one is answered after all of them.
                    counter.apply(|_| ());
                    start.elapsed()
                })
            });
        });
    }
    group.finish();
}

/// Encoding, decoding and one request: `apply_with` of a text, beside `apply` of nothing above.
fn serialised(criterion: &mut Criterion) {
    let stage = Stage::new();
    let mut group = criterion.benchmark_group("apply_with a String");
    for bytes in [8usize, 64, 512, 4096, 65536] {
        let text = stage.trustee(TRUSTEE).entrust(String::new());
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_with_input(BenchmarkId::from_parameter(bytes), &bytes, |bencher, &bytes| {
            bencher.iter_custom(|iterations| {
                let (text, sent) = (text.clone(), "x".repeat(bytes));
                stage.time(iterations, move |iterations| replace(&text, &sent, iterations))
            });
        });
    }
    group.finish();
}

fn replace(text: &Trust<String>, sent: &str, iterations: u64) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..iterations {
        let argument = sent.to_owned();
        let start = Instant::now();
        let before: String = text.apply_with(std::mem::replace, argument);
        spent += start.elapsed();
        black_box(before);
    }
    spent
}

/// The price of waking a trustee that sleeps, by one request.
fn parking(criterion: &mut Criterion) {
    let stage = Stage::new();
    let counter = stage.trustee(TRUSTEE).entrust(0u64);
    let mut group = criterion.benchmark_group("park");
    group.sample_size(10).warm_up_time(Duration::from_millis(200));
    group.bench_function("apply to a sleeping trustee", |bencher| {
        bencher.iter_custom(|iterations| {
            let counter = counter.clone();
            stage.time(iterations, move |iterations| (0..iterations).map(|_| wake(&counter)).sum())
        });
    });
    group.finish();
}

/// Times one `apply` to a trustee that was asleep.
///
/// A sleep is counted when it ends, so whether the trustee slept is known only afterwards; where it
/// did not, the request is not timed and a longer wait comes before the next one.
fn wake(counter: &Trust<u64>) -> Duration {
    const LONGEST_WAIT: Duration = Duration::from_secs(1);
    let mut wait = Duration::from_micros(100);
    while wait < LONGEST_WAIT {
        let parks = parks_of(counter.trustee());
        std::thread::sleep(wait);
        let start = Instant::now();
        counter.apply(|counter| *counter += 1);
        let spent = start.elapsed();
        if parks_of(counter.trustee()) > parks {
            return spent;
        }
        wait *= 2;
    }
    panic!("the trustee did not sleep in {LONGEST_WAIT:?}: there is nothing to wake");
}

fn parks_of(trustee: TrusteeReference) -> u64 {
    trust::stats(trustee).map_or(0, |stats| stats.parks)
}

criterion_group!(parts, fibers, requests, serialised, parking);
criterion_main!(parts);
