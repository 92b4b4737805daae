//! State of a daemon that its successor takes over: bytes in a file in memory. Its descriptor survives `exec`, as do
//! those of the listener, the connections and the parts, which the state names by their numbers.
#![allow(unsafe_code)] // descriptors by their numbers

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use comm::secure::{SecureReader, SecureStream, SecureWriter};
use gossamer::codec;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::cgroup::Cgroups;
use super::handed::Handed;
use super::kept::Output;
use super::programs::ProgramState;
use crate::orphans::Former;
use crate::wire::link::Link;
use crate::wire::{Hello, ProgramId, Start};

/// Version of everything in [`State`]: bytes of another one are not read. It changes with the types in it, and with
/// [`crate::wire::VERSION`], which both daemons must have: launchers and parts go on.
const VERSION: u16 = 1;
/// Most bytes of a state: far more than the output that daemons keep.
const BYTES_MAX: usize = 1 << 30;
/// Names the descriptor of the state to the new daemon.
pub(super) const VARIABLE: &str = "GOSSAMER_DAEMON_HANDOVER";

/// Returns the versions that both daemons must have.
pub(super) fn versions() -> String {
    format!("{VERSION}.{}", crate::wire::VERSION)
}

/// A connection between two messages.
#[derive(Serialize, Deserialize)]
pub(super) struct LinkState {
    tcp: Handed,
    reader: Vec<u8>,
    writer: Vec<u8>,
    theirs: Hello,
}

impl LinkState {
    pub(super) fn of(receiver: &SecureReader, sender: &SecureWriter, theirs: &Hello) -> LinkState {
        let (reader, writer) = (receiver.state().to_vec(), sender.state().to_vec());
        LinkState { tcp: Handed::of(receiver.tcp()), reader, writer, theirs: theirs.clone() }
    }

    pub(super) fn of_link(link: &Link) -> LinkState {
        LinkState::of(&link.receiver, &link.sender, &link.theirs)
    }

    /// # Errors
    /// When the connection has failed meanwhile, or the state is malformed.
    pub(super) fn resume(self) -> Result<Link, crate::wire::WireError> {
        let tcp = TcpStream::from(self.tcp.take()?);
        let peer = tcp.peer_addr()?;
        let (receiver, sender) = SecureStream::resume(tcp, &self.reader, &self.writer)?.split();
        Ok(Link { receiver, sender, theirs: self.theirs, clocks_apart: Default::default(), peer, has_old_key: false })
    }
}

/// State of a thread that has stopped.
#[derive(Serialize, Deserialize)]
pub(super) enum Parked {
    /// It accepts connections.
    Listener(Handed),
    /// It waits for the request of a peer.
    Request(LinkState),
    /// Its program waits for room.
    Queued(LinkState, Box<Start>),
    /// It waits for a sign of life of another daemon.
    Neighbour(LinkState),
    /// It sends the output of a program, from this piece on.
    Follower(LinkState, ProgramId, u64),
    /// Its peer has asked for the upgrade.
    Upgrader(LinkState),
    /// It passes the messages of a program's launcher on.
    Down {
        /// The program.
        program: ProgramId,
        /// Connection to the launcher.
        tcp: Handed,
        /// State of its receiving half.
        reader: Vec<u8>,
    },
    /// It passes the messages of a program's part on.
    Up {
        /// The program.
        program: ProgramId,
        /// State of the sending half.
        writer: Vec<u8>,
        /// Whether the part has said that it is done.
        is_done: bool,
    },
}

/// The connection of a program's session.
#[derive(Serialize, Deserialize)]
pub(super) struct SessionState {
    pub(super) program: ProgramId,
    pub(super) link: LinkState,
    pub(super) is_done: bool,
}

