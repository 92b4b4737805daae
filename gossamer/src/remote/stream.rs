//! Frames in one direction between two workers, through a ring of slots, and both directions of a stream together.
//!
//! ```text
//! sender                                    receiver
//! write n into slot n mod N            ->   sees the number n as the flag of that slot, takes the data out
//!                                      <-   "n consumed": in the trailer of its next write the other way, or,
//!                                           if there is none by the end of a turn, in the acknowledgement word
//! ```
//!
//! The sender writes ahead by at most N. A frame that does not fit a slot goes in pieces, one behind the other through
//! the same ring, so a large one flows as fast as the receiver consumes it. An acknowledgement word is written alone
//! and needs no slot: the two directions of a stream cannot wait for each other.
//!
//! Direct ways have no acknowledgement words: their users write a frame where one is due, and keep a slot for it.
//!
//! Client and trustee have the same [`FrameStream`]; only the side that begins differs, which `carrier` knows. Here:
//! slots in turn, and pieces. Not here: the meaning of frames.
//!
//! Invariants: a slot is written only after its earlier content has been consumed. Violations are: a flag that is
//! neither the last number nor the next, a count that goes back or beyond the writes sent, and a frame beyond
//! [`FRAME_BYTES_MAX`].

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

use comm::{Region, WORD_BYTES};
use trust::link::{Buffer, REMOTE_MESSAGE_BYTES_MAX};

use super::connections::Connection;
use super::layout::Slots;
use super::slot::{self, FRAME_BYTES_MAX, Kind, TRAILER_BYTES, Trailer, Violation};

/// Most memory reserved for a frame before its bytes have come.
const RESERVED_BYTES_MAX: usize = 1 << 20;

// `trust` bounds each single message; the answers to a batch are as long as they are together, so a frame of many must
// not exceed the limit.
const _: () = assert!((REMOTE_MESSAGE_BYTES_MAX as u64) << 24 < FRAME_BYTES_MAX);

/// Offsets of a stream's slots and words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offsets {
    /// First slot that this end reads, in the own region, and that it writes, in the peer's.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where there are none, acknowledgements go in writes alone.
    pub(super) acks: Option<AckWords>,
    /// The peer's park word, in its region.
    pub(super) park_word: usize,
}

/// Acknowledgement word that this end reads, in the own region, and that it writes, in the peer's.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckWords {
    from: NonZeroUsize,
    to: usize,
}

impl AckWords {
    /// `None` for the offset 0, where no layout has such a word.
    pub(super) fn new(from: usize, to: usize) -> Option<AckWords> {
        NonZeroUsize::new(from).map(|from| AckWords { from, to })
    }
}

/// One end of a stream: it sends frames to the other end and receives frames from there.
pub(super) struct FrameStream {
    slots: Slots,
    offsets: Offsets,
    /// Writes so far, and how many of them the peer has acknowledged.
    written: u64,
    freed: u64,
    /// Frame with a part still to be written.
    sending: Option<Sending>,
    /// Writes consumed, and how many of these were acknowledged.
    consumed: u64,
    acknowledged: u64,
    /// Received part of a frame in pieces: its total, and its bytes so far.
    partial: Option<(u64, Buffer)>,
    takes_pieces: bool,
}

struct Sending {
    frame: Buffer,
    sent: usize,
    note: u32,
}

impl FrameStream {
    pub(super) fn new(slots: Slots, offsets: Offsets) -> FrameStream {
        FrameStream {
            slots,
            offsets,
            written: 0,
            freed: 0,
            sending: None,
            consumed: 0,
            acknowledged: 0,
            partial: None,
            takes_pieces: true,
        }
    }

    /// One that refuses frames in pieces.
    pub(super) fn of_whole_frames(self) -> FrameStream {
        FrameStream { takes_pieces: false, ..self }
    }

    fn room(&self) -> usize {
        self.slots.room_bytes()
    }

