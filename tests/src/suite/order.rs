//! `apply_then`: order, callbacks, batches, memory and fairness.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gossamer::Trust;

use super::ground::{JoinOutcome, effort, remote, spots, until};

pub fn apply_then_keeps_order() {
    const ROUNDS: u64 = 3000; // more than a batch holds
    for place in spots() {
        let log = gossamer::entrust_on(place, Vec::<u64>::new());
        for round in 0..ROUNDS {
            log.apply_then(move |log| log.push(round), |()| {});
        }
        assert!(log.apply(|log| log.iter().copied().eq(0..ROUNDS)));
    }
}

pub fn apply_comes_after_all_before_it() {
    for place in spots() {
        let number = gossamer::entrust_on(place, 0u64);
        for round in 1..200 {
            number.apply_then(|n| *n += 1, |()| {});
            if round % 7 == 0 {
                assert_eq!(number.apply(|n| *n), round);
            }
        }
    }
}

pub fn callbacks_keep_order_and_stay_on_their_thread() {
    const ROUNDS: u64 = 2000;
    for place in spots() {
        let (number, thread) = (gossamer::entrust_on(place, 0u64), std::thread::current().id());
        let seen = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..ROUNDS {
            let seen = Rc::clone(&seen);
            let next = |n: &mut u64| {
                *n += 1;
                *n
            };
            number.apply_then(next, move |n| {
                assert_eq!(std::thread::current().id(), thread);
                seen.borrow_mut().push(n);
            });
        }
        number.apply(|_| {});
        assert!(seen.borrow().iter().copied().eq(1..=ROUNDS), "{place}");
        assert_eq!(Rc::strong_count(&seen), 1, "every callback has run and is gone");
    }
}

/// Requests to all places, of several fibers, with results of all sizes.
pub fn wait_all_waits_for_every_callback() {
    let rounds = effort(300);
    let logs: Vec<_> = spots().into_iter().map(|place| gossamer::entrust_on(place, 0u64)).collect();
    let fibers: Vec<_> = (0..3)
        .map(|_| {
            let logs = logs.clone();
            gossamer::spawn(move || {
                let (seen, failed) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
                for _ in 0..3 {
                    for round in 0..rounds {
                        for log in &logs {
                            let (seen, failed) = (Rc::clone(&seen), Rc::clone(&failed));
                            let text = "x".repeat(round as usize % 100);
                            let longer = |log: &mut u64, text: String| {
                                *log += 1;
                                text + "!"
                            };
                            log.call().with(text).apply(longer).then(move |result| match result {
                                Ok(text) => seen.set(seen.get() + u64::from(text.ends_with('!'))),
                                Err(error) => *failed.borrow_mut() = Some(error),
                            });
                        }
                    }
                    gossamer::wait_all();
                }
                assert_eq!(*failed.borrow(), None);
                seen.get()
            })
        })
        .collect();
    let expected = 3 * rounds * logs.len() as u64;
    fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().or_its_panic(), expected));
    assert!(logs.iter().all(|log| log.apply(|log| *log) == 9 * rounds));
}

/// Each callback sends the next request, to another place.
pub fn callbacks_delegate_on() {
    fn relay(numbers: Rc<Vec<Trust<u64>>>, left: u64, done: Rc<Cell<bool>>) {
        if left == 0 {
            return done.set(true);
        }
        let next = numbers[left as usize % numbers.len()].clone();
        next.apply_then(|n| *n += 1, move |()| relay(numbers, left - 1, done));
    }
    let numbers: Vec<_> = spots().into_iter().map(|place| gossamer::entrust_on(place, 0u64)).collect();
    let (numbers, done) = (Rc::new(numbers), Rc::new(Cell::new(false)));
    relay(Rc::clone(&numbers), 300, Rc::clone(&done));
    until(|| done.get());
    assert_eq!(numbers.iter().map(|number| number.apply(|n| *n)).sum::<u64>(), 300);
}

