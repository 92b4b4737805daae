//! Loom models of the inbox: the real [`Shared`], with a worker that sleeps until there are messages. How to run them:
//! `slot/model.rs`.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use loom::thread;

use super::{CallHead, Message, QueuedCall, Shared, TrusteeId, Verdict};
use crate::config::CALLS_MAX;
use crate::slot::model::explore;

fn worker() -> Arc<Shared> {
    Arc::new(Shared::new(TrusteeId::vacant()))
}

/// Reads messages, and sleeps between, until this many have come.
fn read(worker: &Shared, messages: usize) {
    let mut read = 0;
    while read < messages {
        if worker.has_messages() {
            read += worker.take_messages().1.len();
        } else {
            worker.parker.park(None, || worker.has_messages());
        }
    }
    assert!(!worker.has_messages() && read == messages);
}

#[test]
fn loom_messages_of_one_sender_wake() {
    explore(|| {
        let worker = worker();
        let to = Arc::clone(&worker);
        let sender = thread::spawn(move || (0..2).for_each(|_| assert!(to.send(Message::Nudge).is_ok())));
        read(&worker, 2);
        sender.join().unwrap();
    });
}

#[test]
fn loom_messages_of_two_senders_wake() {
    explore(|| {
        let worker = worker();
        let senders = [(); 2].map(|()| {
            let to = Arc::clone(&worker);
            thread::spawn(move || assert!(to.send(Message::Nudge).is_ok()))
        });
        read(&worker, 2);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

/// Messages sent before the inbox closed are in it; later ones are given back.
#[test]
fn loom_messages_to_one_that_closes_are_read_or_given_back() {
    explore(|| {
        let worker = worker();
        let to = Arc::clone(&worker);
        let sender = thread::spawn(move || (0..2).filter(|_| to.send(Message::Nudge).is_ok()).count());
        let read = worker.close_inbox().1.len();
        assert_eq!(sender.join().unwrap(), read);
        assert!(!worker.has_messages());
    });
}

/// A call that notes how it ends.
#[repr(C)]
struct Noted {
    head: CallHead,
    ran: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

/// Calls that were run, and those that were refused.
#[derive(Clone)]
struct Notes {
    ran: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Notes {
    fn new() -> Self {
        Notes { ran: Arc::new(AtomicUsize::new(0)), refused: Arc::new(AtomicUsize::new(0)) }
    }

    fn call(&self) -> QueuedCall {
        let (ran, refused) = (Arc::clone(&self.ran), Arc::clone(&self.refused));
        let noted = Box::new(Noted { head: CallHead::new(ptr::null_mut(), note), ran, refused });
        // SAFETY: `note` frees it.
        unsafe { QueuedCall::new(NonNull::from(Box::leak(noted)).cast()) }
    }
}

unsafe fn note(head: NonNull<CallHead>, verdict: Verdict) {
    // SAFETY: made by `Notes::call`, the head first.
    let noted = unsafe { Box::from_raw(head.cast::<Noted>().as_ptr()) };
    let count = if verdict == Verdict::Run { &noted.ran } else { &noted.refused };
    count.fetch_add(1, Ordering::Relaxed);
}

/// Calls and messages share a word; none is lost, and each wakes.
#[test]
fn loom_calls_and_messages_wake() {
    explore(|| {
        let (worker, notes) = (worker(), Notes::new());
        let (to, calls) = (Arc::clone(&worker), notes.clone());
        let caller = thread::spawn(move || (0..2).for_each(|_| assert!(to.send_call(calls.call()).is_ok())));
        let to = Arc::clone(&worker);
        let sender = thread::spawn(move || assert!(to.send(Message::Nudge).is_ok()));
        let mut read = 0;
        while read < 3 {
            if worker.has_messages() {
                let (calls, messages) = worker.take_messages();
                read += messages.len() + calls.map(QueuedCall::run).count();
            } else {
                worker.parker.park(None, || worker.has_messages());
            }
        }
        assert!(!worker.has_messages() && notes.ran.load(Ordering::Relaxed) == 2);
        caller.join().unwrap();
        sender.join().unwrap();
    });
}

/// Calls sent before the worker took its last calls are run; later ones are given back, and refused.
#[test]
fn loom_calls_to_one_that_closes_are_run_or_refused() {
    explore(|| {
        let (worker, notes) = (worker(), Notes::new());
        let (to, calls) = (Arc::clone(&worker), notes.clone());
        let caller = thread::spawn(move || (0..2).filter(|_| to.send_call(calls.call()).is_ok()).count());
        worker.close_inbox().0.for_each(QueuedCall::run);
        assert!(!worker.has_messages());
        let sent = caller.join().unwrap();
        let count = |notes: &AtomicUsize| notes.load(Ordering::Relaxed);
        assert_eq!((count(&notes.ran), count(&notes.refused)), (sent, 2 - sent));
    });
}

/// A waiter for room is woken by a call that leaves, or finds room.
#[test]
fn loom_room_in_the_window_is_not_missed() {
    explore(|| {
        let worker = worker();
        (0..CALLS_MAX).for_each(|_| assert!(worker.calls.window.try_enter()));
        let leaves = Arc::clone(&worker);
        let thread = thread::spawn(move || leaves.calls.window.leave());
        let woken = Arc::new(AtomicUsize::new(0));
        let waker = Waker::from(Arc::new(Count(Arc::clone(&woken))));
        let waits = worker.calls.window.wait(None, &waker);
        thread.join().unwrap();
        assert_eq!(woken.load(Ordering::Relaxed), usize::from(waits.is_some()));
        assert!(worker.calls.window.try_enter());
    });
}

struct Count(Arc<AtomicUsize>);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
