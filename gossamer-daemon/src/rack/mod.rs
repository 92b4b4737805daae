//! Runs a program on the hosts of a rack, from its start to its end: the launcher's side of daemons and parts.
//!
//! 1. [`plan`]: hosts, number of machines and workers, fabric
//! 2. [`hosts`]: a connection to each host's daemon; the program is started on all of them, or on none (`dialer`: the
//!    steps of one host; `queue`: one host after the other)
//! 3. [`run`]: passes endpoints on, feeds the events of all machines to [`Supervisor`], and carries out its orders on
//!    all hosts
//! 4. `streams`: the program's output and input, within a window
//!
//! All events come as an [`Event`] to one thread. Other requests to daemons (`status` and the like) are in [`ask`].

pub mod ask;
mod dialer;
pub mod hosts;
pub mod look;
pub mod output;
pub mod plan;
mod queue;
mod stillness;
mod streams;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use comm::secure::Key;
use gossamer::bootstrap::Plan;
use gossamer::control::Message;
use rustix::process::Signal;

use crate::cli::size;
use crate::config::{ConfigError, RackConfig};
use crate::environment::Environment;
use crate::error::LaunchError;
use crate::gather::Gather;
use crate::machines;
use crate::options::RunOptions;
use crate::outcome::{Cause, Ended, NOT_STARTED_STATUS, Outcome, USAGE_STATUS};
use crate::output::Unwritten;
use crate::panics;
use crate::signals::Signals;
use crate::supervisor::{Order, Policy, Supervisor};
use crate::wire::{FromPart, ProgramId, SecretBytes, Start, ToPart};
use dialer::Dialer;
use hosts::Hosts;
use plan::Files;
use stillness::Stillness;
use streams::{Input, Outputs};

/// Description of a run.
#[derive(Debug)]
pub struct RackRun {
    /// The rack.
    pub rack: RackConfig,
    /// Options of the user, [completed](RunOptions::on_rack) from the rack.
    pub options: RunOptions,
    /// A path, or a name to be found in `PATH`.
    pub program: std::ffi::OsString,
    /// Its arguments.
    pub args: Vec<std::ffi::OsString>,
    /// Environment of the machines, besides the variables that each host sets.
    pub environment: Environment,
    /// Library for the program to load first, on this host.
    pub library: Option<PathBuf>,
    /// Shows the user a message meanwhile.
    pub notice: fn(&str),
    /// Called when all machines have been started.
    pub on_start: fn(ProgramId),
}

/// Reason why a program could not be run on a rack.
#[derive(Debug, thiserror::Error)]
pub enum RackError {
    /// No valid `rack.yaml`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Failure before anything was started: the program, the key, the system.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Hosts that cannot be reached, or refuse; each with its reason.
    #[error("{}", hosts::list(.0))]
    Hosts(Vec<(String, String)>),
    /// Fewer hosts are up than `--any` needs; the others, each with its reason.
    #[error("--any={wanted}: hosts that are up: {up}{}", hosts::list_after(.down))]
    TooFew {
        /// Number of hosts that are needed.
        wanted: u16,
        /// Number of hosts that answer.
        up: usize,
        /// The others.
        down: Vec<(String, String)>,
    },
    /// The program cannot be started on a host.
    #[error("host {host}: {reason}")]
    NotStarted {
        /// The host.
        host: String,
        /// The cause.
        reason: String,
        /// Whether the program is missing or cannot be executed.
        is_program: bool,
    },
    /// The request does not fit the rack.
    #[error("{0}")]
    Plan(String),
}

impl RackError {
    /// Returns the exit status of the launcher where this error has one of its own.
    #[must_use]
    pub fn status(&self) -> Option<u8> {
        match self {
            RackError::Launch(error) => error.status(),
            RackError::NotStarted { is_program: true, .. } => Some(NOT_STARTED_STATUS),
            RackError::Config(ConfigError::Missing(_)) => Some(USAGE_STATUS),
            _ => None,
        }
    }
}

