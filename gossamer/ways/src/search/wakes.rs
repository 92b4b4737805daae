//! All orders of the steps of four workers: two of one machine add frames and send them, two of another one deal them
//! out. Each step is one access to memory that others access, too.
//!
//! With a [`Fault`] a worker leaves out what a rule of `news` asks for: the search has to find that.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Kind, Model, search};
use crate::machine::{DEAL_BYTES, Frame, Inbox, Outbox, WRITE_BYTES, Write};
use crate::news::{News, TryLock};
use crate::{Pair, Peer, Rack};

/// Workers of each machine.
const WORKERS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Fault {
    None,
    /// Clears the bit behind the deal.
    DealThenClear,
    /// Leaves though the lock says that there is more.
    LeavesMore,
    /// Sleeps without a look behind having said so.
    SleepsAtOnce,
    /// Forgets writes that it had no room for.
    ForgetsRest,
}

/// Next step of a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Next {
    Turn,
    Send,
    Take,
    Put(Write<u8>),
    Tell,
    WakeReceiver,
    LeaveOutbox,
    Deal,
    Rest,
    Acknowledge,
    WakeSender,
    LeaveInbox,
    Doze,
    LookAgain,
    Sleep,
}

#[derive(Clone, Hash, Debug)]
struct Worker {
    next: Next,
    /// Frames that it will add.
    to_add: u8,
    /// Frames that were dealt out to it.
    queue: Vec<u8>,
    is_asleep: bool,
}

/// The sending machine's workers stand first.
#[derive(Clone, Hash, Debug)]
struct Machines {
    fault: Fault,
    frame_bytes: usize,
    workers: Vec<Worker>,
    /// Of the sending machine: acknowledgements; of the receiving one: writes.
    news: [News; 2],
    outbox: Outbox<u8>,
    outbox_lock: TryLock,
    inbox: Inbox<u8>,
    inbox_lock: TryLock,
    added: u8,
    taken: u8,
}

impl Machines {
    fn new(fault: Fault, frame_bytes: usize, to_add: [u8; WORKERS]) -> Machines {
        let worker = |to_add| Worker { next: Next::Turn, to_add, queue: Vec::new(), is_asleep: false };
        Machines {
            fault,
            frame_bytes,
            workers: to_add.into_iter().chain([0; WORKERS]).map(worker).collect(),
            news: [News::new(1), News::new(1)],
            outbox: Outbox::default(),
            outbox_lock: TryLock::default(),
            inbox: Inbox::new(Rack::new(&[WORKERS as u16; 2])),
            inbox_lock: TryLock::default(),
            added: 0,
            taken: 0,
        }
    }

    /// Wakes a worker of a machine of which all sleep.
    fn wake(&mut self, machine: usize) {
        let workers = &mut self.workers[machine * WORKERS..][..WORKERS];
        if workers.iter().all(|worker| worker.is_asleep) {
            workers[0].is_asleep = false;
        }
    }

    /// A turn: adds, takes what was dealt out, looks for news; without any, goes to sleep.
    fn turn(&mut self, index: usize) -> Next {
        let machine = index / WORKERS;
        let worker = &mut self.workers[index];
        if worker.to_add > 0 {
            worker.to_add -= 1;
            let from = Peer { machine: 0, worker: index as u16 };
            let pair = Pair { from, to: Peer { machine: 1, worker: index as u16 } };
            self.outbox.add(Frame { pair, bytes: self.frame_bytes, body: index as u8 });
            self.added += 1;
            return Next::Send;
        }
        self.taken += worker.queue.len() as u8;
        worker.queue.clear();
        if machine == 1 && self.fault == Fault::DealThenClear && !self.news[1].is_empty() {
            return self.enter_inbox();
        }
        if self.news[machine].take().is_none() {
            return Next::Doze;
        }
        if machine == 1 {
            return self.enter_inbox();
        }
        let acknowledged = self.outbox.acknowledge(self.inbox.taken());
        acknowledged.expect("the receiver counts what was written");
        Next::Send
    }

    fn enter_inbox(&mut self) -> Next {
        if self.inbox_lock.try_take() { Next::Deal } else { Next::Turn }
    }

    fn leave(lock: &mut TryLock, fault: Fault, again: Next) -> Next {
        if lock.has_more_or_give_back() {
            if fault != Fault::LeavesMore {
                return again;
            }
            *lock = TryLock::Free;
        }
        Next::Turn
    }
}

impl Model for Machines {
    type Action = usize;

    fn actions(&self) -> Vec<(usize, Kind)> {
        let awake =
            self.workers.iter().enumerate().filter(|(_, worker)| worker.next != Next::Sleep || !worker.is_asleep);
        awake.map(|(index, _)| (index, Kind::ByItself)).collect()
    }

