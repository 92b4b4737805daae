//! Interface to the transport of batches to workers of other machines and back: the crate `gossamer` implements it.

#![allow(unsafe_code)] // a promise

use crate::buffer::Buffer;
use crate::ids::TrusteeId;
use crate::request::Operation;

/// The connections of one worker to those of other machines, as client and as trustee. Used by one thread.
///
/// Batches of one client to one trustee arrive in the order in which they were sent, and are answered in that order. A
/// fatal error (a peer that is lost, bytes that make no sense) ends the program.
///
/// # Safety
/// - The result of [`operation_at`](Self::operation_at) is the operation that the peer named by its
///   [`position`](Self::position), in a program of the same build.
/// - The bytes of [`receive_requests`](Self::receive_requests) are those that a worker of that program gave to
///   [`send`](Self::send), and those of [`receive_answer`](Self::receive_answer) those that it gave to
///   [`answer`](Self::answer) for the oldest batch without an answer; each is received once. The captures in them are
///   run with their original types.
///
/// The lengths of frames, the places of requests in them and the properties that they name are checked all the same.
pub unsafe trait Carrier {
    /// The workers of other machines, service threads included, in the order of their ids. All other calls name them by
    /// their place in this list.
    fn peers(&self) -> &[TrusteeId];
    /// The service thread of this machine.
    fn service(&self) -> TrusteeId;
    /// The service thread of each other machine.
    fn services(&self) -> &[TrusteeId];
    /// Bytes of a batch that goes in one piece. Longer ones go as well.
    fn room_bytes(&self) -> usize;

    /// Position of an operation, the same on all machines.
    fn position(&self, operation: &'static Operation) -> u64;
    /// The operation that another machine has named.
    fn operation_at(&self, position: u64) -> Option<&'static Operation>;

    /// Client: would [`send`](Self::send) take a batch?
    fn can_send(&mut self, place: usize) -> bool;
    /// Client: sends a batch of this many requests. The contents of the buffer afterwards are unspecified.
    fn send(&mut self, place: usize, batch: &mut Buffer, requests: u32);
    /// Client: the answer to the oldest batch that has none, once the whole of it has come: puts the responses and then
    /// the faults into the buffer, and returns the bytes of the faults.
    fn receive_answer(&mut self, place: usize, into: &mut Buffer) -> Option<u32>;

    /// Trustee: the first peer at or behind this place that has sent something.
    fn find_requests(&self, from: usize) -> Option<usize>;
    /// Trustee: the next batch, once the whole of it has come and the answer to the one before has gone. Returns its
    /// number of requests.
    fn receive_requests(&mut self, place: usize, into: &mut Buffer) -> Option<u32>;
    /// Trustee: answers the batch that was received last. The contents of the buffer afterwards are unspecified.
    fn answer(&mut self, place: usize, answer: &mut Buffer, faults_bytes: u32);

    /// Advances transfers. Once a turn.
    fn turn(&mut self);
    /// Sends the batches held back. At the end of each turn, and so before the worker sleeps.
    fn flush(&mut self);
    /// Has something come, or can a transfer go on? Asked before the worker sleeps.
    fn has_work(&self) -> bool;
    /// This machine is lost: from now on nothing is received from its workers, neither requests nor answers, and what
    /// waits to be sent to them is dropped. Nothing is sent to them any more.
    fn lose(&mut self, machine: u16);
    /// Ends the program: bytes from this peer make no sense.
    fn end(&self, place: usize, what: &str) -> !;
}
