//! Machine way: outbox and ring of this machine and another one, which all threads of both share.
//!
//! ```text
//! thread            Way::add       into the outbox
//! end of its turn   Way::see_to    a write, if nothing is in flight or 64 KiB are there (`gossamer_ways::machine`)
//! (a write)                        into the ring at the other machine; wakes its receivers and the service thread
//! whoever looks     Way::see_to    takes writes out of the own ring, puts frames into the mailboxes of their threads
//! ```
//!
//! The ring is a `FrameStream` whose frames are writes, one a slot. One thread at a time sees to a way; another one
//! that comes meanwhile leaves its work to that thread and goes on (`gossamer_ways::news::SharedLock`). Nobody waits
//! for it: what it leaves, the service thread finds (`mod.rs`).
//!
//! Invariant: whoever holds the lock runs no code of the program, and waits for no thread of any machine.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use gossamer_ways::machine::WRITES_MAX;
use gossamer_ways::news::SharedLock;
use gossamer_ways::{Pair, Peer, Violation as Breach};
use trust::link::Buffer;

use super::super::connections::Connection;
use super::super::layout::Layout;
use super::super::slot::Violation;
use super::super::stream::{AckWords, FrameStream, Offsets};
use super::Ways;
use super::mailbox::Delivery;
use super::outbox::{Outbox, Outgoing, Threads};
use super::wire::{self, Head};
use crate::Place;

/// Passes of a thread that others leave work to, before it leaves the rest.
const PASSES_MAX: usize = 4;

/// How a thread sees to a way.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    /// The own thread, which need not be woken for its frames.
    pub(super) thread: u16,
    /// All that is there leaves as long as the ring has room, though others are in flight.
    pub(super) early: bool,
    /// All that has been taken is acknowledged.
    pub(super) acknowledges: bool,
}

/// Machine way; see the file's documentation.
pub(super) struct Way {
    machine: u16,
    lock: SharedLock,
    /// For the holder of the lock, and for accesses to shares.
    line: Mutex<Line>,
    outbox: Mutex<Outbox>,
    /// Bytes in the outbox.
    unsent: AtomicUsize,
    /// The ring at the other machine had no room for them.
    is_full: AtomicBool,
    owes_ack: AtomicBool,
    /// Word that counts the writes, at the other machine.
    count: usize,
}

/// The part of a way that one thread at a time uses.
pub(super) struct Line {
    pub(super) connection: Connection,
    stream: FrameStream,
    incoming: Buffer,
    outgoing: Outgoing,
    /// Threads of this machine for which frames have come.
    receivers: Threads,
}

impl Way {
    pub(super) fn new(layout: &Layout, own: u16, machine: u16, connection: Connection) -> Way {
        let offsets = Offsets {
            from: layout.way_ring(own, machine),
            to: layout.way_ring(machine, own),
            acks: AckWords::new(layout.way_ack(own, machine), layout.way_ack(machine, own)),
            park_word: layout.park_word(layout.service(machine).worker),
        };
        let line = Line {
            connection,
            stream: FrameStream::new(Layout::WAY, offsets).of_whole_frames(),
            incoming: Buffer::default(),
            outgoing: Outgoing::default(),
            receivers: Threads::default(),
        };
        Way {
            machine,
            lock: SharedLock::default(),
            line: Mutex::new(line),
            outbox: Mutex::default(),
            unsent: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            owes_ack: AtomicBool::new(false),
            count: layout.way_news_of(machine, own),
        }
    }

    /// Adds a frame from one thread to another, behind all others.
    pub(super) fn add(&self, ends: (u16, u16), head: &Head, data: &[u8]) {
        let mut outbox = self.outbox();
        outbox.add(ends, head, data);
        self.unsent.store(outbox.bytes(), Ordering::Relaxed);
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > 0
    }

    /// Could what is there leave, though others are in flight?
    pub(super) fn could_send(&self) -> bool {
        self.has_unsent() && !self.is_full.load(Ordering::Relaxed)
    }

    /// Has a thread to see to this way, though nothing has come?
    pub(super) fn is_in_arrears(&self) -> bool {
        self.has_unsent() || self.owes_ack.load(Ordering::Relaxed)
    }

    /// A write has come: has the caller, which would sleep, to take it? If another thread sees to the way it does so
    /// once more, and wakes the caller if there is something for it.
    pub(super) fn has_news_for_sleeper(&self, ways: &Ways) -> bool {
        if !self.lock.try_take() {
            return false;
        }
        if self.lock.give_back() {
            // Another thread has left it to this one, which may compute before it looks here.
            ways.leave_to_service(self.machine);
        }
        true
    }

    /// Takes what has come, sends what is due, unless another thread does. Returns whether work was left to nobody.
    pub(super) fn see_to(&self, ways: &Ways, sight: Sight) -> Result<bool, Violation> {
        if !self.lock.try_take() {
            return Ok(false);
        }
        let held = Held(&self.lock);
        for _ in 0..PASSES_MAX {
            // Another thread reads a share by this way: the caller comes again.
            let Some(mut line) = self.try_line() else { break };
            self.pass(&mut line, ways, sight)?;
            drop(line);
            if !self.lock.has_more_or_give_back() {
                std::mem::forget(held);
                return Ok(false);
            }
        }
        std::mem::forget(held);
        Ok(self.lock.give_back())
    }