impl SessionState {
    /// Puts the halves of each session together; `None` where one has no other.
    pub(super) fn pair(halves: Vec<Parked>, own: &Hello) -> Option<Vec<SessionState>> {
        let (mut downs, mut ups) = (Vec::new(), Vec::new());
        for half in halves {
            match half {
                Parked::Down { program, tcp, reader } => downs.push((program, tcp, reader)),
                Parked::Up { program, writer, is_done } => ups.push((program, writer, is_done)),
                _ => return None,
            }
        }
        downs.sort_by_key(|(program, ..)| *program);
        ups.sort_by_key(|(program, ..)| *program);
        let are_paired = downs.len() == ups.len() && downs.iter().zip(&ups).all(|(down, up)| down.0 == up.0);
        let session = |((program, tcp, reader), (_, writer, is_done))| {
            // The launcher's greeting is of no more use.
            let link = LinkState { tcp, reader, writer, theirs: own.clone() };
            SessionState { program, link, is_done }
        };
        are_paired.then(|| downs.into_iter().zip(ups).map(session).collect())
    }
}

/// All that the new daemon cannot read from its files.
#[derive(Serialize, Deserialize)]
pub(super) struct State {
    pub(super) executable: std::path::PathBuf,
    pub(super) keys: String,
    pub(super) drained_by: Option<String>,
    pub(super) log: Vec<String>,
    pub(super) last_look: u32,
    pub(super) kept: VecDeque<Output>,
    pub(super) cgroups: Cgroups,
    pub(super) children: Former,
    pub(super) programs: Vec<ProgramState>,
    pub(super) queue: Vec<ProgramId>,
    pub(super) sessions: Vec<SessionState>,
    /// The listener, and the connections that are no sessions.
    pub(super) others: Vec<Parked>,
}

impl State {
    /// Takes the listener out of it.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn take_listener(&mut self) -> io::Result<TcpListener> {
        let place = self.others.iter().position(|other| matches!(other, Parked::Listener(_)));
        match place.map(|place| self.others.remove(place)) {
            Some(Parked::Listener(handed)) => Ok(handed.take()?.into()),
            _ => Err(io::Error::other("it has no listener")),
        }
    }

    /// Returns the numbers of its descriptors.
    fn descriptors(&self) -> Vec<RawFd> {
        let of_link = |link: &LinkState| number(&link.tcp);
        let of_other = |other: &Parked| match other {
            Parked::Listener(handed) => number(handed),
            Parked::Request(link)
            | Parked::Queued(link, _)
            | Parked::Neighbour(link)
            | Parked::Follower(link, ..)
            | Parked::Upgrader(link) => of_link(link),
            Parked::Down { tcp, .. } => number(tcp),
            Parked::Up { .. } => None,
        };
        let programs = self.programs.iter().map(|program| number(&program.channel));
        let sessions = self.sessions.iter().map(|session| of_link(&session.link));
        programs.chain(sessions).chain(self.others.iter().map(of_other)).flatten().collect()
    }

    /// Writes it into a file in memory, and makes that and the descriptors inheritable.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn hand_over(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create("gossamer-daemon", MemfdFlags::CLOEXEC)?);
        file.write_all(format!("{}\n", versions()).as_bytes())?;
        file.write_all(&codec::encode(self))?;
        file.rewind()?;
        for number in self.descriptors().into_iter().chain([file.as_fd().as_raw_fd()]) {
            crate::descriptors::make_inheritable(number)?;
        }
        Ok(file)
    }
}

fn number(handed: &Handed) -> Option<RawFd> {
    match handed {
        Handed::Out(number) => Some(*number),
        Handed::In(_) => None,
    }
}

/// Takes over the state of the daemon that has executed this one; `None` where it was started by somebody else. To be
/// called once, before any descriptor is opened.
///
/// # Errors
/// When there is no such state, or it is of another version.
pub fn take_over() -> io::Result<Option<Handover>> {
    let Some(number) = std::env::var_os(VARIABLE) else { return Ok(None) };
    crate::core_dump::forbid()?; // there are keys in the state
    let number = number.to_str().and_then(|number| number.parse::<RawFd>().ok()).filter(|number| *number > 2);
    let number = number.ok_or_else(|| io::Error::other(format!("{VARIABLE} is no number of a descriptor")))?;
    // SAFETY: the former daemon has named this open descriptor, and this process has opened none yet.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let version = format!("{}\n", versions());
    let rest = bytes.strip_prefix(version.as_bytes());
    let rest = rest.ok_or_else(|| io::Error::other("the state of the former daemon is of another version"))?;
    codec::decode::<State, BYTES_MAX>(rest).map(|state| Some(Handover(state))).map_err(io::Error::other)
}

/// State of a former daemon.
pub struct Handover(pub(super) State);
