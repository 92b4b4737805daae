//! A trustee that stands still: a client that fills its window waits, and no other does.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;

use trust::{Threadpool, spawn, wait_all, yield_now};

/// Calls beyond the slots of one pair.
const MANY: u64 = 20_000;

#[test]
fn a_full_window_to_one_trustee_stops_no_request_to_another() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(3).pin(false).build();
    let slow = pool.trustees()[1].entrust(0u64);
    let quick = pool.trustees()[2].entrust(0u64);
    let (go_on, stands) = mpsc::channel::<()>();
    let (stood, has_stopped) = mpsc::channel();
    let stall = pool.trustees()[1].entrust((stands, stood));
    let client = pool.spawn_on(0, move || {
        stall.apply_then(
            |(stands, stood)| {
                stood.send(()).unwrap();
                // The whole worker, and not just a fiber: nothing is served there meanwhile.
                stands.recv_timeout(limits::HANG).unwrap();
            },
            |()| (),
        );
        while has_stopped.try_recv().is_err() {
            yield_now(); // or it is not sent
        }
        let sent = Rc::new(Cell::new(0));
        let sends = Rc::clone(&sent);
        let sender = spawn(move || {
            for _ in 0..MANY {
                slow.apply_then(|n| *n += 1, |()| ());
                sends.set(sends.get() + 1);
            }
            wait_all();
            slow.apply(|n| *n)
        });
        // Both ways of asking, in the thread's order, beside the fiber that waits for room.
        let answers = Rc::new(Cell::new(0));
        for _ in 0..MANY {
            let sets = Rc::clone(&answers);
            quick.apply_then(
                |n| {
                    *n += 1;
                    *n
                },
                move |n| sets.set(n),
            );
            if answers.get().is_multiple_of(64) {
                quick.apply(|_| ());
            }
        }
        // Behind all of them; `wait_all` would wait for the stalled one too.
        quick.apply(|_| ());
        assert_eq!(answers.get(), MANY);
        let before = sent.get();
        assert!(0 < before && before < MANY, "its window is full after {before}");
        go_on.send(()).unwrap();
        assert_eq!(sender.join().unwrap(), MANY);
    });
    client.join().unwrap();
}
