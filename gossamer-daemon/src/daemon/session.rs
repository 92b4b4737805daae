//! One program on this host, from its request to its complete end: finds or takes the executable, starts the part, and
//! collects it. The messages in between are in `conversation.rs`.
//!
//! Invariants: the end of the launcher, the connection, the part, or the program by order, whichever comes first, ends
//! the rest: the part sees the end of its socket and kills its machines, or is killed soon after (`child.rs`); the
//! launcher receives `Gone`. When the session is over, part and orphans have been collected.

use std::ffi::OsStr;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use comm::secure::{SecureReader, SecureWriter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::cache::{Arrival, check_executable, path_of};
use super::child::{collect, spawn};
use super::conversation::{converse, until_closed};
use super::gate::Pass;
use super::handover::{LinkState, Parked, SessionState};
use super::programs::{Channel, Program, Reserved, Session};
use super::{Daemon, STACK_BYTES, capacity, cgroup, memory};
use crate::config::Limits;
use crate::options::RunOptions;
use crate::panics;
use crate::part;
use crate::region;
use crate::signals;
use crate::wire::link::Link;
use crate::wire::{
    BEAT_MS, Carried, MAX_MESSAGE_BYTES, ProgramId, Receiver, Reply, Request, Sender, Setup, Start, Wire, WireError,
};

/// Range of the silence that a launcher may ask for.
const SILENCE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Runs a program's session to its end. `is_resumed`: it waits for room since before an upgrade.
pub(super) fn run(daemon: &Arc<Daemon>, mut link: Link, start: Start, pass: Pass, is_resumed: bool) {
    let id = start.program;
    let (path, owner) = (path_of(&start.executable.path).display().to_string(), start.owner.clone());
    let begun = panics::or_text(|| begin(daemon, &mut link, start, &pass, is_resumed));
    match begun.map_err(|panic| format!("its daemon failed by {panic}")).flatten() {
        Ok(part) => {
            tracing::info!(program = %id, part = part.as_raw_nonzero(), path, owner, "a program starts");
            daemon.kept.begin(id);
            let session = daemon.sessions.enter(); // it is open: an upgrade waits for the other pass first
            drop(pass);
            go_on(daemon, id, link, false, session);
        }
        Err(reason) => {
            if is_resumed {
                daemon.programs.leave_queue(id);
            }
            tracing::warn!(program = %id, path, owner, reason, "a program was refused");
            let _ = link.sender.send_message(&Reply::Refused(reason)); // it may be gone
            let _is_told = pass.expendable();
            until_closed(&mut link.receiver, daemon.rack.timeouts.silence());
        }
    }
}

/// Goes on with the session of a program that was handed over.
pub(super) fn resume(daemon: &Arc<Daemon>, state: SessionState, pass: Pass) {
    let SessionState { program, link, is_done } = state;
    match link.resume() {
        Ok(link) => go_on(daemon, program, link, is_done, pass),
        Err(error) => end(daemon, program, &format!("its connection to the launcher has failed: {error}")),
    }
}

/// Runs the session of a running program to its end.
fn go_on(daemon: &Arc<Daemon>, id: ProgramId, link: Link, is_done: bool, pass: Pass) {
    let Some(session) = daemon.programs.session(id) else { return };
    let talk = || converse(daemon, id, &session, link, is_done, &pass);
    let why = panics::or_text(talk).unwrap_or_else(|panic| {
        daemon.programs.end(id, &format!("its daemon failed by {panic}"));
        panic
    });
    end(daemon, id, &why);
}

/// Collects a running program whose session is over.
pub(super) fn end(daemon: &Daemon, id: ProgramId, why: &str) {
    let Some(Session { part, channel, .. }) = daemon.programs.session(id) else { return };
    channel.cut();
    daemon.kept.end(id);
    daemon.programs.set_ending(id);
    let part = collect(daemon, id, part);
    daemon.programs.remove(id);
    let machines = ends(&daemon.kept.exits(id));
    tracing::info!(program = %id, machines, part, why, "the program has ended");
}

/// Describes the ends of a program's machines here, as far as they are known.
fn ends(exits: &[(u16, i32)]) -> String {
    let failed = exits.iter().filter(|(_, status)| *status != 0).map(|(machine, status)| {
        let status = ExitStatus::from_raw(*status);
        match status.signal() {
            Some(signal) => format!("machine {machine} was killed by {}", signals::describe(signal)),
            None => format!("machine {machine} exited with status {}", status.code().unwrap_or_default()),
        }
    });
    let failed: Vec<String> = failed.collect();
    match (exits, failed.as_slice()) {
        ([], _) => "not known".to_owned(),
        (_, []) => "all exited with status 0".to_owned(),
        (_, failed) => failed.join(", "),
    }
}

/// Runs the start, up to the running part; an error is for the launcher.
fn begin(daemon: &Daemon, link: &mut Link, start: Start, pass: &Pass, is_resumed: bool) -> Result<Pid, String> {
    let limits = &daemon.rack.limits;
    daemon.drain.check(&daemon.host.name)?;
    start.check_environment(limits.environment_bytes)?;
    let options = RunOptions::from_json(&start.options)
        .map_err(|error| format!("the options of the program: {error}; install the same gossamer on all hosts"))?;
    if !SILENCE.contains(&options.silence) {
        let (wanted, least, most) =
            (options.silence.as_millis(), SILENCE.start().as_millis(), SILENCE.end().as_millis());
        return Err(format!(
            "a silence of {wanted} ms is not possible: timeouts.silence_ms of the launcher's rack.yaml is from {least} \
             to {most}"
        ));
    }
    let plan: gossamer::bootstrap::Plan =
        serde_json::from_str(&start.plan).map_err(|error| format!("the plan of the program: {error}"))?;
    plan.check().map_err(|error| error.to_string())?;
    let memory_bytes = memory::limit(daemon, &options)?;
    let reserved = if options.wait {
        room_in_turn(daemon, link, &start, pass, is_resumed)
    } else {
        daemon.programs.reserve(start.program, limits.programs)
    };
    daemon.drain.check(&daemon.host.name)?; // it may have been drained meanwhile
    let reserved = reserved?;
    // At once: the launcher asks one host before all others, and goes on to them when it has room there.
    link.sender.send_message(&Reply::Beat).map_err(|error| format!("the launcher has gone: {error}"))?;
    let count = plan.machines_of(start.host).count();
    if count == 0 || count > usize::from(limits.machines_per_host) {
        let most = limits.machines_per_host;
        return Err(format!("{count} machines on this host; limits.machines_per_host is {most}"));
    }
    let Link { receiver, sender, .. } = &mut *link;
    let start_limit = options.start_limit().min(*SILENCE.end());
    receiver.set_timeout(Some(start_limit)).map_err(|error| error.to_string())?;
    let (file, library) = while_beating(sender, |say| {
        let file = obtain(daemon, receiver, &start.executable, Kind::Program, say)?;
        let library = start.library.as_ref().map(|library| obtain(daemon, receiver, library, Kind::Library, say));
        let library = library.transpose()?;
        if !file.exists() {
            let most = limits.cache_bytes;
            return Err(format!(
                "the program had to go for the library that it loads first: limits.cache_bytes is {most}, too little \
                 for both"
            ));
        }
        Ok((file, library))
    })?;
    until_all_are_ready(link).map_err(|error| format!("the launcher does not say that it may start: {error}"))?;

    let id = start.program;
    let bytes = |path: PathBuf| path.into_os_string().into_encoded_bytes();
    let mut setup = Setup { start, file: bytes(file), library: library.clone().map(bytes) };
    setup.start.env = environment(daemon, std::mem::take(&mut setup.start.env), id);
    if let Some(library) = library {
        load_first(&mut setup.start.env, &library)?;
    }
    // The launcher leaves room for this host's additions, but cannot know their length.
    let bytes = setup.to_bytes().len();
    if bytes > MAX_MESSAGE_BYTES {
        return Err(format!(
            "with the environment that this host adds, the message that starts the program has {bytes} bytes; at most \
             {MAX_MESSAGE_BYTES} are possible: say --clean-env, or pass fewer arguments"
        ));
    }
    let (channel, theirs) = UnixStream::pair().map_err(|error| format!("no socket for the program: {error}"))?;
    let path = path_of(&setup.start.executable.path).display().to_string();
    let owner = setup.start.owner.clone();
    channel.set_write_timeout(Some(start_limit)).map_err(|error| error.to_string())?;
    let channel = Channel::new(channel).map_err(|error| error.to_string())?;
    let mut writer = channel.writer(); // nothing comes before the setup
    let one_at_a_time = daemon.programs.starting();
    let part = spawn(daemon, theirs)
        .map_err(|error| format!("the daemon cannot start a process: {}", capacity::in_words(&error)))?;
    // The part starts nothing before it has its setup.
    let tasks = limits.tasks.saturating_add(part::tasks(count));
    let cgroup = daemon.cgroups.make(id, part, cgroup::Limits { tasks, memory_bytes });
    if cgroup.is_none() && options.memory.is_some() {
        drop(writer);
        channel.cut(); // the part ends
        collect(daemon, id, part);
        return Err("--memory: no cgroup could be made for the program here: the log of the daemon says why".to_owned());
    }
    reserved.enter(Program {
        path,
        owner,
        since: Instant::now(),
        session: Session { part, channel: Arc::clone(&channel), silence: options.silence },
        cgroup,
        machines: Default::default(),
        ended_by: None,
        is_ending: false,
    });
    drop(one_at_a_time); // a part that does not read holds up nobody else
    let said = writer.send_message(&setup).and_then(|()| link.sender.send_message(&Reply::Accepted));
    drop(writer);
    if said.is_err() {
        channel.cut(); // the session ends at once, in order
    }
    Ok(part)
}

/// Reserves room for a program whose launcher waits for its turn.
fn room_in_turn<'a>(
    daemon: &'a Daemon,
    link: &mut Link,
    start: &Start,
    pass: &Pass,
    is_resumed: bool,
) -> Result<Reserved<'a>, String> {
    let Limits { programs: most, connections, .. } = daemon.rack.limits;
    // Each holds a connection: half of them are left for everything else.
    let waiting = usize::from(connections / 2).max(1);
    daemon.programs.reserve_in_turn(start.program, most, waiting, is_resumed, |before| {
        pass.stop(|| Some(Parked::Queued(LinkState::of_link(link), Box::new(start.clone()))));
        daemon.drain.by().is_none()
            && !has_left(&link.receiver)
            && link.sender.send_message(&Reply::Queued { before, most }).is_ok()
    })
}

