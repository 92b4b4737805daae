//! The sending end of one connection: the writes of one worker to one machine. Not here: making the
//! connection (`mod.rs`), the receiving end (`poller.rs`, `frame.rs`).
//!
//! Writes and wakes gather in a buffer of [`HELD_BYTES_MAX`] bytes, which goes out with one system call when the
//! worker flushes, or before it would overflow; a large write goes out at once, together with what is
//! held, straight from where it lies. That is all the memory a connection takes, however slow its
//! receiver.
//!
//! When the socket is full the worker waits until it has room: the other side's I/O thread reads
//! whatever its workers do, so the wait ends, or the peer turns out to be gone. What is written to a peer that
//! is gone vanishes: `Fabric::lost` tells, not an error here.

use super::control;
use super::frame::{self, FRAME_BYTES_MAX};
use super::shared::TcpShared;
use crate::error::Error;
use crate::fabric::{Connection, MachineId};
use crate::memory::{self, WORD_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;
use std::net::TcpStream;
use std::sync::Arc;

/// Most bytes that are held back.
const HELD_BYTES_MAX: usize = 128 << 10;
/// A write of this length is not copied into the buffer.
const DIRECT_BYTES: usize = 32 << 10;
/// How often a worker that waits for room looks whether the peer is gone.
const LIVENESS_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub(super) struct TcpConnection {
    peer: MachineId,
    region_bytes: usize,
    /// `None` when the peer is gone.
    stream: Option<TcpStream>,
    held: Vec<u8>,
    /// Where in `held` the last frame begins, if it is a wake for this park word: one is enough.
    last_wake: Option<usize>,
    shared: Arc<TcpShared>,
}

impl TcpConnection {
    /// Over a connection whose handshake is done; or without one, to a peer that is gone.
    pub(super) fn new(
        peer: MachineId,
        region_bytes: usize,
        stream: Option<TcpStream>,
        shared: Arc<TcpShared>,
    ) -> TcpConnection {
        TcpConnection { peer, region_bytes, stream, held: Vec::new(), last_wake: None, shared }
    }

    /// Makes room for a frame of `bytes` bytes in the buffer, which is less than it may hold.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        if self.held.len() + bytes > HELD_BYTES_MAX {
            self.flush()?;
        }
        let (needed, capacity) = (self.held.len() + bytes, self.held.capacity());
        if needed > capacity {
            // Doubled, but never past the limit.
            let target = (2 * capacity).clamp(needed, HELD_BYTES_MAX);
            self.held.reserve_exact(target - self.held.len());
        }
        Ok(())
    }

    /// Sends what is held, then one frame straight from `source`.
    fn send_directly(&mut self, source: &[u8], offset: usize) -> Result<(), Error> {
        let head = frame::head(offset, source.len());
        let held = std::mem::take(&mut self.held);
        let sent = self.send(&mut [IoSlice::new(&held), IoSlice::new(&head), IoSlice::new(source)]);
        self.held = held;
        self.held.clear();
        sent
    }

    /// Sends all of `parts`, in order.
    fn send(&mut self, mut parts: &mut [IoSlice<'_>]) -> Result<(), Error> {
        // Skips empty ones at the front.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let Some(stream) = &self.stream else {
                return Ok(());
            };
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(stream, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(bytes) => IoSlice::advance_slices(&mut parts, bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(error @ (Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOMEM | Errno::NOBUFS)) => {
                    return Err(Error::system(format!("sending to {}", self.peer))(error));
                }
                // All others say that the peer cannot be reached.
                Err(error) => self.give_up(error),
            }
        }
        Ok(())
    }

    /// The socket is full: sleeps until it is not, or the peer is gone.
    #[cold]
    fn wait_for_room(&mut self) -> Result<(), Error> {
        while let Some(stream) = &self.stream {
            if self.shared.is_gone(self.peer) {
                self.stream = None;
                return Ok(());
            }
            match poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&LIVENESS_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(Error::system(format!("waiting for room to {}", self.peer))(error)),
            }
        }
        Ok(())
    }

    /// The connection is broken. Whether the peer has died or left, the I/O thread finds out.
    #[cold]
    fn give_up(&mut self, error: Errno) {
        self.shared.suspect(self.peer, control::explain(error));
        self.stream = None;
    }
}

#[cfg(test)]
impl TcpConnection {
    /// How much memory is taken by what is held back.
    pub(super) fn held_capacity(&self) -> usize {
        self.held.capacity()
    }

    /// Whether the peer is not known to be gone.
    pub(super) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }
}

impl Connection for TcpConnection {
    fn peer(&self) -> MachineId {
        self.peer
    }

    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error> {
        memory::check_access(self.region_bytes, remote_offset, source.len(), WORD_BYTES)?;
        if self.stream.is_none() {
            return Ok(());
        }
        self.last_wake = None;
        if source.len() < DIRECT_BYTES {
            self.make_room(frame::HEAD_BYTES + source.len())?;
            self.held.extend_from_slice(&frame::head(remote_offset, source.len()));
            self.held.extend_from_slice(source);
            return Ok(());
        }
        let pieces = source.chunks(FRAME_BYTES_MAX).enumerate();
        pieces
            .map(|(number, piece)| (remote_offset + number * FRAME_BYTES_MAX, piece))
            .try_for_each(|(offset, piece)| self.send_directly(piece, offset))
    }

    fn wake(&mut self, park_offset: usize) -> Result<(), Error> {
        memory::check_park_word(self.region_bytes, park_offset)?;
        if self.stream.is_none() || self.last_wake == Some(park_offset) {
            return Ok(());
        }
        self.make_room(frame::HEAD_BYTES)?;
        self.held.extend_from_slice(&frame::head(park_offset, 0));
        self.last_wake = Some(park_offset);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.last_wake = None;
        let held = std::mem::take(&mut self.held);
        let sent = self.send(&mut [IoSlice::new(&held)]);
        self.held = held;
        self.held.clear();
        sent
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        // What is held was written: it arrives as if the connection lived on.
        let _ = self.flush();
    }
}
