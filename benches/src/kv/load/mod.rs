//! A load generator for servers that speak memcached's text protocol: pipelined connections over a few threads, every
//! reply checked, latencies in a histogram. Closed loop: a reply makes room for the next request; or, in open.rs, at a
//! pace.
//!
//! protocol.rs has the form of requests and replies, mix.rs the choice of operations, connection.rs one connection with
//! its outstanding requests, options.rs the options of the commands. Not here: servers.

mod connection;
mod mix;
mod open;
mod options;
mod protocol;

use self::connection::Connection;
pub use self::{
    mix::{Mix, Source},
    options::LoadOptions,
    protocol::VALUE_BYTES,
};
use crate::prelude::*;
use crate::report::empty_histogram;
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};
use quanta::Clock;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;

/// How a server is loaded.
#[derive(Clone, Debug)]
pub struct Load {
    pub threads: usize,
    /// Connections, spread over the threads.
    pub connections: usize,
    /// Keys that the table is filled with.
    pub keys: u32,
    pub mix: Mix,
    /// Which keys, for each thread.
    pub picks: Picks,
    /// Before it is counted.
    pub warm_up: Duration,
    pub measured: Duration,
    /// Operations a second over all threads, due whether or not earlier ones are answered; none: as fast as replies
    /// come.
    pub pace_hz: Option<f64>,
    /// Seed of the operations.
    pub seed: u64,
}

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Operations that were complete while it was counted.
    pub operations: u64,
    /// Reads of keys that were not there, though they may be on their way (of inserts alone).
    pub misses: u64,
    /// How long it was counted.
    pub seconds: f64,
    /// Nanoseconds from making a request, or from when it was due, to having its reply.
    pub latency_ns: Histogram<u64>,
}

/// Requests that each connection keeps outstanding.
pub const DEPTH: usize = 48;
/// No reply for so long is a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);

impl Load {
    /// Gives every key its first value.
    pub fn fill(&self, address: SocketAddr) -> Result<()> {
        let source = Source::Fill { next: 0, keys: self.keys };
        let mut client = Client::connect(address, self.connections.min(4), source)?;
        client.run(|_| Phase::Over)?;
        Ok(())
    }

    /// Loads the server; `mark` is called when counting begins and when it ends.
    pub fn run(&self, address: SocketAddr, mut mark: impl FnMut()) -> Result<Outcome> {
        ensure!(self.threads > 0 && self.connections >= self.threads, "a client thread needs a connection");
        let newest = Arc::new(AtomicU32::new(self.keys));
        let ready = Barrier::new(self.threads + 1);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (newest, ready) = (newest.clone(), &ready);
                    scope.spawn(move || self.client(thread, address, newest, ready))
                })
                .collect();
            ready.wait();
            thread::sleep(self.warm_up);
            mark();
            thread::sleep(self.measured);
            mark();
            let mut total = Outcome {
                operations: 0,
                misses: 0,
                seconds: self.measured.as_secs_f64(),
                latency_ns: empty_histogram(),
            };
            for client in clients {
                let outcome = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                total.operations += outcome.operations;
                total.misses += outcome.misses;
                total.latency_ns.add(&outcome.latency_ns).context("histograms of one kind")?;
            }
            Ok(total)
        })
    }

    fn client(&self, thread: usize, address: SocketAddr, newest: Arc<AtomicU32>, ready: &Barrier) -> Result<Outcome> {
        let connections = self.connections / self.threads + usize::from(thread < self.connections % self.threads);
        let source = Source::new(self.mix, self.picks.of(thread), self.keys, newest, self.seed + thread as u64);
        let client = Client::connect(address, connections, source);
        ready.wait();
        let mut client = client?;
        let (warm_up, until) = (self.warm_up.as_nanos() as u64, (self.warm_up + self.measured).as_nanos() as u64);
        if let Some(hz) = self.pace_hz {
            client.run_paced(hz / self.threads as f64, self.seed + thread as u64, warm_up..until)?;
            return Ok(client.outcome);
        }
        client.run(|since_start_ns| match since_start_ns {
            early if early < warm_up => Phase::WarmUp,
            counted if counted < until => Phase::Counted,
            _ => Phase::Over,
        })?;
        Ok(client.outcome)
    }
}

/// Where in a run a client is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Counted,
    /// Completes the outstanding requests and makes no new ones; a source with an end goes on until it.
    Over,
}

