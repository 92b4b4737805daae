//! Barriers: threads of all machines wait for one another under a key. Each machine reports to the key's home how many
//! of its threads have arrived; the home answers when the full number has. Two messages per machine and round, between
//! page servers.
//!
//! Here: counting arrivals and releasing them. Not here: how threads wait (`gossamer-region-ffi`, `gather.rs`).
//!
//! Everything here runs on page servers unless stated otherwise. A program of one machine has none: there it runs on
//! the arriving thread.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use gossamer::{NoRef, link};
use trust::link::post;

/// A panic would leave threads at a barrier for ever: it ends the program.
const WHOSE: &str = "the page server";

/// Callback with the number of threads released, and whether they were the last to arrive.
type Then = Box<dyn FnOnce(u32, bool) + Send>;

/// Arrivals at the home of a key.
#[derive(Default)]
struct Barrier {
    arrived: u32,
    waiting: Vec<(u32, Then)>,
}

static BARRIERS: Mutex<Option<HashMap<u64, Barrier>>> = Mutex::new(None);

/// From any thread: reports that `arrived` more threads of this machine have arrived at a barrier of `count` under this
/// key, at its `home`. `then` is called on this machine's page server (with one machine, on the last thread to arrive)
/// when some may go on: with their number, and whether they were the last to arrive. Threads beyond `count` must be
/// reported again.
pub fn arrive<F>(home: u16, key: u64, count: u32, arrived: u32, then: F)
where
    F: FnOnce(u32, bool) + NoRef + Send + 'static,
{
    let own = gossamer::rack().machine();
    if gossamer::rack().machines().len() == 1 {
        return come(key, count, arrived, Box::new(then));
    }
    let here = move |_: &[u8]| link::or_end(WHOSE, || hand_on(home, own, key, count, arrived, then));
    post(link::page_server(own), here, &[]);
}

/// Passes arrivals on, on the page server of the arriving threads' machine.
fn hand_on<F>(home: u16, own: u16, key: u64, count: u32, arrived: u32, then: F)
where
    F: FnOnce(u32, bool) + NoRef + Send + 'static,
{
    if home == own {
        return come(key, count, arrived, Box::new(then));
    }
    let at_home = move |_: &[u8]| {
        let tell = move |released, is_last| {
            post(link::page_server(own), move |_| link::or_end(WHOSE, || then(released, is_last)), &[]);
        };
        link::or_end(WHOSE, || come(key, count, arrived, Box::new(tell)));
    };
    post(link::page_server(home), at_home, &[]);
}

/// Counts arrivals at the home. Those beyond the barrier's count join the next one.
fn come(key: u64, count: u32, arrived: u32, then: Then) {
    let over = {
        let mut all = BARRIERS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        let barrier = all.entry(key).or_default();
        match barrier.come(count, arrived, then) {
            false => return,
            true => all.remove(&key).map(|barrier| barrier.waiting).unwrap_or_default(),
        }
    };
    let last = over.len().saturating_sub(1);
    for (at, (released, then)) in over.into_iter().enumerate() {
        then(released, at == last);
    }
}

impl Barrier {
    /// Adds arrivals; returns whether the barrier is complete.
    fn come(&mut self, count: u32, arrived: u32, then: Then) -> bool {
        let missing = count.saturating_sub(self.arrived);
        self.waiting.push((arrived.min(missing), then));
        self.arrived += arrived.min(missing);
        arrived >= missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of groups of these sizes, one list per round of a barrier of four.
    fn released(groups: &[u32]) -> Vec<Vec<(u32, bool)>> {
        let (mut rounds, mut barrier) = (vec![], Barrier::default());
        for arrived in groups {
            if barrier.come(4, *arrived, Box::new(|_, _| ())) {
                let waiting = std::mem::take(&mut barrier).waiting;
                let last = waiting.len() - 1;
                rounds.push(waiting.iter().enumerate().map(|(at, (released, _))| (*released, at == last)).collect());
            }
        }
        rounds
    }

    #[test]
    fn those_who_are_too_many_for_a_round_are_not_released_by_it() {
        assert_eq!(released(&[2, 1]), Vec::<Vec<_>>::new());
        assert_eq!(released(&[2, 2]), [[(2, false), (2, true)]]);
        assert_eq!(released(&[3, 3, 1, 3]), [[(3, false), (1, true)], [(1, false), (3, true)]]);
        assert_eq!(released(&[9, 4]), [[(4, true)], [(4, true)]]);
    }
}
