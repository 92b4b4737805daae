//! One program on this host, from its request to its complete end: finds or takes the executable, starts the part, and
//! passes messages on between it and the launcher.
//!
//! Invariants: the end of the launcher, the connection, the part, or the program by order, whichever comes first, ends
//! the rest: the part sees the end of its socket and kills its machines, or is killed soon after (`child.rs`); the
//! launcher receives `Gone`. When the session is over, part and orphans have been collected.

use std::ffi::OsStr;
use std::io;
use std::net::Shutdown;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use comm::secure::{SecureReader, SecureWriter};
use gossamer::control::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::cache::{Arrival, check_executable, path_of};
use super::child::{collect, how_it_ended, spawn, until_message};
use super::programs::{Channel, Program, Reserved};
use super::{Daemon, STACK_BYTES, capacity, cgroup, memory};
use crate::cli::size;
use crate::config::Limits;
use crate::machines::LOOK_INTERVAL;
use crate::options::RunOptions;
use crate::panics;
use crate::part;
use crate::region;
use crate::signals;
use crate::wire::link::Link;
use crate::wire::{
    BEAT_MS, Carried, FromPart, MAX_MESSAGE_BYTES, ProgramId, Receiver, Reply, Request, Sender, Setup, Start, Wire,
    WireError, Written,
};

/// Range of the silence that a launcher may ask for.
const SILENCE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Runs a program's session to its end.
pub fn run(daemon: &Arc<Daemon>, mut link: Link, start: Start) {
    let id = start.program;
    let (path, owner) = (path_of(&start.executable.path).display().to_string(), start.owner.clone());
    let begun = panics::or_text(|| begin(daemon, &mut link, start));
    match begun.map_err(|panic| format!("its daemon failed by {panic}")).flatten() {
        Ok((child, channel, silence)) => {
            tracing::info!(program = %id, part = child.id(), path, owner, "a program starts");
            daemon.kept.begin(id);
            let talk = || converse(daemon, id, Pid::from_child(&child), link, channel, silence);
            let why = panics::or_text(talk).unwrap_or_else(|panic| {
                daemon.programs.end(id, &format!("its daemon failed by {panic}"));
                panic
            });
            daemon.kept.end(id);
            daemon.programs.set_ending(id);
            let exit = collect(daemon, id, child);
            daemon.programs.remove(id);
            tracing::info!(program = %id, exit, why, "the program has ended");
        }
        Err(reason) => {
            tracing::warn!(program = %id, path, owner, reason, "a program was refused");
            let _ = link.sender.send_message(&Reply::Refused(reason)); // it may be gone
            until_closed(&mut link.receiver, daemon.rack.timeouts.silence());
        }
    }
}

/// Runs the start, up to the running part; an error is for the launcher.
fn begin(daemon: &Daemon, link: &mut Link, start: Start) -> Result<(Child, Arc<Channel>, Duration), String> {
    let (limits, link_limit) = (&daemon.rack.limits, daemon.rack.timeouts.connect());
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
    let reserved = room(daemon, link, start.program, options.wait)?;
    // At once: the launcher asks one host before all others, and goes on to them when it has room there.
    link.sender.send_message(&Reply::Beat).map_err(|error| format!("the launcher has gone: {error}"))?;
    let count = plan.machines_of(start.host).count();
    if count == 0 || count > usize::from(limits.machines_per_host) {
        let most = limits.machines_per_host;
        return Err(format!("{count} machines on this host; limits.machines_per_host is {most}"));
    }
    let Link { receiver, sender, .. } = &mut *link;
    // A rack on slow links has a longer silence.
    receiver.set_timeout(Some(link_limit.max(options.silence))).map_err(|error| error.to_string())?;
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
    channel.set_write_timeout(Some(link_limit)).map_err(|error| error.to_string())?;
    let channel = Channel::new(channel).map_err(|error| error.to_string())?;
    let mut writer = channel.writer(); // nothing comes before the setup
    let one_at_a_time = daemon.programs.starting();
    let child = spawn(daemon, theirs)
        .map_err(|error| format!("the daemon cannot start a process: {}", capacity::in_words(&error)))?;
    // The part starts nothing before it has its setup.
    let tasks = limits.tasks.saturating_add(part::tasks(count));
    let cgroup = daemon.cgroups.make(id, Pid::from_child(&child), cgroup::Limits { tasks, memory_bytes });
    if cgroup.is_none() && options.memory.is_some() {
        drop(writer);
        channel.cut(); // the part ends
        collect(daemon, id, child);
        return Err("--memory: no cgroup could be made for the program here: the log of the daemon says why".to_owned());
    }
    let (since, machines, ended_by, is_ending) = (Instant::now(), Default::default(), None, false);
    let to_part = Arc::clone(&channel);
    reserved.enter(Program { path, owner, since, cgroup, channel: to_part, machines, ended_by, is_ending });
    drop(one_at_a_time); // a part that does not read holds up nobody else
    let said = writer.send_message(&setup).and_then(|()| link.sender.send_message(&Reply::Accepted));
    drop(writer);
    if said.is_err() {
        channel.cut(); // the session ends at once, in order
    }
    Ok((child, channel, options.silence))
}

