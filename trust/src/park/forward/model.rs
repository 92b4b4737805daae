//! Loom models of a trustee that moves from one worker to another while a client sends to it. How to run them:
//! `slot/model.rs`.
//!
//! A wake-up that is lost is a deadlock, which loom reports: there is no time limit here.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::{Forward, ForwardWaker, Parkers};
use crate::park::{Parker, Presence};
use crate::slot::model::{ClientSide, Pair, TrusteeSide, explore, read_number, write_number};

/// Two workers, each with an inbox for the trustee's half of the one pair.
struct Workers {
    parkers: [Parker; 2],
    inboxes: [Mutex<Option<TrusteeSide>>; 2],
}

impl Parkers for Workers {
    fn parker(&self, worker: usize) -> &Parker {
        &self.parkers[worker]
    }
}

/// The trustee, without the half that moves.
#[derive(Clone)]
struct Trustee {
    parker: Arc<Parker>,
    forward: Arc<Forward<Workers>>,
}

impl Trustee {
    fn workers(&self) -> &Workers {
        self.forward.parkers()
    }

    /// Worker: serves until it has served this many, and sleeps between. Returns the sum of their numbers.
    fn serve(&self, worker: usize, side: &TrusteeSide, mut left: usize) -> u64 {
        let mut sum = 0;
        while left > 0 {
            if let Some((request, _)) = side.request() {
                sum += read_number(request);
                side.respond();
                left -= 1;
                continue;
            }
            self.parker.arm_only();
            self.workers().parkers[worker].park(None, || side.request().is_some() || !self.parker.is_armed());
            self.parker.disarm();
        }
        sum
    }

    /// Worker: lets the trustee go.
    fn leave(&self, to: usize, side: TrusteeSide) {
        self.forward.set_runner(to);
        let _ = self.workers().parkers[to].publish(|| *self.workers().inboxes[to].lock().unwrap() = Some(side));
    }

    /// Worker: waits for the trustee, and runs it from then on.
    fn come(&self, to: usize) -> TrusteeSide {
        let inbox = &self.workers().inboxes[to];
        loop {
            let side = inbox.lock().unwrap().take();
            if let Some(side) = side {
                return side;
            }
            self.workers().parkers[to].park(None, || inbox.lock().unwrap().is_some());
        }
    }
}

/// A client, which sends numbers through real slots.
struct Client(ClientSide, Trustee);

// SAFETY: moved to the client's thread before it is used, and back after.
unsafe impl Send for Client {}

impl Client {
    fn publish(&self, number: u64) {
        let (_, body) = self.0.filling().expect("a free slot");
        write_number(body, number);
        self.0.publish();
    }

    fn send(&self, number: u64) -> Presence {
        self.1.parker.publish(|| self.publish(number))
    }
}

/// A trustee that the first worker runs, and its client.
fn seated() -> (Trustee, TrusteeSide, Client) {
    let workers = Workers { parkers: [Parker::new(0), Parker::new(1)], inboxes: [Mutex::new(None), Mutex::new(None)] };
    let forward = Arc::new(Forward::new(0, Arc::new(workers)));
    let parker = Arc::new(Parker::new(2));
    assert!(parker.set_waker(Box::new(ForwardWaker(Arc::clone(&forward)))));
    let trustee = Trustee { parker, forward };
    let pair = Pair::new();
    let client = Client(ClientSide::new(Arc::clone(&pair)), trustee.clone());
    (trustee, TrusteeSide::new(pair), client)
}

/// The first worker serves so many, and the second one the others of two requests.
fn moves_after(first: usize) {
    explore(move || {
        let (trustee, side, client) = seated();
        let sender = thread::spawn(move || {
            assert_eq!(client.send(1), Presence::Here);
            assert_eq!(client.send(2), Presence::Here);
        });
        let there = trustee.clone();
        let other = thread::spawn(move || {
            let side = there.come(1);
            there.serve(1, &side, 2 - first)
        });
        let served = trustee.serve(0, &side, first);
        trustee.leave(1, side);
        assert_eq!(served + other.join().unwrap(), 3);
        sender.join().unwrap();
    });
}

#[test]
fn loom_move_before_the_first_request() {
    moves_after(0);
}

#[test]
fn loom_move_between_two_requests() {
    moves_after(1);
}

/// There and back: the first worker may sleep with the trustee, before it goes and after it has come back.
#[test]
fn loom_move_there_and_back() {
    explore(|| {
        let (trustee, side, client) = seated();
        let sender = thread::spawn(move || client.send(1));
        let there = trustee.clone();
        let other = thread::spawn(move || {
            let side = there.come(1);
            there.leave(0, side);
        });
        trustee.leave(1, side);
        let side = trustee.come(0);
        assert_eq!(trustee.serve(0, &side, 1), 1);
        other.join().unwrap();
        assert_eq!(sender.join().unwrap(), Presence::Here);
    });
}

/// A move that is refused: the worker has given the trustee to another one, which does not take it, and goes on.
#[test]
fn loom_move_refused() {
    explore(|| {
        let (trustee, side, client) = seated();
        let sender = thread::spawn(move || {
            assert_eq!(client.send(1), Presence::Here);
            assert_eq!(client.send(2), Presence::Here);
        });
        let served = trustee.serve(0, &side, 1);
        trustee.forward.set_runner(1);
        trustee.forward.set_runner(0);
        assert_eq!(served + trustee.serve(0, &side, 1), 3);
        sender.join().unwrap();
    });
}

/// The second worker ends the trustee: a client that found it there is served.
#[test]
fn loom_move_before_the_end() {
    explore(|| {
        let (trustee, side, client) = seated();
        let sender = thread::spawn(move || (client.send(1), client));
        let there = trustee.clone();
        let other = thread::spawn(move || {
            let side = there.come(1);
            there.parker.begin_closing();
            if side.request().is_some() {
                side.respond();
            }
            there.parker.close();
        });
        trustee.leave(1, side);
        other.join().unwrap();
        let (presence, client) = sender.join().unwrap();
        assert!(client.0.has_response() || presence != Presence::Here);
    });
}

/// The models can fail: a worker that sleeps although a client has taken the trustee's announcement away.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_sleep_with_a_trustee_that_is_not_armed_loses_a_wakeup() {
    explore(|| {
        let (trustee, side, client) = seated();
        client.publish(1);
        let sender = thread::spawn(move || {
            // Its wake for the first request comes when that may have been served.
            let _ = client.1.parker.publish(|| ());
            let _ = client.send(2);
        });
        let mut left = 2;
        while left > 0 {
            if side.request().is_some() {
                side.respond();
                left -= 1;
                continue;
            }
            trustee.parker.arm_only();
            trustee.workers().parkers[0].park(None, || side.request().is_some());
            trustee.parker.disarm();
        }
        sender.join().unwrap();
    });
}

/// The models can fail: a worker that does not say that it runs the trustee is not woken.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_move_without_a_new_runner_loses_a_wakeup() {
    explore(|| {
        let (trustee, side, client) = seated();
        let sender = thread::spawn(move || client.send(1));
        trustee.leave(1, side);
        trustee.forward.set_runner(0);
        let side = trustee.workers().inboxes[1].lock().unwrap().take().expect("it was put there");
        assert_eq!(trustee.serve(1, &side, 1), 1);
        let _ = sender.join().unwrap();
    });
}