    fn slot(&self, first: usize, number: u64) -> usize {
        first + self.slots.stride_bytes() * (number % u64::from(self.slots.per_pair)) as usize
    }

    /// Returns the offset in the own region of the flag that the next write to this end will set, and its value before:
    /// the number of the last write into that slot.
    pub(super) fn next_flag(&self) -> (usize, u64) {
        let number = self.consumed + 1;
        let before = number.saturating_sub(u64::from(self.slots.per_pair));
        (self.slot(self.offsets.from, number) + self.slots.bytes - WORD_BYTES, before)
    }

    /// Returns whether an outgoing frame waits for room.
    pub(super) fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    fn room_writes(&self) -> u64 {
        u64::from(self.slots.per_pair) - (self.written - self.freed)
    }

    fn has_room(&self) -> bool {
        self.room_writes() > 0
    }

    /// Returns whether there is room for so many writes; reads the peer's counts if there seems to be none.
    pub(super) fn has_room_for(&mut self, writes: u64, region: &Region) -> Result<bool, Violation> {
        if self.room_writes() < writes {
            self.note_freed(self.heard(region)?)?;
        }
        Ok(self.room_writes() >= writes)
    }

    /// Returns whether a frame could be sent now.
    pub(super) fn can_send(&mut self, region: &Region) -> Result<bool, Violation> {
        Ok(self.sending.is_none() && self.find_room(region)?)
    }

    /// Returns whether there is room to write; reads the acknowledgement word if there is none yet.
    fn find_room(&mut self, region: &Region) -> Result<bool, Violation> {
        self.has_room_for(1, region)
    }

    /// Returns how many writes the peer has consumed by its own count: in the acknowledgement word, or in a write of
    /// its own that has come and is not consumed yet. That write matters: a trustee with an answer on its way takes no
    /// request, and the client's count may be in one.
    fn heard(&self, region: &Region) -> Result<u64, Violation> {
        // Acquire of [flag-last] (`comm::fabric`), here and below: the peer had consumed the data before. The Release
        // is its `Connection::write`.
        let mut heard = match self.offsets.acks {
            Some(AckWords { from, .. }) => region.word(from.get())?.load(Ordering::Acquire),
            None => self.freed,
        };
        for number in self.consumed + 1..=self.consumed + u64::from(self.slots.per_pair) {
            let slot = self.slot(self.offsets.from, number);
            if region.word(slot + self.slots.bytes - WORD_BYTES)?.load(Ordering::Acquire) != number {
                break;
            }
            heard = heard.max(slot::trailer(region, slot, self.room())?.consumed);
        }
        Ok(heard)
    }

    /// Returns whether a frame that waits for room could go on.
    pub(super) fn can_go_on(&self, region: &Region) -> bool {
        // Errors of the region and violations are reported by `go_on`.
        self.is_sending() && (self.has_room() || self.heard(region).map_or(true, |heard| heard > self.freed))
    }

    fn note_freed(&mut self, freed: u64) -> Result<(), Violation> {
        if freed > self.written {
            return Err(Violation::new(format!("{freed} writes are acknowledged, of {}", self.written)));
        }
        // The word may be older than a trailer's count.
        self.freed = self.freed.max(freed);
        Ok(())
    }

    /// Sends a frame, or as much of it as there is room for. [`go_on`](Self::go_on) sends the rest, before which no
    /// other frame may be sent.
    pub(super) fn send(
        &mut self,
        region: &Region,
        connection: &Connection,
        frame: &mut Buffer,
        note: u32,
    ) -> Result<(), Violation> {
        self.check(frame)?;
        let bytes = frame.len();
        let sent = self.write_while_room(region, connection, frame, 0, note)?;
        // A frame of no bytes is written all the same.
        if sent.is_none_or(|sent| sent < bytes) {
            self.sending = Some(Sending { frame: std::mem::take(frame), sent: sent.unwrap_or(0), note });
        }
        Ok(())
    }

