//! Channels, barriers, condition variables.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gossamer::sync::{
    Barrier, Channel, Condvar, Receiver, RecvError, RecvTimeoutError, SendError, Sender, Source, TryRecvError,
    TrySendError, bounded, channel, select,
};
use gossamer::{Latch, Trust, promise};

use super::ground::{JoinOutcome, beside, none_is_lost, places, remote, spots, until};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(1000);

pub fn channels_deliver_everything_in_order() {
    const EACH: u64 = 150;
    for place in spots() {
        let (sender, receiver) = Channel::new().at(place).capacity(16).open::<(u64, u64, String)>();
        let senders: Vec<_> = (0..)
            .zip(places())
            .map(|(number, from)| {
                let sender = sender.clone();
                gossamer::spawn_on(from, move || {
                    for round in 0..EACH {
                        sender.send((number, round, "x".repeat(round as usize))).unwrap();
                    }
                })
            })
            .collect();
        drop(sender);
        let receivers: Vec<_> = places()
            .into_iter()
            .map(|to| {
                let receiver = receiver.clone();
                gossamer::spawn_on(to, move || {
                    let mut last = [None; 64];
                    let mut count = 0;
                    for (number, round, text) in &receiver {
                        assert_eq!(text.len(), round as usize);
                        assert!(
                            last[number as usize].replace(round) < Some(round),
                            "those of one sender keep their order"
                        );
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().or_its_panic());
        let received: u64 = receivers.into_iter().map(|receiver| receiver.join().or_its_panic()).sum();
        assert_eq!(received, EACH * places().len() as u64, "each once");
        assert_eq!((receiver.recv(), receiver.try_recv().err()), (Err(RecvError), Some(TryRecvError::Disconnected)));
    }
}

pub fn channels_close_when_one_side_is_gone() {
    for place in spots() {
        // Waiting receivers get the end, once all values are received.
        let (sender, receiver) = Channel::new().at(place).open::<String>();
        let waiting: Vec<_> = [remote(), gossamer::here()]
            .map(|from| {
                let receiver = receiver.clone();
                gossamer::spawn_on(from, move || receiver.recv().map(|text| text.len()).unwrap_or(0))
            })
            .into_iter()
            .collect();
        let other = sender.clone();
        drop(sender);
        gossamer::spawn_on(remote(), move || other.send("last".to_owned()).unwrap()).join().or_its_panic();
        let lens: usize = waiting.into_iter().map(|fiber| fiber.join().or_its_panic()).sum();
        assert_eq!(lens, 4, "one has the last value, one nothing");
        assert_eq!(receiver.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));

        // Senders get their values back, also one that waits.
        let (sender, receiver) = Channel::new().at(place).capacity(0).open::<String>();
        assert_eq!(sender.try_send("full".to_owned()), Err(TrySendError::Full("full".to_owned())));
        let blocked = sender.clone();
        let blocked = gossamer::spawn_on(remote(), move || {
            let SendError(back) = blocked.send("never taken".to_owned()).unwrap_err();
            back.len()
        });
        let last = receiver.clone();
        drop(receiver);
        gossamer::spawn_on(remote(), move || drop(last)).join().or_its_panic();
        assert_eq!(blocked.join().or_its_panic(), 11);
        assert_eq!(sender.send("late".to_owned()), Err(SendError("late".to_owned())));
        assert_eq!(sender.try_send(String::new()), Err(TrySendError::Disconnected(String::new())));
        sender.post("to nobody".to_owned());
    }
}

pub fn bounded_channels_hold_back() {
    for place in spots() {
        let (sender, receiver) = Channel::new().at(place).capacity(3).open::<u64>();
        let fiber = {
            let sender = sender.clone();
            gossamer::spawn_on(remote(), move || (0..50).for_each(|n| sender.send(n).unwrap()))
        };
        until(|| receiver.len() == 3);
        assert_eq!(sender.try_send(99), Err(TrySendError::Full(99)));
        for n in 0..50 {
            assert!(receiver.len() <= 3);
            assert_eq!(receiver.recv(), Ok(n));
        }
        fiber.join().or_its_panic();
        assert!(receiver.is_empty());
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));

        // With no room at all, sender and receiver meet.
        let (sender, receiver) = bounded::<u64>(0);
        let fiber = gossamer::spawn_on(place, move || (0..20).map(|_| receiver.recv().unwrap()).sum::<u64>());
        (0..20).for_each(|n| sender.send(n).unwrap());
        assert_eq!(fiber.join().or_its_panic(), 190);
    }
}

pub fn receivers_are_served_in_turn() {
    for place in spots() {
        let (sender, receiver) = Channel::new().at(place).open_plain::<usize>();
        let order = Rc::new(RefCell::new(Vec::new()));
        let waiting: Vec<_> = (0..20)
            .map(|number| {
                let (receiver, order) = (receiver.clone(), Rc::clone(&order));
                trust::spawn(move || {
                    let value = receiver.recv().unwrap();
                    order.borrow_mut().push((number, value));
                })
            })
            .collect();
        // They ask in this order, as fibers run and requests travel; nothing is there for them yet.
        gossamer::yield_now();
        receiver.len();
        (0..20).for_each(|n| sender.post(n));
        waiting.into_iter().for_each(|fiber| fiber.join().or_its_panic());
        assert!(order.borrow().iter().all(|(number, value)| number == value), "{order:?}");
    }
}

pub fn channels_carry_trusts_and_channels() {
    let (give, take) = Channel::new().at(remote()).open_plain::<(Sender<String>, Trust<u64>)>();
    let fiber = gossamer::spawn_on(remote(), move || {
        let (answer, number) = take.recv().unwrap();
        answer.send(format!("{} at {}", number.apply(|n| *n), gossamer::here())).unwrap();
    });
    let (answer, question) = channel();
    give.send((answer, gossamer::entrust(7u64))).unwrap();
    assert_eq!(question.recv(), Ok(format!("7 at {}", remote())));
    assert_eq!(question.recv(), Err(RecvError), "the sender that has travelled is gone");
    fiber.join().or_its_panic();
}

pub fn closures_and_callbacks_post() {
    for place in spots() {
        let (sender, receiver) = Channel::new().at(place).open::<String>();
        let number = gossamer::entrust_on(remote(), 0u64);
        for round in 0..50 {
            let (there, here) = (sender.clone(), sender.clone());
            number.apply_then(
                move |n| {
                    *n += round;
                    there.post(format!("{n}"));
                    *n
                },
                move |n| here.post(format!("{n}")),
            );
        }
        drop(sender);
        let mut sums: Vec<u64> = receiver.iter().map(|text| text.parse().unwrap()).collect();
        sums.sort_unstable();
        assert!(sums.into_iter().eq((0..50).flat_map(|n| [n * (n + 1) / 2; 2])));
    }
}

pub fn receivers_that_give_up_lose_nothing() {
    const VALUES: u64 = 300;
    for place in spots() {
        let (sender, receiver) = Channel::new().at(place).open::<u64>();
        assert_eq!(receiver.recv_timeout(Duration::from_millis(2)), Err(RecvTimeoutError::Timeout));
        let receivers: Vec<_> = places()
            .into_iter()
            .map(|from| {
                let receiver = receiver.clone();
                gossamer::spawn_on(from, move || {
                    let (mut sum, mut round) = (0, 0u64);
                    loop {
                        round += 1;
                        match receiver.recv_timeout(Duration::from_micros(round % 60)) {
                            Ok(value) => sum += value,
                            Err(RecvTimeoutError::Timeout) => {}
                            Err(RecvTimeoutError::Disconnected) => return sum,
                        }
                    }
                })
            })
            .collect();
        for value in 0..VALUES {
            sender.send(value).unwrap();
            if value % 16 == 0 {
                gossamer::sleep(Duration::from_micros(50)); // so that they wait without success
            }
        }
        drop(sender);
        let sum: u64 = receivers.into_iter().map(|receiver| receiver.join().or_its_panic()).sum();
        assert_eq!(sum, VALUES * (VALUES - 1) / 2);
    }
}

pub fn select_finds_what_comes_first() {
    for place in spots() {
        let (words, some) = Channel::new().at(place).open::<String>();
        let (numbers, others) = Channel::new().at(remote()).capacity(0).open_plain::<u64>();
        let (kept, pending) = promise::<u64>();
        let short = Some(Duration::from_millis(2));
        assert_eq!(select(&[&some, &others, &pending], short), None);
        // The receiver makes the room: a waiting sender has a value.
        let sends = gossamer::spawn_on(remote(), move || numbers.send(7));
        assert_eq!(select(&[&some, &others, &pending], Some(LONG)), Some(1));
        assert_eq!(others.try_recv(), Ok(7));
        assert_eq!(sends.join().or_its_panic(), Ok(()));
        // All its senders are gone.
        assert_eq!(select(&[&pending, &some, &others], Some(LONG)), Some(2));
        assert_eq!(others.try_recv(), Err(TryRecvError::Disconnected));
        gossamer::spawn_on(remote(), move || kept.keep(8)).join().or_its_panic();
        assert_eq!(select(&[&some, &pending], None), Some(1));
        assert_eq!(pending.try_take(), Some(Ok(8)));
        words.send("first".to_owned()).unwrap();
        words.send("second".to_owned()).unwrap();
        for word in ["first", "second"] {
            assert_eq!(select(&[&some], None), Some(0));
            assert_eq!(some.recv().as_deref(), Ok(word));
        }
        assert_eq!(select(&[&some], Some(Duration::ZERO)), None);
    }
}

pub fn select_among_many_receivers_loses_nothing() {
    const VALUES: u64 = 200;
    let channels: Vec<_> = spots().map(|place| Channel::new().at(place).open_plain::<u64>()).into();
    let (senders, receivers): (Vec<Sender<u64, _>>, Vec<Receiver<u64, _>>) = channels.into_iter().unzip();
    let sum_of = |receivers: Vec<Receiver<u64, gossamer::sync::Plain>>| {
        let (mut left, mut sum) = (receivers, 0);
        while !left.is_empty() {
            let sources: Vec<&dyn Source> = left.iter().map(|receiver| receiver as &dyn Source).collect();
            let place = select(&sources, Some(LONG)).expect("something comes");
            match left[place].try_recv() {
                Ok(value) => sum += value,
                // Another one was faster.
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => drop(left.remove(place)),
            }
        }
        sum
    };
    let selecting: Vec<_> = places()
        .into_iter()
        .map(|from| {
            let [one, two, three] = [0, 1, 2].map(|at: usize| receivers[at].clone());
            gossamer::spawn_on(from, move || sum_of(vec![one, two, three]))
        })
        .collect();
    // A receiver that waits in the queue.
    let waits = receivers[0].clone();
    let waiting = trust::spawn(move || waits.iter().sum::<u64>());
    for value in 0..VALUES {
        senders[value as usize % 3].send(value).unwrap();
        if value % 50 == 0 {
            gossamer::sleep(Duration::from_millis(1));
        }
    }
    drop(senders);
    let sum: u64 = selecting.into_iter().map(|fiber| fiber.join().or_its_panic()).sum();
    assert_eq!(sum + waiting.join().or_its_panic(), VALUES * (VALUES - 1) / 2);
}

pub fn barriers_hold_all_back() {
    const ROUNDS: u64 = 40;
    let barrier = Barrier::at(remote(), 2 * places().len());
    let all = 2 * places().len() as u64;
    let came = gossamer::entrust_on(remote(), 0u64);
    let fibers: Vec<_> = places()
        .into_iter()
        .flat_map(|place| [place; 2])
        .map(|place| {
            let (barrier, came) = (barrier.clone(), came.clone());
            gossamer::spawn_on(place, move || {
                let mut led = 0;
                for round in 1..=ROUNDS {
                    came.apply(|came| *came += 1);
                    led += u64::from(barrier.wait().is_leader());
                    assert!(came.apply(|came| *came) >= round * all, "somebody went on too early");
                    barrier.wait();
                }
                led
            })
        })
        .collect();
    let led: u64 = fibers.into_iter().map(|fiber| fiber.join().or_its_panic()).sum();
    assert_eq!((led, came.apply(|came| *came)), (ROUNDS, ROUNDS * all));
    assert!(Barrier::new(1).wait().is_leader() && Barrier::new(0).wait().is_leader());
}

/// A textbook bounded buffer.
pub fn condition_variables_wake_who_waits() {
    const ROOM: usize = 4;
    const EACH: u64 = 60;
    for place in spots() {
        let buffer = gossamer::entrust_with(place, || Latch::new(VecDeque::<u64>::new()));
        let (filled, emptied) = (Condvar::at(place), Condvar::at(remote()));
        let mut fibers = Vec::new();
        for from in places() {
            let (buffer, filled, emptied) = (buffer.clone(), filled.clone(), emptied.clone());
            let (source, full, empty) = (buffer.clone(), filled.clone(), emptied.clone());
            fibers.push(gossamer::spawn_on(from, move || {
                for n in 0..EACH {
                    let (full, empty) = (full.clone(), empty.clone());
                    source
                        .call()
                        .launch_held(move |buffer| {
                            empty.wait_while(buffer, |buffer| buffer.len() >= ROOM);
                            buffer.push_back(n);
                            full.notify_one();
                        })
                        .wait()
                        .unwrap();
                }
                0
            }));
            fibers.push(gossamer::spawn_on(from, move || {
                let mut sum = 0;
                for _ in 0..EACH {
                    let (filled, emptied) = (filled.clone(), emptied.clone());
                    sum += buffer
                        .call()
                        .launch_held(move |buffer| {
                            filled.wait_while(buffer, |buffer| buffer.is_empty());
                            assert!(buffer.len() <= ROOM);
                            emptied.notify_one();
                            buffer.pop_front().expect("it is not empty")
                        })
                        .wait()
                        .unwrap();
                }
                sum
            }));
        }
        let sum: u64 = fibers.into_iter().map(|fiber| fiber.join().or_its_panic()).sum();
        assert_eq!(sum, places().len() as u64 * EACH * (EACH - 1) / 2);
    }
}

pub fn condition_variables_time_out_and_wake_all() {
    for place in spots() {
        let started = gossamer::entrust_with(place, || Latch::new((0usize, false)));
        let start = Condvar::at(place);
        let unheard = start.clone();
        let notified = started
            .call()
            .launch_held(move |held| unheard.wait_timeout(held, Duration::from_millis(2)))
            .wait()
            .unwrap();
        assert!(!notified);
        start.notify_all(); // nobody waits: it is not kept for later
        started.apply(|_| ()); // and it is over by now
        let fibers: Vec<_> = places()
            .into_iter()
            .map(|from| {
                let (started, start) = (started.clone(), start.clone());
                gossamer::spawn_on(from, move || {
                    started
                        .call()
                        .launch_held(move |held| {
                            held.0 += 1;
                            let mut waits = 0;
                            while !held.1 {
                                assert!(start.wait_timeout(held, LONG), "it is notified long before");
                                waits += 1;
                            }
                            waits
                        })
                        .wait()
                        .unwrap()
                })
            })
            .collect();
        until(|| started.launch(|started| started.0) == places().len());
        started.launch(|started| started.1 = true);
        start.notify_all();
        let waits: u64 = fibers.into_iter().map(|fiber| fiber.join().or_its_panic()).sum();
        assert_eq!(waits, places().len() as u64, "each was woken once");
    }
}

/// A `select` that is aborted tells its channels that it is gone. Where their trustee accepts nothing more it leaves
/// the message behind, and does not wait while it unwinds.
pub fn select_that_is_aborted_waits_for_nothing() {
    static IS_HELD: AtomicBool = AtomicBool::new(true);
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    let (here, there) = (gossamer::here(), beside());
    if here == there {
        return;
    }
    let (number, numbers) = Channel::new().at(there).open::<u64>();
    let counter = gossamer::entrust_on(there, 0u64);
    let waits = trust::spawn(move || select(&[&numbers], None));
    // It has registered as waiting once it has the answer to that.
    gossamer::sleep(Duration::from_millis(50));
    counter.apply_then(
        |_| {
            HAS_BEGUN.store(true, Ordering::SeqCst);
            while IS_HELD.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        },
        |()| {},
    );
    until(|| HAS_BEGUN.load(Ordering::SeqCst));
    // More than the slots hold: this one waits until there is room, and so would the next sender.
    let flood = trust::spawn(move || (0..100_000).for_each(|_| counter.apply_then(|c| *c += 1, |()| {})));
    gossamer::sleep(Duration::from_millis(20));
    let is_flooded = flood.is_finished();
    waits.abort();
    let aborted = waits.join();
    let was_held = IS_HELD.swap(false, Ordering::SeqCst);
    if is_flooded || aborted.is_ok() {
        none_is_lost(); // a loss ends both waits
    }
    assert!(was_held && !is_flooded && aborted.unwrap_err().is::<trust::Aborted>());
    flood.join().or_its_panic();
    drop(number);
}
