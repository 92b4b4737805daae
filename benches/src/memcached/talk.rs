//! One client of a soak: pipelined batches of most of memcached's text commands, every reply checked; now and then it
//! vanishes in the middle of a request.
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

#[derive(Clone, Copy, Debug)]
enum Request {
    /// `set`, `set` without a reply, `add` or `replace`.
    Store {
        verb: &'static str,
        object: u32,
        version: u32,
    },
    /// `get` of that many objects: the next ones of the batch's list.
    Get {
        objects: usize,
    },
    MetaGet {
        object: u32,
    },
    Delete {
        object: u32,
    },
    Touch {
        object: u32,
    },
    MakeCounter,
    Count,
}

/// A `set` without a reply.
const QUIETLY: &str = "set quietly";

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
    lives: u32,
    counter: Option<u64>,
    pub counts: Counts,
    socket: Option<BufReader<TcpStream>>,
    scratch: Vec<u8>,
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
            lives: 0,
            counter: None,
            counts: Counts::default(),
            socket: None,
            scratch: Vec::new(),
        }
    }

    /// One batch, or the end of a connection.
    pub fn batch(&mut self) -> Result<()> {
        if self.socket.is_none() {
            let socket = TcpStream::connect(self.address).context("connecting")?;
            socket.set_read_timeout(Some(TIME_LIMIT))?;
            socket.set_write_timeout(Some(TIME_LIMIT))?;
            self.socket = Some(BufReader::with_capacity(64 << 10, socket));
            (self.lives, self.counter) = (self.lives + 1, None);
        }
        let (requests, asked, bytes) = self.requests();
        if self.rng.random_range(0..BATCHES_A_LIFE) == 0 {
            self.vanish(&requests, &bytes);
            return Ok(());
        }
        self.socket()?.get_mut().write_all(&bytes).context("sending")?;
        let mut asked = asked.into_iter();
        for request in &requests {
            self.reply(*request, &mut asked).with_context(|| format!("the reply to {request:?}"))?;
        }
        self.counts.operations += requests.len() as u64;
        Ok(())
    }

    /// A batch of requests, the objects that its `get`s ask for, and the whole in bytes.
    fn requests(&mut self) -> (Vec<Request>, Vec<u32>, Vec<u8>) {
        let (mut requests, mut asked, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        if self.counter.is_none() {
            requests.push(Request::MakeCounter);
            bytes.extend_from_slice(format!("set {} 0 0 1\r\n0\r\n", self.counter_key()).as_bytes());
        }
        for _ in 0..self.rng.random_range(1..=DEPTH) {
            let own = self.rng.random_range(0..self.objects / self.of) * self.of + self.me;
            let any = self.rng.random_range(0..self.objects);
            let draw = self.rng.random_range(0..100);
            self.version += u32::from(draw < 30);
            let version = self.version;
            if draw < 30 && values::length_of(own, version) > BATCH_BYTES && !requests.is_empty() {
                break;
            }
            let request = match draw {
                0..20 => Request::Store { verb: "set", object: own, version },
                20..24 => Request::Store { verb: QUIETLY, object: own, version },
                24..27 => Request::Store { verb: "add", object: own, version },
                27..30 => Request::Store { verb: "replace", object: own, version },
                30..75 => Request::Get { objects: 1 },
                75..83 => Request::Get { objects: self.rng.random_range(2..=20) },
                83..91 => Request::MetaGet { object: if draw % 2 == 0 { own } else { any } },
                91..94 => Request::Delete { object: own },
                94..96 => Request::Touch { object: any },
                _ => Request::Count,
            };
            let from = asked.len();
            if let Request::Get { objects } = request {
                asked.extend(
                    (0..objects)
                        .map(|nth| if nth % 2 == 0 { own } else { any.wrapping_add(nth as u32) % self.objects }),
                );
            }
            self.write(request, &asked[from..], &mut bytes);
            requests.push(request);
            if bytes.len() > BATCH_BYTES {
                break;
            }
        }
        (requests, asked, bytes)
    }

    fn counter_key(&self) -> String {
        format!("counter:{}:{}", self.me, self.lives)
    }

    fn write(&self, request: Request, asked: &[u32], bytes: &mut Vec<u8>) {
        let line = match request {
            Request::Store { verb, object, version } => {
                let (flags, length) = (values::flags_of(version), values::length_of(object, version));
                let (verb, end) = if verb == QUIETLY { ("set", " noreply") } else { (verb, "") };
                bytes.extend_from_slice(format!("{verb} {} {flags} 0 {length}{end}\r\n", key_of(object)).as_bytes());
                values::write(object, version, bytes);
                String::new()
            }
            Request::Get { .. } => asked.iter().fold("get".to_owned(), |line, object| line + " " + &key_of(*object)),
            Request::MetaGet { object } => format!("mg {} f k v", key_of(object)),
            Request::Delete { object } => format!("delete {}", key_of(object)),
            Request::Touch { object } => format!("touch {} 0", key_of(object)),
            Request::MakeCounter => return,
            Request::Count => format!("incr {} 1", self.counter_key()),
        };
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }

    /// Sends all or a part, reads nothing or a part of the replies, and is gone.
    fn vanish(&mut self, requests: &[Request], bytes: &[u8]) {
        for request in requests {
            if let Request::Store { object, version, .. } = *request {
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

    fn reply(&mut self, request: Request, asked: &mut impl Iterator<Item = u32>) -> Result<()> {
        match request {
            Request::Store { verb, object, version } => {
                let line = if verb == QUIETLY { "STORED".to_owned() } else { self.line()? };
                match line.as_str() {
                    "STORED" => _ = self.latest.insert(object, version),
                    "NOT_STORED" if verb != "set" => {}
                    // An old value may be there still, or not.
                    "SERVER_ERROR out of memory storing object" => self.counts.refused += 1,
                    other => bail!("{other:?}"),
                }
            }
            Request::Get { objects } => {
                let asked: Vec<u32> = asked.take(objects).collect();
                self.found(&asked)?;
            }
            Request::MetaGet { object } => {
                let line = self.line()?;
                if line == "EN" || line == format!("EN k{}", key_of(object)) {
                    self.counts.misses += 1;
                    return Ok(());
                }
                let parts: Vec<&str> = line.split(' ').collect();
                let [_, length, flags, key] = parts[..] else { bail!("{line:?}") };
                ensure!(parts[0] == "VA" && key.strip_prefix('k') == Some(&key_of(object)), "{line:?}");
                let flags = flags.strip_prefix('f').context("no flags")?.parse()?;
                self.value(object, flags, length.parse()?)?;
            }
            Request::Delete { object } => {
                let line = self.line()?;
                ensure!(line == "DELETED" || line == "NOT_FOUND", "{line:?}");
                self.latest.remove(&object);
            }
            Request::Touch { .. } => {
                let line = self.line()?;
                ensure!(line == "TOUCHED" || line == "NOT_FOUND", "{line:?}");
            }
            Request::MakeCounter => {
                let line = self.line()?;
                ensure!(line == "STORED" || line.starts_with("SERVER_ERROR out of memory"), "{line:?}");
                self.counter = Some(0);
            }
            Request::Count => {
                let line = self.line()?;
                if line != "NOT_FOUND" {
                    let next = self.counter.unwrap_or(0) + 1;
                    ensure!(line.parse() == Ok(next), "{line:?} instead of {next}");
                    self.counter = Some(next);
                }
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
            let ["VALUE", key, flags, length] = parts[..] else { bail!("{line:?}") };
            // Found ones come in the order in which they were asked for.
            let object = loop {
                match left.next() {
                    Some(object) if key_of(*object) == key => break *object,
                    Some(_) => self.counts.misses += 1,
                    None => bail!("{key:?} was not asked for, or earlier"),
                }
            };
            self.value(object, flags.parse()?, length.parse()?)?;
        }
    }

    /// The value that comes now.
    fn value(&mut self, object: u32, flags: u32, length: usize) -> Result<()> {
        let mut value = vec![0; length + 2];
        self.socket()?.read_exact(&mut value).context("no value")?;
        let value = value.strip_suffix(b"\r\n").context("no end of line behind the value")?;
        let version = values::version_of(object, flags, value, &mut self.scratch)?;
        self.counts.hits += 1;
        if object % self.of == self.me {
            let latest = self.latest.get(&object);
            ensure!(
                latest == Some(&version) || self.possible.contains(&(object, version)),
                "object {object}: version {version} instead of {latest:?}"
            );
        }
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
