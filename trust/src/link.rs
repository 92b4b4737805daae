//! What takes batches to workers of other machines and back, for the crate `gossamer`; not for programs.
//!
//! Going remote changes only how a full batch travels: `gossamer` gives each worker a [`Carrier`], over which it is a
//! client of every worker of the other machines and a trustee for each. Who suspends, serves and wakes stays as it is
//! (`far/`).
//!
//! Each machine has a *service thread*: one more worker, on which no code of the program computes or blocks, so that it answers
//! whatever the others do. It is asked what concerns a machine rather than one of its workers (how many requests they have made:
//! `count.rs`), and it sends what threads without links have for other machines.
//!
//! What a carrier brings is run as what it says it is, so [`Carrier`] is an unsafe trait: safe code can neither write one nor,
//! without one, make anything of this module that touches memory it does not own.

#![allow(unsafe_code)] // `Carrier` is a promise

use crate::registry::TrusteeId;
use crate::worker;

pub use crate::buffer::Buffer;
pub use crate::config::FAR_MESSAGE_BYTES_MAX;
pub use crate::cores::quota as cpu_quota;
pub use crate::park::Bell;
pub use crate::place::{call, call_then, entrust_remote};
pub use crate::reference::entrust_here;
pub use crate::registry::{set_machine, worker_id};
pub use crate::request::Operation;

/// Bytes that a client and a trustee of one process share.
pub const PAIR_BYTES: usize = size_of::<crate::slot::Pair>();

/// The ways of one worker to those of other machines, as client and as trustee. Used by one thread.
///
/// Batches of one client to one trustee arrive in the order in which they were sent, and are answered in that order. What
/// cannot go on (a peer that is lost, bytes that make no sense) ends the program.
///
/// # Safety
/// - What [`operation_at`](Self::operation_at) returns is the operation that the peer named by its
///   [`position`](Self::position), in a program of the same build.
/// - The bytes of [`receive_requests`](Self::receive_requests) are those that a worker of that program gave to
///   [`send`](Self::send), and those of [`receive_answer`](Self::receive_answer) those that it gave to
///   [`answer`](Self::answer) for the oldest batch without an answer; each is received once. The captures in them are run as
///   what they were.
///
/// How long frames are, where requests lie in them and which property they name is checked all the same.
pub unsafe trait Carrier {
    /// The workers of other machines, service threads included. All other calls name them by their place in this list.
    fn peers(&self) -> &[TrusteeId];
    /// The service thread of each other machine.
    fn services(&self) -> &[TrusteeId];
    /// Bytes of a batch that goes in one piece. Longer ones go as well.
    fn room_bytes(&self) -> usize;

    /// What an operation is called on all machines.
    fn position(&self, operation: &'static Operation) -> u64;
    /// The operation that another machine has named.
    fn operation_at(&self, position: u64) -> Option<&'static Operation>;

    /// Client: would [`send`](Self::send) take a batch?
    fn can_send(&mut self, place: usize) -> bool;
    /// Client: sends a batch of so many requests. What the buffer holds afterwards is not said.
    fn send(&mut self, place: usize, batch: &mut Buffer, requests: u32);
    /// Client: the answer to the oldest batch that has none, once the whole of it has come: into the buffer go the
    /// responses and then the faults, of which the bytes are returned.
    fn receive_answer(&mut self, place: usize, into: &mut Buffer) -> Option<u32>;

    /// Trustee: the first peer at or behind this place that has sent something.
    fn find_requests(&self, from: usize) -> Option<usize>;
    /// Trustee: the next batch, once the whole of it has come and the answer to the one before has gone: number of requests.
    fn receive_requests(&mut self, place: usize, into: &mut Buffer) -> Option<u32>;
    /// Trustee: answers the batch that was received last. What the buffer holds afterwards is not said.
    fn answer(&mut self, place: usize, answer: &mut Buffer, faults_bytes: u32);

    /// Moves along what is under way. Once a turn.
    fn turn(&mut self);
    /// Sends what was held back. At the end of each turn, and so before the worker sleeps.
    fn flush(&mut self);
    /// Has something come, or can something go on? Asked before the worker sleeps.
    fn has_news(&self) -> bool;
    /// Ends the program: what came from this peer makes no sense.
    fn end(&self, place: usize, what: &str) -> !;
}

/// Gives the calling worker its carrier, if there are other machines, and its bell. Once, before it serves anyone, and after
/// [`set_machine`]. The first worker of a machine to have a carrier is its service thread: before any other can be sent a trust.
///
/// # Panics
/// If the worker has them already.
pub fn attach(carrier: Option<Box<dyn Carrier>>, bell: Option<Box<dyn Bell>>) {
    worker::with(|worker| worker.far.attach(worker, carrier, bell));
}
