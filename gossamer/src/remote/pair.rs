//! Whose turn it is: the two halves of one way, which strictly alternate, and frames that need more than one slot.
//!
//! ```text
//! client (write n into the request slot)        trustee (write n into the answer slot)
//! Whole  a batch                           ->
//!                                          <-   Whole  its answer
//! Piece, Piece, .. Last  a large request   ->
//!                                          <-   Go, Go, ..  then as above
//!                                          <-   Piece, Piece, .. Last  a large answer
//! Go, Go, ..                               ->
//! ```
//!
//! Every write is answered by one write of the same number, so each half knows the one number that its flag may show
//! next. Here: turns and pieces. Not here: what frames mean.
//!
//! Invariants: a slot is written only after the write with the same number less one (for the client: the answer to it)
//! has been taken out at the other side; a frame never exceeds [`FRAME_BYTES_MAX`] on either side.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use comm::{Connection, Fabric};

use super::frame::Frame;
use super::slot::{self, Direction, Head, Kind, SLOT_BYTES, Violation};

/// The longest frame: what positions of 32 bits can tell. `trust` bounds single requests and results far below.
const FRAME_BYTES_MAX: usize = u32::MAX as usize;

/// A connection, which all ways of one worker to one machine share.
pub(super) type SharedConnection = Rc<RefCell<Box<dyn Connection>>>;

/// One half's access to the two slots of a pair.
pub(super) struct Way {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) connection: SharedConnection,
    /// What this half writes.
    pub(super) direction: Direction,
    /// The slot it writes, in the peer's region.
    pub(super) to: usize,
    /// The park word of the peer's worker, in the peer's region.
    pub(super) bell: usize,
    /// The slot it reads, in the own region.
    pub(super) from: usize,
}

impl Way {
    /// The number of the last write in the slot that this half reads.
    fn flag(&self) -> Result<u64, Violation> {
        let word = self.fabric.region().word(self.from + SLOT_BYTES - 8).map_err(broken)?;
        // Acquire of pair W (`comm::fabric`): with the number, the whole write is visible. The Release is the peer's
        // `Connection::write`.
        Ok(word.load(Ordering::Acquire))
    }

    /// Writes `data`, which become the sealed slot, and wakes the peer.
    fn write(&self, data: &mut Vec<u8>, head: &Head, number: u64) -> Result<(), Violation> {
        let offset = slot::seal(data, self.direction, head, number);
        let mut connection = self.connection.borrow_mut();
        connection.write(data, self.to + offset).map_err(broken)?;
        connection.ring(self.bell).map_err(broken)?;
        connection.flush().map_err(broken)
    }

    /// Appends the data of the write that was seen.
    fn take(&self, into: &mut Vec<u8>) -> Result<Head, Violation> {
        let theirs = match self.direction {
            Direction::Request => Direction::Answer,
            Direction::Answer => Direction::Request,
        };
        let head = slot::take(self.fabric.region(), self.from, theirs, into)?;
        if into.len() > FRAME_BYTES_MAX {
            return Err(Violation::new(format!("a frame of more than {FRAME_BYTES_MAX} bytes")));
        }
        Ok(head)
    }
}

fn broken(error: comm::Error) -> Violation {
    Violation::new(error.to_string())
}

/// A frame on its way out.
struct Outgoing {
    data: Vec<u8>,
    sent: usize,
    head: Head,
}

impl Outgoing {
    /// Writes what fits; true if that was the last of it.
    fn write_next(&mut self, way: &Way, number: u64) -> Result<bool, Violation> {
        let left = &self.data[self.sent..];
        let is_last = left.len() <= way.direction.room();
        let kind = match (self.sent, is_last) {
            (0, true) => Kind::Whole,
            (_, true) => Kind::Last,
            (_, false) => Kind::Piece,
        };
        let head = Head { kind, ..self.head };
        if kind == Kind::Whole {
            way.write(&mut self.data, &head, number)?;
        } else {
            let bytes = left.len().min(way.direction.room());
            let mut piece = Vec::with_capacity(SLOT_BYTES);
            piece.extend_from_slice(&left[..bytes]);
            self.sent += bytes;
            way.write(&mut piece, &head, number)?;
        }
        Ok(is_last)
    }
}

fn check_size(bytes: usize) -> Result<(), Violation> {
    if bytes > FRAME_BYTES_MAX {
        return Err(Violation::new(format!(
            "a frame of {bytes} bytes, more than the {FRAME_BYTES_MAX} that can travel"
        )));
    }
    Ok(())
}

fn out_of_turn(kind: Kind) -> Violation {
    Violation::new(format!("a write of kind {kind:?} that was not its turn"))
}

/// The client's half.
pub(super) struct ClientHalf {
    way: Way,
    /// Number of the last write.
    number: u64,
    state: ClientState,
    /// What has come of the answer.
    answer: Vec<u8>,
}

enum ClientState {
    Idle,
    /// A large frame; the trustee is to ask for the rest.
    Sending(Outgoing),
    /// The trustee has the whole frame.
    Waiting,
}

