//! The part of a program on one host: a process between the host's daemon and the machines there. The daemon starts one
//! for each program (its own executable as `gossamer-daemon part`, with a socket as standard input), so that programs
//! cannot harm one another nor the daemon.
//!
//! It executes the launcher's orders, which come by way of the daemon, and reports on the machines. It decides one
//! thing alone: if the launcher is silent for too long, or the daemon gone, it kills the machines.
//!
//! Threads: the main one has the machines (their lives are tied to it) and never waits except in `poll`; `inbox` and
//! `outbox` have the socket; `streams` has one for each stream of each machine. The queues between them are bounded by
//! the windows of output and input.

mod streams;

use comm::deadline::later;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

use comm::secure::Key;
use gossamer::bootstrap::Plan;
use gossamer::control::Message;
use gossamer::view::backlog::{Backlog, Held};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};

use crate::core_dump;
use crate::dispositions;
use crate::error::LaunchError;
use crate::machines::{Event, Group, Start, Streams};
use crate::options::RunOptions;
use crate::orphans::{self, Spare};
use crate::outcome::FAILURE_STATUS;
use crate::panics;
use crate::wire::{BEAT_MS, FromPart, Receiver, Sender, Setup, Stream, ToPart, Wire};
use streams::{Handover, Outputs};

/// Time limit for a writer to close an executable that it has just written.
const BUSY_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for killed processes to go.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Most bytes of machines' answers to watchers that wait to be sent: a stopped launcher may hold up the daemon.
const WAITING_MAX: usize = 16 << 20;
/// Most bytes of waiting notices that answers were dropped.
const NOTICES_MAX: usize = 1 << 20;
/// Most answers at a time that the part remembers as dropped.
const DROPPED_MAX: usize = 1024;

/// A message on its way to the daemon.
pub struct Outgoing {
    bytes: Vec<u8>,
    _held: Option<Held>,
}

impl From<FromPart> for Outgoing {
    fn from(said: FromPart) -> Outgoing {
        Outgoing { bytes: said.to_bytes(), _held: None }
    }
}

/// Event for the main thread.
enum PartEvent {
    Order(ToPart),
    /// The daemon has gone, or sends nonsense.
    Cut,
    /// One more output stream has ended.
    StreamEnded,
    /// Everything is sent.
    AllSent,
}

/// Tasks (threads) that a part itself takes for this many machines.
#[must_use]
pub fn tasks(machines: usize) -> u32 {
    8 + 2 * u32::try_from(machines).unwrap_or(0)
}

/// Runs the part to its end: `gossamer-daemon part`.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "gossamer-daemon part: {error}"); // into the daemon's log
            ExitCode::from(FAILURE_STATUS)
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    dispositions::reset_ignored();
    core_dump::forbid()?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?; // the machines must not inherit it
    // Programs of the same user must not reach its open descriptors, such as the daemon's log.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let setup: Setup = socket.receive_message()?;
    orphans::adopt(Spare::Earlier)?;
    let (events, inbox) = channel()?;
    let outbox = outbox(socket.try_clone()?, events.clone())?;
    let from_inbox = events.clone();
    panics::spawn("inbox", move || receive_all(socket, &from_inbox))?;
    match Part::start(&setup, &outbox, &events) {
        Ok(part) => {
            drop(outbox); // the part has its own
            part.run(&inbox);
        }
        Err(error) => {
            let is_program = error.status().is_some();
            let said = FromPart::NotStarted { reason: error.to_string(), is_program };
            outbox.send(said.into())?;
            outbox.send(FromPart::Done.into())?;
            drop(outbox);
            inbox.until_all_sent();
        }
    }
    orphans::end(END_LIMIT);
    Ok(())
}

