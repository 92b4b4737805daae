//! A machine that is lost: the outcome of each request to it, and the properties whose trusts it may have had.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::{SENDS_MAX, play};
use crate::api::link::{call_then, lose};
use crate::config::REMOTE_WAITING_MAX;
use crate::{Error, Trust, TrusteeReference, spawn, yield_now};

/// The machine that `play` has.
const PEER: u16 = 7;

/// Makes a request without waiting, and notes its outcome.
fn ask(there: &Trust<u64>, outcomes: &Rc<RefCell<Vec<Result<u64, Error>>>>) {
    let outcomes = Rc::clone(outcomes);
    there.call().apply(|v| *v).then(move |outcome| outcomes.borrow_mut().push(outcome));
}

fn is_lost<R>(outcome: &Result<R, Error>) -> bool {
    matches!(outcome, Err(Error::Lost { machine: PEER }))
}

fn is_gone<R>(outcome: &Result<R, Error>) -> bool {
    matches!(outcome, Err(Error::Gone { .. }))
}

#[test]
fn requests_that_were_sent_may_have_run_and_all_others_have_not() {
    play(|peer, there| {
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        ask(there, &outcomes);
        yield_now();
        assert_eq!(peer.borrow().sent, [1]);
        ask(there, &outcomes); // in the open batch
        lose(PEER);
        assert!(matches!(&outcomes.borrow()[..], [sent, open] if is_lost(sent) && is_gone(open)));
        ask(there, &outcomes);
        let waited = there.call().apply(|v| *v).wait();
        yield_now();
        assert!(is_gone(&waited) && is_gone(&outcomes.borrow()[2]) && outcomes.borrow().len() == 3);
        lose(PEER); // no second time
        let text = outcomes.borrow()[0].as_ref().unwrap_err().to_string();
        assert_eq!(text, "machine 7 was lost before the answer to a request came, so its closure may have run");
    });
}

#[test]
fn fibers_that_wait_for_answers_and_those_in_line_go_on() {
    play(|peer, there| {
        peer.borrow_mut().takes_nothing = true;
        let fibers: Vec<_> = (0..40 * REMOTE_WAITING_MAX)
            .map(|_| {
                let there = there.clone();
                spawn(move || there.call().apply(|v| *v).wait())
            })
            .collect();
        (0..3).for_each(|_| yield_now());
        peer.borrow_mut().takes_nothing = false;
        yield_now();
        let sent: u32 = peer.borrow().sent.iter().sum();
        assert!(peer.borrow().sent.len() <= SENDS_MAX && sent > 0);
        assert!((sent as usize) < fibers.len(), "some are in line");
        lose(PEER);
        let outcomes: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        let lost = outcomes.iter().filter(|outcome| is_lost(outcome)).count();
        let gone = outcomes.iter().filter(|outcome| is_gone(outcome)).count();
        assert!(gone > 0 && lost + gone == outcomes.len(), "each has an outcome");
        // The clones of the trust are requests too.
        assert!(lost <= sent as usize, "{lost} of {sent}");
    });
}

#[test]
fn results_of_closures_that_run_there_are_lost() {
    play(|peer, there| {
        let (_, id) = there.parts();
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..2 {
            let outcomes = Rc::clone(&outcomes);
            call_then(TrusteeReference::from_id(id), || 4u64, move |outcome| outcomes.borrow_mut().push(outcome));
        }
        // Both are sent; the first has begun, and its result is to come.
        assert_eq!(peer.borrow().sent, [1, 1]);
        assert!(peer.borrow_mut().answer());
        yield_now();
        assert!(outcomes.borrow().is_empty());
        lose(PEER);
        assert!(matches!(&outcomes.borrow()[..], [one, other] if is_lost(one) && is_lost(other)));
        let outcomes_of_later = Rc::clone(&outcomes);
        call_then(TrusteeReference::from_id(id), || 4u64, move |outcome| outcomes_of_later.borrow_mut().push(outcome));
        yield_now();
        assert!(is_gone(&outcomes.borrow()[2]));
    });
}

#[test]
fn properties_are_closed_if_a_lost_machine_may_have_had_trusts_of_them() {
    let value = Arc::new(());
    let there = Arc::clone(&value);
    play(move |peer, _| {
        let entrust = || crate::local_trustee().entrust(Arc::clone(&there));
        let values = || Arc::strong_count(&there) - 2;
        let (held, counted) = (entrust(), entrust());
        // The peer has handed on a clone, and its +1 does not come.
        let (property, trustee) = counted.parts();
        let uncounted = Trust::<Arc<()>>::of(property, trustee);
        drop(entrust());
        yield_now();
        assert_eq!(peer.borrow().sent, [1], "the machine is asked for its numbers");
        lose(PEER);
        assert_eq!(crate::stats(crate::local_trustee()).unwrap().old_properties, 3);
        yield_now();
        assert_eq!(values(), 2, "nobody is asked any more");
        counted.apply(|_| ());
        drop((held, counted));
        yield_now();
        assert_eq!(values(), 0);
        let stats = crate::stats(crate::local_trustee()).unwrap();
        assert_eq!((stats.old_properties, stats.properties_closed), (0, 3));
        // No trust of a later one was ever there.
        let later = entrust();
        assert_ne!(later.parts().0, property, "the header stays");
        for _ in 0..2 {
            let again = uncounted.clone();
            let outcome = again.call().apply(|_| ()).wait();
            assert!(matches!(outcome, Err(Error::Gone { was_closed: true, .. })), "{outcome:?}");
        }
        drop(uncounted);
        drop(later);
        yield_now();
        assert_eq!(values(), 0, "it is reclaimed");
    });
    assert_eq!(Arc::strong_count(&value), 1, "each is dropped once");
}

#[test]
fn requests_to_a_lost_machine_hold_up_no_other_fiber() {
    play(|_, there| {
        lose(PEER);
        let over = Rc::new(Cell::new(false));
        let (there, is_over) = (there.clone(), Rc::clone(&over));
        let endless = spawn(move || {
            for request in 0u64.. {
                if is_over.get() {
                    return request;
                }
                assert!(request < 1_000_000, "nobody else has a turn");
                there.apply_then(|v| *v += 1, |()| unreachable!("it is lost"));
            }
            0
        });
        spawn(move || over.set(true)).join().unwrap();
        assert!(endless.join().is_ok());
    });
}

#[test]
fn a_loss_in_the_middle_of_a_closure_is_refused() {
    let local = crate::local_trustee().entrust(0u64);
    let refused = local.call().apply(|_| lose(PEER)).wait();
    assert!(matches!(refused, Err(Error::Panicked { panic, .. }) if panic.contains("lose")));
}
