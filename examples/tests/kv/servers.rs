//! Servers as child processes, and a client for them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take, on a machine that has much else to do.
pub const TIME_LIMIT: Duration = limits::HANG;

/// How many ports were asked for.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// A server that is ended with its value.
pub struct Server {
    child: Child,
    /// One for each machine.
    pub addresses: Vec<SocketAddr>,
}

impl Server {
    /// `kv` with these arguments, on as many machines.
    pub fn kv(arguments: &str, machines: usize) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv"));
        command.args(["--port", "0"]).args(arguments.split_whitespace());
        if machines > 1 {
            command.args(["--local", &machines.to_string()]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = |line: std::io::Result<String>| {
            line.unwrap().rsplit_once(' ').and_then(|(_, address)| address.parse().ok()).expect("an address")
        };
        let addresses: Vec<SocketAddr> = lines.take(machines).map(address).collect();
        assert_eq!(addresses.len(), machines, "kv has not started");
        Server { child, addresses }
    }

    /// Debian's memcached, if it is installed.
    pub fn memcached() -> Option<Server> {
        if !Command::new("memcached").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            println!("SKIPPED: memcached is not installed, so there is nothing to compare with");
            return None;
        }
        (0..20).find_map(|_| {
            // Not one of those that the system gives out: another server of these tests might get it meanwhile.
            let number = std::process::id() + 7 * ASKED.fetch_add(1, Ordering::Relaxed);
            let address = SocketAddr::from(([127, 0, 0, 1], 20_000 + (number % 10_000) as u16));
            drop(TcpListener::bind(address).ok()?);
            let mut command = Command::new("memcached");
            command.args(["-l", "127.0.0.1", "-U", "0", "-p", &address.port().to_string()]);
            if rustix::process::geteuid().is_root() {
                command.args(["-u", "nobody"]);
            }
            let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let mut server = Server { child, addresses: vec![address] };
            let begun = Instant::now();
            loop {
                match server.child.try_wait().unwrap() {
                    Some(_) => return None,
                    None if TcpStream::connect(address).is_ok() => return Some(server),
                    None => assert!(begun.elapsed() < TIME_LIMIT, "memcached does not listen"),
                }
                std::thread::yield_now();
            }
        })
    }

    /// A connection to a machine.
    pub fn connect(&self, machine: usize) -> Client {
        Client::to(self.addresses[machine])
    }

    /// The first machine's answer to these bytes, up to the end of the connection.
    pub fn say(&self, bytes: &[u8]) -> Vec<u8> {
        self.connect(0).say(bytes)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < TIME_LIMIT, "it does not end");
            std::thread::yield_now();
        }
    }

    /// One of the numbers of `stats`.
    pub fn stat(&self, name: &str) -> u64 {
        let stats = String::from_utf8(self.say(b"stats\r\n")).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {stats}")).parse().unwrap()
    }

    /// Waits until one of the numbers of `stats` is as it should be.
    pub fn wait_for(&self, name: &str, good: impl Fn(u64) -> bool) {
        let begun = Instant::now();
        while !good(self.stat(name)) {
            assert!(begun.elapsed() < TIME_LIMIT, "{name} is {}", self.stat(name));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The launcher's machines go with it.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Resident memory of a process, in bytes.
pub fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// A client that sends anything.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        stream.set_write_timeout(Some(TIME_LIMIT)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, reader }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).unwrap();
        assert!(line.ends_with(b"\r\n"), "the connection has ended: {:?}", String::from_utf8_lossy(&line));
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    /// Says this and returns the line that comes back.
    pub fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n").as_bytes());
        self.line()
    }

    /// The next so many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Says this, says no more, and returns all that comes back.
    pub fn say(mut self, bytes: &[u8]) -> Vec<u8> {
        // The server may have had enough before it has read all: then the replies so far count.
        let _ = self.stream.write_all(bytes).and_then(|()| self.stream.shutdown(Shutdown::Write));
        self.rest()
    }

    /// All that comes until the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut replies = Vec::new();
        match self.reader.read_to_end(&mut replies) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
        replies
    }
}
