//! Common part of all sockets: a call is tried; if it would block its fiber waits and tries again.

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

/// Non-blocking socket of the standard library or of mio, and the workers that have registered it.
pub(super) struct Socket<S: AsRawFd> {
    pub(super) io: S,
    /// Timeout in nanoseconds; 0 for none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    /// One for each live worker that has waited for the socket, so mostly one.
    registrations: Mutex<Vec<Registration>>,
}

/// Outcome of a call.
pub(super) enum Call<R> {
    /// It transferred everything that was asked for.
    Whole(R),
    /// It transferred less.
    Short(R),
}

/// The system's limits of one call: bytes, and buffers of a vectored one. The rest is left for the next call.
const BYTES_AT_ONCE: usize = 0x7fff_f000;
const BUFFERS_AT_ONCE: usize = 1024;

impl<S: AsRawFd> Drop for Socket<S> {
    fn drop(&mut self) {
        let registrations = self.registrations.get_mut().unwrap_or_else(PoisonError::into_inner);
        registrations.drain(..).for_each(|registration| registration.give_up(self.io.as_raw_fd()));
    }
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

    /// Performs `call`, waiting as often as it would block.
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

    /// Same as `perform`, with this timeout.
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
                    Ok(Call::Short(value)) => {
                        if let Some(token) = token {
                            reactor.note_short(token, direction);
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
        let mut registrations = self.registrations.lock().unwrap_or_else(PoisonError::into_inner);
        registrations.retain(|known| !known.is_over());
        registrations.push(registration);
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

/// Lets other fibers run after a long series of calls that did not wait.
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

/// Returns whether a transfer of `n` bytes was all that was `asked` for.
pub(super) fn transferred(n: usize, asked: usize) -> Call<usize> {
    if 0 < n && n < asked.min(BYTES_AT_ONCE) { Call::Short(n) } else { Call::Whole(n) }
}

/// Returns the bytes that a vectored call asks for, with buffers of these lengths.
pub(super) fn asked_at_once(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.take(BUFFERS_AT_ONCE).sum()
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

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_socket_forgets_workers_that_have_ended() {
        let io = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        io.set_nonblocking(true).expect("a socket");
        let socket = Arc::new(Socket::new(io));
        let wait_once = |socket: &Socket<std::net::UdpSocket>| {
            let receive = |io: &std::net::UdpSocket| io.recv(&mut [0]).map(Call::Whole);
            let outcome = socket.perform_for("recv", Direction::Read, Some(Duration::from_micros(10)), receive);
            assert_eq!(outcome.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        };
        let known = || socket.registrations.lock().expect("it does not panic").len();
        wait_once(&socket);
        for _ in 0..20 {
            let there = Arc::clone(&socket);
            std::thread::spawn(move || wait_once(&there)).join().expect("it does not panic");
            assert!(known() <= 2, "this thread and the last one: {}", known());
        }
        // Live workers stay registered.
        wait_once(&socket);
        assert!((1..=2).contains(&known()));
    }
}
