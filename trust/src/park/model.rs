//! The futex as loom sees it, and loom models of parking. How to run them: `slot/model.rs`.
//!
//! [`wait`] and [`wake`] keep the promise of the system calls: looking at the word and falling asleep are one
//! step for `wake`. There is no time limit here: it would only hide a lost wake-up. A wake-up that is lost is
//! a deadlock, which loom reports.

use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::sync::{AtomicU32, Ordering};

/// The sleepers: the addresses of their words, and a number for each sleep.
#[derive(Default)]
struct Sleepers {
    asleep: Vec<(usize, u64)>,
    sleeps: u64,
}

loom::lazy_static! {
    static ref SLEEPERS: Mutex<Sleepers> = Mutex::new(Sleepers::default());
    static ref WOKEN: Condvar = Condvar::new();
}

/// Sleeps if the word holds `expected`, until it is woken.
pub(super) fn wait(word: &AtomicU32, expected: u32, _limit: Option<Duration>) {
    let mut sleepers = SLEEPERS.lock().unwrap();
    if word.load(Ordering::Relaxed) != expected {
        return;
    }
    sleepers.sleeps += 1;
    let sleep = (std::ptr::from_ref(word).addr(), sleepers.sleeps);
    sleepers.asleep.push(sleep);
    while sleepers.asleep.contains(&sleep) {
        sleepers = WOKEN.wait(sleepers).unwrap();
    }
}

