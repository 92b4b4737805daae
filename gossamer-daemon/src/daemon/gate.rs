//! Brings the threads of a daemon to a stop, between two messages, for an upgrade: each tells the state that another
//! process can go on from, and waits. The upgrade executes the new daemon then, which ends all threads; where that
//! fails they go on.
//!
//! Each thread with work that must not be cut off has a [`Pass`]. Where it would wait for its peer, it also waits for
//! [`Gate::closing`], and calls [`Pass::stop`].
//!
//! Invariant: while [`Gate::close`] has returned true and until [`Gate::open`], no thread with a pass runs, and the
//! state of each is in the gate.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use comm::deadline::deadline_after;
use comm::secure::SecureReader;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::handover::Parked;
use crate::wire::{Receiver, WireError};

/// Interval of looks at a connection whose state cannot be told just now.
const LOOK: Duration = Duration::from_millis(10);

/// A stop for threads.
pub(super) struct Gate {
    state: Mutex<Passes>,
    changed: Condvar,
    /// Readable while it is closed.
    closing: OwnedFd,
}

/// Passes of a gate, and whether it is open.
#[derive(Default)]
struct Passes {
    is_closed: bool,
    /// Passes whose holders run.
    running: usize,
    /// Those of them whose connections may be cut off.
    expendable: usize,
    /// States of the others, until they are taken.
    parked: BTreeMap<u64, Parked>,
    next: u64,
    /// Number of times that it was opened: threads that have stopped before that run, also before they notice.
    openings: u64,
    stopped: usize,
}

/// Right to run. A thread without one may be ended in an upgrade.
pub(super) struct Pass {
    gate: Arc<Gate>,
}

impl Gate {
    /// # Errors
    /// When the process has no file descriptors left.
    pub(super) fn new() -> io::Result<Arc<Gate>> {
        let closing = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Gate { state: Mutex::default(), changed: Condvar::new(), closing }))
    }

    fn state(&self) -> MutexGuard<'_, Passes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a pass, once the gate is open.
    pub(super) fn enter(self: &Arc<Self>) -> Pass {
        let open = self.changed.wait_while(self.state(), |state| state.is_closed);
        open.unwrap_or_else(PoisonError::into_inner).running += 1;
        Pass { gate: Arc::clone(self) }
    }

    /// Returns a descriptor that is readable while the gate is closed.
    pub(super) fn closing(&self) -> BorrowedFd<'_> {
        self.closing.as_fd()
    }

    /// Closes it, and returns whether all threads have stopped within `limit`.
    #[must_use]
    pub(super) fn close(&self, limit: Duration) -> bool {
        let mut state = self.state();
        state.is_closed = true;
        let _ = rustix::io::write(&self.closing, &1_u64.to_ne_bytes()); // the counter is 0: there is room
        let (state, _) = self
            .changed
            .wait_timeout_while(state, limit, |state| state.running > 0)
            .unwrap_or_else(PoisonError::into_inner);
        state.running == state.expendable
    }

    /// Has all threads go on.
    pub(super) fn open(&self) {
        let mut state = self.state();
        let _ = rustix::io::read(&self.closing, &mut [0; 8]); // was it closed?
        state.is_closed = false;
        state.openings += 1;
        state.running += std::mem::take(&mut state.stopped);
        state.parked.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the states of the threads that have stopped, in the order in which they did. Where they go on, they have
    /// their own.
    pub(super) fn take_parked(&self) -> Vec<Parked> {
        std::mem::take(&mut self.state().parked).into_values().collect()
    }

    /// Returns the number of threads that run.
    pub(super) fn running(&self) -> usize {
        self.state().running
    }
}

impl Pass {
    /// Returns its gate.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Takes another pass for a thread that this one starts, whether the gate is closed or not.
    pub(super) fn another(&self) -> Pass {
        self.gate.state().running += 1;
        Pass { gate: Arc::clone(&self.gate) }
    }

    /// Stops here while the gate is closed, with the state that another process can go on from. False, at once, where
    /// it is closed and `state` gives none.
    pub(super) fn stop(&self, state: impl FnOnce() -> Option<Parked>) -> bool {
        if !self.gate.state().is_closed {
            return true;
        }
        let Some(parked) = state() else { return false };
        let parking = self.park(parked);
        let has_to_wait = |state: &mut Passes| state.is_closed && state.openings == parking.openings;
        drop(self.gate.changed.wait_while(self.gate.state(), has_to_wait));
        true
    }

