//! A worker of the simulated rack, and what the workers of a machine share.
//!
//! Invariant: peers and machines are told by their distance from the machine that has these.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gossamer_ways::machine::{Allowance, Inbox, Outbox};
use gossamer_ways::news::{News, TryLock};
use gossamer_ways::ways::{Limits, Notice, Stamp, Way, Ways};
use gossamer_ways::{Peer, Rack};

use crate::verified::{Batch, Ledger, Table};

/// Contents of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    Batch(Batch),
    Notice(Notice),
}

/// A frame, with its place among those of its pair if there are several ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Letter {
    pub from: Peer,
    pub place: Option<(Way, Stamp)>,
    pub body: Body,
}

/// A letter at a worker, by the time from which it can be found.
#[derive(PartialEq, Eq)]
struct Delivered {
    at_ns: u64,
    order: u64,
    letter: Letter,
}

impl Ord for Delivered {
    fn cmp(&self, other: &Delivered) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl PartialOrd for Delivered {
    fn partial_cmp(&self, other: &Delivered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Letters of a worker, the earliest first.
#[derive(Default)]
pub struct Letters {
    heap: BinaryHeap<Reverse<Delivered>>,
    count: u64,
}

impl Letters {
    pub fn add(&mut self, at_ns: u64, letter: Letter) {
        self.count += 1;
        self.heap.push(Reverse(Delivered { at_ns, order: self.count, letter }));
    }

    /// When there is a next one.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|next| next.0.at_ns)
    }

    /// Takes one that can be found by now.
    pub fn take(&mut self, now_ns: u64) -> Option<Letter> {
        if self.next_ns()? > now_ns { None } else { self.heap.pop().map(|next| next.0.letter) }
    }
}

/// A worker.
pub struct Worker {
    pub ledger: Ledger,
    pub letters: Letters,
    pub ways: Ways<Batch>,
    /// Answers that leave at the end of the turn.
    pub answers: Vec<(Peer, Batch)>,
    /// Requests to be made at the next turn.
    pub to_issue: u32,
    pub phase: u32,
    /// Writes of each trustee that were not acknowledged to it.
    pub owed: Table<Peer, u32>,
    /// When its next turn begins, unless it has nothing to do since `idle_since_ns`.
    pub next_turn_ns: Option<u64>,
    pub idle_since_ns: u64,
    /// It has nothing to do before a letter that is on its way.
    pub waits_for_letter: bool,
    /// Is it in its machine's list of those that have nothing to do?
    pub is_listed: bool,
}

impl Worker {
    /// Has it nothing to do?
    pub fn is_free(&self) -> bool {
        self.next_turn_ns.is_none() || self.waits_for_letter
    }

    /// Has it nothing to do at this time, though later?
    pub fn is_waiting(&self, at_ns: u64) -> bool {
        self.waits_for_letter && self.next_turn_ns.is_some_and(|next_ns| at_ns < next_ns)
    }

    pub fn new(rack: &Rack, limits: Limits) -> Worker {
        Worker {
            ledger: Ledger::default(),
            letters: Letters::default(),
            ways: Ways::new(rack.clone(), limits),
            answers: Vec::new(),
            to_issue: 0,
            phase: 0,
            owed: Table::default(),
            next_turn_ns: None,
            idle_since_ns: 0,
            waits_for_letter: false,
            is_listed: false,
        }
    }
}

/// A machine way at one end.
pub struct Channel {
    pub outbox: Outbox<Letter>,
    pub outbox_lock: TryLock,
    pub inbox: Inbox<Letter>,
    pub inbox_lock: TryLock,
    pub owes_ack: bool,
}

/// All that the workers of a machine share.
pub struct Machine {
    /// By the distance of the other machine.
    pub channels: Table<u16, Channel>,
    pub news: News,
    pub allowance: Allowance,
    /// Workers that may have nothing to do.
    pub idle: Vec<usize>,
}

impl Machine {
    pub fn new(machines: u16) -> Machine {
        Machine {
            channels: Table::default(),
            news: News::new(usize::from(machines)),
            allowance: Allowance::default(),
            idle: Vec::new(),
        }
    }

    pub fn channel(&mut self, distance: u16, rack: &Rack) -> &mut Channel {
        self.channels.entry(distance).or_insert_with(|| Channel {
            outbox: Outbox::default(),
            outbox_lock: TryLock::default(),
            inbox: Inbox::new(rack.clone()),
            inbox_lock: TryLock::default(),
            owes_ack: false,
        })
    }
}