fn start(setup: &Setup, options: &RunOptions, plan: &Plan) -> Result<Group, LaunchError> {
    let os = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let args: Vec<OsString> = setup.start.args.iter().map(|arg| os(arg)).collect();
    let environment: Vec<(OsString, OsString)> = setup.start.env.iter().map(|(n, v)| (os(n), os(v))).collect();
    let (folder, program) = (os(&setup.start.folder), os(&setup.file));
    let folder = std::path::PathBuf::from(folder);
    let trouble = match std::fs::metadata(&folder) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some("it is no folder on this host".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some("no such folder on this host".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(trouble) = trouble {
        return Err(LaunchError::Folder { folder, trouble });
    }
    if let Some(library) = &setup.library {
        // Here, as the programs' user: the loader would go on without the library, and each machine would run as a
        // separate program.
        let task = "read the library that the program loads first";
        std::fs::File::open(os(library)).map_err(LaunchError::system(task))?;
    }
    let folder = Some(folder.as_path());
    let (environment, host) = (Some(&environment[..]), setup.start.host);
    let start = Start { program: &program, args: &args, environment, folder, options, plan, host };
    let since = Instant::now();
    loop {
        let streams = |machine| Streams {
            stdin: if machine == 0 { Stdio::piped() } else { Stdio::null() },
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
        };
        match Group::start(&start, streams) {
            Err(LaunchError::Program { source, .. })
                if source.kind() == io::ErrorKind::ExecutableFileBusy && since.elapsed() < BUSY_LIMIT =>
            {
                std::thread::sleep(Duration::from_millis(10)); // its writer is about to close it
            }
            other => return other,
        }
    }
}

/// Makes a queue that `poll` can wait for.
fn channel() -> io::Result<(EventSender, Inbox)> {
    let (sender, events) = mpsc::channel();
    let (woken, wake) = io::pipe()?;
    rustix::fs::fcntl_setfl(&woken, rustix::fs::OFlags::NONBLOCK)?;
    rustix::fs::fcntl_setfl(&wake, rustix::fs::OFlags::NONBLOCK)?;
    Ok((EventSender { sender, wake: Arc::new(wake) }, Inbox { events, woken }))
}

#[derive(Clone)]
struct EventSender {
    sender: mpsc::Sender<PartEvent>,
    wake: Arc<PipeWriter>,
}

impl EventSender {
    fn send(&self, event: PartEvent) {
        let _ = self.sender.send(event); // fails only if the main thread has ended
        let _ = (&*self.wake).write(&[0]); // fails only if full, and then it wakes anyway
    }
}

struct Inbox {
    events: mpsc::Receiver<PartEvent>,
    woken: PipeReader,
}

impl Inbox {
    fn next(&self) -> Option<PartEvent> {
        match self.events.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(PartEvent::Cut),
        }
    }

    fn until_all_sent(&self) {
        let start = Instant::now();
        while start.elapsed() < END_LIMIT {
            if let Ok(PartEvent::AllSent | PartEvent::Cut) | Err(_) = self.events.recv_timeout(END_LIMIT) {
                return;
            }
        }
    }
}

fn receive_all(mut socket: UnixStream, events: &EventSender) {
    while let Ok(order) = socket.receive_message() {
        events.send(PartEvent::Order(order));
    }
    events.send(PartEvent::Cut);
}

/// Starts the sending thread.
fn outbox(mut socket: UnixStream, events: EventSender) -> io::Result<mpsc::Sender<Outgoing>> {
    let (sender, messages) = mpsc::channel::<Outgoing>();
    let send_all = move || {
        for message in messages {
            if socket.send_bytes(&message.bytes).is_err() {
                return events.send(PartEvent::Cut);
            }
        }
        events.send(PartEvent::AllSent);
    };
    panics::spawn("outbox", send_all)?;
    Ok(sender)
}

/// Starts a thread for each output stream of each machine of this host.
fn output_threads(
    outputs: &mut Outputs,
    plan: &Plan,
    host: u16,
    outbox: &mpsc::Sender<Outgoing>,
    events: &EventSender,
) -> io::Result<Vec<(u16, [Handover; 2])>> {
    let mut start = |machine, stream| {
        let events = events.clone();
        outputs.pass_on(machine, stream, outbox.clone(), move || events.send(PartEvent::StreamEnded))
    };
    let of_machine = |machine| Ok((machine, [start(machine, Stream::Out)?, start(machine, Stream::Err)?]));
    plan.machines_of(host).map(of_machine).collect()
}

struct Part {
    group: Group,
    outbox: mpsc::Sender<Outgoing>,
    /// Answers to watchers, in the outbox.
    seen: Arc<Backlog>,
    /// Notices of dropped answers, in the outbox.
    notices: Arc<Backlog>,
    /// Machine and question of each dropped answer: its further pieces are dropped, too.
    dropped: BTreeSet<(u16, u32)>,
    outputs: Outputs,
    input: Option<mpsc::Sender<Vec<u8>>>,
    silence: Duration,
    received_at: Instant,
    beat_at: Instant,
    /// Time at which all machines had gone.
    gone_at: Option<Instant>,
}

impl Part {
    /// Starts the threads first: the machines' processes count against the same limit of tasks, and may use it up.
    fn start(setup: &Setup, outbox: &mpsc::Sender<Outgoing>, events: &EventSender) -> Result<Part, LaunchError> {
        let plan: Plan = serde_json::from_str(&setup.start.plan).map_err(LaunchError::system("read the plan"))?;
        let options = RunOptions::from_json(&setup.start.options).map_err(LaunchError::system("read the options"))?;
        let no_thread = LaunchError::system("start the threads for input and output");
        let (host, mut outputs) = (setup.start.host, Outputs::default());
        let threads = output_threads(&mut outputs, &plan, host, outbox, events).map_err(&no_thread)?;
        let has_input = plan.machines_of(host).next() == Some(0);
        let input = if has_input { Some(streams::input(outbox.clone()).map_err(no_thread)?) } else { None };
        let mut group = start(setup, &options, &plan)?;
        for (machine, [out, err]) in threads {
            // Cut off, or a thread that has ended: `PartEvent::Cut` follows.
            let _ = outbox.send(FromPart::Started { machine, pid: group.pid(machine) }.into());
            let pipes = group.take_pipes(machine);
            let _ = pipes.stdout.map(|pipe| out.send(pipe.into()));
            let _ = pipes.stderr.map(|pipe| err.send(pipe.into()));
            if let (Some(pipe), Some((thread, _))) = (pipes.stdin, &input) {
                let _ = thread.send(pipe.into());
            }
        }
        let (now, outbox, input) = (Instant::now(), outbox.clone(), input.map(|(_, pieces)| pieces));
        let (seen, notices, dropped) = (Backlog::new(WAITING_MAX), Backlog::new(NOTICES_MAX), BTreeSet::new());
        Ok(Part {
            group,
            outbox,
            seen,
            notices,
            dropped,
            outputs,
            input,
            silence: options.silence,
            received_at: now,
            beat_at: now,
            gone_at: None,
        })
    }

    fn say(&self, said: FromPart) {
        let _ = self.outbox.send(said.into()); // cut off: `PartEvent::Cut` follows
    }

    /// Runs until the machines have gone and all is sent, or the launcher has gone.
    fn run(mut self, inbox: &Inbox) {
        while !self.is_done() {
            let now = Instant::now();
            if now >= self.beat_at {
                self.say(FromPart::Beat);
                self.beat_at = later(now, Duration::from_millis(BEAT_MS));
            }
            if self.wait(inbox).is_err() {
                return; // kills the machines
            }
            let _ = (&inbox.woken).read(&mut [0; 256]);
            while let Some(event) = inbox.next() {
                self.received_at = Instant::now();
                match event {
                    PartEvent::Order(order) => self.on_order(order),
                    PartEvent::StreamEnded | PartEvent::AllSent => {}
                    PartEvent::Cut => return,
                }
            }
            if self.received_at.elapsed() >= self.silence {
                return;
            }
            match self.group.events() {
                Ok(events) => events.into_iter().for_each(|event| self.on_event(event)),
                Err(error) => {
                    let _ = writeln!(io::stderr(), "gossamer-daemon part: {error}");
                    return;
                }
            }
            if self.gone_at.is_none() && self.group.alive() == 0 {
                orphans::end(END_LIMIT); // they may hold the pipes
                self.gone_at = Some(Instant::now());
            }
        }
        self.say(FromPart::Done);
        drop(self); // the last sender of the outbox
        inbox.until_all_sent();
    }

    /// Returns whether all machines have gone, and all their output is on its way, or the processes that hold their
    /// pipes cannot be killed.
    fn is_done(&self) -> bool {
        let Some(gone_at) = self.gone_at else { return false };
        self.outputs.open() == 0 || (gone_at.elapsed() >= END_LIMIT && !self.outputs.is_waiting())
    }

    fn wait(&self, inbox: &Inbox) -> Result<(), Errno> {
        let mut fds = [PollFd::new(&self.group, PollFlags::IN), PollFd::new(&inbox.woken, PollFlags::IN)];
        let until = self.beat_at.min(later(self.received_at, self.silence));
        let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn on_order(&mut self, order: ToPart) {
        match order {
            ToPart::Beat => {}
            ToPart::Secret(key) => {
                self.tell_all(|_| Some(Message::Secret { key: Key::from_bytes(key.0) }));
            }
            ToPart::Peer { machine, endpoint } => {
                self.tell_all(|to| (to != machine).then(|| Message::Peer { machine, endpoint: endpoint.clone() }));
            }
            ToPart::Grant { stream, bytes } => self.outputs.grant(stream, bytes),
            ToPart::Close(stream) => self.outputs.close(stream),
            ToPart::Input(bytes) => {
                if let Some(input) = &self.input {
                    let _ = input.send(bytes); // fails only if machine 0 reads no more
                }
            }
            ToPart::InputEnd => self.input = None,
            ToPart::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.group.signal(signal);
                }
            }
            ToPart::Look { ask, look } => self.tell_all(|_| Some(Message::Look { ask, look })),
            ToPart::End(reason) => self.group.tell_to_end(&reason),
            ToPart::Kill => self.group.signal(Signal::KILL),
            ToPart::Tell { machine, packet } => {
                // The launcher makes no others.
                if let Ok(message) = Message::decode(&packet) {
                    self.group.send(machine, message);
                }
            }
            ToPart::KillOne(machine) => self.group.kill(machine),
        }
    }

    fn tell_all(&mut self, message: impl Fn(u16) -> Option<Message>) {
        let numbers: Vec<u16> = self.group.numbers().collect();
        for machine in numbers {
            if let Some(message) = message(machine) {
                self.group.send(machine, message);
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        self.say(match event {
            Event::Said { machine, message: Message::Seen { ask, is_last, bytes } } => {
                return self.on_seen(machine, ask, is_last, bytes);
            }
            Event::Said { machine, message } => FromPart::Said { machine, packet: message.encode() },
            Event::Nonsense { machine, error } => FromPart::Nonsense { machine, reason: error.to_string() },
            Event::Stood { machine, signal } => FromPart::Stood { machine, signal },
            Event::Exited { machine, status } => FromPart::Exited { machine, status: status.into_raw() },
        });
    }

    /// Queues a piece of an answer to a watcher, or drops it where too much waits.
    fn on_seen(&mut self, machine: u16, ask: u32, is_last: bool, bytes: Vec<u8>) {
        let answer = (machine, ask);
        let is_dropped = self.dropped.contains(&answer);
        let held = if is_dropped { None } else { self.seen.hold(bytes.len()) };
        if held.is_some() {
            let said = FromPart::Said { machine, packet: Message::Seen { ask, is_last, bytes }.encode() };
            let _ = self.outbox.send(Outgoing { _held: held, ..said.into() }); // cut off: `PartEvent::Cut` follows
            return;
        }
        if !is_dropped && let Some(held) = self.notices.hold(0) {
            let said = FromPart::Dropped { machine, ask };
            let _ = self.outbox.send(Outgoing { _held: Some(held), ..said.into() }); // as above
        }
        if is_last {
            self.dropped.remove(&answer);
        } else if self.dropped.len() < DROPPED_MAX {
            self.dropped.insert(answer);
        }
    }
}
