//! The messages, and their bytes.
//!
//! Three conversations, each a list of enums below:
//!
//! - launcher (or daemon) and daemon, over an authenticated and encrypted connection: both send a [`Hello`]; then the
//!   connecting side sends one [`Request`], and the daemon answers with [`Reply`]s
//! - launcher and part, after `Accepted`: [`ToPart`] and [`FromPart`], passed on by the daemon, which does not look
//!   inside (only that no message is too long)
//! - daemon and part, over a pair of local sockets: first one [`Setup`], then the above
//!
//! Invariants: no message is longer than [`MAX_MESSAGE_BYTES`]; decoding takes a few times that at most, never panics,
//! and takes all bytes or fails. `Output` and `Input` are sent only within a window (`Grant`), so that a slow reader
//! never makes others hold more than [`WINDOW_BYTES`] a stream.

use gossamer::codec;
use gossamer::control::Look;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::outcome::Stream;

use super::status::{HostStatus, Path};

/// Version of everything in this file. Both sides must have the same.
pub const VERSION: u16 = 11;
/// Longest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Longest piece of a program that is being sent, in bytes.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Most bytes of output or input that are sent at once.
pub const PIECE_BYTES: usize = 16 << 10;
/// Window of a stream in bytes: for each of a host's stdout and stderr, and for the input.
pub const WINDOW_BYTES: u32 = 256 << 10;
/// Interval of the signs of life of both ends.
pub const BEAT_MS: u64 = 500;

const MAGIC: [u8; 4] = *b"GSMD";

/// Number of a program, unique on the rack; chosen at random by its launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProgramId(pub u32);

impl std::fmt::Display for ProgramId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl std::str::FromStr for ProgramId {
    type Err = String;
    fn from_str(text: &str) -> Result<ProgramId, String> {
        let number = u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 8);
        let wrong =
            || format!("{text:?} is no program: `gossamer-launch ps` lists them, each 8 letters and digits long");
        number.map(ProgramId).ok_or_else(wrong)
    }
}

/// Reason why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The other side has another version.
    #[error(
        "it speaks version {theirs} of the rack protocol ({release}), this side version {VERSION}: \
             install the same gossamer on all hosts"
    )]
    Version {
        /// Its version.
        theirs: u16,
        /// Its own name.
        release: String,
    },
    /// The bytes make no sense.
    #[error("{bytes} bytes are no message: {what}")]
    Malformed {
        /// Their number.
        bytes: usize,
        /// The problem.
        what: String,
    },
}

/// A message that travels as bytes.
pub trait Wire: Serialize + DeserializeOwned {
    /// Returns its bytes.
    fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes the message in these bytes, all of them.
    ///
    /// # Errors
    /// [`MessageError::Malformed`].
    fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let malformed = |what: String| MessageError::Malformed { bytes: bytes.len(), what };
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(malformed("too long".into()));
        }
        codec::decode::<Self, { 2 * MAX_MESSAGE_BYTES }>(bytes).map_err(malformed)
    }
}

macro_rules! wire {
    ($($type:ty),+) => { $(impl Wire for $type {})+ };
}
wire!(Hello, Request, Reply, ToPart, FromPart, Setup);

/// The first message in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name and version of the sending program.
    pub release: String,
    /// Name of the rack in its `rack.yaml`.
    pub rack: String,
    /// Name of the host: the daemon's own, or the one that the launcher wants to talk to.
    pub host: String,
    /// Fingerprint of its `rack.yaml`.
    pub fingerprint: String,
    /// Number of cores for programs there.
    pub cores: u16,
    /// Whether it is drained: it takes no new programs.
    pub is_drained: bool,
    /// Milliseconds since 1970, by its clock.
    pub clock_ms: u64,
}

impl Hello {
    /// Returns the bytes, which begin with the fields that every version understands.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        [&MAGIC[..], &VERSION.to_le_bytes(), &[self.release.len().min(255) as u8]]
            .concat()
            .into_iter()
            .chain(self.release.bytes().take(255))
            .chain(self.to_bytes())
            .collect()
    }

    /// Decodes the greeting in these bytes.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn unpack(bytes: &[u8]) -> Result<Hello, MessageError> {
        let malformed = |what: &str| MessageError::Malformed { bytes: bytes.len(), what: what.into() };
        let rest = bytes.strip_prefix(&MAGIC).ok_or_else(|| malformed("not the greeting of a gossamer program"))?;
        let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(|| malformed("cut short"))?;
        let (length, rest) = rest.split_first().ok_or_else(|| malformed("cut short"))?;
        let (release, rest) = rest.split_at_checked(usize::from(*length)).ok_or_else(|| malformed("cut short"))?;
        match u16::from_le_bytes(*version) {
            VERSION => Hello::from_bytes(rest),
            theirs => Err(MessageError::Version { theirs, release: String::from_utf8_lossy(release).into_owned() }),
        }
    }
}

