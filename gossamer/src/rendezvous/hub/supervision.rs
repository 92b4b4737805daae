//! Supervision of the program by machine 0 while the program runs: it passes on endpoints between machines and
//! questions of viewers, receives the machines' messages, and ends all machines by the rules of the supervisor. It runs
//! on a thread of its own, which ends the process if the program breaks down.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use comm::secure::Key;

use super::super::starter::Starter;
use super::super::{ControlBridge, spawn};
use super::*;
use crate::supervise::gather::Gather;
use crate::supervise::outcome::{Cause, Outcome};
use crate::supervise::signals::describe;
use crate::supervise::supervisor::{Event, Order, Policy, Supervisor};
use crate::view;
use crate::view::looks::{self, Looks};

/// Time for killed processes to go before machine 0 ends as well.
const AFTER_KILL: Duration = Duration::from_millis(100);
/// Time for the foreign launcher to end this process, once it was asked to end all.
const AFTER_ABORT: Duration = Duration::from_secs(2);

struct Supervision {
    hub: Hub,
    gather: Gather,
    supervisor: Supervisor,
    /// Questions of viewers.
    looks: Looks,
    control: Arc<Control>,
    starter: Arc<Starter>,
    is_killed: bool,
}

/// Starts supervising; returns machine 0's end of its control channel.
pub(super) fn begin(hub: Hub, plan: &Plan, key: Key, starter: Arc<Starter>) -> Result<Control, RendezvousError> {
    let (theirs, control) = control_pair()?;
    ControlBridge::begin(Arc::clone(&control));
    let count = hub.own.count;
    let mut supervisor = Supervisor::new(count, Policy { silence: SILENCE, ..Policy::default() });
    let many = plan.hosts.len() > 1;
    let all = std::iter::once(&hub.own).chain(hub.members.iter().flatten().map(|member| &member.joined.join));
    all.for_each(|join| supervisor.introduce(join.index, join.process.pid, many.then(|| join.host.name.clone())));
    // They have all come: the supervisor notices each that ends from here on.
    (0..count).for_each(|machine| supervisor.on_join(machine, Instant::now()));

    let (events, own) = (hub.sender.clone(), Arc::clone(&control));
    let listen = move || {
        while let Ok(Some(message)) = own.receive() {
            let _ = events.send(HubEvent::Own(message)); // the hub goes with the process
        }
        let _ = events.send(HubEvent::OwnEnd); // as above
    };
    spawn("gossamer-own", listen)?;
    let asked = hub.sender.clone();
    let (looker, looks) = looks::channel(count, move || drop(asked.send(HubEvent::Asked))); // as above
    view::serve_if_wanted(Arc::new(looker));
    let gather = Gather::new(count, key);
    let supervision = Supervision { hub, gather, supervisor, looks, control, starter, is_killed: false };
    spawn("gossamer-hub", move || supervision.run())?;
    Ok(theirs)
}