impl ClientHalf {
    pub(super) fn new(way: Way) -> ClientHalf {
        ClientHalf { way, number: 0, state: ClientState::Idle, answer: Vec::new() }
    }

    /// Is no frame in flight?
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, ClientState::Idle)
    }

    /// Sends a frame. To be called when idle.
    pub(super) fn send(&mut self, frame: &mut Frame) -> Result<(), Violation> {
        assert!(self.is_idle(), "one frame at a time");
        check_size(frame.data.len())?;
        self.number += 1;
        if frame.data.len() <= self.way.direction.room() {
            let head = frame.head(Kind::Whole);
            self.state = ClientState::Waiting;
            return self.way.write(&mut frame.data, &head, self.number);
        }
        let head = frame.head(Kind::Piece);
        let mut outgoing = Outgoing { data: std::mem::take(&mut frame.data), sent: 0, head };
        outgoing.write_next(&self.way, self.number)?;
        self.state = ClientState::Sending(outgoing);
        Ok(())
    }

    /// Would `receive` have something to do?
    pub(super) fn has_news(&self) -> bool {
        // A flag that cannot be read is news as well: `receive` tells.
        !self.is_idle() && self.way.flag() != Ok(self.number - 1)
    }

    /// Goes on with what the trustee wrote; the data and number of faults of the answer once it is complete.
    pub(super) fn receive(&mut self) -> Result<Option<(Vec<u8>, u16)>, Violation> {
        if self.is_idle() {
            return Ok(None);
        }
        let flag = self.way.flag()?;
        if flag != self.number {
            return if flag == self.number - 1 { Ok(None) } else { Err(wrong_number(flag, self.number)) };
        }
        let head = self.way.take(&mut self.answer)?;
        match (&mut self.state, head.kind) {
            (ClientState::Sending(outgoing), Kind::Go) => {
                self.number += 1;
                if outgoing.write_next(&self.way, self.number)? {
                    self.state = ClientState::Waiting;
                }
                Ok(None)
            }
            (ClientState::Waiting, Kind::Piece) => {
                self.number += 1;
                self.way.write(&mut Vec::new(), &Head::new(Kind::Go, 0), self.number)?;
                Ok(None)
            }
            (ClientState::Waiting, Kind::Whole | Kind::Last) => {
                self.state = ClientState::Idle;
                Ok(Some((std::mem::take(&mut self.answer), head.count)))
            }
            (_, kind) => Err(out_of_turn(kind)),
        }
    }
}

/// The trustee's half.
pub(super) struct TrusteeHalf {
    way: Way,
    /// Number of the last write that was taken.
    number: u64,
    state: TrusteeState,
    /// What has come of the frame.
    frame: Vec<u8>,
}

enum TrusteeState {
    Receiving,
    /// A frame was handed out and is not answered.
    Serving,
    /// A large answer; the client is to ask for the rest.
    Answering(Outgoing),
}

impl TrusteeHalf {
    pub(super) fn new(way: Way) -> TrusteeHalf {
        TrusteeHalf { way, number: 0, state: TrusteeState::Receiving, frame: Vec::new() }
    }

    /// Would `receive` have something to do?
    pub(super) fn has_news(&self) -> bool {
        // A flag that cannot be read is news as well: `receive` tells.
        self.way.flag() != Ok(self.number)
    }

    /// Goes on with what the client wrote; a frame and its head once it is complete.
    pub(super) fn receive(&mut self) -> Result<Option<(Vec<u8>, Head)>, Violation> {
        let flag = self.way.flag()?;
        if flag == self.number {
            return Ok(None);
        }
        if flag != self.number + 1 {
            return Err(wrong_number(flag, self.number + 1));
        }
        let head = self.way.take(&mut self.frame)?;
        self.number = flag;
        match (&mut self.state, head.kind) {
            (TrusteeState::Receiving, Kind::Piece) => {
                self.way.write(&mut Vec::new(), &Head::new(Kind::Go, 0), self.number)?;
                Ok(None)
            }
            (TrusteeState::Receiving, Kind::Whole | Kind::Last) => {
                self.state = TrusteeState::Serving;
                Ok(Some((std::mem::take(&mut self.frame), head)))
            }
            (TrusteeState::Answering(outgoing), Kind::Go) => {
                if outgoing.write_next(&self.way, self.number)? {
                    self.state = TrusteeState::Receiving;
                }
                Ok(None)
            }
            (_, kind) => Err(out_of_turn(kind)),
        }
    }

    /// Answers the frame that was received last.
    pub(super) fn answer(&mut self, data: Vec<u8>, faults: u16) -> Result<(), Violation> {
        assert!(matches!(self.state, TrusteeState::Serving), "one answer for each frame");
        check_size(data.len())?;
        let mut outgoing = Outgoing { data, sent: 0, head: Head::new(Kind::Whole, faults) };
        let is_done = outgoing.write_next(&self.way, self.number)?;
        self.state = if is_done { TrusteeState::Receiving } else { TrusteeState::Answering(outgoing) };
        Ok(())
    }
}

fn wrong_number(found: u64, expected: u64) -> Violation {
    Violation::new(format!("write {found} where write {expected} was to come"))
}
