//! One client of a soak: pipelined batches of `set`, `get` and `delete`, every reply checked; now and then it vanishes
//! in the middle of a batch.
//!
//! Each object is written by one client alone. Replies come in the order of the requests, so that client knows exactly
//! which write a read has to return, if it finds anything. Only writes on a connection that vanished before their reply
//! may take effect later, and are remembered as possible for ever. Objects of other clients have to be whole, no more.

use super::values;
use crate::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Requests of a batch, at most.
const DEPTH: usize = 48;
/// Bytes of a batch, at most, unless it is of one request: the sockets take them before anything is read.
const BATCH_BYTES: usize = 48 << 10;
/// One batch of so many is the connection's last.
const BATCHES_A_LIFE: u32 = 200;
const TIME_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Request {
    Set { object: u32, version: u32 },
    Get { objects: Vec<u32> },
    Delete { object: u32 },
}

/// Counts of one client, or of all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub operations: u64,
    pub hits: u64,
    pub misses: u64,
    /// Writes that were refused for want of memory.
    pub refused: u64,
    pub vanished: u64,
}

impl Counts {
    pub fn and(self, other: Counts) -> Counts {
        Counts {
            operations: self.operations + other.operations,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            refused: self.refused + other.refused,
            vanished: self.vanished + other.vanished,
        }
    }
}

pub struct Talker {
    me: u32,
    of: u32,
    objects: u32,
    address: SocketAddr,
    rng: StdRng,
    version: u32,
    /// The last write of each own object that was answered; none: deleted, or never written.
    latest: HashMap<u32, u32>,
    /// Writes without an answer.
    possible: HashSet<(u32, u32)>,
    pub counts: Counts,
    socket: Option<BufReader<TcpStream>>,
}

fn key_of(object: u32) -> String {
    format!("{:x}:{object}", object.wrapping_mul(0x9e37_79b1))
}

impl Talker {
    /// Client `me` of `of`.
    pub fn new(me: u32, of: u32, objects: u32, address: SocketAddr, seed: u64) -> Self {
        Self {
            me,
            of,
            objects,
            address,
            rng: StdRng::seed_from_u64(seed ^ u64::from(me) << 32),
            version: 0,
            latest: HashMap::new(),
            possible: HashSet::new(),
            counts: Counts::default(),
            socket: None,
        }
    }

    /// One batch, or the end of a connection.
    pub fn batch(&mut self) -> Result<()> {
        if self.socket.is_none() {
            let socket = TcpStream::connect(self.address).context("connecting")?;
            socket.set_read_timeout(Some(TIME_LIMIT))?;
            socket.set_write_timeout(Some(TIME_LIMIT))?;
            self.socket = Some(BufReader::with_capacity(64 << 10, socket));
        }
        let (requests, bytes) = self.requests();
        if self.rng.random_range(0..BATCHES_A_LIFE) == 0 {
            self.vanish(&requests, &bytes);
            return Ok(());
        }
        self.socket()?.get_mut().write_all(&bytes).context("sending")?;
        for request in &requests {
            self.reply(request).with_context(|| format!("the reply to {request:?}"))?;
        }
        self.counts.operations += requests.len() as u64;
        Ok(())
    }