/// Reserves room for the program: at once, or in its turn where its launcher waits for that.
fn room<'a>(daemon: &'a Daemon, link: &mut Link, id: ProgramId, wait: bool) -> Result<Reserved<'a>, String> {
    let Limits { programs: most, connections, .. } = daemon.rack.limits;
    if !wait {
        return daemon.programs.reserve(id, most);
    }
    // Each holds a connection: half of them are left for everything else.
    let reserved = daemon.programs.reserve_in_turn(id, most, usize::from(connections / 2).max(1), |before| {
        daemon.drain.by().is_none()
            && !has_left(&link.receiver)
            && link.sender.send_message(&Reply::Queued { before, most }).is_ok()
    });
    daemon.drain.check(&daemon.host.name)?; // it may have been drained meanwhile
    reserved
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
    let found = match daemon.run_as.ids {
        // The daemon is root, and cannot tell whether another user may execute the file at a path.
        Some(_) => daemon.cache.find_kept(&path, &binary),
        None => daemon.cache.find(&path, &binary),
    };
    if let Some(found) = found {
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

/// Passes messages on until one side has gone; returns the cause, in words.
fn converse(
    daemon: &Arc<Daemon>,
    id: ProgramId,
    part: Pid,
    link: Link,
    channel: Arc<Channel>,
    silence: Duration,
) -> String {
    let Link { mut receiver, mut sender, peer, .. } = link;
    let prepared = (|| {
        receiver.set_timeout(Some(silence))?;
        sender.set_timeout(Some(silence))?;
        let from_part = channel.stream().try_clone()?;
        channel.stream().set_write_timeout(Some(silence))?;
        let daemon = Arc::clone(daemon);
        let up = move || pass_up(&daemon, id, part, from_part, sender, silence);
        Ok::<_, WireError>(std::thread::Builder::new().name(format!("{id} up")).spawn(up)?)
    })();
    let (up, why) = match prepared {
        Ok(up) => (Some(up), pass_down(&mut receiver, &channel, silence)),
        Err(error) => (None, error.to_string()),
    };
    channel.cut(); // the part may have gone first
    let _ = receiver.tcp().shutdown(Shutdown::Both); // so may the launcher
    let is_done = up.is_some_and(|up| up.join().unwrap_or(false)); // its panic was reported by itself
    let why = if is_done { "all its machines here have gone".to_owned() } else { format!("launcher at {peer}: {why}") };
    daemon.programs.ended_by(id).unwrap_or(why)
}

fn pass_down(receiver: &mut SecureReader, channel: &Channel, silence: Duration) -> String {
    loop {
        match receiver.receive_bytes() {
            Ok(message) if channel.send(&message) => {}
            // It has gone, or hangs. `pass_up` tells the launcher, which closes the connection.
            Ok(_) => return until_closed(receiver, silence),
            Err(error) => return error.to_string(),
        }
    }
}

/// Waits until the launcher has closed: an early close could destroy unread messages.
fn until_closed(receiver: &mut SecureReader, limit: Duration) -> String {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Err(error) = receiver.receive_bytes() {
            return error.to_string();
        }
    }
    "it did not leave".to_owned()
}

