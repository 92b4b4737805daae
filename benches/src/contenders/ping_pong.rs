//! Bare cache-line transfers between two threads: the least that a request and its reply can cost.
//!
//! The client writes n into a line; the server sees it, increments its counter and writes n and the
//! value into another line; the client sees that. One operation is one such round trip: two
//! transfers with one line each way, or four with payload and flag on lines of their own.

use super::counter::increment;
use super::threads::together;
use crate::prelude::*;
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

/// One direction. With one line `payload` is not used: the flag's line carries the value beside it.
#[derive(Default)]
struct Direction {
    flagged: CachePadded<Flagged>,
    payload: CachePadded<AtomicU64>,
}

#[derive(Default)]
struct Flagged {
    turn: AtomicU64,
    value: AtomicU64,
}

impl Direction {
    #[inline(always)]
    fn value(&self, two_lines: bool) -> &AtomicU64 {
        if two_lines { &self.payload } else { &self.flagged.value }
    }

    #[inline(always)]
    fn send(&self, two_lines: bool, turn: u64, value: u64) {
        self.value(two_lines).store(value, Ordering::Relaxed);
        self.flagged.turn.store(turn, Ordering::Release); // the Acquire is below
    }

    #[inline(always)]
    fn receive(&self, two_lines: bool, turn: u64) -> u64 {
        // Pairs with the Release above: the value was stored before the turn.
        while self.flagged.turn.load(Ordering::Acquire) != turn {}
        self.value(two_lines).load(Ordering::Relaxed)
    }
}

/// One line each way, or two, payload and flag.
pub fn ping_pong(two_lines: bool) -> Contender {
    let name = if two_lines { "ping-pong-two-lines" } else { "ping-pong" };
    Contender::new(name, Kind::Other, 2, move |workload| {
        let (there, back) = (Direction::default(), Direction::default());
        let roles = together(2, workload.pin, |thread, start| {
            start.wait();
            if thread == 0 {
                let (begun, mut fetched) = (Instant::now(), 0u64);
                for turn in 1..=workload.ops {
                    there.send(two_lines, turn, 0);
                    fetched = fetched.wrapping_add(back.receive(two_lines, turn));
                }
                (Some(ClientRun { start: begun, end: Instant::now(), ops: workload.ops, fetched }), Tally::default())
            } else {
                let mut counters = [0u64];
                for turn in 1..=workload.ops {
                    let object = there.receive(two_lines, turn);
                    back.send(two_lines, turn, increment::<false>(&mut counters[object as usize]));
                }
                (None, counters.into_iter().collect())
            }
        });
        Ok(fold_roles(roles))
    })
}
