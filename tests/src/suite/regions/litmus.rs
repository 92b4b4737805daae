//! The order of loads and stores is the processor's, on pages that travel meanwhile: small programs whose forbidden
//! outcomes must not be seen, and random atomics whose results add up.

use std::sync::atomic::{AtomicU64, Ordering};

use gossamer::Place;
use gossamer_region::SharedSpan;

use super::{PAGE, WORDS, machines, region};
use crate::suite::ground::{Gate, effort};

/// Words used on each page: eight. Each run of a program takes one word.
const PER_PAGE: usize = 8;

/// Returns a word for each round; few of them share a page.
fn word(words: &SharedSpan<AtomicU64>, round: usize) -> &AtomicU64 {
    &words[round / PER_PAGE * WORDS + round % PER_PAGE]
}

fn rounds() -> usize {
    effort(400) as usize
}

/// Returns two machines, or twice the only one; and two more, if there are.
fn four() -> [Place; 4] {
    let machines = machines();
    [0, 1, 2, 3].map(|index| machines[index % machines.len()])
}

/// Steps of a thread in each round. All words are 0 at first.
#[derive(Clone, Copy)]
enum Does {
    StoreXLoadY,
    StoreYLoadX,
    StoreXStoreY,
    LoadYLoadX,
    LoadXLoadY,
    StoreX,
    StoreY,
}

/// Runs the steps; returns the values of the two loads, 0 for a load that it has not.
fn act(does: Does, x: &AtomicU64, y: &AtomicU64, order: [Ordering; 2]) -> [u64; 2] {
    let [store, load] = order;
    let put = |word: &AtomicU64| word.store(1, store);
    let get = |word: &AtomicU64| word.load(load);
    match does {
        Does::StoreXLoadY => [(put(x), get(y)).1, 0],
        Does::StoreYLoadX => [(put(y), get(x)).1, 0],
        Does::StoreXStoreY => [(put(x), put(y), 0).2, 0],
        Does::LoadYLoadX => [get(y), get(x)],
        Does::LoadXLoadY => [get(x), get(y)],
        Does::StoreX => [(put(x), 0).1, 0],
        Does::StoreY => [(put(y), 0).1, 0],
    }
}

/// Runs a program of some threads, each on its machine, and returns each thread's loads in each round.
fn run<const THREADS: usize>(program: [Does; THREADS], order: [Ordering; 2]) -> Option<Vec<[[u64; 2]; THREADS]>> {
    let pages = rounds().div_ceil(PER_PAGE);
    let region = region((2 + 2 * THREADS) * pages * PAGE)?;
    let span = || region.span::<AtomicU64>(pages * WORDS).share();
    let (x, y, gate) = (span(), span(), Gate::at(gossamer::here()));
    let seen: Vec<_> = (0..THREADS).map(|_| [span(), span()]).collect();
    let is_sequential = matches!(order[0], Ordering::SeqCst);
    let fibers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (x, y, [first, second], gate) = (x.clone(), y.clone(), seen[thread].clone(), gate.clone());
            let does = program[thread];
            gossamer::spawn_on(four()[thread], move || {
                gate.pass();
                let order = if is_sequential { [Ordering::SeqCst; 2] } else { [Ordering::Release, Ordering::Acquire] };
                for round in 0..rounds() {
                    let [one, two] = act(does, word(&x, round), word(&y, round), order);
                    word(&first, round).store(one, Ordering::Relaxed);
                    word(&second, round).store(two, Ordering::Relaxed);
                }
            })
        })
        .collect();
    gate.gather(THREADS);
    gate.open();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let read = |thread: usize, round| seen[thread].each_ref().map(|span| word(span, round).load(Ordering::Relaxed));
    Some((0..rounds()).map(|round| std::array::from_fn(|thread| read(thread, round))).collect())
}