    /// Counts as stopped while the result lives, and the gate is not opened.
    pub(super) fn park(&self, parked: Parked) -> Parking<'_> {
        let mut state = self.gate.state();
        let (number, openings) = (state.next, state.openings);
        state.next += 1;
        state.running -= 1;
        state.stopped += 1;
        state.parked.insert(number, parked);
        drop(state);
        self.gate.changed.notify_all();
        Parking { gate: &self.gate, number, openings }
    }

    /// The connection may be cut off by an upgrade while the result lives, if it holds that up.
    pub(super) fn expendable(&self) -> Expendable<'_> {
        self.gate.state().expendable += 1;
        Expendable(&self.gate)
    }

    /// Receives a message; stops meanwhile, with the state that `park` gives, while the gate is closed.
    ///
    /// # Errors
    /// Same as [`Receiver::receive_bytes`]; `silence` bounds the time without progress.
    pub(super) fn receive(
        &self,
        receiver: &mut SecureReader,
        silence: Duration,
        park: impl Fn(&SecureReader) -> Option<Parked>,
    ) -> Result<Vec<u8>, WireError> {
        receiver.set_timeout(Some(Duration::ZERO))?; // takes what has come
        let mut deadline = deadline_after(silence);
        let received = loop {
            let watches = self.stop(|| park(receiver));
            match receiver.receive_bytes() {
                Err(WireError::Secure(comm::Error::TimedOut { .. })) if Instant::now() < deadline => {}
                received => break received,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(if watches { left } else { left.min(LOOK) }).ok();
            let mut fds = [PollFd::new(receiver.tcp(), PollFlags::IN), PollFd::new(&self.gate.closing, PollFlags::IN)];
            let watched = if watches { &mut fds[..] } else { &mut fds[..1] };
            let _ = poll(watched, timeout.as_ref()); // interrupted: the loop goes on
            if !fds[0].revents().is_empty() {
                deadline = deadline_after(silence);
            }
        };
        receiver.set_timeout(Some(silence))?;
        received
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.state().running -= 1;
        self.gate.changed.notify_all();
    }
}

/// A thread that counts as stopped.
pub(super) struct Parking<'a> {
    gate: &'a Gate,
    number: u64,
    openings: u64,
}

impl Drop for Parking<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        if state.openings == self.openings {
            state.parked.remove(&self.number);
            state.stopped -= 1;
            state.running += 1;
        }
    }
}

/// A thread whose connection may be cut off.
pub(super) struct Expendable<'a>(&'a Gate);

impl Drop for Expendable<'_> {
    fn drop(&mut self) {
        self.0.state().expendable -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::wire::ProgramId;

    fn parked(number: u32) -> Parked {
        Parked::Up { program: ProgramId(number), writer: Vec::new(), is_done: false }
    }

    fn count(gate: &Gate) -> (usize, usize) {
        let state = gate.state();
        (state.running, state.stopped)
    }

    /// Each opening counts all as running, whether they have noticed it or not: none is left out at the next closing.
    #[test]
    fn no_thread_is_left_out() {
        let gate = Gate::new().unwrap();
        let passes = [gate.enter(), gate.enter()];
        assert!(passes[0].stop(|| unreachable!("it is open")));
        assert!(!gate.close(Duration::ZERO));
        assert!(!passes[0].stop(|| None), "it has no state just now");
        let parking = passes.each_ref().map(|pass| pass.park(parked(1)));
        assert!(gate.close(Duration::ZERO));
        assert_eq!((gate.take_parked().len(), count(&gate)), (2, (0, 2)));
        gate.open();
        assert_eq!(count(&gate), (2, 0));
        assert!(!gate.close(Duration::ZERO), "they run, though they have not noticed it");
        drop(parking);
        assert_eq!(count(&gate), (2, 0));
        let slow = passes[0].expendable();
        drop(passes[1].park(parked(2)));
        assert_eq!(count(&gate), (2, 0), "it has not stopped after all");
        let _parking = passes[1].park(parked(2));
        assert!(gate.close(Duration::ZERO), "the other one may be cut off");
        drop(slow);
        assert!(!gate.close(Duration::ZERO));
    }

    #[test]
    fn threads_stop_and_go_on() {
        let gate = Gate::new().unwrap();
        let (rounds, has_ended) = (200, AtomicBool::new(false));
        let has_ended = &has_ended;
        std::thread::scope(|scope| {
            let steps: Vec<_> = (0..3)
                .map(|number| {
                    let pass = gate.enter();
                    scope.spawn(move || {
                        let mut steps = 0_u64;
                        while !has_ended.load(Ordering::Relaxed) {
                            assert!(pass.stop(|| Some(parked(number))));
                            steps += 1;
                        }
                        steps
                    })
                })
                .collect();
            for round in 0..rounds {
                assert!(gate.close(limits::HANG));
                if round % 2 == 0 {
                    assert_eq!(gate.take_parked().len(), 3);
                }
                gate.open();
            }
            has_ended.store(true, Ordering::Relaxed);
            assert!(steps.into_iter().all(|thread| thread.join().unwrap() > 0));
        });
        assert_eq!(count(&gate), (0, 0));
        let entering = std::thread::scope(|scope| {
            assert!(gate.close(Duration::ZERO));
            let entering = scope.spawn(|| drop(gate.enter()));
            assert_eq!(count(&gate), (0, 0), "nobody enters while it is closed");
            gate.open();
            entering.join()
        });
        entering.unwrap();
    }
}
