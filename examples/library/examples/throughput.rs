//! Gets a second from a map at another worker: the same get by `apply`, by `call`, and by a call `in_process`, and one
//! with strings by a call `in_process`, by an argument (`with`), and from behind a mutex. Rounds alternate; the ratio
//! is that of the medians.
//!
//!     cargo run --release --example throughput

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);
const KEYS: u64 = 1000;
const FIBERS: usize = 32;

fn main() {
    let pool = trust::Threadpool::new(2);
    let trustee = pool.trustees()[1];
    let numbers = trustee.entrust((0..KEYS).map(|key| (key, key * 3)).collect::<HashMap<u64, u64>>());
    let entries = || (0..KEYS).map(|key| (key.to_string(), (key * 3).to_string()));
    let texts = trustee.entrust(entries().collect::<HashMap<String, String>>());
    let locked: &'static Mutex<HashMap<String, String>> = Box::leak(Box::new(Mutex::new(entries().collect())));

    let apply = || {
        let numbers = numbers.clone();
        move |key: u64| numbers.apply(move |map| map[&key])
    };
    let in_process = || {
        let numbers = numbers.clone();
        move |key: u64| numbers.call().in_process().apply(move |map| map[&key]).wait().expect("the pool lives")
    };
    let call = || {
        let numbers = numbers.clone();
        move |key: u64| numbers.call().apply(move |map| map[&key]).wait().expect("the pool lives")
    };
    let strings = || {
        let texts = texts.clone();
        move |key: u64| {
            let key = key.to_string();
            let text = texts.call().in_process().apply(move |map| map[&key].clone()).wait();
            number(&text.expect("the pool lives"))
        }
    };
    let argument = || {
        let texts = texts.clone();
        move |key: u64| number(&texts.apply_with(|map, key: String| map[&key].clone(), key.to_string()))
    };
    let mutex =
        || move |key: u64| number(&locked.lock().expect("no panic").get(&key.to_string()).expect("a key").clone());

    let contenders: [(&str, &dyn Fn() -> f64); 6] = [
        ("u64, apply", &|| rate(&pool, apply)),
        ("u64, call", &|| rate(&pool, call)),
        ("u64, in_process", &|| rate(&pool, in_process)),
        ("String, in_process", &|| rate(&pool, strings)),
        ("String, apply_with", &|| rate(&pool, argument)),
        ("String, Mutex", &|| rate(&pool, mutex)),
    ];
    let mut rates = [const { Vec::new() }; 6];
    for _ in 0..ROUNDS {
        for ((_, run), rates) in contenders.iter().zip(&mut rates) {
            rates.push(run());
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    for ((name, _), median) in contenders.iter().zip(medians) {
        println!("{name:20} {:6.2} million a second, {:5.2} of apply", median / 1e6, median / medians[0]);
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Returns the gets a second of fibers of the first worker, each answer checked.
fn rate<G: Fn(u64) -> u64 + Send + 'static>(pool: &trust::Threadpool, make_get: impl Fn() -> G) -> f64 {
    let start = Instant::now();
    let fiber = |number: usize| {
        let get = make_get();
        pool.spawn_on(0, move || {
            let (mut gets, mut key) = (0u64, number as u64);
            while start.elapsed() < ROUND {
                for _ in 0..16 {
                    key = (key * 7 + 1) % KEYS;
                    assert_eq!(black_box(get(key)), key * 3);
                }
                gets += 16;
            }
            gets
        })
    };
    let fibers: Vec<_> = (0..FIBERS).map(fiber).collect();
    let gets: u64 = fibers.into_iter().map(|fiber| fiber.join().expect("no panic")).sum();
    gets as f64 / start.elapsed().as_secs_f64()
}