const SEQUENTIAL: [Ordering; 2] = [Ordering::SeqCst; 2];
const ACQUIRE_RELEASE: [Ordering; 2] = [Ordering::Release, Ordering::Acquire];

/// Store buffering: of two that store and then read the other's, one sees the other.
pub fn region_litmus_store_buffering() {
    let Some(rounds) = run([Does::StoreXLoadY, Does::StoreYLoadX], SEQUENTIAL) else { return };
    for (round, [[y, _], [x, _]]) in rounds.into_iter().enumerate() {
        assert!(x == 1 || y == 1, "round {round}: neither has seen the other's store");
    }
}

/// Message passing: a reader that sees the flag sees the earlier store.
pub fn region_litmus_message_passing() {
    let Some(rounds) = run([Does::StoreXStoreY, Does::LoadYLoadX], ACQUIRE_RELEASE) else { return };
    for (round, [_, [y, x]]) in rounds.into_iter().enumerate() {
        assert!(y == 0 || x == 1, "round {round}: the flag was seen, and what it tells of was not");
    }
}

/// Independent reads of independent writes: two readers agree on which store came first.
pub fn region_litmus_independent_reads() {
    let Some(rounds) = run([Does::StoreX, Does::StoreY, Does::LoadXLoadY, Does::LoadYLoadX], SEQUENTIAL) else {
        return;
    };
    for (round, [_, _, [x_first, then_y], [y_first, then_x]]) in rounds.into_iter().enumerate() {
        let disagree = [x_first, then_y, y_first, then_x] == [1, 0, 1, 0];
        assert!(!disagree, "round {round}: each reader has seen another store first");
    }
}

/// Random atomics on few pages: each machine knows its own additions, and all of them are there at the end. Values that
/// are swapped out are neither lost nor doubled.
pub fn region_random_atomics_add_up() {
    const PAGES: usize = 5;
    let Some(region) = region(2 * PAGES * PAGE) else { return };
    let sums = region.span::<AtomicU64>(PAGES * WORDS).share();
    let tokens = region.span::<AtomicU64>(PAGES * WORDS).share();
    tokens.iter().zip(1..).for_each(|(word, token)| word.store(token, Ordering::Relaxed));
    let fibers: Vec<_> = (0u64..)
        .zip(gossamer::rack().places())
        .map(|(seed, place)| {
            let (sums, tokens) = (sums.clone(), tokens.clone());
            gossamer::spawn_on(place, move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let (mut added, mut held) = (0, 0);
                for round in 0..effort(2_000) {
                    let index = rng.usize(..PAGES) * WORDS + rng.usize(..4);
                    let amount = rng.u64(1..100);
                    match round % 3 {
                        0 => {
                            sums[index].fetch_add(amount, Ordering::SeqCst);
                        }
                        1 => {
                            let mut old = sums[index].load(Ordering::SeqCst);
                            while let Err(now) =
                                sums[index].compare_exchange(old, old + amount, Ordering::SeqCst, Ordering::SeqCst)
                            {
                                old = now;
                            }
                        }
                        _ => held = tokens[index].swap(held, Ordering::SeqCst),
                    }
                    added += if round % 3 == 2 { 0 } else { amount };
                    if round % 50 == 0 {
                        gossamer::yield_now();
                    }
                }
                (added, held)
            })
        })
        .collect();
    let ended: Vec<(u64, u64)> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    let sum: u64 = sums.iter().map(|word| word.load(Ordering::SeqCst)).sum();
    assert_eq!(sum, ended.iter().map(|(added, _)| added).sum::<u64>());
    let mut all: Vec<u64> = tokens.iter().map(|word| word.load(Ordering::SeqCst)).collect();
    all.extend(ended.iter().map(|(_, held)| *held));
    all.retain(|token| *token != 0);
    all.sort_unstable();
    assert_eq!(all, (1..=(PAGES * WORDS) as u64).collect::<Vec<_>>(), "each token is somewhere, once");
}