/// Purpose of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Get ready to start this host's machines of a program: a `Beat` answers at once when there is room for it. `Go`
    /// follows when all its hosts are ready.
    Run(Box<Start>),
    /// Start them.
    Go,
    /// Status of this host and its programs.
    Status,
    /// End a program; the text names the requester.
    Kill {
        /// The program.
        program: ProgramId,
        /// The requester, for the launcher's message.
        who: String,
    },
    /// Send a signal to a program's machines on this host; `Killed` answers.
    Signal {
        /// The program.
        program: ProgramId,
        /// Its number.
        signal: i32,
        /// The requester, for the log.
        who: String,
    },
    /// The last lines of the daemon's log, or those about one program.
    Logs {
        /// The program.
        program: Option<ProgramId>,
        /// Most lines.
        lines: u32,
    },
    /// Kept output of a program on this host; and its further output until it ends.
    Output {
        /// The program.
        program: ProgramId,
        /// Whether to continue until it ends.
        follow: bool,
    },
    /// Activity of the program's machines on this host. `Seen` answers, for each of them, then `SeenEnd`.
    Look {
        /// The program.
        program: ProgramId,
        /// The question.
        look: Look,
        /// Longest wait for answers.
        limit_ms: u32,
    },
    /// Take no new programs, or take them again; `Status` answers.
    Drain {
        /// Whether to take none.
        is_on: bool,
        /// The requester, for `status` and for those who are refused.
        who: String,
    },
    /// Execute the daemon's executable anew, in its own place; `Upgraded` answers.
    Upgrade {
        /// The requester, for the log.
        who: String,
    },
    /// A piece of the file that `NeedProgram` or `NeedLibrary` asked for.
    Chunk(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A sign of life, after `Neighbour`.
    Beat,
    /// From another daemon: only to know that both are there. Both send `Beat` from now on.
    Neighbour,
    /// Try the paths to these hosts at the ports of programs. `Paths` answers; `Beat`s come before it.
    Paths {
        /// Names of the hosts.
        to: Vec<String>,
    },
    /// From another daemon: open a port of those of programs, and answer there. `Probing` comes when it is open.
    Probe {
        /// The last port of the range, not the first that is free; `Unknown` answers where it is taken.
        is_last: bool,
    },
}

/// Answer of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// A refusal with its reason.
    Refused(String),
    /// There is no room, and the program waits for it; sent at once, when its place changes, and as a sign of life.
    Queued {
        /// Programs that wait here before it.
        before: u32,
        /// Programs that may run at a time.
        most: u16,
    },
    /// This host lacks the program: send it, as [`Request::Chunk`]s.
    NeedProgram,
    /// It lacks the library that the program loads first.
    NeedLibrary,
    /// This host has the program, and waits for `Go`.
    Ready,
    /// The machines are being started; [`ToPart`] and [`FromPart`] follow.
    Accepted,
    /// See [`Request::Status`].
    Status(Box<HostStatus>),
    /// Whether there was such a program.
    Killed(bool),
    /// The lines, oldest first.
    Logs(Vec<String>),
    /// Output of a program, in order.
    Output {
        /// New pieces.
        pieces: Vec<Written>,
        /// Whether pieces before them were dropped.
        is_cut: bool,
    },
    /// There is no more. Exit statuses of its machines on this host so far, as `wait` gives them.
    OutputEnd(Vec<(u16, i32)>),
    /// A piece of a machine's answer to [`Request::Look`].
    Seen {
        /// The machine.
        machine: u16,
        /// Nothing more follows from it.
        is_last: bool,
        /// Its bytes, unchanged.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// No more answers follow.
    SeenEnd {
        /// Machines that have not answered in time.
        silent: Vec<u16>,
        /// Machines whose answers came faster than they were read, and were dropped.
        dropped: Vec<u16>,
    },
    /// From the new daemon.
    Upgraded {
        /// Its name and version.
        release: String,
        /// Number of programs that have gone on.
        programs: u32,
    },
    /// The program is unknown here.
    Unknown,
    /// A sign of life.
    Beat,
    /// See [`Request::Paths`].
    Paths(Vec<Path>),
    /// See [`Request::Probe`].
    Probing {
        /// The port.
        port: u16,
        /// Bytes that the connection begins with.
        token: [u8; 16],
    },
}

/// Program for a host to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Number of the program.
    pub program: ProgramId,
    /// User and host that start it; for `ps` and logs.
    pub owner: String,
    /// The plan of the program (`gossamer::bootstrap::Plan`) as JSON.
    pub plan: String,
    /// This host's number in the plan.
    pub host: u16,
    /// The program itself.
    pub executable: Carried,
    /// Library to load first (`LD_PRELOAD`).
    pub library: Option<Carried>,
    /// Its arguments, without its name.
    pub args: Vec<Vec<u8>>,
    /// Its environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its working directory.
    #[serde(with = "serde_bytes")]
    pub folder: Vec<u8>,
    /// Options of the run ([`RunOptions::to_json`](crate::options::RunOptions::to_json)). With `wait`, `Queued` answers
    /// until there is room.
    pub options: String,
}

