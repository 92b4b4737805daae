//! Loom models of `Answer`: a task that polls with changing wakers, and another thread that sets the outcome. How to
//! run them: `slot/model.rs`.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use loom::thread;

use super::Answer;
use crate::slot::model::explore;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls `times` times, and once more after the other thread is done: the outcome comes once, and a task that was
/// told to wait has been woken through its last waker.
fn polled(times: usize) {
    explore(move || {
        let answer = Arc::new(Answer::new());
        let gives = Arc::clone(&answer);
        // SAFETY: once.
        let giver = thread::spawn(move || unsafe { gives.set(Box::new(7)) }.map(Waker::wake));
        let counts: Vec<_> = (0..times).map(|_| Arc::new(Count::default())).collect();
        let mut got = None;
        let mut waits = None;
        for (poll, count) in counts.iter().enumerate() {
            // SAFETY: this thread alone.
            match unsafe { answer.poll(&Waker::from(Arc::clone(count))) } {
                Poll::Ready(value) => {
                    got = value;
                    break;
                }
                Poll::Pending => waits = Some(poll),
            }
        }
        giver.join().unwrap();
        let woken: Vec<_> = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect();
        assert!(woken.iter().sum::<usize>() <= 1);
        if got.is_none() {
            assert_eq!(waits.map(|poll| woken[poll]), Some(1), "it waits, and nobody wakes it");
            // SAFETY: as above.
            let Poll::Ready(value) = (unsafe { answer.poll(Waker::noop()) }) else { panic!("it is given") };
            got = value;
        }
        assert_eq!(got.as_deref(), Some(&7));
        // SAFETY: as above.
        assert!(matches!(unsafe { answer.poll(Waker::noop()) }, Poll::Ready(None)), "it is taken");
    });
}

#[test]
fn loom_an_answer_wakes_the_task_that_waits() {
    polled(1);
}

#[test]
fn loom_an_answer_wakes_the_last_waker() {
    polled(2);
}

/// An outcome that is never taken is dropped once; loom reports a leak.
#[test]
fn loom_an_answer_that_nobody_takes_is_dropped() {
    explore(|| {
        let answer = Arc::new(Answer::new());
        let gives = Arc::clone(&answer);
        // SAFETY: once.
        let giver = thread::spawn(move || drop(unsafe { gives.set(loom::sync::Arc::new(7)) }));
        // SAFETY: this thread alone.
        let _ = unsafe { answer.poll(Waker::noop()) }.is_ready();
        drop(answer);
        giver.join().unwrap();
    });
}
