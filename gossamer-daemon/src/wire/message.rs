//! The messages, and their bytes.
//!
//! Three conversations, each a list of enums below:
//!
//! - launcher (or daemon) and daemon, over an authenticated and encrypted connection: both send a [`Hello`]; then the
//!   one that has connected sends one [`Request`], and the daemon answers with [`Reply`]s
//! - launcher and part, after `Accepted`: [`ToPart`] and [`FromPart`], passed on by the daemon, which does not look
//!   inside (only that no message is too long)
//! - daemon and part, over a pair of local sockets: first one [`Setup`], then the above
//!
//! Invariants: no message is longer than [`MAX_MESSAGE_BYTES`]; decoding allocates no more than that, never panics,
//! and takes all bytes or fails. `Output` and `Input` are sent only within a window (`Grant`), so that nobody who is
//! slow makes others hold more than [`WINDOW_BYTES`] a stream.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};

pub use crate::outcome::Stream;

use super::status::HostStatus;

/// Version of everything in this file. Both sides must have the same.
pub const VERSION: u16 = 6;
/// The longest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// A program is carried in pieces of at most this many bytes.
pub const CHUNK_BYTES: usize = 256 << 10;
/// The most bytes of output or input that are sent at once.
pub const PIECE_BYTES: usize = 16 << 10;
/// How many bytes of a stream may be under way: for each of a host's stdout and stderr, and for the input.
pub const WINDOW_BYTES: u32 = 256 << 10;
/// How often both ends give a sign of life.
pub const BEAT_MS: u64 = 500;

const MAGIC: [u8; 4] = *b"GSMD";

/// Number of a program, unique on the rack; chosen at random by its launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
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

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The other side is another version.
    #[error(
        "it speaks version {theirs} of the rack protocol ({release}), this side version {VERSION}: \
             install the same gossamer on all hosts"
    )]
    Version {
        /// Its version.
        theirs: u16,
        /// What it calls itself.
        release: String,
    },
    /// The bytes make no sense.
    #[error("{bytes} bytes are no message: {what}")]
    Malformed {
        /// How many there are.
        bytes: usize,
        /// What is wrong.
        what: String,
    },
}

/// A message that travels as bytes.
pub trait Wire: Encode + Decode<()> {
    /// Its bytes.
    fn to_bytes(&self) -> Vec<u8> {
        // Encoding into memory fails only for types that these messages do not have.
        bincode::encode_to_vec(self, format()).unwrap_or_default()
    }

    /// The message in these bytes, all of them.
    ///
    /// # Errors
    /// [`MessageError::Malformed`].
    fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let malformed = |what: String| MessageError::Malformed { bytes: bytes.len(), what };
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(malformed("too long".into()));
        }
        let decoded = bincode::decode_from_slice::<Self, _>(bytes, format());
        match decoded.map_err(|error| malformed(error.to_string()))? {
            (message, taken) if taken == bytes.len() => Ok(message),
            (_, taken) => Err(malformed(format!("{} of them are too many", bytes.len() - taken))),
        }
    }
}

fn format() -> Configuration<LittleEndian, Varint, Limit<{ 2 * MAX_MESSAGE_BYTES }>> {
    bincode::config::standard().with_limit()
}

macro_rules! wire {
    ($($type:ty),+) => { $(impl Wire for $type {})+ };
}
wire!(Hello, Request, Reply, ToPart, FromPart, Setup);

/// The first message in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// Name and version of the program that speaks.
    pub release: String,
    /// Of the rack, by its `rack.yaml`.
    pub rack: String,
    /// Of the host: the daemon's own, or the one that the launcher wants to talk to.
    pub host: String,
    /// Of its `rack.yaml`.
    pub fingerprint: String,
    /// How many cores programs may use there.
    pub cores: u16,
    /// Milliseconds since 1970, by its clock.
    pub clock_ms: u64,
}

