//! Barriers: threads of all machines meet under a key. Each machine says to the key's home how many of its threads have
//! come; the home says when so many are there as were awaited. Two messages a machine and round, between keepers.
//!
//! Here: who is counted, and who is told. Not here: how threads wait (`gossamer-region-ffi`, `gather.rs`).
//!
//! Everything here runs on keepers unless it says otherwise. A program of one machine has none: there it runs on who
//! has come.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use gossamer::{NoRef, link};
use trust::link::post;

/// Says how many may go on, and whether it was they who were waited for.
type Then = Box<dyn FnOnce(u32, bool) + Send>;

/// At the home of a key.
#[derive(Default)]
struct Meeting {
    arrived: u32,
    waiting: Vec<(u32, Then)>,
}

static MEETINGS: Mutex<Option<HashMap<u64, Meeting>>> = Mutex::new(None);

/// From any thread: `arrived` more threads of this machine have come for a meeting of `count` under this key, at its
/// `home`. `then` is called on this machine's keeper (with one machine, on the thread that the others waited for) when
/// some may go on: with how many of them, and whether it was they who were waited for. Those whom a round has no place
/// for have to be said again.
pub fn arrive<F>(home: u16, key: u64, count: u32, arrived: u32, then: F)
where
    F: FnOnce(u32, bool) + NoRef + Send + 'static,
{
    let own = gossamer::rack().machine();
    if gossamer::rack().machines().len() == 1 {
        return come(key, count, arrived, Box::new(then));
    }
    post(link::keeper(own), move |_| hand_on(home, own, key, count, arrived, then), &[]);
}

/// On the keeper of who has come.
fn hand_on<F>(home: u16, own: u16, key: u64, count: u32, arrived: u32, then: F)
where
    F: FnOnce(u32, bool) + NoRef + Send + 'static,
{
    if home == own {
        return come(key, count, arrived, Box::new(then));
    }
    let at_home = move |_: &[u8]| {
        let tell = move |released, is_last| post(link::keeper(own), move |_| then(released, is_last), &[]);
        come(key, count, arrived, Box::new(tell));
    };
    post(link::keeper(home), at_home, &[]);
}

/// At the home. More than the meeting is for come in the next one.
fn come(key: u64, count: u32, arrived: u32, then: Then) {
    let over = {
        let mut all = MEETINGS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        let meeting = all.entry(key).or_default();
        match meeting.come(count, arrived, then) {
            false => return,
            true => all.remove(&key).map(|meeting| meeting.waiting).unwrap_or_default(),
        }
    };
    let last = over.len().saturating_sub(1);
    for (at, (released, then)) in over.into_iter().enumerate() {
        then(released, at == last);
    }
}

impl Meeting {
    /// Whether all have come.
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

    /// What groups of these sizes are told, one round of a meeting of four after the other.
    fn told(groups: &[u32]) -> Vec<Vec<(u32, bool)>> {
        let (mut rounds, mut meeting) = (vec![], Meeting::default());
        for arrived in groups {
            if meeting.come(4, *arrived, Box::new(|_, _| ())) {
                let waiting = std::mem::take(&mut meeting).waiting;
                let last = waiting.len() - 1;
                rounds.push(waiting.iter().enumerate().map(|(at, (released, _))| (*released, at == last)).collect());
            }
        }
        rounds
    }

    #[test]
    fn those_who_are_too_many_for_a_round_are_not_released_by_it() {
        assert_eq!(told(&[2, 1]), Vec::<Vec<_>>::new());
        assert_eq!(told(&[2, 2]), [[(2, false), (2, true)]]);
        assert_eq!(told(&[3, 3, 1, 3]), [[(3, false), (1, true)], [(1, false), (3, true)]]);
        assert_eq!(told(&[9, 4]), [[(4, true)], [(4, true)]]);
    }
}