    /// A batch of requests, and the whole in bytes.
    fn requests(&mut self) -> (Vec<Request>, Vec<u8>) {
        let (mut requests, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.random_range(1..=DEPTH) {
            let request = self.request();
            let before = bytes.len();
            write(&request, &mut bytes);
            if bytes.len() > BATCH_BYTES && before > 0 {
                bytes.truncate(before);
                break;
            }
            requests.push(request);
        }
        (requests, bytes)
    }

    fn request(&mut self) -> Request {
        let own = self.rng.random_range(0..self.objects / self.of) * self.of + self.me;
        match self.rng.random_range(0..100) {
            0..30 => {
                self.version += 1;
                Request::Set { object: own, version: self.version }
            }
            30..75 => Request::Get { objects: vec![own] },
            75..92 => {
                let count = self.rng.random_range(2..=20);
                let any = (0..count).map(|_| self.rng.random_range(0..self.objects));
                Request::Get { objects: any.chain([own]).collect() }
            }
            _ => Request::Delete { object: own },
        }
    }

    /// Sends all or a part, reads nothing or a part of the replies, and is gone.
    fn vanish(&mut self, requests: &[Request], bytes: &[u8]) {
        for request in requests {
            if let Request::Set { object, version } = *request {
                self.possible.insert((object, version));
            }
        }
        let Some(mut socket) = self.socket.take().map(BufReader::into_inner) else { return };
        let sent = if self.rng.random_bool(0.3) { bytes.len() } else { self.rng.random_range(0..=bytes.len()) };
        // The result is ignored: nothing uses this connection any more.
        if socket.write_all(&bytes[..sent]).is_ok() && sent == bytes.len() && self.rng.random_bool(0.5) {
            let _ = socket.read(&mut [0; 100]);
        }
        self.counts.vanished += 1;
    }

    fn reply(&mut self, request: &Request) -> Result<()> {
        match request {
            Request::Set { object, version } => match self.line()?.as_str() {
                "STORED" => _ = self.latest.insert(*object, *version),
                // An old value may be there still, or not.
                "SERVER_ERROR out of memory storing object" => self.counts.refused += 1,
                other => bail!("{other:?}"),
            },
            Request::Get { objects } => self.found(objects)?,
            Request::Delete { object } => {
                let line = self.line()?;
                ensure!(line == "DELETED" || line == "NOT_FOUND", "{line:?}");
                self.latest.remove(object);
            }
        }
        Ok(())
    }

    /// The reply to a `get` of these.
    fn found(&mut self, asked: &[u32]) -> Result<()> {
        let mut left = asked.iter();
        loop {
            let line = self.line()?;
            if line == "END" {
                self.counts.misses += left.len() as u64;
                return Ok(());
            }
            let parts: Vec<&str> = line.split(' ').collect();
            let ["VALUE", key, "0", length] = parts[..] else { bail!("{line:?}") };
            // Found ones come in the order in which they were asked for.
            let object = loop {
                match left.next() {
                    Some(object) if key_of(*object) == key => break *object,
                    Some(_) => self.counts.misses += 1,
                    None => bail!("{key:?} was not asked for, or earlier"),
                }
            };
            self.value(object, length.parse()?)?;
        }
    }

    /// The value that comes now.
    fn value(&mut self, object: u32, length: usize) -> Result<()> {
        let mut value = vec![0; length + 2];
        self.socket()?.read_exact(&mut value).context("no value")?;
        let value = value.strip_suffix(b"\r\n").context("no end of line behind the value")?;
        let version = values::version_of(object, value)?;
        self.counts.hits += 1;
        let latest = self.latest.get(&object);
        ensure!(
            object % self.of != self.me || latest == Some(&version) || self.possible.contains(&(object, version)),
            "object {object}: version {version} instead of {latest:?}"
        );
        Ok(())
    }

    fn socket(&mut self) -> Result<&mut BufReader<TcpStream>> {
        self.socket.as_mut().context("a socket")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.socket()?.read_line(&mut line).context("no reply")?;
        Ok(line.strip_suffix("\r\n").context("the server closed the connection")?.to_owned())
    }
}

fn write(request: &Request, bytes: &mut Vec<u8>) {
    let line = match request {
        Request::Set { object, version } => {
            let value = values::value_of(*object, *version);
            bytes.extend_from_slice(format!("set {} 0 0 {}\r\n", key_of(*object), value.len()).as_bytes());
            bytes.extend(value);
            String::new()
        }
        Request::Get { objects } => objects.iter().fold("get".to_owned(), |line, object| line + " " + &key_of(*object)),
        Request::Delete { object } => format!("delete {}", key_of(*object)),
    };
    bytes.extend_from_slice(line.as_bytes());
    bytes.extend_from_slice(b"\r\n");
}
