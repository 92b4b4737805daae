//! Redis with one replica: puts that count when the replica has them (`WAIT 1`).

use super::copies::{CLIENTS, KEYS, WORDS};
use crate::prelude::*;
use crate::process::Process;
use crate::programs::in_path;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A server, or the wait for its replica, takes no longer.
const LIMIT: Duration = Duration::from_secs(20);

pub fn find() -> Found<PathBuf> {
    in_path("redis-server", "redis-server")
}

/// Thousand puts of 1 KiB a second by as many connections as our clients, each with one under way.
pub fn puts(server: &Path, time: Duration) -> Result<f64> {
    let (main, _main) = start(server, None)?;
    let (replica, _replica) = start(server, Some(main))?;
    let began = Instant::now();
    let mut first = Connection::to(main)?;
    while !first.ask("INFO replication\r\n")?.contains("state=online") {
        ensure!(began.elapsed() < LIMIT, "the replica does not come");
        thread::sleep(Duration::from_millis(20));
    }
    let mut all = (0..CLIENTS).map(|_| Connection::to(main)).collect::<Result<Vec<_>>>()?;
    let (mut count, began) = (0, Instant::now());
    while began.elapsed() < time {
        for (own, connection) in all.iter_mut().enumerate() {
            connection.put(key(own, count), &value(count))?;
        }
        for connection in &mut all {
            connection.is_put()?;
        }
        count += 1;
    }
    let took = began.elapsed();
    let mut second = Connection::to(replica)?;
    for own in 0..CLIENTS {
        for last in count.saturating_sub(KEYS)..count {
            let stored = second.ask(&format!("GET k{}\r\n", key(own, last)))?;
            ensure!(stored.as_bytes() == value(last), "put {last} of connection {own} is not at the replica");
        }
    }
    Ok((count * CLIENTS as u64) as f64 / took.as_secs_f64() / 1e3)
}

fn key(own: usize, count: u64) -> u64 {
    own as u64 * KEYS + count % KEYS
}

fn value(count: u64) -> Vec<u8> {
    format!("{count:08}").into_bytes().repeat(WORDS)
}

/// A server on a free port of this host, with nothing on disk.
fn start(server: &Path, of: Option<SocketAddr>) -> Result<(SocketAddr, Process)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let program = Program::at(server).say(&format!("--bind 127.0.0.1 --port {} --appendonly no", address.port()));
    let program = program.say("--repl-diskless-sync-delay 0 --repl-diskless-load on-empty-db");
    let program = program.say("--loglevel warning --save").with([""]);
    let program = of.iter().fold(program, |program, of| program.say(&format!("--replicaof 127.0.0.1 {}", of.port())));
    let process = program.quiet().start()?;
    let began = Instant::now();
    while let Err(error) = TcpStream::connect(address) {
        ensure!(began.elapsed() < LIMIT, "the server does not listen: {error}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok((address, process))
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn to(address: SocketAddr) -> Result<Connection> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(LIMIT))?;
        Ok(Connection(BufReader::new(socket)))
    }

    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let key = format!("k{key}");
        let mut request = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\nWAIT 1 0\r\n");
        Ok(self.0.get_mut().write_all(&request)?)
    }

    fn is_put(&mut self) -> Result<()> {
        let (stored, replicas) = (self.line()?, self.line()?);
        ensure!((&*stored, &*replicas) == ("+OK", ":1"), "a put has the answers {stored}, {replicas}");
        Ok(())
    }

    /// The text that answers a request.
    fn ask(&mut self, request: &str) -> Result<String> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let head = self.line()?;
        let bytes: usize = head.strip_prefix('$').and_then(|bytes| bytes.parse().ok()).context(head)?;
        let mut text = vec![0; bytes + 2];
        self.0.read_exact(&mut text)?;
        text.truncate(bytes);
        Ok(String::from_utf8(text)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
