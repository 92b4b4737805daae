//! Loom models of the inbox: the real [`Shared`], with a worker that sleeps until there is mail. How to run them:
//! `slot/model.rs`.

use std::sync::Arc;

use loom::thread;

use super::{Message, Shared, TrusteeId};
use crate::slot::model::explore;

fn worker() -> Arc<Shared> {
    Arc::new(Shared::new(TrusteeId::vacant()))
}

/// Reads mail, and sleeps between, until so much has come.
fn read(worker: &Shared, messages: usize) {
    let mut read = 0;
    while read < messages {
        if worker.has_mail() {
            read += worker.take_mail().len();
        } else {
            worker.parker.park(None, || worker.has_mail());
        }
    }
    assert!(!worker.has_mail() && read == messages);
}

#[test]
fn loom_mail_of_one_sender_wakes() {
    explore(|| {
        let worker = worker();
        let to = Arc::clone(&worker);
        let sender = thread::spawn(move || (0..2).for_each(|_| assert!(to.send(Message::Nudge).is_ok())));
        read(&worker, 2);
        sender.join().unwrap();
    });
}

#[test]
fn loom_mail_of_two_senders_wakes() {
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

/// What was sent before the inbox closed is in it; what comes later is given back.
#[test]
fn loom_mail_to_one_that_closes_is_read_or_given_back() {
    explore(|| {
        let worker = worker();
        let to = Arc::clone(&worker);
        let sender = thread::spawn(move || (0..2).filter(|_| to.send(Message::Nudge).is_ok()).count());
        let read = worker.close_inbox().len();
        assert_eq!(sender.join().unwrap(), read);
        assert!(!worker.has_mail());
    });
}