/// Wakes one thread that sleeps on the word.
pub(super) fn wake(word: &AtomicU32) {
    let mut sleepers = SLEEPERS.lock().unwrap();
    let address = std::ptr::from_ref(word).addr();
    if let Some(place) = sleepers.asleep.iter().position(|sleep| sleep.0 == address) {
        sleepers.asleep.remove(place);
        WOKEN.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    use super::super::{Parker, Presence, Waker};
    use crate::slot::model::{ClientSide, Pair, TrusteeSide, explore, read_number, write_number};

    /// A client of the tests: sends numbers through real slots.
    struct Sender {
        side: ClientSide,
        trustee: Arc<Parker>,
    }

    // SAFETY: moved to the client's thread before it is used, and back after.
    unsafe impl Send for Sender {}

    impl Sender {
        fn publish(&self, number: u64) {
            let (_, body) = self.side.filling().expect("a free slot");
            write_number(body, number);
            self.side.publish();
        }
        fn send(&self, number: u64) -> Presence {
            self.trustee.publish(|| self.publish(number))
        }
    }

    /// A trustee with this many clients.
    fn trustee<const CLIENTS: usize>() -> (Arc<Parker>, [TrusteeSide; CLIENTS], [Sender; CLIENTS]) {
        let parker = Arc::new(Parker::new(0));
        let pairs: [_; CLIENTS] = std::array::from_fn(|_| Pair::new());
        let sides = pairs.clone().map(TrusteeSide::new);
        let clients = pairs.map(|pair| Sender { side: ClientSide::new(pair), trustee: Arc::clone(&parker) });
        (parker, sides, clients)
    }

    /// Serves until it has served this many, and sleeps between.
    fn serve_until(parker: &Parker, sides: &[TrusteeSide], mut left: usize) -> u64 {
        let mut sum = 0;
        while left > 0 {
            let before = left;
            for side in sides {
                while left > 0
                    && let Some((request, _)) = side.request()
                {
                    sum += read_number(request);
                    side.respond();
                    left -= 1;
                }
            }
            if left == before {
                parker.park(None, || sides.iter().any(|side| side.request().is_some()));
            }
        }
        sum
    }

    #[test]
    fn loom_park_one_sender() {
        explore(|| {
            let (parker, sides, [client]) = trustee::<1>();
            let sender = thread::spawn(move || {
                let _ = client.send(1);
                let _ = client.send(2);
            });
            assert_eq!(serve_until(&parker, &sides, 2), 3);
            sender.join().unwrap();
        });
    }

    #[test]
    fn loom_park_two_senders() {
        explore(|| {
            let (parker, sides, clients) = trustee::<2>();
            let senders = clients.map(|client| thread::spawn(move || client.send(1)));
            assert_eq!(serve_until(&parker, &sides, 2), 2);
            for sender in senders {
                assert_eq!(sender.join().unwrap(), Presence::Here);
            }
        });
    }

    /// Both sides sleep: the trustee until a request comes, the client until the answer comes.
    #[test]
    fn loom_park_there_and_back() {
        explore(|| {
            let (parker, [side], [client]) = trustee::<1>();
            let own = Arc::new(Parker::new(0));
            let waits = Arc::clone(&own);
            let sender = thread::spawn(move || {
                for number in 1..=2 {
                    let _ = client.send(number);
                    while !client.side.has_response() {
                        waits.park(None, || client.side.has_response());
                    }
                    client.side.release();
                }
            });
            for number in 1..=2 {
                let _ = own.publish(|| assert_eq!(serve_until(&parker, std::slice::from_ref(&side), 1), number));
            }
            sender.join().unwrap();
        });
    }

    /// A descriptor that is readable while its count is not 0, and a loop that sleeps until it is (`outside.rs`).
    #[derive(Default)]
    struct Descriptor {
        count: Mutex<u64>,
        readable: Condvar,
    }

    impl Descriptor {
        fn sleep(&self) {
            let mut count = self.count.lock().unwrap();
            while *count == 0 {
                count = self.readable.wait(count).unwrap();
            }
            *count = 0;
        }
    }

    // SAFETY: neither function calls the library.
    unsafe impl Waker for Arc<Descriptor> {
        fn park(&self, _limit: Option<Duration>, _is_idle: &mut dyn FnMut() -> bool) {
            unreachable!("it sleeps in its own loop")
        }
        fn wake(&self) {
            *self.count.lock().unwrap() += 1;
            self.readable.notify_all();
        }
    }

    /// A thread that sleeps in a loop of its own: announces, looks once more, and goes to its descriptor, written to by
    /// itself or not.
    fn outside<const CLIENTS: usize>(each: u64) {
        explore(move || {
            let (parker, sides, clients) = trustee::<CLIENTS>();
            let descriptor = Arc::new(Descriptor::default());
            parker.set_waker(Box::new(Arc::clone(&descriptor)));
            let senders = clients.map(|client| {
                thread::spawn(move || {
                    for number in 1..=each {
                        let _ = client.send(number);
                    }
                })
            });
            let has_work = || sides.iter().any(|side| side.request().is_some());
            let mut left = CLIENTS as u64 * each;
            while left > 0 {
                if !parker.arm(has_work) {
                    descriptor.wake();
                }
                descriptor.sleep();
                parker.disarm();
                for side in &sides {
                    while side.request().is_some() {
                        side.respond();
                        left -= 1;
                    }
                }
            }
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }

    #[test]
    fn loom_outside_one_sender() {
        outside::<1>(2);
    }

    #[test]
    fn loom_outside_two_senders() {
        outside::<2>(1);
    }

    /// A sender that finds the trustee here after sending will be served by it, though it closes; and a sender that
    /// comes too late to wake it does not undo the closing.
    fn closing(serve_before: usize) {
        explore(move || {
            let (parker, sides, clients) = trustee::<2>();
            let senders = clients.map(|client| thread::spawn(move || (client.send(1), client)));
            serve_until(&parker, &sides, serve_before);
            parker.begin_closing();
            for side in &sides {
                if let Some((request, _)) = side.request() {
                    assert_eq!(read_number(request), 1);
                    side.respond();
                }
            }
            parker.close();
            for sender in senders {
                let (presence, client) = sender.join().unwrap();
                assert!(client.side.has_response() || presence != Presence::Here);
            }
            assert_eq!(parker.presence(), Presence::Closed);
        });
    }

    #[test]
    fn loom_closing_trustee_serves_whom_it_was_here_for() {
        closing(0);
    }

    #[test]
    fn loom_closing_trustee_has_slept_before() {
        closing(1);
    }

    /// After `Closed` the answers of the trustee are all visible.
    #[test]
    fn loom_closed_is_after_the_last_answer() {
        explore(|| {
            let (parker, [side], [client]) = trustee::<1>();
            client.publish(1);
            let closing = Arc::clone(&parker);
            let ends = thread::spawn(move || {
                closing.begin_closing();
                assert!(side.request().is_some());
                side.respond();
                closing.close();
            });
            if parker.presence() == Presence::Closed {
                assert!(client.side.has_response());
            }
            ends.join().unwrap();
        });
    }

    /// The models can fail: a sender that leaves out [work-then-look] loses wake-ups.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_park_without_the_fence_loses_a_wakeup() {
        explore(|| {
            let (parker, sides, [client]) = trustee::<1>();
            let sender = thread::spawn(move || {
                client.publish(1);
                client.trustee.wake()
            });
            assert_eq!(serve_until(&parker, &sides, 1), 1);
            let _ = sender.join().unwrap();
        });
    }
}
