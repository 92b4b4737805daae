//! Pages: a write anywhere is seen everywhere, and nothing is lost on the way.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use gossamer_region::link::{FaultsOfThread, take_faults};
use gossamer_region::{Homes, Region};

use super::{PAGE, WORDS, at, machines, region};
use crate::suite::ground::{Gate, effort, is_rack, places, remote};

pub fn region_pages_go_where_they_are_touched() {
    let Some(region) = region(64 * PAGE) else { return };
    let mut numbers = region.span::<u64>(60 * WORDS);
    for round in 0..3u64 {
        for place in places() {
            numbers = at(place, move || {
                let expected = if round == 0 && numbers[0] == 0 { 0 } else { numbers[0] };
                assert!(
                    numbers.iter().all(|number| *number == expected),
                    "all pages have the bytes of the last writer"
                );
                numbers.iter_mut().for_each(|number| *number += 1);
                numbers
            });
        }
    }
    let writers = places().len() as u64;
    assert!(numbers.iter().all(|number| *number == 3 * writers));
    let numbers = numbers.share();
    let sums: Vec<_> = places()
        .into_iter()
        .map(|place| {
            let numbers = numbers.clone();
            gossamer::spawn_on(place, move || numbers.iter().sum::<u64>())
        })
        .collect();
    for sum in sums {
        assert_eq!(sum.join().unwrap(), 60 * WORDS as u64 * 3 * writers);
    }
}

/// Pages that nobody has touched send no bytes.
pub fn region_untouched_pages_are_zeros() {
    let Some(region) = region(1 << 20) else { return };
    let before = region.stats();
    let bytes = region.span::<u8>(1 << 20);
    let bytes = at(remote(), move || {
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes
    });
    let after = region.stats();
    assert_eq!(after.fetched, before.fetched, "{after}");
    if is_rack() {
        assert_eq!(after.zeros - before.zeros, (1 << 20) / PAGE as u64, "{after}");
        let runs = after.runs - before.runs;
        assert!(runs < 100, "ST1.6: 256 pages in {runs} runs");
    }
    assert_eq!(bytes.len(), 1 << 20);
}

pub fn region_homes_are_where_they_were_wanted() {
    if region(1).is_none() {
        return;
    }
    for home in machines() {
        let region = Region::with_homes(200 * PAGE, Homes::At(home.machine)).unwrap();
        let mut span = region.span::<u64>(200 * WORDS);
        for place in machines() {
            span = at(place, move || {
                span.iter_mut().for_each(|word| *word += 1);
                span
            });
        }
        assert!(span.iter().all(|word| *word == machines().len() as u64));
    }
    let nowhere = Region::with_homes(PAGE, Homes::At(999)).unwrap_err().to_string();
    assert!(nowhere.contains("999"), "{nowhere}");
}

