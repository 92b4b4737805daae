//! Reads under way on a connection, by number. A ticket that nobody takes keeps its entry, and the memory in it, until
//! the connection goes.

use super::{ShareId, Ticket};
use crate::error::Error;
use crate::fabric::MachineId;
use std::collections::HashMap;

/// Reads under way. Takes no memory while there are none.
#[derive(Debug)]
pub(crate) struct Tickets<R> {
    next: u64,
    reads: HashMap<u64, R>,
}

impl<R> Default for Tickets<R> {
    fn default() -> Tickets<R> {
        Tickets { next: 1, reads: HashMap::new() }
    }
}

impl<R> Tickets<R> {
    /// Notes a read.
    pub(crate) fn add(&mut self, read: R) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.reads.insert(ticket, read);
        Ticket(ticket)
    }

    /// A read that nobody has taken yet.
    pub(crate) fn get(&mut self, ticket: Ticket) -> Result<&mut R, Error> {
        self.reads.get_mut(&ticket.0).ok_or(Error::NoSuchTicket { ticket: ticket.0 })
    }

    /// Takes a read out.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<R> {
        self.reads.remove(&ticket.0)
    }
}

/// Whether what was read fits exactly.
pub(crate) fn check_room(ticket: Ticket, bytes: usize, into: &[u8]) -> Result<(), Error> {
    match into.len() == bytes {
        true => Ok(()),
        false => Err(Error::WrongRoom { ticket: ticket.0, bytes, room_bytes: into.len() }),
    }
}

/// A read whose bytes come by and by.
#[derive(Debug)]
pub(crate) struct Landing {
    share: ShareId,
    offset: usize,
    bytes: Vec<u8>,
    missing_bytes: usize,
    is_refused: bool,
}

/// What came of a part of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many bytes are not to be had: they are not committed.
    Refused(usize),
}

impl Landing {
    pub(crate) fn new(share: ShareId, offset: usize, bytes: usize) -> Landing {
        Landing { share, offset, bytes: vec![0; bytes], missing_bytes: bytes, is_refused: false }
    }
}

impl Tickets<Landing> {
    /// Takes in what came of the part at `at` of a read. Each part comes once.
    pub(crate) fn land(&mut self, ticket: Ticket, at: usize, outcome: Outcome<'_>) {
        let Ok(landing) = self.get(ticket) else { return };
        let bytes = match outcome {
            Outcome::Bytes(bytes) => {
                landing.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            Outcome::Refused(bytes) => {
                landing.is_refused = true;
                bytes
            }
        };
        landing.missing_bytes -= bytes;
    }

    /// Whether this read still waits for bytes.
    pub(crate) fn is_waiting(&mut self, ticket: Ticket) -> Result<bool, Error> {
        Ok(self.get(ticket)?.missing_bytes > 0)
    }

    /// See `Connection::take`. What has not come does not come any more where the peer is gone.
    pub(crate) fn take(
        &mut self,
        ticket: Ticket,
        into: &mut [u8],
        peer: MachineId,
        is_gone: impl FnOnce() -> bool,
    ) -> Result<bool, Error> {
        let landing = self.get(ticket)?;
        check_room(ticket, landing.bytes.len(), into)?;
        if landing.missing_bytes > 0 {
            if !is_gone() {
                return Ok(false);
            }
            self.remove(ticket);
            return Err(Error::Gone { machine: peer });
        }
        let Some(Landing { share, offset, bytes, is_refused, .. }) = self.remove(ticket) else {
            return Err(Error::NoSuchTicket { ticket: ticket.0 });
        };
        if is_refused {
            return Err(Error::NotCommitted { share, offset, bytes: bytes.len() });
        }
        into.copy_from_slice(&bytes);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: MachineId = MachineId(1);

    #[test]
    fn parts_come_in_any_order_and_a_ticket_is_taken_once() {
        let mut tickets = Tickets::default();
        let [first, second] = [16, 8].map(|bytes| tickets.add(Landing::new(ShareId(0), 64, bytes)));
        let mut into = [0; 16];
        assert!(!tickets.take(first, &mut into, PEER, || false).unwrap());
        tickets.land(first, 8, Outcome::Bytes(&[2; 8]));
        assert!(tickets.is_waiting(first).unwrap());
        tickets.land(second, 0, Outcome::Refused(8));
        tickets.land(first, 0, Outcome::Bytes(&[1; 8]));
        assert!(matches!(tickets.take(first, &mut into[..8], PEER, || false), Err(Error::WrongRoom { .. })));
        assert!(tickets.take(first, &mut into, PEER, || panic!("it is there")).unwrap());
        assert_eq!(into, [[1; 8], [2; 8]].concat()[..]);
        assert!(matches!(tickets.take(first, &mut into, PEER, || false), Err(Error::NoSuchTicket { .. })));
        let refused = tickets.take(second, &mut into[..8], PEER, || false);
        assert!(matches!(refused, Err(Error::NotCommitted { offset: 64, bytes: 8, .. })), "{refused:?}");
    }

    #[test]
    fn what_a_dead_peer_owes_is_told_once() {
        let mut tickets = Tickets::default();
        let ticket = tickets.add(Landing::new(ShareId(0), 0, 8));
        assert!(matches!(tickets.take(ticket, &mut [0; 8], PEER, || true), Err(Error::Gone { machine: PEER })));
        assert!(matches!(tickets.take(ticket, &mut [0; 8], PEER, || true), Err(Error::NoSuchTicket { .. })));
    }
}
