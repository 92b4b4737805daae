//! Barriers: threads of all machines meet under a key. Each machine says to the key's home how many of its threads have come; the home
//! says when so many are there as were awaited. Two messages a machine and round, between keepers.
//!
//! Here: who is counted, and who is told. Not here: how threads wait (`gossamer-region-ffi`, `gather.rs`; `sync`).
//!
//! Everything here runs on keepers unless it says otherwise.

use std::cell::RefCell;
use std::collections::HashMap;

use gossamer::{NoRef, link};
use trust::link::post;

/// Says how many may go on, and whether it was they who were waited for.
type Then = Box<dyn FnOnce(u32, bool)>;

/// At the home of a key.
#[derive(Default)]
struct Meeting {
    arrived: u32,
    waiting: Vec<(u32, Then)>,
}

thread_local! {
    static MEETINGS: RefCell<HashMap<u64, Meeting>> = RefCell::default();
}

/// From any thread: `arrived` more threads of this machine have come for a meeting of `count` under this key, at its `home`. `then` is
/// called on this machine's keeper when some may go on: with how many of them, and whether it was they who were waited for. Those
/// whom a round has no place for have to be said again.
pub fn arrive<F>(home: u16, key: u64, count: u32, arrived: u32, then: F)
where
    F: FnOnce(u32, bool) + NoRef + Send + 'static,
{
    let own = gossamer::rack().machine();
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
    let over = MEETINGS.with_borrow_mut(|all| {
        let meeting = all.entry(key).or_default();
        let missing = count.saturating_sub(meeting.arrived);
        meeting.waiting.push((arrived.min(missing), then));
        if arrived < missing {
            meeting.arrived += arrived;
            return vec![];
        }
        all.remove(&key).map(|meeting| meeting.waiting).unwrap_or_default()
    });
    // Other machines first: it takes longer until they hear it.
    let last = over.len().saturating_sub(1);
    for (at, (released, then)) in over.into_iter().enumerate() {
        then(released, at == last);
    }
}