impl Start {
    /// Returns the same message for the host with this number in the plan.
    #[must_use]
    pub fn of_host(&self, host: usize) -> Start {
        Start { host: u16::try_from(host).unwrap_or(u16::MAX), ..self.clone() }
    }

    /// Checks that arguments and environment are no longer than `limits.environment_bytes` allows.
    ///
    /// # Errors
    /// A text with their length and the limit.
    pub fn check_environment(&self, most: u32) -> Result<(), String> {
        let bytes: usize = self.args.iter().map(Vec::len).sum::<usize>()
            + self.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if bytes > most as usize {
            return Err(format!("arguments and environment have {bytes} bytes, limits.environment_bytes is {most}"));
        }
        Ok(())
    }
}

/// A file of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Its path on the launcher's host.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Its content, for hosts to find or to ask for it; `None`: the file at `path`, whatever it is.
    pub binary: Option<Binary>,
}

/// A file by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// Its length in bytes.
    pub bytes: u64,
}

/// Daemon to part, first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The launcher's start message.
    pub start: Start,
    /// The file to execute.
    #[serde(with = "serde_bytes")]
    pub file: Vec<u8>,
    /// The library to load first.
    pub library: Option<Vec<u8>>,
}

/// The key of a program. Never printed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretBytes(pub [u8; 32]);

impl std::fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

/// A piece of a machine's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The machine.
    pub machine: u16,
    /// The stream.
    pub stream: Stream,
    /// The bytes.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Launcher to part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPart {
    /// A sign of life.
    Beat,
    /// The program's key, for each machine.
    Secret(SecretBytes),
    /// The endpoint of a machine, for each other machine.
    Peer {
        /// The machine.
        machine: u16,
        /// Its endpoint, unchanged.
        #[serde(with = "serde_bytes")]
        endpoint: Vec<u8>,
    },
    /// This many more bytes of a stream may be sent.
    Grant {
        /// The stream.
        stream: Stream,
        /// Number of bytes.
        bytes: u32,
    },
    /// A stream has lost its reader.
    Close(Stream),
    /// Input for machine 0.
    Input(#[serde(with = "serde_bytes")] Vec<u8>),
    /// End of the input.
    InputEnd,
    /// A signal for all machines.
    Signal(i32),
    /// From the daemon: a question for all machines (`gossamer::control`).
    Look {
        /// Number that comes back with the answers.
        ask: u32,
        /// The question.
        look: Look,
    },
    /// The machines are to stop.
    End(String),
    /// The machines are to be killed.
    Kill,
    /// A message for one machine, where a program outlives some.
    Tell {
        /// The machine.
        machine: u16,
        /// A packet of `gossamer::control`.
        #[serde(with = "serde_bytes")]
        packet: Vec<u8>,
    },
    /// One machine, which is lost, is to be killed.
    KillOne(u16),
}

/// Part to launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromPart {
    /// A sign of life.
    Beat,
    /// A process was started as this machine.
    Started {
        /// The machine.
        machine: u16,
        /// Its process id.
        pid: u32,
    },
    /// No process could be started.
    NotStarted {
        /// The cause, and the cure.
        reason: String,
        /// Whether the program is missing or cannot be executed.
        is_program: bool,
    },
    /// A message of a machine on its control channel.
    Said {
        /// The machine.
        machine: u16,
        /// A packet of `gossamer::control`.
        #[serde(with = "serde_bytes")]
        packet: Vec<u8>,
    },
    /// For the daemon: a machine's answer came faster than it was read, and the rest is dropped.
    Dropped {
        /// The machine.
        machine: u16,
        /// Number of the question.
        ask: u32,
    },
    /// A machine has sent an invalid message.
    Nonsense {
        /// The machine.
        machine: u16,
        /// The problem.
        reason: String,
    },
    /// A machine is stopped.
    Stood {
        /// The machine.
        machine: u16,
        /// The signal that stopped it.
        signal: i32,
    },
    /// From the daemon, before `Exited`: the kernel has killed processes of the program for want of memory.
    OutOfMemory {
        /// The machine whose end follows.
        machine: u16,
        /// Limit of the program on this host; `None`: the host had no memory left.
        limit_bytes: Option<u64>,
    },
    /// A process has ended.
    Exited {
        /// The machine.
        machine: u16,
        /// Its status, as `wait` gives it.
        status: i32,
    },
    /// Output of a machine.
    Output {
        /// The machine.
        machine: u16,
        /// The stream.
        stream: Stream,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// This many more bytes of input may be sent.
    GrantInput(u32),
    /// The part itself has gone, or is made to go: from the daemon, and why.
    Gone(String),
    /// All machines of this host have gone, and all their output is sent.
    Done,
}

#[cfg(test)]
mod tests;
