//! What all sockets share: a call is tried, and where it would block its fiber waits and tries again.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fiber::record::Awaited;
use crate::fiber::timer::Waiter;
use crate::reactor::{Direction, Registration};
use crate::runtime::worker::{self, Worker};

/// A non-blocking socket of the standard library's or mio's, and the workers that know it.
pub(super) struct Socket<S> {
    pub(super) io: S,
    /// In nanoseconds; 0 for none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    /// One for each worker that has waited for it, so mostly one.
    registrations: Mutex<Vec<Registration>>,
}

/// How a call went.
pub(super) enum Call<R> {
    /// It did all that it was asked for.
    Whole(R),
    /// It took what there was: the next call would block.
    Drained(R),
}

impl<S: AsRawFd> Socket<S> {
    pub(super) fn new(io: S) -> Self {
        Socket {
            io,
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
            registrations: Mutex::default(),
        }
    }

    fn timeout_ns(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Read => &self.read_timeout,
            Direction::Write => &self.write_timeout,
        }
    }

    pub(super) fn set_timeout(&self, direction: Direction, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of 0 would let no call wait: use `None` for no timeout",
            ));
        }
        let ns = timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        self.timeout_ns(direction).store(ns, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn timeout(&self, direction: Direction) -> Option<Duration> {
        match self.timeout_ns(direction).load(Ordering::Relaxed) {
            0 => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    /// Does what `call` does, waiting as often as it would block.
    ///
    /// # Panics
    /// Where nothing may wait.
    pub(super) fn perform<R>(
        &self,
        name: &str,
        direction: Direction,
        call: impl FnMut(&S) -> io::Result<Call<R>>,
    ) -> io::Result<R> {
        self.perform_for(name, direction, self.timeout(direction), call)
    }

    /// As `perform`, with this timeout.
    pub(super) fn perform_for<R>(
        &self,
        name: &str,
        direction: Direction,
        timeout: Option<Duration>,
        mut call: impl FnMut(&S) -> io::Result<Call<R>>,
    ) -> io::Result<R> {
        let perform = |worker: &Worker| {
            worker.assert_may_wait(name);
            let reactor = &worker.reactor;
            let mut deadline = None;
            let mut token = self.token_at(worker);
            loop {
                if let Some(token) = token
                    && !reactor.is_ready(token, direction)
                {
                    let at = || timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                    let at = *deadline.get_or_insert_with(at);
                    if !wait(worker, token, direction, at) {
                        return Err(timed_out(name, timeout));
                    }
                }
                match call(&self.io) {
                    Ok(Call::Whole(value)) => {
                        if reactor.note_call() {
                            let_others_run(worker);
                        }
                        return Ok(value);
                    }
                    Ok(Call::Drained(value)) => {
                        if let Some(token) = token {
                            reactor.note_drained(token, direction);
                        }
                        return Ok(value);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let known = match token {
                            Some(token) => token,
                            None => self.register(worker)?,
                        };
                        reactor.note_blocked(known, direction);
                        token = Some(known);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        worker::try_with(perform).unwrap_or_else(|| Err(io::Error::other("this thread is ending: it cannot wait")))
    }

    fn token_at(&self, worker: &Worker) -> Option<usize> {
        let registrations = self.registrations.lock().unwrap_or_else(PoisonError::into_inner);
        registrations.iter().find(|known| known.worker == worker.id).map(|known| known.token)
    }

    fn register(&self, worker: &Worker) -> io::Result<usize> {
        let registration = worker.reactor.register(&worker.shared, self.io.as_raw_fd())?;
        let token = registration.token;
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).push(registration);
        Ok(token)
    }
}

/// Waits until a call may succeed, or until `deadline`: then false. The caller may wait.
fn wait(worker: &Worker, token: usize, direction: Direction, deadline: Option<Instant>) -> bool {
    let is_ready = || worker.reactor.is_ready(token, direction);
    let waiter = Waiter::default();
    worker.reactor.begin_wait(token, direction, &waiter);
    worker.wait_unless_aborted(Awaited::Socket, deadline, &waiter, is_ready);
    worker.reactor.end_wait(token, direction, &waiter);
    worker.heed_abort();
    is_ready()
}

/// Calls that need not wait have gone on for long.
fn let_others_run(worker: &Worker) {
    if worker.fiber().is_some() {
        worker.scheduler.yield_now();
    } else {
        worker.reactor.look_next();
        worker.turn();
        worker.leave_loop();
    }
}

#[cold]
fn timed_out(name: &str, timeout: Option<Duration>) -> io::Error {
    let after = timeout.unwrap_or_default();
    io::Error::new(io::ErrorKind::TimedOut, format!("`{name}` has waited for {after:?}, which is its timeout"))
}

/// Whether a transfer of `n` of `asked` bytes has taken all that there was (or filled all the room).
pub(super) fn transferred(n: usize, asked: usize) -> Call<usize> {
    if 0 < n && n < asked { Call::Drained(n) } else { Call::Whole(n) }
}

/// Tries each address until one works.
pub(super) fn each_address<R>(
    addresses: impl ToSocketAddrs,
    mut with: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match with(address) {
            Ok(value) => return Ok(value),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name stands for no address")))
}
