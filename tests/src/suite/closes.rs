//! `Trust::close` from each place at each place.

use std::panic::resume_unwind;

use gossamer::{Error, JoinHandle, Latch};

use super::ground::{Gate, Witness, beside, ended, none_is_lost, places, spots, until};

/// Returns whether it failed because the property was closed. It may fail by a loss alone else.
fn is_closed<T>(outcome: &Result<T, Error>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(Error::Gone { was_closed: true, .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

fn join<R>(fiber: JoinHandle<R>) -> R {
    fiber.join().unwrap_or_else(|panic| resume_unwind(panic))
}

pub fn a_property_is_closed_from_anywhere() {
    for place in spots() {
        for from in places() {
            let ends = gossamer::entrust(0u64);
            let told = ends.clone();
            let trust = gossamer::entrust_with(place, move || Witness(told));
            let other = trust.clone();
            let closed = gossamer::spawn_on(from, move || trust.close().unwrap_or_else(|error| panic!("{error}")));
            join(closed);
            until(|| ends.apply(|ends| *ends) == 1);
            assert!(is_closed(&other.call().apply(|_| ()).wait()));
            let again = gossamer::spawn_on(from, move || {
                (is_closed(&other.call().apply(|_| ()).wait()), is_closed(&other.call().close().wait()))
            });
            assert_eq!(join(again), (true, true), "{place} from {from}");
            ended(&ends, 1);
        }
    }
}

pub fn a_latch_is_closed_when_its_value_is_back() {
    for place in spots() {
        let (gate, ends) = (Gate::at(beside()), gossamer::entrust(0u64));
        let told = ends.clone();
        let latch = gossamer::entrust_with(place, move || Latch::new(Witness(told)));
        let (holder, waits) = (latch.clone(), gate.clone());
        let holds = gossamer::spawn(move || holder.call().launch(move |_| waits.pass()).wait());
        gate.gather(1);
        let (waits, closes) = (latch.clone(), latch.clone());
        let waits = gossamer::spawn(move || waits.call().launch(|_| ()).wait());
        let closes = gossamer::spawn(move || closes.close());
        until(|| is_closed(&latch.call().apply(|_| ()).wait()));
        if ends.apply(|ends| *ends) != 0 {
            none_is_lost(); // with the gate the closure that has the value ends
            panic!("a closure has the value");
        }
        gate.open();
        join(holds).unwrap_or_else(|error| panic!("{error}"));
        let waited = join(waits);
        assert!(waited == Ok(()) || is_closed(&waited), "{waited:?}");
        join(closes).unwrap_or_else(|error| panic!("{error}"));
        until(|| ends.apply(|ends| *ends) == 1);
    }
}
