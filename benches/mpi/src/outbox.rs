//! Outgoing messages of a rank: one open buffer for each peer, and buffers that MPI still reads.
//!
//! Sends are non-blocking, so two ranks that send to each other never wait for each other. A buffer is used again when
//! MPI has done with it.

use std::collections::VecDeque;

use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

/// Sends that may be under way before the oldest is waited for.
const UNDER_WAY_MAX: usize = 8192;

/// The open buffers of a rank and its sends under way.
pub struct Outbox {
    open: Vec<Vec<u64>>,
    under_way: VecDeque<(ffi::MPI_Request, Vec<u64>)>,
    free: Vec<Vec<u64>>,
    /// Words of a full buffer, and of a message.
    gathered: usize,
    message: usize,
}

impl Outbox {
    /// For messages of so many words, gathered in buffers of so many.
    pub fn new(ranks: usize, gathered: usize, message: usize) -> Self {
        let open = (0..ranks).map(|_| Vec::with_capacity(gathered)).collect();
        Outbox { open, under_way: VecDeque::new(), free: Vec::new(), gathered, message }
    }

    /// Is each message sent by itself?
    pub fn is_eager(&self) -> bool {
        self.gathered < 2 * self.message
    }

    /// Adds a message, which `fill` writes over zeros, and sends the buffer if there is no room for another.
    pub fn add(&mut self, world: &SimpleCommunicator, peer: usize, fill: impl FnOnce(&mut [u64])) {
        let open = &mut self.open[peer];
        let start = open.len();
        open.resize(start + self.message, 0);
        fill(&mut open[start..]);
        self.send_if_full(world, peer);
    }

    /// Adds a copy of a message, and sends the buffer if there is no room for another.
    pub fn add_copy(&mut self, world: &SimpleCommunicator, peer: usize, message: &[u64]) {
        self.open[peer].extend_from_slice(message);
        self.send_if_full(world, peer);
    }

    fn send_if_full(&mut self, world: &SimpleCommunicator, peer: usize) {
        if self.open[peer].len() + self.message > self.gathered {
            self.send(world, peer);
        }
    }

    /// Sends the gathered messages.
    pub fn flush(&mut self, world: &SimpleCommunicator) {
        for peer in 0..self.open.len() {
            if !self.open[peer].is_empty() {
                self.send(world, peer);
            }
        }
    }

    fn send(&mut self, world: &SimpleCommunicator, peer: usize) {
        let next = self.free.pop().unwrap_or_else(|| Vec::with_capacity(self.gathered));
        let buffer = std::mem::replace(&mut self.open[peer], next);
        let mut request = std::mem::MaybeUninit::uninit();
        // SAFETY: the buffer's memory stays where it is, unchanged, until MPI has done with the request (`take_done`).
        let request = unsafe {
            ffi::MPI_Isend(
                buffer.as_ptr().cast(),
                buffer.len() as i32,
                u64::equivalent_datatype().as_raw(),
                peer as i32,
                0,
                world.as_raw(),
                request.as_mut_ptr(),
            );
            request.assume_init()
        };
        self.under_way.push_back((request, buffer));
        self.reap();
        while self.under_way.len() > UNDER_WAY_MAX {
            self.take_done(true);
        }
    }

    /// Takes back the buffers that MPI has done with, oldest first.
    pub fn reap(&mut self) {
        while self.take_done(false) {}
    }

    /// Waits until MPI has done with all of them.
    pub fn finish(&mut self, world: &SimpleCommunicator) {
        self.flush(world);
        while self.take_done(true) {}
    }

    fn take_done(&mut self, wait: bool) -> bool {
        let Some((request, _)) = self.under_way.front_mut() else { return false };
        let mut done = 0;
        // SAFETY: a request that was started and not completed; MPI allows its status to be ignored.
        unsafe {
            if wait {
                ffi::MPI_Wait(request, ffi::RSMPI_STATUS_IGNORE);
                done = 1;
            } else {
                ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE);
            }
        }
        if done == 0 {
            return false;
        }
        if let Some((_, mut buffer)) = self.under_way.pop_front() {
            buffer.clear();
            self.free.push(buffer);
        }
        true
    }
}
