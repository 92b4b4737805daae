//! Operations allowed inside delegated closures and callbacks.

use std::cell::RefCell;
use std::rc::Rc;

use gossamer::{Error, Trust};

use super::ground::{remote, spots, until};

#[track_caller]
fn is_refused<R: std::fmt::Debug>(outcome: Result<R, Error>, call: &str) {
    let Err(Error::Panicked { panic, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(panic.contains(&format!("`{call}` waits")) && panic.contains("a delegated closure"), "{panic}");
}

/// Also on a property of the closure's own trustee, which could be served on the spot (it may be the very one).
pub fn nothing_waits_inside_closures() {
    for place in spots() {
        for target in spots() {
            let (outer, inner) = (gossamer::entrust_on(place, 1u64), gossamer::entrust_on(target, 2u64));
            let captured = inner.clone();
            is_refused(outer.call().apply(move |_| captured.apply(|n| *n)).wait(), "apply");
            outer.clear_poison();
            let captured = inner.clone();
            is_refused(outer.call().apply(move |_| captured.apply_with(|n, ()| *n, ())).wait(), "apply_with");
            outer.clear_poison();
            let itself = outer.clone();
            is_refused(outer.call().apply(move |_| itself.apply(|n| *n)).wait(), "apply");
            outer.clear_poison();
            assert_eq!((outer.apply(|n| *n), inner.apply(|n| *n)), (1, 2));
        }
        let outer = gossamer::entrust_on(place, 1u64);
        is_refused(outer.call().apply(|_| gossamer::yield_now()).wait(), "yield_now");
        outer.clear_poison();
        is_refused(outer.call().apply(|_| gossamer::wait_all()).wait(), "wait_all");
        outer.clear_poison();
        is_refused(outer.call().apply(|_| gossamer::sleep(std::time::Duration::ZERO)).wait(), "sleep");
    }
}

pub fn nothing_waits_inside_callbacks() {
    for place in spots() {
        let number = gossamer::entrust_on(place, 1u64);
        let seen = Rc::new(RefCell::new(Vec::new()));
        for target in spots() {
            let (inner, seen) = (gossamer::entrust_on(target, 2u64), Rc::clone(&seen));
            number.apply_then(
                |_| {},
                move |()| {
                    let refused = super::ground::panic_of(|| inner.apply(|n| *n));
                    seen.borrow_mut().push(refused);
                },
            );
        }
        number.apply(|_| {});
        assert_eq!(seen.borrow().len(), 3);
        assert!(seen.borrow().iter().all(|text| text.contains("the callback of an `apply_then`")), "{seen:?}");
    }
}

pub fn closures_delegate_without_waiting() {
    const ROUNDS: u64 = 100;
    for place in spots() {
        for target in spots() {
            let (middle, log) = (gossamer::entrust_on(place, 0u64), gossamer::entrust_on(target, Vec::<u64>::new()));
            for round in 0..ROUNDS {
                let (log, back) = (log.clone(), middle.clone());
                middle.apply_then(
                    move |_| {
                        // In order, as from anywhere else; the callback runs at the trustee, and may send more.
                        log.apply_then(move |log| log.push(2 * round), |()| {});
                        log.apply_then(
                            move |log| log.push(2 * round + 1),
                            move |()| back.apply_then(|told| *told += 1, |()| {}),
                        );
                    },
                    |()| {},
                );
            }
            until(|| middle.apply(|told| *told) == ROUNDS);
            assert!(log.apply(|log| log.iter().copied().eq(0..2 * ROUNDS)), "from {place} to {target}");
        }
    }
}

pub fn closures_reach_their_own_property_afterwards() {
    for place in spots() {
        let number = gossamer::entrust_on(place, 1u64);
        let itself = number.clone();
        let seen = number.apply(move |n| {
            itself.apply_then(|n| *n *= 10, |()| {});
            let last: Trust<u64> = itself;
            last.apply_then(|n| *n += 5, |()| {});
            *n += 1;
            *n
        });
        assert_eq!(seen, 2, "not while this closure has it");
        assert_eq!(number.apply(|n| *n), 25, "but before what comes later");
    }
    assert!(gossamer::rack().has(remote()));
}
