//! The server on one machine: accepts connections, gives each a fiber, and comes to an end in order. Not here: the talk
//! on a connection, and the table.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use trust::net::{TcpListener, TcpStream};
use trust::{Promise, TrusteeReference, promise};

use super::budget::Budget;
use super::clock;
use super::connection::Connection;
use super::table::{Counts, Table};
use crate::program::Program;

pub(super) const PROGRAM: Program = Program("kv");
/// Version that the server reports, by which clients choose their commands: libmemcached refuses version 0, and from
/// 1.6 on its tests expect `version` with further words to be answered as `version`, which is an error here.
pub(super) const VERSION: &str = "1.5.22";

/// Time that clients have to read the last replies when the server stops.
const END_WAIT: Duration = Duration::from_secs(2);
/// Keep-alive of a client's connection: idle time before the first probe, interval, and probes without an answer:
/// 25 s.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// Pause where there are too many open files.
const PAUSE: Duration = Duration::from_millis(10);

/// The server of one machine.
pub struct Server {
    listener: TcpListener,
    connections_max: usize,
    threads: usize,
    started: Instant,
    stopping: AtomicBool,
    open: Mutex<Open>,
    accepted: AtomicU64,
    rejected: AtomicU64,
    budget: Arc<Budget>,
}

#[derive(Default)]
struct Open {
    clients: HashMap<u64, Arc<Client>>,
    next: u64,
    /// Bytes read and written on connections that have ended, less those before the last `stats reset`.
    ended: [u64; 2],
    /// Kept when the last one has ended.
    all_ended: Option<Promise<()>>,
}

/// A connection, as the server knows it.
pub struct Client {
    /// Its socket.
    pub stream: TcpStream,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Client {
    /// Counts bytes read on it. Its fiber alone counts, so a load and a store will do.
    pub fn has_read(&self, bytes: usize) {
        add(&self.read_bytes, bytes);
    }

    /// Counts bytes written to it; by its fiber, as above.
    pub fn has_written(&self, bytes: usize) {
        add(&self.written_bytes, bytes);
    }

    fn traffic(&self) -> [u64; 2] {
        [&self.read_bytes, &self.written_bytes].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Relaxed, here and where it is read: a count for `stats`, and nothing depends on it.
fn add(count: &AtomicU64, bytes: usize) {
    count.store(count.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
}

impl Open {
    /// Bytes read and written since the last `stats reset`.
    fn traffic(&self) -> [u64; 2] {
        let all = self.clients.values().map(|client| client.traffic());
        all.fold(self.ended, |[read, written], [r, w]| [read.wrapping_add(r), written.wrapping_add(w)])
    }
}

thread_local! {
    /// The table as this worker's connections see it.
    static TABLE: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
}

impl Server {
    /// Listens at this address. `threads`: the number of workers, for `stats`; `memory_bytes`: memory for items.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(
        address: SocketAddr,
        connections_max: usize,
        threads: usize,
        memory_bytes: usize,
    ) -> io::Result<Arc<Server>> {
        clock::start();
        Ok(Arc::new(Server {
            listener: TcpListener::bind(address)?,
            connections_max,
            threads,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            open: Mutex::default(),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            budget: Budget::of(memory_bytes),
        }))
    }

    /// Memory for its connections.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Returns the address at which it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is told to [`stop`](Self::stop) and all connections have ended. They go to these workers in
    /// turn; each of these makes its own table, which stands for the same one.
    pub fn serve<T: Table>(
        self: &Arc<Self>,
        workers: &[TrusteeReference],
        table: impl Fn() -> T + Send + Sync + 'static,
    ) {
        let table = Arc::new(table);
        let mut turn = workers.iter().cycle();
        while !self.is_stopping() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Some((number, client)) = self.admit(stream)
                        && let Some(worker) = turn.next()
                    {
                        let (server, table) = (Arc::clone(self), Arc::clone(&table));
                        trust::spawn_on(worker, move || server.serve_one(number, client, &*table));
                    }
                }
                Err(_) if self.is_stopping() => {}
                Err(error) => {
                    PROGRAM.complain(format_args!("no connection can be accepted: {error}"));
                    trust::sleep(PAUSE);
                }
            }
        }
        self.end();
        for worker in workers {
            let forgotten = trust::spawn_on(worker, || drop(TABLE.take())).join();
            drop(forgotten); // a panic in it has announced itself
        }
    }

    /// The connection and its number, if there may be one more.
    fn admit(&self, stream: TcpStream) -> Option<(u64, Arc<Client>)> {
        let mut open = self.open();
        if open.clients.len() >= self.connections_max {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            drop(open);
            // It fits the socket's buffer, or the client has gone.
            let _ = io::Write::write_all(&mut &stream, b"ERROR Too many open connections\r\n");
            return None;
        }
        let client = Client { stream, read_bytes: AtomicU64::new(0), written_bytes: AtomicU64::new(0) };
        let (number, client) = (open.next, Arc::new(client));
        open.next += 1;
        open.clients.insert(number, Arc::clone(&client));
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some((number, client))
    }