/// Passes the part's messages on; returns whether the part said that it is done.
fn pass_up(
    daemon: &Daemon,
    id: ProgramId,
    part: Pid,
    mut from_part: UnixStream,
    mut sender: SecureWriter,
    silence: Duration,
) -> bool {
    let mut is_done = false;
    // Detection and report lag by one look each, and both must fit into the silence that is allowed.
    let stop_limit = silence.saturating_sub(2 * LOOK_INTERVAL);
    let mut stopped = None;
    let pass_all = || loop {
        if let Some(signal) = until_message(part, &from_part, &mut sender, stop_limit) {
            stopped = Some(format!("was stopped by {}", signals::describe(signal)));
            break String::new();
        }
        match from_part.receive_bytes() {
            Ok(message) => {
                let handled = note(daemon, id, &message);
                is_done |= handled == Handled::Done;
                let explained = match handled {
                    Handled::Kept => continue,
                    Handled::Explained(cause) => sender.send_message(&cause),
                    Handled::Passed | Handled::Done => Ok(()),
                };
                if explained.and_then(|()| sender.send_bytes(&message)).is_err() {
                    break "the launcher cannot be reached".to_owned();
                }
            }
            Err(error) => break error.to_string(),
        }
    };
    let ended = panics::or_text(pass_all);
    if !is_done {
        let reason = daemon.programs.ended_by(id).unwrap_or_else(|| {
            let how = match ended {
                Ok(why) => stopped.or_else(|| how_it_ended(part)).unwrap_or_else(|| format!("ended: {why}")),
                Err(panic) => format!("is no longer heard, for its daemon failed by {panic}"),
            };
            let memory = daemon.programs.out_of_memory(id).map(|limit| format!(", {}", size::out_of_memory(limit)));
            format!("its process for the program (pid {}) {how}{}", part.as_raw_nonzero(), memory.unwrap_or_default())
        });
        let _ = sender.send_message(&FromPart::Gone(reason)); // the launcher may have gone first
    }
    is_done
}

/// Handling of a message from a part.
#[derive(PartialEq, Eq)]
enum Handled {
    /// Pass it to the launcher.
    Passed,
    /// The same, after the cause.
    Explained(FromPart),
    /// Passed, and the part says that it is done.
    Done,
    /// It was for this daemon.
    Kept,
}

/// Notes the part's news about its machines for `status` and `logs`, and passes their answers to the watchers.
fn note(daemon: &Daemon, id: ProgramId, message: &[u8]) -> Handled {
    match FromPart::from_bytes(message) {
        Ok(FromPart::Started { machine, pid }) => daemon.programs.add_machine(id, machine, pid),
        Ok(FromPart::Said { machine, packet }) => match Message::decode(&packet) {
            Ok(Message::Ready { slots_bytes, .. }) => daemon.programs.set_slots(id, machine, slots_bytes),
            Ok(Message::Seen { ask, is_last, bytes }) => {
                daemon.looks.deliver(id, machine, ask, is_last, bytes);
                return Handled::Kept;
            }
            _ => {}
        },
        Ok(FromPart::Dropped { machine, ask }) => {
            daemon.looks.drop_answer(id, machine, ask);
            return Handled::Kept;
        }
        Ok(FromPart::Output { machine, stream, bytes }) => daemon.kept.push(id, Written { machine, stream, bytes }),
        Ok(FromPart::Exited { machine, status }) => {
            daemon.kept.exit(id, machine, status);
            // Also where the machine exits because a child of its own was killed.
            if status != 0
                && let Some(limit_bytes) = daemon.programs.out_of_memory(id)
            {
                return Handled::Explained(FromPart::OutOfMemory { machine, limit_bytes });
            }
        }
        Ok(FromPart::Done) => {
            daemon.programs.set_ending(id); // before its launcher hears of it, and starts the next
            return Handled::Done;
        }
        _ => {}
    }
    Handled::Passed
}