/// One thread with its connections.
struct Client {
    poll: Poll,
    connections: Vec<Connection>,
    source: Source,
    clock: Clock,
    /// When it began, as the clock counts.
    start: u64,
    outcome: Outcome,
}

impl Client {
    fn connect(address: SocketAddr, connections: usize, source: Source) -> Result<Self> {
        let poll = Poll::new().context("a poller")?;
        let mut made = Vec::new();
        for index in 0..connections {
            let mut connection =
                Connection::to(address).with_context(|| format!("there is no server at {address} to be loaded"))?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(connection.socket(), Token(index), interest).context("watching a connection")?;
            made.push(connection);
        }
        Ok(Self {
            poll,
            connections: made,
            source,
            start: 0,
            clock: Clock::new(),
            outcome: Outcome { operations: 0, misses: 0, seconds: 0.0, latency_ns: empty_histogram() },
        })
    }

    /// Keeps all connections busy until nothing is left to ask for and nothing is outstanding.
    fn run(&mut self, phase_at: impl Fn(u64) -> Phase) -> Result<()> {
        self.start = self.clock.raw();
        for index in 0..self.connections.len() {
            self.ask(index, DEPTH)?;
        }
        let mut events = Events::with_capacity(256);
        while self.connections.iter().any(Connection::is_outstanding) {
            match self.poll.poll(&mut events, Some(TIME_LIMIT)) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.context("waiting for replies")?,
            }
            if events.is_empty() {
                bail!("the server has not answered for {} s", TIME_LIMIT.as_secs());
            }
            let mut phase = phase_at(self.now_ns());
            for event in &events {
                let Token(index) = event.token();
                let replies = self.take(index, event.is_read_closed(), |_| phase == Phase::Counted)?;
                phase = phase_at(self.now_ns());
                self.ask(index, if phase == Phase::Over && !self.source.has_end() { 0 } else { replies })?;
            }
        }
        Ok(())
    }

    /// Nanoseconds since it began.
    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw())
    }

    /// Takes the replies that have come, and counts those that `counts` of when they began; how many.
    fn take(&mut self, index: usize, to_the_end: bool, counts: impl Fn(u64) -> bool) -> Result<usize> {
        self.connections[index].receive(to_the_end)?;
        let now = self.now_ns();
        let Self { connections, outcome, .. } = self;
        let connection = &mut connections[index];
        let mut replies = 0;
        while let Some(reply) = connection.next_reply()? {
            replies += 1;
            if counts(reply.began) {
                outcome.operations += 1;
                outcome.misses += u64::from(reply.is_miss);
                outcome.latency_ns.saturating_record(now.saturating_sub(reply.began));
            }
        }
        Ok(replies)
    }

    /// Makes up to so many requests, and sends as much as the socket takes.
    fn ask(&mut self, index: usize, requests: usize) -> Result<()> {
        let now = self.now_ns();
        let connection = &mut self.connections[index];
        for _ in 0..requests {
            let Some(operation) = self.source.next(now) else { break };
            connection.ask(operation);
        }
        connection.send()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;
    use crate::pick::Dist;

    /// A server that answers the first bytes of each connection with these bytes and closes it.
    fn against(reply: &'static [u8], keys: u32) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let load = Load {
            threads: 1,
            connections: 1,
            keys,
            mix: Mix::C,
            picks: Picks::new(Dist::Uniform, keys as usize, 1, 1),
            warm_up: Duration::ZERO,
            measured: Duration::from_millis(1),
            pace_hz: None,
            seed: 1,
        };
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                let read = client.read(&mut [0; 4096]).unwrap();
                assert!(read > 0);
                client.write_all(reply).unwrap();
            });
            format!("{:#}", load.fill(address).unwrap_err())
        })
    }

    #[test]
    fn what_a_server_does_wrong_is_said() {
        assert!(against(b"STORED\r\n", 2).contains("closed the connection after 1 replies, 1 requests outstanding"));
        assert!(against(b"SERVER_ERROR out of memory storing object\r\n", 2).contains("out of memory"));
        assert!(against(b"STORED\r\nSTORNO\r\n", 2).contains("STORNO"));
    }

    #[test]
    fn a_server_that_is_not_there_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let format = Connection::to(address).map(|_| ()).unwrap_err().to_string();
        assert!(format.contains("refused"), "{format}");
    }
}