impl Hello {
    /// The bytes, which begin with what every version understands.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        [&MAGIC[..], &VERSION.to_le_bytes(), &[self.release.len().min(255) as u8]]
            .concat()
            .into_iter()
            .chain(self.release.bytes().take(255))
            .chain(self.to_bytes())
            .collect()
    }

    /// The greeting in these bytes.
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

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Request {
    /// Get ready to start this host's machines of a program: a `Beat` answers at once when there is room for it. `Go`
    /// follows when all its hosts are ready.
    Run(Box<Start>),
    /// Start them.
    Go,
    /// How is this host, and what runs there?
    Status,
    /// End a program; the text says who wants it.
    Kill {
        /// Which.
        program: ProgramId,
        /// For its launcher to tell.
        who: String,
    },
    /// Send a signal to a program's machines on this host; `Killed` answers.
    Signal {
        /// Which.
        program: ProgramId,
        /// Its number.
        signal: i32,
        /// Who wants it; for the log.
        who: String,
    },
    /// The last lines of the daemon's log, or those about one program.
    Logs {
        /// Which program.
        program: Option<ProgramId>,
        /// How many lines at most.
        lines: u32,
    },
    /// What a program has written on this host, as far as it is kept; and what it writes until it ends.
    Output {
        /// Which.
        program: ProgramId,
        /// Whether to go on until it ends.
        follow: bool,
    },
    /// What do its machines on this host do? `Seen` answers, for each of them, then `SeenEnd`.
    Look {
        /// Which.
        program: ProgramId,
        /// A `gossamer::control::Look`.
        look: Vec<u8>,
        /// How long to wait for answers.
        limit_ms: u32,
    },
    /// A piece of what `NeedProgram` or `NeedLibrary` asked for.
    Chunk(Vec<u8>),
    /// A sign of life, after `Neighbour`.
    Beat,
    /// From another daemon: only to know that both are there. Both send `Beat` from now on.
    Neighbour,
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Reply {
    /// No, and why.
    Refused(String),
    /// There is no room, and the program waits for it; at once, when its place changes, and as a sign of life.
    Queued {
        /// How many wait here before it.
        before: u32,
        /// How many may run at a time.
        most: u16,
    },
    /// This host lacks the program: send it, as [`Request::Chunk`]s.
    NeedProgram,
    /// It lacks what the program loads first.
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
        /// What is new.
        pieces: Vec<Written>,
        /// Whether something before it is not kept.
        is_cut: bool,
    },
    /// There is no more. How its machines on this host have exited so far, as `wait` gives it.
    OutputEnd(Vec<(u16, i32)>),
    /// A part of what a machine has answered to [`Request::Look`].
    Seen {
        /// Which machine.
        machine: u16,
        /// Nothing more follows from it.
        is_last: bool,
        /// As it came.
        bytes: Vec<u8>,
    },
    /// No more answers follow.
    SeenEnd {
        /// These machines have not answered in time.
        silent: Vec<u16>,
        /// The answers of these came faster than they were taken, and were dropped.
        dropped: Vec<u16>,
    },
    /// Nothing is known of such a program here.
    Unknown,
    /// A sign of life.
    Beat,
}

/// What a host is to start.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Start {
    /// Which program.
    pub program: ProgramId,
    /// Who starts it, from where; for `ps` and logs.
    pub owner: String,
    /// The plan of the program (`gossamer::bootstrap::Plan`) as JSON.
    pub plan: String,
    /// This host's number in the plan.
    pub host: u16,
    /// The program itself.
    pub executable: Carried,
    /// What it is to load first (`LD_PRELOAD`).
    pub library: Option<Carried>,
    /// Its arguments, without its name.
    pub args: Vec<Vec<u8>>,
    /// Its environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its working directory.
    pub folder: Vec<u8>,
    /// How long silence may last, in milliseconds.
    pub silence_ms: u32,
    /// Whether to wait where there is no room: `Queued` answers until there is.
    pub wait: bool,
}

impl Start {
    /// The same for the host with this number in the plan.
    #[must_use]
    pub fn of_host(&self, host: usize) -> Start {
        Start { host: u16::try_from(host).unwrap_or(u16::MAX), ..self.clone() }
    }