/// An event. Hosts have their number in the plan.
pub enum Event {
    /// A host has finished the next step of the start, or cannot.
    Connected(usize, Result<Box<crate::wire::link::Link>, String>),
    /// A host has no room: the number of programs that wait there before this one, and the number that may run.
    Queued(usize, u32, u16),
    /// A message of a host's part, other than output and grants.
    Received(usize, FromPart),
    /// The connection to a host has ended, and why.
    Cut(usize, String),
    /// A signal came.
    Signal(Signal),
    /// A stream of this process cannot be written any more.
    Unwritten(Unwritten),
    /// A stream of this process has got all its bytes.
    Written,
}

/// Runs a program from its start to its end.
///
/// # Errors
/// When it cannot be started; nothing of it is left then, or soon will be.
pub fn run(run: &RackRun) -> Result<Ended, RackError> {
    let (event_sender, events) = mpsc::channel();
    catch_signals(event_sender.clone()).map_err(LaunchError::system("catch signals"))?; // first: none may be missed
    let files = Files::find(run)?;
    let keys = run.rack.read_keys().map_err(LaunchError::from)?;
    let all = plan::choose(&run.rack, &run.options.hosts)?;
    let (rack, options, notice) = (&run.rack, &run.options, run.notice);
    let dialer =
        Dialer { rack, options, chosen: &all, keys: &keys, event_sender: &event_sender, events: &events, notice };
    let chosen = match options.any.map(|count| hosts::choose_up(&dialer, count)).transpose()? {
        Some(Err(signal)) => return Ok(Outcome::Interrupted(signal.as_raw()).into()),
        Some(Ok(up)) => up,
        None => all.clone(),
    };
    let dialer = Dialer { chosen: &chosen, ..dialer };
    let links = match hosts::connect(&dialer)? {
        Ok(links) => links,
        Err(signal) => return Ok(Outcome::Interrupted(signal.as_raw()).into()),
    };
    let mut plan = plan::make(run, &chosen)?;
    // Of several addresses of a name, the one where its daemon was met: it listens there.
    plan.hosts.iter_mut().zip(&links).for_each(|(host, link)| host.bind = link.peer.into());
    let start = plan::start(run, &plan, &files)?;
    let links = match hosts::start(&dialer, links, &start, &files)? {
        Ok(links) => links,
        Err(signal) => return Ok(Outcome::Interrupted(signal.as_raw()).into()),
    };
    let program = Program::new(run, &chosen, &plan, &start, links, event_sender)?;
    program.watch(&events)
}