/// Returns whether the other side has closed the connection. Its messages stay unread.
fn has_left(receiver: &SecureReader) -> bool {
    let mut fds = [PollFd::new(receiver.tcp(), PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && !fds[0].revents().is_empty()
}

/// Waits for `Go`: other hosts of the program may still be taking it over; the launcher gives signs of life meanwhile.
fn until_all_are_ready(link: &mut Link) -> Result<(), WireError> {
    link.sender.send_message(&Reply::Ready)?;
    loop {
        match link.receiver.receive_message()? {
            Request::Go => return Ok(()),
            Request::Beat => {}
            _ => return Err(io::Error::other("it says something else").into()),
        }
    }
}

/// Returns the environment of the program: the launcher's variables, and those of this host.
fn environment(daemon: &Daemon, sent: Vec<(Vec<u8>, Vec<u8>)>, id: ProgramId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let user = &daemon.run_as;
    let bytes = |text: &std::ffi::OsStr| text.as_encoded_bytes().to_vec();
    let own = [
        ("HOME", bytes(user.home.as_os_str())),
        ("USER", user.name.clone().into_bytes()),
        ("LOGNAME", user.name.clone().into_bytes()),
        ("SHELL", bytes(user.shell.as_os_str())),
        ("GOSSAMER_PROGRAM", id.to_string().into_bytes()),
    ];
    let mut all: Vec<_> = own.map(|(name, value)| (name.as_bytes().to_vec(), value)).into();
    all.extend(sent.into_iter().filter(|(name, _)| !OWN_NAMES.contains(&name.as_slice())));
    all
}

/// Adds a library to the program's preload list.
fn load_first(env: &mut Vec<(Vec<u8>, Vec<u8>)>, library: &Path) -> Result<(), String> {
    let own = env.iter().position(|(name, _)| name == region::PRELOAD.as_bytes()).map(|at| env.remove(at).1);
    let value = region::preload(library, own.as_deref().map(OsStr::from_bytes))?;
    env.push((region::PRELOAD.into(), value.into_encoded_bytes()));
    Ok(())
}

/// Variables that the host sets, whatever the launcher sends.
pub const OWN_NAMES: [&[u8]; 5] = [b"HOME", b"USER", b"LOGNAME", b"SHELL", b"GOSSAMER_PROGRAM"];

/// Runs work that may take longer than the launcher waits for a silent host: the launcher gets the messages of `work`,
/// or else signs of life.
pub(super) fn while_beating<R>(
    sender: &mut SecureWriter,
    work: impl FnOnce(&mpsc::Sender<Reply>) -> Result<R, String>,
) -> Result<R, String> {
    let (say, said) = mpsc::channel();
    std::thread::scope(|scope| {
        let beat = move || {
            loop {
                let reply = match said.recv_timeout(Duration::from_millis(BEAT_MS)) {
                    Ok(reply) => reply,
                    Err(RecvTimeoutError::Timeout) => Reply::Beat,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let _ = sender.send_message(&reply); // cut off: receiving from it fails too, or the next message
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, beat);
        thread.map_err(|error| capacity::in_words(&error))?;
        let result = work(&say);
        drop(say); // ends the thread
        result
    })
}

/// Kind of a program's file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Program,
    Library,
}

impl Kind {
    /// Its name in messages.
    fn name(self) -> &'static str {
        match self {
            Kind::Program => "the program",
            Kind::Library => "the library that the program loads first",
        }
    }

    fn check(self, path: &Path) -> Result<(), String> {
        match self {
            Kind::Program => check_executable(path),
            Kind::Library if path.is_file() => Ok(()),
            Kind::Library => Err(format!("{} is not here: {}", path.display(), self.name())),
        }
    }
}

/// Obtains one of the program's files: at its own path, from the cache, or from the launcher.
fn obtain(
    daemon: &Daemon,
    receiver: &mut SecureReader,
    file: &Carried,
    kind: Kind,
    say: &mpsc::Sender<Reply>,
) -> Result<PathBuf, String> {
    let (path, name) = (path_of(&file.path), kind.name());
    let Some(binary) = file.binary else {
        kind.check(&path)?;
        return Ok(path);
    };
    if let Some(found) = daemon.cache.find(&path, &binary, daemon.run_as.ids.is_some()) {
        return Ok(found);
    }
    if binary.bytes == 0 {
        return Err(format!("{} is empty", path.display()));
    }
    let most = daemon.rack.limits.binary_bytes;
    if binary.bytes > most {
        return Err(format!("{name} has {} bytes, limits.binary_bytes is {most}", binary.bytes));
    }
    let in_words = |error: &dyn std::fmt::Display| format!("{name} cannot be taken over: {error}");
    let mut incoming = match daemon.cache.take(&path, binary).map_err(|error| in_words(&error))? {
        Arrival::Incoming(incoming) => incoming,
        Arrival::Kept(place) => return Ok(place),
    };
    let need = if kind == Kind::Program { Reply::NeedProgram } else { Reply::NeedLibrary };
    say.send(need).map_err(|error| in_words(&error))?;
    loop {
        let piece = match receiver.receive_message().map_err(|error| in_words(&error))? {
            Request::Chunk(piece) if !piece.is_empty() => piece,
            _ => return Err(format!("the launcher sent something else than {name}")),
        };
        if incoming.push(&piece).map_err(|error| in_words(&error))? {
            let _one_at_a_time = daemon.programs.starting(); // see `Incoming::finish`
            return incoming.finish().map_err(|error| in_words(&error));
        }
    }
}
