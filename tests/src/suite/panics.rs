//! Panics, and the poison they leave.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gossamer::{Error, Latch};

use super::ground::{JoinOutcome, panic_of, panics_with, spots, text, until};

pub fn a_panic_reaches_the_caller() {
    for place in spots() {
        let number = gossamer::entrust_on(place, 1u64);
        match number.call().apply(|_| -> u64 { panic!("the {}th wheel", 5) }).wait() {
            Err(Error::Panicked { panic, property }) => assert_eq!((&*panic, property), ("the 5th wheel", "u64")),
            other => panic!("{other:?}"),
        }
        number.clear_poison();
        assert_eq!(number.apply(|n| *n), 1); // cleared for other workers, too, which may be faster than this one
        let caller = number.clone();
        let fiber = gossamer::spawn(move || caller.apply(|_| -> u64 { panic!("over there") }));
        assert_eq!(text(&*fiber.join().unwrap_err()), "over there");
        number.clear_poison();
        let caller = number.clone();
        let with =
            move || caller.apply_with(|_, why: String| -> u64 { panic!("because {why}") }, "I say so".to_owned());
        assert_eq!(panic_of(with), "because I say so");
    }
}

pub fn poison_tells_the_first_panic_until_cleared() {
    for place in spots() {
        let (number, beside) = (gossamer::entrust_on(place, 1u64), gossamer::entrust_on(place, 2u64));
        assert!(
            number
                .call()
                .apply(|n| {
                    *n = 7;
                    if *n == 7 {
                        panic!("half way")
                    }
                })
                .wait()
                .is_err()
        );
        for _ in 0..2 {
            match number.call().apply(|n| *n).wait() {
                Err(error @ Error::Poisoned { .. }) => {
                    let said = error.to_string();
                    assert!(said.contains("(half way)") && said.contains("clear_poison"), "{said}");
                    assert!(!said.contains("call()"), "it was made with `call()`: {said}");
                }
                other => panic!("{other:?}"),
            }
        }
        let caller = number.clone();
        let told = panic_of(move || caller.apply(|n| *n));
        for words in ["is poisoned", "half way", "clear_poison", "with `call()`"] {
            assert!(told.contains(words), "{told}");
        }
        assert_eq!(beside.apply(|n| *n), 2, "only the one property");
        // From a clone, somewhere else.
        let other = number.clone();
        gossamer::spawn_on(spots()[2], move || {
            other.clear_poison();
            assert_eq!(other.apply(|n| *n), 7);
        })
        .join()
        .or_its_panic();
        assert_eq!(number.call().apply(|n| *n).wait(), Ok(7));
    }
}

pub fn a_panic_in_a_batch_concerns_nobody_else() {
    for place in spots() {
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        for round in 0..200u64 {
            let outcomes = Rc::clone(&outcomes);
            let each = gossamer::entrust_on(place, round);
            each.call()
                .apply(move |value| {
                    assert!(round % 3 != 0, "round {round}");
                    *value
                })
                .then(move |outcome| outcomes.borrow_mut().push((round, outcome)));
        }
        until(|| outcomes.borrow().len() == 200);
        for (round, outcome) in &*outcomes.borrow() {
            match outcome {
                Ok(value) => assert!(round % 3 != 0 && value == round),
                Err(error) => assert!(round % 3 == 0 && error.to_string().contains(&format!("round {round}"))),
            }
        }
    }
}

pub fn a_panic_for_which_nobody_waits_harms_nobody() {
    for place in spots() {
        let (number, beside) = (gossamer::entrust_on(place, 1u64), gossamer::entrust_on(place, 2u64));
        let called = Rc::new(Cell::new(false));
        let call = Rc::clone(&called);
        number.apply_then(|_| -> u64 { panic!("nobody listens") }, move |_| call.set(true));
        beside.apply_then(|n| *n += 1, |()| {});
        assert_eq!(beside.apply(|n| *n), 3);
        let outcome = number.call().apply(|n| *n).wait();
        assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
        assert!(!called.get() && Rc::strong_count(&called) == 1, "the callback did not run, and is gone");
    }
}

pub fn callbacks_may_panic() {
    for place in spots() {
        let number = gossamer::entrust_on(place, 1u64);
        let seen = Rc::new(Cell::new(0));
        for round in 0..20 {
            let seen = Rc::clone(&seen);
            number.apply_then(
                |n| *n,
                move |n| {
                    assert!(round % 4 != 3, "a callback of round {round}");
                    seen.set(seen.get() + n);
                },
            );
        }
        assert_eq!(number.apply(|n| *n), 1, "the property has nothing to do with it");
        assert_eq!(seen.get(), 15);
    }
}

pub fn launched_closures_may_panic() {
    for place in spots() {
        let latch = gossamer::entrust_with(place, || Latch::new(3u64));
        let launched = latch.clone();
        let panic = panic_of(move || {
            launched.launch(|value| -> u64 {
                gossamer::yield_now();
                panic!("with {value} in hand")
            })
        });
        assert_eq!(panic, "with 3 in hand");
        let outcome = latch.call().apply(|_| ()).wait();
        assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
        let launched = latch.clone();
        panics_with("with 3 in hand", move || launched.launch(|value| *value));
        latch.clear_poison();
        assert_eq!(latch.launch(|value| *value), 3);
    }
}