    fn serve_one<T: Table>(self: Arc<Self>, number: u64, client: Arc<Client>, make: &impl Fn() -> T) {
        let _ended = Ended { server: Arc::clone(&self), number };
        if let Err(error) = prepare(&client.stream).and_then(|()| {
            let table = own_table(make);
            Connection::new(client, self, table).serve()
        }) && !is_end_of_connection(&error)
        {
            PROGRAM.complain(format_args!("a connection has ended: {error}"));
        }
    }

    /// Accepts no more connections and ends the existing ones once they have answered the requests they have read.
    /// Callable from any thread.
    pub fn stop(&self) {
        // Relaxed: the calls that follow order more.
        if self.stopping.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = self.listener.close(); // it may have failed already: it is closed all the same
        self.shutdown_all(Shutdown::Read);
    }

    /// Has it been told to stop?
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn shutdown_all(&self, how: Shutdown) {
        for client in self.open().clients.values() {
            let _ = client.stream.shutdown(how); // the client has ended it already
        }
    }

    /// Waits until all connections have ended, not for ever.
    fn end(&self) {
        self.shutdown_all(Shutdown::Read); // for those that came while it was told to stop
        let pending = {
            let mut open = self.open();
            if open.clients.is_empty() {
                return;
            }
            let (ended, pending) = promise();
            open.all_ended = Some(ended);
            pending
        };
        if pending.wait_timeout(END_WAIT).is_none() {
            self.shutdown_all(Shutdown::Both); // a client that has not read the last reply by now does without it
            let _ = pending.wait(); // each connection that ends is taken from the list, and the last one keeps this
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The output of `stats`, with the table's counters.
    pub fn stats(&self, counts: Counts) -> String {
        let own = [
            ("pid", u64::from(std::process::id())),
            ("uptime", self.started.elapsed().as_secs()),
            ("time", u64::from(clock::now())),
        ];
        let (connections, [read, written]) = {
            let open = self.open();
            (open.clients.len() as u64, open.traffic())
        };
        let more = [
            ("pointer_size", u64::from(usize::BITS)),
            ("max_connections", self.connections_max as u64),
            ("curr_connections", connections),
            ("total_connections", self.accepted.load(Ordering::Relaxed)),
            ("rejected_connections", self.rejected.load(Ordering::Relaxed)),
            ("connection_structures", connections),
            ("bytes_read", read),
            ("bytes_written", written),
            ("threads", self.threads as u64),
        ];
        let mut lines = lines(own);
        let own = env!("CARGO_PKG_VERSION");
        let _ = write!(lines, "STAT version {VERSION}\r\nSTAT gossamer {own}\r\n"); // a `String` takes all
        lines + &self::lines(more) + &self::lines(counts)
    }

    /// Counts from here on, as does the table.
    pub fn reset_counts(&self) {
        let mut open = self.open();
        let traffic = open.traffic();
        open.ended = [0, 1].map(|index| open.ended[index].wrapping_sub(traffic[index]));
    }

    /// The output of `stats settings`.
    pub fn settings(&self) -> String {
        lines([("maxconns", self.connections_max as u64), ("num_threads", self.threads as u64)])
    }
}

/// A connection that ends takes itself from the list, in whatever way it ends.
struct Ended {
    server: Arc<Server>,
    number: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut open = self.server.open();
        if let Some(client) = open.clients.remove(&self.number) {
            let traffic = client.traffic();
            open.ended = [0, 1].map(|index| open.ended[index].wrapping_add(traffic[index]));
        }
        let last = if open.clients.is_empty() { open.all_ended.take() } else { None };
        drop(open);
        if let Some(last) = last {
            last.keep(());
        }
    }
}

/// The table of this worker; made when its first connection comes.
fn own_table<T: Table>(make: &impl Fn() -> T) -> Rc<T> {
    let known = TABLE.with_borrow(|table| table.clone()).and_then(|table| table.downcast::<T>().ok());
    known.unwrap_or_else(|| {
        let table = Rc::new(make());
        TABLE.set(Some(Rc::clone(&table) as Rc<dyn Any>));
        table
    })
}

/// Sends replies at once, and finds out when the client's host has vanished: a client that says nothing for a while
/// is asked by the system whether it is there, and its place is free again when it does not answer.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, PROBE_AFTER)?;
    set_tcp_keepintvl(stream, PROBE_EVERY)?;
    Ok(set_tcp_keepcnt(stream, PROBES)?)
}

/// The client has gone, as clients do.
fn is_end_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, HostUnreachable, NetworkUnreachable, NotConnected, TimedOut};
    let ends = [BrokenPipe, ConnectionReset, HostUnreachable, NetworkUnreachable, NotConnected, TimedOut];
    ends.contains(&error.kind())
}

fn lines(counts: impl IntoIterator<Item = (impl std::fmt::Display, u64)>) -> String {
    let mut lines = String::new();
    for (name, count) in counts {
        let _ = write!(lines, "STAT {name} {count}\r\n"); // a `String` takes all
    }
    lines
}