impl Supervision {
    fn run(mut self) {
        while !self.supervisor.is_over() && !self.is_killed {
            let next = self.supervisor.deadline().map_or(self.hub.beat_at, |at| at.min(self.hub.beat_at));
            match self.hub.events.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(event) => self.on_event(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.supervisor.on_time(Instant::now());
            for order in self.supervisor.orders() {
                self.obey(order);
            }
            self.hub.beat();
        }
        self.end();
    }

    fn on_event(&mut self, event: HubEvent) {
        let now = Instant::now();
        match event {
            HubEvent::Came(newcomer) => {
                let Newcomer { join, mut stream, .. } = *newcomer;
                refuse_second(&mut stream, &join, &self.hub.name(join.index));
            }
            HubEvent::Stranger(error) => self.hub.report_stranger(&error),
            HubEvent::Own(message) => self.on_message(0, message, now),
            // Its process is about to end, or `gsm_main` is over and the others have been notified.
            HubEvent::OwnEnd => {}
            HubEvent::Said(machine, Up::Packet(packet)) => match Message::decode(&packet) {
                Ok(message) => self.on_message(machine, message, now),
                Err(error) => self.supervisor.on_event(Event::Nonsense { machine, error }, now),
            },
            HubEvent::Said(machine, Up::Left) => {
                if let Some(member) = self.member(machine) {
                    (member.has_left, member.writer) = (true, None);
                }
                self.supervisor.on_leave(machine, now);
            }
            HubEvent::Said(_, Up::Signal(signal)) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.supervisor.on_signal(signal, now);
                }
            }
            HubEvent::Said(machine, Up::Join(_)) => {
                self.supervisor.on_death(machine, Cause::Protocol("it came a second time".to_owned()), now);
            }
            HubEvent::Said(_, Up::Beat) => {}
            HubEvent::Gone { machine, is_silent } => {
                let has_left = self.member(machine).is_none_or(|member| member.has_left);
                match is_silent {
                    _ if has_left => {}
                    true => self.supervisor.on_silence(machine, SILENCE, now),
                    false => self.supervisor.on_closed(machine, now),
                }
            }
            HubEvent::Signal(signal) => self.supervisor.on_signal(signal, now),
            HubEvent::Asked => self.ask_all(),
        }
    }

    fn member(&mut self, machine: u16) -> Option<&mut Member> {
        self.hub.members.get_mut(usize::from(machine).checked_sub(1)?)?.as_mut()
    }

    fn on_message(&mut self, machine: u16, message: Message, now: Instant) {
        let bytes = match message {
            Message::Endpoint { bytes } => bytes,
            Message::Seen { ask, is_last, bytes } => return self.looks.on_seen(machine, ask, is_last, bytes),
            message => return self.supervisor.on_event(Event::Said { machine, message }, now),
        };
        match self.gather.add(machine, bytes) {
            Ok(_) => (0..self.hub.own.count).for_each(|other| {
                let message = if other == machine { Some(self.gather.secret()) } else { self.gather.peer(machine) };
                message.into_iter().for_each(|message| self.pass_on(other, &message));
            }),
            Err(cause) => self.supervisor.on_death(machine, Cause::Protocol(cause), now),
        }
    }

    /// Passes the viewers' questions on to all machines.
    fn ask_all(&mut self) {
        for (ask, look) in self.looks.questions() {
            (0..self.hub.own.count).for_each(|machine| self.pass_on(machine, &Message::Look { ask, look }));
        }
    }

    fn pass_on(&mut self, machine: u16, message: &Message) {
        match machine {
            0 => drop(self.control.try_send(message)), // it has room for all, or this process is ending
            _ => self.hub.tell_one(machine, &Down::Packet(message.encode())),
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::End(reason) => self.tell_to_end(&reason),
            Order::Signal(signal) => self.tell_to_end(&format!("{} has come", describe(signal.as_raw()))),
            Order::Kill => self.is_killed = true,
            Order::Tell { machine, message } => self.pass_on(machine, &message),
            Order::KillOne(machine) => self.dismiss(machine),
            Order::Report { machine, text } => {
                self.looks.lose(machine);
                complain(format_args!("{text}"));
            }
        }
    }

    /// Ends a lost machine: one of another host by telling it, if that still reaches it.
    fn dismiss(&mut self, machine: u16) {
        let reason = "the others go on without this machine".to_owned();
        self.hub.tell_one(machine, &Down::Packet(Message::End { reason }.encode()));
        if let Some(member) = self.member(machine) {
            member.process.iter().for_each(Process::kill);
            member.writer = None;
        }
    }

    /// Tells the other machines to end. Machine 0 itself ends with this thread.
    fn tell_to_end(&mut self, reason: &str) {
        let packet = Message::End { reason: reason.to_owned() }.encode();
        self.hub.tell_all(|_| Down::Packet(packet.clone()));
        self.supervisor.on_leave(0, Instant::now());
    }

    fn end(self) {
        let Supervision { hub, supervisor, starter, is_killed, .. } = self;
        let ended = supervisor.ended();
        ended.messages().iter().for_each(|message| complain(format_args!("{message}")));
        let left: Vec<&Member> = hub.members.iter().flatten().filter(|member| !member.has_left).collect();
        if !is_killed && matches!(ended.outcome, Outcome::Finished(_)) {
            starter.finalize();
            return ControlBridge::finish(); // `gossamer::main` returns, or exits with the program's status
        }
        left.iter().filter_map(|member| member.process.as_ref()).for_each(Process::kill);
        let status = ended.status().max(1);
        if is_killed && left.iter().any(|member| !member.joined.join.host.is_same(&hub.own.host)) {
            starter.abort(status, "gossamer has ended the program");
            std::thread::sleep(AFTER_ABORT);
        } else if is_killed {
            std::thread::sleep(AFTER_KILL);
        }
        std::process::exit(status.into())
    }
}