    /// Keeps a frame back: [`go_on`](Self::go_on) sends it, before which no other frame may be sent.
    pub(super) fn hold(&mut self, frame: &mut Buffer, note: u32) -> Result<(), Violation> {
        self.check(frame)?;
        self.sending = Some(Sending { frame: std::mem::take(frame), sent: 0, note });
        Ok(())
    }

    /// Checks that a frame may be sent.
    fn check(&self, frame: &Buffer) -> Result<(), Violation> {
        assert!(self.sending.is_none(), "one frame at a time");
        let bytes = frame.len();
        if bytes as u64 > FRAME_BYTES_MAX {
            return Err(Violation::new(format!(
                "a batch came to {bytes} bytes; no more than {FRAME_BYTES_MAX} can travel"
            )));
        }
        Ok(())
    }

    /// Writes more of the frame that waits for room.
    pub(super) fn go_on(&mut self, region: &Region, connection: &Connection) -> Result<(), Violation> {
        let Some(mut sending) = self.sending.take() else { return Ok(()) };
        let sent = self.write_while_room(region, connection, &mut sending.frame, sending.sent, sending.note)?;
        if sent.is_none_or(|sent| sent < sending.frame.len()) {
            sending.sent = sent.unwrap_or(sending.sent);
            self.sending = Some(sending);
        }
        Ok(())
    }

    /// Writes as much of a frame, from `sent` on, as there is room for. Returns the bytes of the frame written so far,
    /// or `None` if there is no room at all.
    fn write_while_room(
        &mut self,
        region: &Region,
        connection: &Connection,
        frame: &mut Buffer,
        sent: usize,
        note: u32,
    ) -> Result<Option<usize>, Violation> {
        let mut written = None;
        while written.is_none_or(|sent| sent < frame.len()) && self.find_room(region)? {
            written = Some(self.write(connection, frame, written.unwrap_or(sent), note)?);
        }
        Ok(written)
    }

    /// Writes the next piece of a frame, from `sent` on, and wakes the peer. Returns the bytes of the frame written so
    /// far.
    fn write(
        &mut self,
        connection: &Connection,
        frame: &mut Buffer,
        sent: usize,
        note: u32,
    ) -> Result<usize, Violation> {
        let written = self.put(connection, frame, sent, note)?;
        connection.wake(self.offsets.park_word)?;
        Ok(written)
    }

    /// Sends a frame that fits a slot, for which there is room, to a peer that looks at the word `count` and not at the
    /// flags.
    pub(super) fn send_counted(
        &mut self,
        connection: &Connection,
        frame: &mut Buffer,
        note: u32,
        count: usize,
    ) -> Result<(), Violation> {
        self.put(connection, frame, 0, note)?;
        connection.write(&self.written.to_ne_bytes(), count)?;
        Ok(connection.wake(self.offsets.park_word)?)
    }

    fn put(&mut self, connection: &Connection, frame: &mut Buffer, sent: usize, note: u32) -> Result<usize, Violation> {
        let (total, room) = (frame.len(), self.room());
        let len = (total - sent).min(room);
        let kind = match (sent == 0, sent + len == total) {
            (true, true) => Kind::Whole,
            (_, true) => Kind::Last,
            (_, false) => Kind::Piece,
        };
        self.written += 1;
        let trailer = Trailer { consumed: self.consumed, len: len as u32, kind, total: total as u64, note };
        let slot_end = self.slot(self.offsets.to, self.written) + self.slots.bytes;
        slot::seal(frame, sent, &trailer, self.written, |bytes| connection.write(bytes, slot_end - bytes.len()))?;
        self.acknowledged = self.consumed;
        Ok(sent + len)
    }