    fn step(&mut self, index: usize) -> Result<(), String> {
        let next = std::mem::replace(&mut self.workers[index].next, Next::Turn);
        self.workers[index].next = match next {
            Next::Turn => self.turn(index),
            Next::Send if self.outbox.is_due() && self.outbox_lock.try_take() => Next::Take,
            Next::Send => Next::Turn,
            Next::Take => self.outbox.take().map_or(Next::LeaveOutbox, Next::Put),
            Next::Put(write) => {
                self.inbox.arrive(write).map_err(|violation| violation.to_string())?;
                Next::Tell
            }
            Next::Tell => {
                self.news[1].set(0);
                Next::WakeReceiver
            }
            Next::WakeReceiver => {
                self.wake(1);
                Next::LeaveOutbox
            }
            Next::LeaveOutbox => Machines::leave(&mut self.outbox_lock, self.fault, Next::Take),
            Next::Deal => {
                for frame in self.inbox.deal() {
                    let owner = &mut self.workers[WORKERS + usize::from(frame.pair.to.worker)];
                    owner.queue.push(frame.body);
                    owner.is_asleep = false;
                }
                Next::Rest
            }
            Next::Rest => {
                if self.fault == Fault::DealThenClear {
                    let _ = self.news[1].take();
                } else if self.fault != Fault::ForgetsRest && !self.inbox.is_empty() {
                    self.news[1].set(0);
                }
                Next::Acknowledge
            }
            Next::Acknowledge => {
                self.news[0].set(0);
                Next::WakeSender
            }
            Next::WakeSender => {
                self.wake(0);
                Next::LeaveInbox
            }
            Next::LeaveInbox => Machines::leave(&mut self.inbox_lock, self.fault, Next::Deal),
            Next::Doze => {
                self.workers[index].is_asleep = true;
                if self.fault == Fault::SleepsAtOnce { Next::Sleep } else { Next::LookAgain }
            }
            Next::LookAgain => {
                let has_work = !self.news[index / WORKERS].is_empty() || !self.workers[index].queue.is_empty();
                self.workers[index].is_asleep &= !has_work;
                if has_work { Next::Turn } else { Next::Sleep }
            }
            Next::Sleep => Next::Turn,
        };
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        let Machines { added, taken, .. } = *self;
        if added != taken || self.workers.iter().any(|worker| worker.to_add > 0) {
            return Err(format!("{taken} of {added} frames were taken, and all sleep"));
        }
        let is_free = self.outbox_lock == TryLock::Free && self.inbox_lock == TryLock::Free;
        if is_free && !self.outbox.is_due() { Ok(()) } else { Err("something is left".to_owned()) }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

fn states(frame_bytes: usize, to_add: [u8; WORKERS]) -> usize {
    search(Machines::new(Fault::None, frame_bytes, to_add)).unwrap_or_else(|fault| panic!("{fault}"))
}

/// Two of these are more than is dealt out in one go.
const LARGE: usize = DEAL_BYTES / 2 + 1;

#[test]
fn search_of_small_frames_finds_nothing_left_behind() {
    let states = states(8, [1, 1]);
    assert!(states > 88_000, "{states} states are not all");
}

#[test]
fn search_of_full_writes_finds_nothing_left_behind() {
    let states = states(WRITE_BYTES, [1, 1]);
    assert!(states > 190_000, "{states} states are not all");
}

#[test]
fn search_of_more_than_is_dealt_at_once_finds_nothing_left_behind() {
    let states = states(LARGE, [2, 0]);
    assert!(states > 90_000, "{states} states are not all");
}

#[test]
#[ignore = "takes minutes: `cargo test -p gossamer-ways -- --ignored stress`"]
fn stress_search_of_three_frames_finds_nothing_left_behind() {
    for (bytes, least) in [(8, 290_000), (WRITE_BYTES, 1_400_000), (LARGE, 1_400_000)] {
        let states = states(bytes, [2, 1]);
        assert!(states > least, "{states} states are not all");
    }
}

#[test]
fn search_finds_each_rule_that_is_left_out() {
    for (fault, bytes, to_add) in [
        (Fault::DealThenClear, 8, [1, 1]),
        (Fault::LeavesMore, WRITE_BYTES, [1, 1]),
        (Fault::SleepsAtOnce, 8, [1, 1]),
        (Fault::ForgetsRest, LARGE, [2, 0]),
    ] {
        let found = search(Machines::new(fault, bytes, to_add));
        assert!(found.is_err(), "{fault:?}: {found:?}");
    }
}