    /// Whether arguments and environment are no longer than `limits.environment_bytes` allows.
    ///
    /// # Errors
    /// Their length and the limit, in words.
    pub fn check_environment(&self, most: u32) -> Result<(), String> {
        let bytes: usize = self.args.iter().map(Vec::len).sum::<usize>()
            + self.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if bytes > most as usize {
            return Err(format!("arguments and environment have {bytes} bytes, limits.environment_bytes is {most}"));
        }
        Ok(())
    }
}

/// A file that the program is made of.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Carried {
    /// Its path on the launcher's host.
    pub path: Vec<u8>,
    /// What it is, for hosts to find or to ask for it; `None`: whatever lies at `path`.
    pub binary: Option<Binary>,
}

/// A file by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Binary {
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// How many bytes.
    pub bytes: u64,
}

/// Daemon to part, first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Setup {
    /// As it came.
    pub start: Start,
    /// The file to execute.
    pub file: Vec<u8>,
    /// The one that is to be loaded first.
    pub library: Option<Vec<u8>>,
}

/// The key of a program. Never printed.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SecretBytes(pub [u8; 32]);

impl std::fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

/// A piece of a machine's output.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Written {
    /// Which machine.
    pub machine: u16,
    /// Where.
    pub stream: Stream,
    /// What.
    pub bytes: Vec<u8>,
}

/// Launcher to part.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToPart {
    /// A sign of life.
    Beat,
    /// The program's key, for each machine.
    Secret(SecretBytes),
    /// The endpoint of a machine, for each other machine.
    Peer {
        /// Whose.
        machine: u16,
        /// As it came.
        endpoint: Vec<u8>,
    },
    /// So many more bytes of a stream may be sent.
    Grant {
        /// Which stream.
        stream: Stream,
        /// How many.
        bytes: u32,
    },
    /// Nobody reads a stream any more.
    Close(Stream),
    /// Input for machine 0.
    Input(Vec<u8>),
    /// There is no more.
    InputEnd,
    /// A signal for all machines.
    Signal(i32),
    /// From the daemon: a question for all machines (`gossamer::control`).
    Look {
        /// Comes back with the answers.
        ask: u32,
        /// A `gossamer::control::Look`.
        look: Vec<u8>,
    },
    /// The machines are to stop.
    End(String),
    /// The machines are to be killed.
    Kill,
}

/// Part to launcher.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum FromPart {
    /// A sign of life.
    Beat,
    /// A process was started as this machine.
    Started {
        /// Which machine.
        machine: u16,
        /// Its process id.
        pid: u32,
    },
    /// No process could be started.
    NotStarted {
        /// Why, and what to do.
        reason: String,
        /// Whether it is the program that is missing or cannot be executed.
        is_program: bool,
    },
    /// A machine has said this on its control channel.
    Said {
        /// Which machine.
        machine: u16,
        /// A packet of `gossamer::control`.
        packet: Vec<u8>,
    },
    /// For the daemon: what a machine answers came faster than it was taken, and the rest is dropped.
    Dropped {
        /// Which machine.
        machine: u16,
        /// To which question.
        ask: u32,
    },
    /// A machine has said what is no message.
    Nonsense {
        /// Which machine.
        machine: u16,
        /// What is wrong with it.
        reason: String,
    },
    /// A machine stands still.
    Stood {
        /// Which machine.
        machine: u16,
        /// Stopped by this signal.
        signal: i32,
    },
    /// A process has ended.
    Exited {
        /// Which machine.
        machine: u16,
        /// As `wait` gives it.
        status: i32,
    },
    /// What a machine has written.
    Output {
        /// Which machine.
        machine: u16,
        /// Where.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// So many more bytes of input may be sent.
    GrantInput(u32),
    /// The part itself has gone, or is made to go: from the daemon, and why.
    Gone(String),
    /// All machines of this host have gone, and all they wrote is sent.
    Done,
}

#[cfg(test)]
mod tests;