    /// Receives the next frame, once it is complete, and returns its note.
    pub(super) fn receive(&mut self, region: &Region, into: &mut Buffer) -> Result<Option<u32>, Violation> {
        loop {
            let (offset, before) = self.next_flag();
            let number = self.consumed + 1;
            // Acquire of [flag-last] (`comm::fabric`): with the number, the whole write is visible. The Release is the
            // peer's `Connection::write`.
            let flag = region.word(offset)?.load(Ordering::Acquire);
            if flag != number {
                return if flag == before { Ok(None) } else { Err(wrong_number(flag, number)) };
            }
            if let Some(note) = self.take(region, number, into)? {
                return Ok(Some(note));
            }
        }
    }

    /// Takes one write out of its slot. Returns the frame's note if that was its last.
    fn take(&mut self, region: &Region, number: u64, into: &mut Buffer) -> Result<Option<u32>, Violation> {
        let (slot, room) = (self.slot(self.offsets.from, number), self.room());
        let trailer = slot::trailer(region, slot, room)?;
        let out_of_turn = || Violation::new(format!("a {:?} that was not its turn", trailer.kind));
        match (trailer.kind, &mut self.partial) {
            (Kind::Whole, None) => {
                into.set_len(0);
                slot::take(region, slot, room, &trailer, into)?;
            }
            (Kind::Piece, None) if self.takes_pieces => {
                let mut buffer = Buffer::default();
                // The peer's total is not trusted before the bytes have come.
                buffer.reserve(trailer.total.min(RESERVED_BYTES_MAX as u64) as usize);
                slot::take(region, slot, room, &trailer, &mut buffer)?;
                self.partial = Some((trailer.total, buffer));
            }
            (Kind::Piece | Kind::Last, Some((total, buffer))) => {
                let bytes = buffer.len() + trailer.len as usize;
                let is_last = trailer.kind == Kind::Last;
                if trailer.total != *total || bytes as u64 > *total || (bytes as u64 == *total) != is_last {
                    return Err(out_of_turn());
                }
                slot::take(region, slot, room, &trailer, buffer)?;
            }
            (Kind::Whole, Some(_)) | (Kind::Piece | Kind::Last, None) => return Err(out_of_turn()),
        }
        self.consumed = number;
        self.note_freed(trailer.consumed)?;
        if trailer.kind == Kind::Piece {
            return Ok(None);
        }
        if let Some((_, buffer)) = self.partial.take() {
            *into = buffer;
        }
        Ok(Some(trailer.note))
    }

    /// Returns whether an acknowledgement is due that nothing else would carry soon.
    pub(super) fn owes_ack(&self) -> bool {
        self.consumed - self.acknowledged >= u64::from(self.slots.per_pair).div_ceil(2)
    }

    /// Returns how many writes the peer has consumed, by its last count.
    pub(super) fn hear(&mut self, region: &Region) -> Result<u64, Violation> {
        self.note_freed(self.heard(region)?)?;
        Ok(self.freed)
    }

    /// Returns how many writes this end has consumed.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns whether any write is not acknowledged.
    pub(super) fn owes_any_ack(&self) -> bool {
        self.consumed > self.acknowledged
    }

    /// Acknowledges all writes consumed so far by the word, if there is one, and wakes nobody for it.
    pub(super) fn acknowledge(&mut self, connection: &Connection) -> Result<(), Violation> {
        let Some(AckWords { to, .. }) = self.offsets.acks else { return Ok(()) };
        self.acknowledged = self.consumed;
        Ok(connection.write(&self.consumed.to_ne_bytes(), to)?)
    }

    /// Acknowledges all writes consumed so far.
    pub(super) fn send_ack(&mut self, connection: &Connection) -> Result<(), Violation> {
        self.acknowledge(connection)?;
        Ok(connection.wake(self.offsets.park_word)?)
    }
}

const _: () = assert!(TRAILER_BYTES.is_multiple_of(WORD_BYTES));

fn wrong_number(found: u64, expected: u64) -> Violation {
    Violation::new(format!("write {found} where write {expected} was to come"))
}
