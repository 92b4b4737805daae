//! A machine that is lost: the outcome of each request to it, and the properties whose trusts it may have had.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

use super::sending::with;
use super::{SENDS_MAX, play};
use crate::api::link::{call_then, lose, post};
use crate::config::REMOTE_WAITING_MAX;
use crate::request::Host;
use crate::runtime::worker;
use crate::{Error, Latch, Trust, TrusteeReference, spawn, yield_now};

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

thread_local! {
    /// Numbers of the captures that were dropped.
    static DROPPED: RefCell<Vec<u32>> = RefCell::default();
}

/// Capture of a request, which notes that it was dropped.
struct Capture(u32);

impl Drop for Capture {
    fn drop(&mut self) {
        DROPPED.with_borrow_mut(|dropped| dropped.push(self.0));
        assert_ne!(self.0, Capture::PANICS, "this one panics");
    }
}

impl Capture {
    const PANICS: u32 = 1000;
}

/// Makes requests of each kind with a capture each, in a fiber's callback, which waits for no room. Returns their
/// number.
fn ask_in_each_way(there: &Trust<u64>, first: u32) -> u32 {
    let there = there.clone();
    let asks = move || worker::with(|worker| worker.call_back(|| ask_without_waiting(&there, first)));
    spawn(asks).join().unwrap()
}

fn ask_without_waiting(there: &Trust<u64>, first: u32) -> u32 {
    let (property, id) = there.parts();
    let reference = TrusteeReference::from_id(id);
    let latched = ManuallyDrop::new(Trust::<Latch<u64>>::of(property, id));
    let captures = |number: u32| Capture(first + number);
    let (plain, large, with, launched) = (captures(0), (captures(1), [7u8; 1000]), captures(2), captures(3));
    there.call().apply(move |_| drop(plain)).then(|outcome| assert!(outcome.is_err()));
    there.call().apply(move |_| drop(large.0)).then(|outcome| assert!(outcome.is_err()));
    there.call().with(vec![1u8; 900]).apply(move |_, _| drop(with)).then(|outcome| assert!(outcome.is_err()));
    latched.call().launch(move |_| drop(launched)).then(|outcome| assert!(outcome.is_err()));
    let (launched_with, called, posted, spawned) = (captures(4), captures(5), captures(6), captures(7));
    latched.call().with(5u64).launch(move |_, _| drop(launched_with)).then(|outcome| assert!(outcome.is_err()));
    call_then(reference, move || drop(called), |outcome| assert!(outcome.is_err()));
    post(reference, move |_| drop(posted), &[1; 50]);
    call_then(reference, move || (spawned, [0u64; 200]).1.len(), |outcome| assert!(outcome.is_err()));
    8
}

#[test]
fn captures_are_dropped_once_if_their_request_was_not_sent_and_never_if_it_was() {
    play(|peer, there| {
        let sent = ask_in_each_way(there, 0);
        yield_now();
        let before: u32 = peer.borrow().sent.iter().sum();
        peer.borrow_mut().takes_nothing = true;
        let mut made = sent;
        for _ in 0..3 {
            made += ask_in_each_way(there, made);
        }
        yield_now();
        assert!(with(|_, peers| peers.trustees[0].waiting().0) > 1, "batches are full, and wait");
        assert_eq!(DROPPED.take(), [0u32; 0]);
        lose(PEER);
        let dropped = DROPPED.take();
        // The first batches may have run; all other requests have not. Counts are among the requests, too.
        let kept = made - dropped.len() as u32;
        assert!(kept > 0 && kept <= before && kept < sent, "{before} were sent: {dropped:?}");
        assert!(dropped.into_iter().eq(kept..made));
        let later = ask_in_each_way(there, made);
        yield_now();
        let mut dropped = DROPPED.take();
        dropped.sort_unstable();
        assert!(dropped.into_iter().eq(made..made + later), "those made later, too");
    });
}

#[test]
fn a_capture_that_panics_holds_up_none_behind_it() {
    play(|_, there| {
        let outcomes = Rc::new(RefCell::new(Vec::new()));
        for number in [1, Capture::PANICS, 2] {
            let (capture, outcomes) = (Capture(number), Rc::clone(&outcomes));
            there.call().apply(move |_| drop(capture)).then(move |outcome| outcomes.borrow_mut().push(outcome));
        }
        lose(PEER);
        assert_eq!(DROPPED.take(), [1, Capture::PANICS, 2]);
        assert!(outcomes.borrow().len() == 3 && outcomes.borrow().iter().all(is_gone));
    });
}

#[test]
fn trusts_in_captures_and_arguments_that_were_not_sent_are_counted_down() {
    let value = Arc::new(());
    let there_too = Arc::clone(&value);
    play(move |peer, there| {
        peer.borrow_mut().takes_nothing = true;
        let local = crate::local_trustee().entrust(Arc::clone(&there_too));
        let (captured, argument, broken) = (local.clone(), local.clone(), crate::promise::<u32>());
        let promise = broken.0;
        there.apply_then(move |_| drop((captured, promise)), |()| unreachable!("it has not run"));
        there.call().with(argument).apply(|_, argument| drop(argument)).then(|outcome| assert!(outcome.is_err()));
        yield_now();
        drop(local);
        yield_now();
        assert_eq!(Arc::strong_count(&there_too), 3, "the requests have trusts of it");
        lose(PEER);
        assert!(matches!(broken.1.try_take(), Some(Err(Error::Gone { .. }))), "it was dropped unkept");
        yield_now();
        assert_eq!(Arc::strong_count(&there_too), 2);
    });
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn captures_of_fibers_in_line_are_dropped_once() {
    play(|peer, there| {
        peer.borrow_mut().takes_nothing = true;
        let fibers = 40 * REMOTE_WAITING_MAX as u32;
        let asking: Vec<_> = (0..fibers)
            .map(|number| {
                let there = there.clone();
                spawn(move || {
                    let capture = Capture(number);
                    // Those with an argument stand in line with their bytes packed.
                    match number % 2 {
                        0 => there.call().apply(move |_| drop(capture)).wait(),
                        _ => there.call().with([1u64; 4]).apply(move |_, _| drop(capture)).wait(),
                    }
                })
            })
            .collect();
        (0..3).for_each(|_| yield_now());
        assert!(with(|_, peers| peers.trustees[0].waiting().1), "some are in line");
        lose(PEER);
        let outcomes: Vec<_> = asking.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        assert!(outcomes.iter().all(is_gone));
        let mut dropped = DROPPED.take();
        dropped.sort_unstable();
        assert!(dropped.into_iter().eq(0..fibers));
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