pub fn requests_of_every_size_keep_their_order() {
    fn push<const N: usize>(log: &Trust<Vec<usize>>) {
        let bytes = [N as u8; N];
        let push = move |log: &mut Vec<usize>| {
            assert!(bytes.iter().all(|byte| *byte == N as u8));
            log.push(N);
            bytes
        };
        log.apply_then(push, |back| assert!(back.iter().all(|byte| *byte == N as u8)));
    }
    for place in spots() {
        let log = gossamer::entrust_on(place, Vec::new());
        for _ in 0..20 {
            push::<0>(&log);
            push::<5000>(&log);
            push::<8>(&log);
            push::<300>(&log);
            let text = "x".repeat(20_000);
            log.call().with(text).apply(|log, text: String| log.push(text.len())).then(|result| {
                result.unwrap();
            });
            push::<16>(&log);
        }
        let expected = [0, 5000, 8, 300, 20_000, 16].repeat(20);
        assert_eq!(log.apply_with(|log, ()| log.clone(), ()), expected, "{place}");
    }
}

pub fn more_kinds_of_closures_than_a_batch_knows() {
    for place in spots() {
        let sum = gossamer::entrust_on(place, 0u64);
        for _ in 0..50 {
            sum.apply_then(|s| *s += 1, |()| {});
            sum.apply_then(|s| *s += 20, |()| {});
            sum.apply_then(|s| *s += 300, |()| {});
            sum.apply_then(|s| *s += 4000, |()| {});
            sum.apply_then(|s| *s += 50_000, |()| {});
            sum.apply_then(|s| *s += 600_000, |()| {});
            sum.apply_then(|s| *s += 7_000_000, |()| {});
            sum.apply_then(|s| *s += 80_000_000, |()| {});
            sum.apply_then(|s| *s += 900_000_000, |()| {});
        }
        assert_eq!(sum.apply(|s| *s), 987_654_321 * 50);
    }
}

/// Returns the resident bytes of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("statm(5)") * 4096
}

/// Requests are made faster than they are served, and many more than could all be kept.
pub fn back_pressure_bounds_memory() {
    let requests = effort(16_000);
    const BYTES: usize = 4000;
    let there = gossamer::entrust_on(remote(), 0u64);
    let before = resident_bytes();
    let mut most = 0;
    for request in 0..requests {
        let bytes = [request as u8; BYTES];
        there.apply_then(move |sum| *sum += u64::from(bytes[BYTES / 2]), |()| {});
        if request % 100 == 0 {
            most = most.max(resident_bytes().saturating_sub(before));
        }
    }
    let expected: u64 = (0..requests).map(|request| u64::from(request as u8)).sum();
    assert_eq!(there.apply(|sum| *sum), expected);
    let all = requests * BYTES as u64;
    assert!(most < all / 2, "{most} bytes in memory for requests of {all} bytes");
}

/// While one fiber sends without a pause, others of its worker get through.
pub fn a_flood_starves_nobody() {
    for place in spots() {
        let number = gossamer::entrust_on(place, 0u64);
        let stop = Rc::new(Cell::new(false));
        let (flooded, stopped) = (number.clone(), Rc::clone(&stop));
        let is_here = place == gossamer::here();
        let flood = trust::spawn(move || {
            while !stopped.get() {
                flooded.apply_then(|n| *n += 1, |()| {});
                if is_here {
                    gossamer::yield_now(); // served at once, so that it never waits
                }
            }
        });
        let others: Vec<_> = (0..4)
            .map(|_| {
                let number = number.clone();
                trust::spawn(move || (0..50).for_each(|_| number.apply(|n| *n += 1)))
            })
            .collect();
        others.into_iter().for_each(|other| other.join().or_its_panic());
        stop.set(true);
        flood.join().or_its_panic();
    }
}

/// While callbacks keep making requests, fibers that wait for room get it.
pub fn callbacks_that_go_on_for_ever_starve_nobody() {
    fn again(number: Trust<u64>, stop: Rc<Cell<bool>>, running: Rc<Cell<u32>>) {
        if stop.get() {
            return running.set(running.get() - 1);
        }
        let next = number.clone();
        number.apply_then(|n| *n += 1, move |()| again(next, stop, running));
    }
    let number = gossamer::entrust_on(remote(), 0u64);
    let (stop, running) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    for _ in 0..200 {
        running.set(running.get() + 1);
        again(number.clone(), Rc::clone(&stop), Rc::clone(&running));
    }
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            let number = number.clone();
            trust::spawn(move || {
                for _ in 0..20 {
                    number.apply_then(|n| *n += 1, |()| {});
                    number.apply(|n| *n += 1);
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
    stop.set(true);
    until(|| running.get() == 0);
}