    fn pass(&self, line: &mut Line, ways: &Ways, sight: Sight) -> Result<(), Violation> {
        // Before the outbox is looked at: a frame that is added behind the look sets it anew.
        ways.arrears.clear(self.machine);
        let region = ways.fabric.region();
        let told = ways.news.told(region, self.machine);
        for _ in 0..WRITES_MAX {
            if line.stream.receive(region, &mut line.incoming)?.is_none() {
                if told > line.stream.consumed() {
                    return Err(Violation::new(format!("write {told} is said to have come, and has not")));
                }
                break;
            }
            ways.news.note_taken(self.machine, line.stream.consumed());
            self.owes_ack.store(true, Ordering::Relaxed);
            ways.note_dealt();
            self.deal(ways, line.incoming.bytes(), &mut line.receivers)?;
        }
        // A thread that adds something meanwhile finds the lock taken, and this one comes again.
        let has_room = !self.has_unsent() || self.send(line, ways, sight.early)?;
        let Line { connection, stream, receivers, .. } = line;
        if sight.acknowledges && stream.owes_any_ack() {
            stream.acknowledge(connection)?;
        }
        self.owes_ack.store(stream.owes_any_ack(), Ordering::Relaxed);
        self.is_full.store(!has_room, Ordering::Relaxed);
        connection.flush()?;
        if self.is_in_arrears() {
            ways.arrears.set(self.machine);
            if !sight.acknowledges {
                // A look: the caller may compute before its turn ends, and the service thread, which had not found the
                // bit since this pass began, may have gone to sleep.
                ways.call_service();
            }
        }
        receivers.wake(|thread| if thread == sight.thread { Ok(()) } else { ways.wake(thread) })
    }

    /// Puts the frames of a write into the mailboxes of their threads.
    fn deal(&self, ways: &Ways, mut write: &[u8], receivers: &mut Threads) -> Result<(), Violation> {
        let mut open: Option<(u16, Delivery<'_>)> = None;
        while let Some(piece) = wire::next(&mut write)? {
            let from = Peer { machine: self.machine, worker: piece.from };
            let to = Peer { machine: ways.own, worker: piece.to };
            ways.rack.check(Pair { from, to }).map_err(breach)?;
            drop(open.take_if(|(thread, _)| *thread != to.worker));
            let (_, delivery) = open.get_or_insert_with(|| {
                receivers.add(to.worker);
                (to.worker, ways.mailbox(to.worker).open())
            });
            if !delivery.put(from, &piece, ways.mail_bytes_max) {
                return Err(breach(Breach::TooMuch));
            }
        }
        Ok(())
    }

    /// Sends what is due; with `early`, all that there is room for. Returns whether there is room for more.
    fn send(&self, line: &mut Line, ways: &Ways, early: bool) -> Result<bool, Violation> {
        let Line { connection, stream, outgoing, .. } = line;
        let region = ways.fabric.region();
        loop {
            let acknowledged = stream.hear(region)?;
            let has_room = stream.can_send(region)?;
            let leaves = {
                let mut outbox = self.outbox();
                outbox.acknowledge(acknowledged).map_err(breach)?;
                let leaves = outbox.take(early, outgoing);
                self.unsent.store(outbox.bytes(), Ordering::Relaxed);
                leaves
            };
            if !leaves {
                return Ok(has_room);
            }
            // It fits a slot, and there is one: the ring has as many as an outbox has in flight.
            stream.send_counted(connection, &mut outgoing.data, outgoing.frames, self.count)?;
            outgoing.receivers.wake(|thread| Ok(connection.wake(ways.layout.park_word(thread))?))?;
        }
    }

    /// Drops what has not left, for the machine is lost.
    pub(super) fn lose(&self) {
        self.outbox().clear();
        self.unsent.store(0, Ordering::Relaxed);
        self.owes_ack.store(false, Ordering::Relaxed);
        if let Some(mut line) = self.try_line() {
            (line.incoming, line.outgoing) = (Buffer::default(), Outgoing::default());
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_line(&self) -> Option<MutexGuard<'_, Line>> {
        match self.line.try_lock() {
            Ok(line) => Some(line),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs `access` with the connection of the way. Waits while a thread sees to the way.
    pub(super) fn with_connection<R>(&self, access: impl FnOnce(&Connection) -> R) -> R {
        access(&self.line.lock().unwrap_or_else(PoisonError::into_inner).connection)
    }

    /// Same as [`with_connection`](Self::with_connection), unless a thread sees to the way: then `None`.
    pub(super) fn try_with_connection<R>(&self, access: impl FnOnce(&Connection) -> R) -> Option<R> {
        self.try_line().map(|line| access(&line.connection))
    }

    /// The other machine's thread that stands for the way in messages.
    pub(super) fn other(&self, layout: &Layout) -> Place {
        layout.service(self.machine)
    }

    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn lock(&self) -> &SharedLock {
        &self.lock
    }
}

/// Gives the lock back, also when the holder unwinds.
struct Held<'a>(&'a SharedLock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

pub(super) fn breach(breach: Breach) -> Violation {
    Violation::new(breach.to_string())
}
