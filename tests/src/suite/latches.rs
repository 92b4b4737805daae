//! `launch`: closures that wait at their trustee.

use std::cell::RefCell;
use std::rc::Rc;

use gossamer::{Latch, Trust};

use super::ground::{Gate, JoinOutcome, beside, places, remote, spots, until};

pub fn launched_closures_wait_at_their_trustee() {
    for place in spots() {
        let gate = Gate::at(beside());
        let account = gossamer::entrust_with(place, || Latch::new(100u64));
        let (other, waits) = (account.clone(), gate.clone());
        let fiber = gossamer::spawn(move || {
            other.launch(move |balance| {
                *balance -= 30;
                waits.pass();
                *balance -= 3;
                (*balance, gossamer::here())
            })
        });
        gate.gather(1);
        // Its trustee continues meanwhile, also with the very property; the value is out.
        let beside = gossamer::entrust_on(place, 7u64);
        assert_eq!(beside.apply(|n| *n), 7);
        assert!(account.apply(|latch| latch.try_lock().is_none()));
        gate.open();
        assert_eq!(fiber.join().or_its_panic(), (67, place));
        assert_eq!(account.apply(|latch| *latch.try_lock().expect("it is back")), 67);
    }
}

pub fn launched_closures_take_turns() {
    const FIBERS: u64 = 30;
    for place in spots() {
        let (latch, steps) =
            (gossamer::entrust_with(place, || Latch::new((0u64, 0u64))), gossamer::entrust_on(remote(), 0u64));
        let fibers: Vec<_> = places()
            .into_iter()
            .cycle()
            .take(FIBERS as usize)
            .map(|from| {
                let (latch, steps) = (latch.clone(), steps.clone());
                gossamer::spawn_on(from, move || {
                    latch.launch(move |(ins, outs)| {
                        assert_eq!(ins, outs, "somebody else has it");
                        *ins += 1;
                        steps.apply(|steps| *steps += 1); // waits with the value taken out
                        gossamer::yield_now();
                        *outs += 1;
                    })
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
        assert_eq!(latch.launch(|both| *both), (FIBERS, FIBERS));
        assert_eq!(steps.apply(|steps| *steps), FIBERS);
    }
    // Of one client: in the order in which they were launched.
    let log = gossamer::entrust_with(remote(), || Latch::new(Vec::<u64>::new()));
    for number in 0..50 {
        log.launch_then(
            move |log| {
                (0..number % 3).for_each(|_| gossamer::yield_now());
                log.push(number);
            },
            |()| {},
        );
    }
    assert!(log.launch(|log| log.iter().copied().eq(0..50)));
}

pub fn launches_go_there_and_back() {
    fn down(latches: [Trust<Latch<u64>>; 3], depth: usize) -> u64 {
        let latch = latches[depth % 3].clone();
        latch.launch(move |value| {
            let value = *value;
            if depth == 0 { value } else { value + down(fresh(), depth - 1) }
        })
    }
    fn fresh() -> [Trust<Latch<u64>>; 3] {
        spots().map(|place| gossamer::entrust_with(place, || Latch::new(1u64)))
    }
    assert_eq!(down(fresh(), 8), 9);
}

pub fn launches_carry_what_holds_pointers() {
    for place in spots() {
        let words = gossamer::entrust_with(place, || Latch::new(vec!["so".to_owned()]));
        let add = |words: &mut Vec<String>, more: Vec<String>| {
            gossamer::yield_now();
            words.extend(more);
            words.join(" ")
        };
        assert_eq!(
            words.call().with(vec!["it".to_owned(), "goes".to_owned()]).launch(add).wait().unwrap(),
            "so it goes"
        );
        let long = words.call().with(100_000).launch(|_, len: usize| "x".repeat(len)).wait().unwrap();
        assert!(long.len() == 100_000 && long.bytes().all(|byte| byte == b'x'));
    }
}

pub fn launches_call_back() {
    for place in spots() {
        let number = gossamer::entrust_with(place, || Latch::new(0u64));
        let seen = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..40 {
            let seen = Rc::clone(&seen);
            let next = |n: &mut u64| {
                gossamer::yield_now();
                *n += 1;
                *n
            };
            number.launch_then(next, move |n| seen.borrow_mut().push(n));
        }
        until(|| seen.borrow().len() == 40);
        assert!(seen.borrow().iter().copied().eq(1..=40));
    }
}

/// The trustee needs the latch for the requests that fill its way, and the way for what gives the latch back.
pub fn a_full_way_holds_up_no_latch() {
    /// Together several times what a pair of workers may have under way.
    const LAUNCHES: u64 = 40;
    const BYTES: usize = 16 << 10;
    for place in spots() {
        let gate = Gate::at(beside());
        let sum = gossamer::entrust_with(place, || Latch::new(0usize));
        let (holder, waits) = (sum.clone(), gate.clone());
        let fiber = gossamer::spawn(move || {
            holder.launch(move |sum| {
                waits.pass();
                *sum += 1;
            });
        });
        gate.gather(1);
        let answered = Rc::new(RefCell::new(0));
        for _ in 0..LAUNCHES {
            let answered = Rc::clone(&answered);
            let add = |sum: &mut usize, text: String| *sum += text.len();
            let count = move |outcome: Result<(), _>| {
                outcome.unwrap();
                *answered.borrow_mut() += 1;
            };
            sum.call().with("x".repeat(BYTES)).launch(add).then(count);
        }
        gate.open();
        fiber.join().or_its_panic();
        until(|| *answered.borrow() == LAUNCHES);
        assert_eq!(sum.launch(|sum| *sum), 1 + LAUNCHES as usize * BYTES);
    }
}

pub fn held_values_are_released() {
    for place in spots() {
        let gate = Gate::at(remote());
        let log = gossamer::entrust_with(place, || Latch::new(vec![1u64]));
        let (first, waits) = (log.clone(), gate.clone());
        let fiber = gossamer::spawn_on(remote(), move || {
            first
                .call()
                .launch_held(move |log| {
                    log.released(|| waits.pass());
                    log.push(3);
                    log.iter().fold(0, |sum, n| sum * 10 + n)
                })
                .wait()
                .unwrap()
        });
        gate.gather(1);
        log.launch(|log| log.push(2));
        gate.open();
        assert_eq!(fiber.join().or_its_panic(), 123);
    }
}