fn catch_signals(event_sender: mpsc::Sender<Event>) -> io::Result<()> {
    // A suspended launcher gives no sign of life, and its program would be ended: so it ignores the suspend key.
    signal_hook::flag::register(signal_hook::consts::SIGTSTP, std::sync::Arc::default())?;
    let signals = Signals::catch()?;
    let pass_on = move || {
        while let Ok(signal) = signals.wait() {
            if event_sender.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    panics::spawn("signals", pass_on).map(drop)
}

/// A program that was started on all hosts.
struct Program {
    names: Vec<String>,
    plan: Plan,
    hosts: Hosts,
    outputs: Outputs,
    input: Input,
    supervisor: Supervisor,
    gather: Gather,
    key: Key,
    has_started: Vec<bool>,
    on_start: Option<fn(ProgramId)>,
    id: ProgramId,
    has_exited: Vec<bool>,
    not_started: Option<RackError>,
    silence: Duration,
    stillness: Stillness,
    notice: fn(&str),
}

impl Program {
    fn new(
        run: &RackRun,
        chosen: &[crate::config::Host],
        plan: &Plan,
        start: &Start,
        links: Vec<crate::wire::link::Link>,
        event_sender: mpsc::Sender<Event>,
    ) -> Result<Program, RackError> {
        let machines = u16::try_from(plan.machines.len()).unwrap_or(u16::MAX);
        let key = Key::generate().map_err(LaunchError::from)?;
        let failed = LaunchError::system("start the threads of the program");
        let silence = run.options.silence;
        let (hosts, outputs, input) = streams::connect(
            links,
            (run.options.start_limit(), silence),
            &plan::prefixes(run, plan),
            run.options.stdin,
            event_sender,
        )
        .map_err(failed)?;
        Ok(Program {
            names: chosen.iter().map(|host| host.name.clone()).collect(),
            plan: plan.clone(),
            hosts,
            outputs,
            input,
            supervisor: Supervisor::new(machines, Policy { silence, ..run.options.policy() }),
            gather: Gather::new(machines, key.clone()),
            key,
            has_started: vec![false; plan.machines.len()],
            on_start: Some(run.on_start),
            id: start.program,
            has_exited: vec![false; plan.machines.len()],
            not_started: None,
            silence,
            stillness: Stillness::default(),
            notice: run.notice,
        })
    }

    /// Handles events until all machines have gone, and all their output is written.
    fn watch(mut self, events: &mpsc::Receiver<Event>) -> Result<Ended, RackError> {
        while !(self.supervisor.is_over() && self.hosts.are_done()) {
            let left = self.supervisor.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.map_or(stillness::LOOK_INTERVAL, |left| left.min(stillness::LOOK_INTERVAL));
            self.stillness.start_wait(left);
            let event = events.recv_timeout(left).ok();
            self.stillness.end_wait();
            if let (Some(Event::Signal(_)), true) = (&event, self.supervisor.is_over()) {
                break; // only output is left, and the user does not want to wait for it
            }
            if let Some(event) = event {
                self.on_event(event, Instant::now());
            }
            self.supervisor.on_time(Instant::now());
            for order in self.supervisor.orders() {
                self.carry_out(order);
            }
            if self.supervisor.has_given_up() {
                break;
            }
        }
        self.hosts.close();
        for stream in self.outputs.finish(events) {
            self.supervisor.on_unwritten(stream, Instant::now());
        }
        match self.not_started {
            Some(error) => Err(error),
            None => Ok(self.supervisor.ended()),
        }
    }

    fn carry_out(&self, order: Order) {
        let host = |machine: u16| usize::from(self.plan.machines[usize::from(machine)].host);
        match order {
            Order::Signal(signal) => self.hosts.tell_all(&ToPart::Signal(signal.as_raw())),
            Order::End(reason) => self.hosts.tell_all(&ToPart::End(reason)),
            Order::Kill => self.hosts.tell_all(&ToPart::Kill),
            Order::Tell { machine, message } => {
                self.hosts.tell(host(machine), ToPart::Tell { machine, packet: message.encode() });
            }
            Order::KillOne(machine) => self.hosts.tell(host(machine), ToPart::KillOne(machine)),
            Order::Report { text, .. } => (self.notice)(&text),
        }
    }

    fn on_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Received(host, said) => self.on_received(host, said, now),
            Event::Cut(host, why) => self.on_cut(host, |name| Cause::Silent(format!("host {name}: {why}")), now),
            Event::Signal(signal) => self.supervisor.on_signal(signal, now),
            Event::Unwritten(unwritten) => {
                self.hosts.tell_all(&ToPart::Close(unwritten.stream));
                self.supervisor.on_unwritten(unwritten, now);
            }
            Event::Written | Event::Connected(..) | Event::Queued(..) => {}
        }
    }

    fn on_received(&mut self, host: usize, said: FromPart, now: Instant) {
        match said {
            FromPart::Started { machine, pid } if self.is_on(machine, host) => {
                self.supervisor.introduce(machine, pid, Some(self.names[host].clone()));
                self.has_started[usize::from(machine)] = true;
                if let Some(tell) = self.on_start.take_if(|_| self.has_started.iter().all(|has| *has)) {
                    tell(self.id);
                }
            }
            FromPart::Said { machine, packet } if self.is_on(machine, host) => match Message::decode(&packet) {
                Ok(Message::Endpoint { bytes }) => self.on_endpoint(machine, bytes, now),
                Ok(message) => self.supervisor.on_event(machines::Event::Said { machine, message }, now),
                Err(error) => self.supervisor.on_death(machine, Cause::Protocol(error.to_string()), now),
            },
            FromPart::Nonsense { machine, reason } if self.is_on(machine, host) => {
                self.supervisor.on_death(machine, Cause::Protocol(reason), now);
            }
            FromPart::Stood { machine, signal } if self.is_on(machine, host) => {
                self.supervisor.on_event(machines::Event::Stood { machine, signal }, now);
            }
            FromPart::OutOfMemory { machine, limit_bytes } if self.is_on(machine, host) => {
                self.supervisor.explain(machine, size::out_of_memory(limit_bytes));
            }
            FromPart::Exited { machine, status } if self.is_on(machine, host) => self.on_exit(machine, status, now),
            FromPart::NotStarted { reason, is_program } => {
                let host_name = self.names[host].clone();
                let error = RackError::NotStarted { host: host_name, reason: reason.clone(), is_program };
                self.not_started.get_or_insert(error);
                self.on_cut(host, |_| Cause::Failed(reason.clone()), now);
            }
            FromPart::Done => self.hosts.set_done(host),
            FromPart::Gone(reason) => self.on_cut(host, |name| Cause::Ended(format!("host {name}: {reason}")), now),
            FromPart::GrantInput(bytes) => self.input.grant(bytes),
            // A machine of another host: its part is confused, which is no better than a silent one.
            FromPart::Started { .. }
            | FromPart::Said { .. }
            | FromPart::Nonsense { .. }
            | FromPart::Stood { .. }
            | FromPart::OutOfMemory { .. }
            | FromPart::Exited { .. } => {
                self.on_cut(host, |name| Cause::Silent(format!("host {name} spoke for another host")), now);
            }
            FromPart::Beat | FromPart::Output { .. } | FromPart::Dropped { .. } => {}
        }
    }

    fn is_on(&self, machine: u16, host: usize) -> bool {
        self.plan.machines.get(usize::from(machine)).is_some_and(|plan| usize::from(plan.host) == host)
    }

    fn on_endpoint(&mut self, machine: u16, endpoint: Vec<u8>, now: Instant) {
        self.supervisor.on_join(machine, now);
        match self.gather.add(machine, endpoint) {
            Ok(false) => {}
            Ok(true) => {
                self.hosts.tell_all(&ToPart::Secret(SecretBytes(*self.key.as_bytes())));
                for (machine, endpoint) in self.gather.endpoints() {
                    self.hosts.tell_all(&ToPart::Peer { machine, endpoint: endpoint.to_vec() });
                }
            }
            Err(cause) => self.supervisor.on_death(machine, Cause::Protocol(cause), now),
        }
    }

    fn on_exit(&mut self, machine: u16, status: i32, now: Instant) {
        let status = ExitStatus::from_raw(status);
        self.has_exited[usize::from(machine)] = true;
        self.supervisor.on_event(machines::Event::Exited { machine, status }, now);
    }

    /// Handles the loss of a host: its machines have gone, or are as good as gone.
    fn on_cut(&mut self, host: usize, cause: impl Fn(&str) -> Cause, now: Instant) {
        if !self.hosts.is_done(host) {
            self.hosts.set_done(host);
            let number = u16::try_from(host).unwrap_or(u16::MAX);
            let left: Vec<u16> =
                self.plan.machines_of(number).filter(|machine| !self.has_exited[usize::from(*machine)]).collect();
            // Where the program goes on, each is lost, and nobody has seen it end: its lease tells.
            let lost = if self.supervisor.outlives() { left.len() } else { left.len().min(1) };
            for machine in &left[..lost] {
                let cause = match self.stillness.was_still(self.silence) {
                    Some(time) => Cause::Ended(format!(
                        "gossamer-launch itself stood still for {:.1} s (stopped by a signal, or its host was \
                         suspended or overloaded), so its hosts ended the program after {:?} without a sign of life",
                        time.as_secs_f64(),
                        self.silence
                    )),
                    None => cause(&self.names[host]),
                };
                self.supervisor.on_death(*machine, cause, now);
            }
            if self.supervisor.outlives() {
                return;
            }
            // The part kills them as soon as it sees the same: that is how they end.
            left.into_iter().for_each(|machine| self.on_exit(machine, Signal::KILL.as_raw(), now));
        }
    }
}

/// Picks the number of a new program.
fn new_id() -> Result<ProgramId, LaunchError> {
    let random = Key::generate().map_err(LaunchError::from)?;
    let bytes = blake3::hash(random.as_bytes());
    Ok(ProgramId(u32::from_le_bytes([
        bytes.as_bytes()[0],
        bytes.as_bytes()[1],
        bytes.as_bytes()[2],
        bytes.as_bytes()[3],
    ])))
}