/// A word that one thread counts up, while all others read it, goes up for every reader, and no store is lost.
pub fn region_no_store_is_lost() {
    let Some(region) = region(64 * PAGE) else { return };
    let words = region.span::<AtomicU64>(2 * WORDS).share();
    let rounds = effort(1_000);
    let fibers: Vec<_> = (0u64..)
        .zip(machines())
        .map(|(index, place)| {
            let words = words.clone();
            gossamer::spawn_on(place, move || {
                // Each machine has words of its own on pages that all write.
                let own = |page: usize| &words[page * WORDS + index as usize];
                let mut last = vec![0; words.len()];
                for round in 1..=rounds {
                    own((round % 2) as usize).store(round, Ordering::Relaxed);
                    for (word, last) in words.iter().zip(&mut last).step_by(7) {
                        let now = word.load(Ordering::Relaxed);
                        assert!(now >= *last, "a word went back from {last} to {now}");
                        *last = now;
                    }
                    if round % 64 == 0 {
                        gossamer::yield_now();
                    }
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    for index in 0..machines().len() {
        let [even, odd] = [0, 1].map(|page| words[page * WORDS + index].load(Ordering::Relaxed));
        assert_eq!(even.max(odd), rounds, "the last store of machine {index}");
        assert_eq!(even.min(odd), rounds - 1, "the last but one of machine {index}");
    }
}

/// All writers of one word make progress.
pub fn region_writers_of_one_word_all_advance() {
    let Some(region) = region(PAGE) else { return };
    let words = region.span::<AtomicU64>(WORDS).share();
    let each = effort(20_000);
    let fibers: Vec<_> = machines()
        .into_iter()
        .map(|place| {
            let words = words.clone();
            gossamer::spawn_on(place, move || {
                for _ in 0..each {
                    words[0].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(words[0].load(Ordering::Relaxed), each * machines().len() as u64);
    if is_rack() {
        let hottest = region.hottest(1);
        assert_eq!(hottest[0].0, 0, "ST1.13: the page that all write is named: {hottest:?}");
    }
}

pub fn region_system_calls_use_pages() {
    let Some(region) = region(64 * PAGE) else { return };
    let mut bytes = region.span::<u8>(20 * PAGE);
    bytes.iter_mut().zip(0u32..).for_each(|(byte, index)| *byte = (index % 251) as u8);
    let bytes = at(remote(), move || {
        let mut bytes = bytes;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        bytes.fill(0);
        file.read_exact(&mut bytes).unwrap();
        bytes
    });
    assert!(bytes.iter().zip(0u32..).all(|(byte, index)| *byte == (index % 251) as u8));
    let bytes = bytes.share();
    let file = at(remote(), {
        let bytes = bytes.clone();
        move || bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    });
    assert_eq!(file, bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
}

/// Prefetched pages are there.
pub fn region_prefetched_pages_are_there() {
    let Some(region) = region(256 * PAGE) else { return };
    let mut words = region.span::<u64>(256 * WORDS);
    words.fill(3);
    let (words, there) = (words.share(), region.clone());
    let place = remote();
    let reads = at(place, move || {
        there.prefetch(0..256 * PAGE);
        // Requests under way are answered while others run.
        for _ in 0..10_000 {
            if there.stats().fetched >= 256 || !is_rack() {
                break;
            }
            gossamer::sleep(std::time::Duration::from_millis(1));
        }
        let before = there.stats();
        assert!(words.iter().all(|word| *word == 3));
        let after = there.stats();
        after.reads - before.reads
    });
    assert!(reads <= 4, "{reads} faults on pages that were asked for");
}

/// The wait for a page is that of the thread, and the bytes are those of the machine that had it.
pub fn region_faults_are_those_of_threads() {
    let Some(region) = region(3 * PAGE) else { return };
    if !is_rack() {
        return; // nobody waits
    }
    let words = region.span::<AtomicU64>(3 * WORDS).share();
    let there = words.clone();
    at(remote(), move || (0..3).for_each(|page| there[page * WORDS].store(1, Ordering::Relaxed)));
    take_faults(); // from here on they are counted
    assert_eq!([0, 2].map(|page| words[page * WORDS].load(Ordering::Relaxed)), [1; 2]);
    let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let FaultsOfThread { waited, from, sample } = take_faults().remove(&own).expect("this thread has waited");
    assert_eq!(from, [(remote().machine, 2 * PAGE as u64)].into());
    assert!(!waited.is_zero());
    assert_eq!(sample.len(), 2, "two pages have come");
    assert!(!take_faults().contains_key(&own), "only since the last time");
}

/// Any thread may touch a region, and several at the same time.
pub fn region_threads_fault_at_the_same_time() {
    let Some(region) = region(512 * PAGE) else { return };
    let words = region.span::<AtomicU64>(512 * WORDS).share();
    let gate = Gate::at(gossamer::here());
    let fibers: Vec<_> = machines()
        .into_iter()
        .map(|place| {
            let (words, gate) = (words.clone(), gate.clone());
            gossamer::spawn_on(place, move || {
                gate.pass();
                std::thread::scope(|scope| {
                    for thread in 0..4u64 {
                        let words = &words;
                        scope.spawn(move || {
                            let mut rng = fastrand::Rng::with_seed(thread);
                            for _ in 0..effort(1_000) {
                                words[rng.usize(..words.len())].fetch_add(1, Ordering::Relaxed);
                            }
                        });
                    }
                });
            })
        })
        .collect();
    gate.gather(machines().len());
    gate.open();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let sum: u64 = words.iter().map(|word| word.load(Ordering::Relaxed)).sum();
    assert_eq!(sum, machines().len() as u64 * 4 * effort(1_000));
}
