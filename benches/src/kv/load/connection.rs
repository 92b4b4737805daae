//! One connection: its outstanding requests in order, and the bytes that go out and come in.

use super::protocol::{Operation, Reply, Step};
use crate::prelude::*;
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as Blocking};

/// Initial size of the receive buffer.
const INCOMING_BYTES: usize = 64 << 10;

pub struct Connection {
    socket: TcpStream,
    outstanding: VecDeque<Operation>,
    outgoing: Vec<u8>,
    sent: usize,
    incoming: Vec<u8>,
    /// The part of `incoming` that has arrived and is not consumed yet.
    taken: usize,
    come: usize,
    writes: u32,
    replies: u64,
    is_closed: bool,
}

impl Connection {
    /// Connects, waiting for it.
    pub fn to(address: SocketAddr) -> Result<Self> {
        let socket = Blocking::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: TcpStream::from_std(socket),
            outstanding: VecDeque::new(),
            outgoing: Vec::new(),
            sent: 0,
            incoming: vec![0; INCOMING_BYTES],
            taken: 0,
            come: 0,
            writes: 0,
            replies: 0,
            is_closed: false,
        })
    }

    /// For the poller.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub fn is_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Makes a request; [`send`](Self::send) sends it.
    #[inline]
    pub fn ask(&mut self, operation: Operation) {
        self.writes = self.writes.wrapping_add(u32::from(operation.step == Step::Write));
        operation.write(self.writes, &mut self.outgoing);
        self.outstanding.push_back(operation);
    }

    pub fn send(&mut self) -> Result<()> {
        while self.sent < self.outgoing.len() {
            match self.socket.write(&self.outgoing[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| self.so_far()),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }

    /// Receives everything that has arrived; with `to_the_end` the peer is known to close.
    pub fn receive(&mut self, to_the_end: bool) -> Result<()> {
        self.incoming.copy_within(self.taken..self.come, 0);
        self.come -= self.taken;
        self.taken = 0;
        loop {
            if self.come == self.incoming.len() {
                self.incoming.resize(2 * self.come, 0);
            }
            match self.socket.read(&mut self.incoming[self.come..]) {
                Ok(0) => self.is_closed = true,
                Ok(bytes) => {
                    self.come += bytes;
                    if to_the_end || self.come == self.incoming.len() {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).with_context(|| self.so_far()),
            }
            // A short read has taken everything; later bytes are an event of their own.
            return Ok(());
        }
    }

    /// The next operation that is complete.
    #[inline]
    pub fn next_reply(&mut self) -> Result<Option<Reply>> {
        if let Some(operation) = self.outstanding.front().copied() {
            let read = operation.read(&self.incoming[self.taken..self.come]);
            let Some((bytes, is_miss)) = read.with_context(|| self.so_far())? else {
                ensure!(!self.is_closed, "the server closed the connection {}", self.so_far());
                return Ok(None);
            };
            self.taken += bytes;
            self.outstanding.pop_front();
            self.replies += 1;
            return Ok(Some(Reply { began: operation.began, is_miss }));
        }
        Ok(None)
    }

    fn so_far(&self) -> String {
        format!("after {} replies, {} requests outstanding", self.replies, self.outstanding.len())
    }
}
