//! Machine 0: accepts all others, gives each its place, and supervises the program to its end (`hub/supervision.rs`).
//!
//! ```text
//! Joining  -Join->  all have come  -Plan->  Endpoint, Secret, Peer, Ready  ->  Running
//! Running  -Beat, Lost, Failed->  End  -Left->
//! ```

mod supervision;

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use trust::link::{deadline_after, later};

use comm::secure::{SecureReader, SecureWriter};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::event::{HubEvent, Newcomer};
use super::host::{self, HostIdentity};
use super::plan::{self, Joined};
use super::port;
use super::process::{Process, ProcessIdentity};
use super::wire::{Down, Gathered, Join, MESSAGE_BYTES_MAX, Up, decode};
use super::{BEAT_INTERVAL, Exchange, Joint, Limit, Place, REPORT_INTERVAL, RendezvousError, SILENCE, memory, plain};
use crate::bootstrap::{Bootstrap, Plan, PortRange};
use crate::codec::encode;
use crate::complain::complain;
use crate::control::{Control, Message};
use crate::fate;

/// Time after which a machine that does not read its messages counts as gone.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
/// Strangers that are reported; more are not.
const STRANGERS_MAX: usize = 3;
/// Most addresses offered to others: as many as fit into a process manager's value.
const ADDRESSES_MAX: usize = 12;

/// Endpoint of machine 0, as the process manager passes it on; it is secret.
#[derive(Serialize, Deserialize)]
pub(super) struct HubEndpoint {
    pub(super) addresses: Vec<IpAddr>,
    /// Interface of a link-local address.
    pub(super) interface: Option<String>,
    pub(super) port: u16,
    pub(super) key: [u8; 32],
    pub(super) host: HostIdentity,
}

/// Connection to a machine.
struct Member {
    writer: Option<SecureWriter>,
    joined: Joined,
    /// Its process, if it is on this host and can be held.
    process: Option<Process>,
    has_left: bool,
}

/// State of machine 0 while the others come.
struct Hub {
    own: Join,
    /// Members by index, from 1.
    members: Vec<Option<Member>>,
    events: Receiver<HubEvent>,
    sender: Sender<HubEvent>,
    strangers: HashSet<String>,
    beat_at: Instant,
}

/// Meets all others as machine 0.
pub(super) fn start(joint: &Joint, place: Place, limit: &Limit) -> Result<Bootstrap, RendezvousError> {
    let (sender, events) = mpsc::channel();
    let wanted = host::wanted_address()?;
    let listening = "listen for the other machines (GOSSAMER_MEET, GOSSAMER_ADDRESS, GOSSAMER_PORTS)";
    let listener = match (&joint.exchange, &wanted) {
        (Exchange::Known(target), _) => target.listen(),
        (Exchange::Starter, wanted) => {
            let bind = |port| match wanted {
                Some(address) => std::net::TcpListener::bind(address.socket(port)?),
                None => plain::listen_everywhere(port),
            };
            PortRange::bind(plan::ports()?, bind, |error| error.kind() == ErrorKind::AddrInUse)
        }
    };
    let listener = listener.map_err(RendezvousError::system(listening))?;
    // As many as the system allows: std asks for 128, and all machines of a large rack knock at once.
    rustix::net::listen(&listener, i32::MAX).map_err(RendezvousError::system(listening))?;
    let port = listener.local_addr().map_err(RendezvousError::system(listening))?.port();
    port::listen(listener, place.key.clone(), sender.clone())?;
    let identity = HostIdentity::of_this_process();
    if matches!(joint.exchange, Exchange::Starter) {
        let mut addresses = wanted.as_ref().map_or_else(host::addresses, |address| vec![address.ip()]);
        let interface = wanted.as_ref().and_then(|address| address.interface()).map(str::to_owned);
        addresses.truncate(ADDRESSES_MAX);
        let endpoint = HubEndpoint { addresses, interface, port, key: *place.key.as_bytes(), host: identity.clone() };
        joint.starter.publish(Some(&encode(&endpoint)), limit)?;
        joint.starter.watch()?;
    }
    let signalled = sender.clone();
    // The hub goes with the process.
    joint.interrupts.pass_on(move |signal, _| drop(signalled.send(HubEvent::Signal(signal))));
    let own = Join {
        index: 0,
        count: place.count,
        nonce: plan::random()?,
        host: identity,
        process: ProcessIdentity::of_this_process(),
        image: place.image.clone(),
        cores: host::cores(),
        is_address_wanted: wanted.is_some(),
        address: wanted.unwrap_or_else(|| IpAddr::from(Ipv4Addr::LOCALHOST).into()),
    };
    let mut members = Vec::new();
    members.resize_with(usize::from(place.count) - 1, || None);
    let mut hub = Hub { own, members, events, sender, strangers: HashSet::new(), beat_at: Instant::now() };
    let made = hub.gather(limit).and_then(|()| {
        let (plan, tokens) = hub.give_places(limit)?;
        let group = plan.memory_group(0);
        let memory = tokens.map(|tokens| memory::share(0, &group, tokens, limit)).transpose()?;
        Ok((plan, memory))
    });
    if let Err(error) = &made {
        let reason = error.to_string();
        hub.tell_all(|_| Down::GivenUp(reason.clone()));
    }
    let (plan, memory) = made?;
    let control = supervision::begin(hub, &plan, place.key, Arc::clone(&joint.starter))?;
    Ok(Bootstrap { machine: 0, plan, memory, control })
}

impl Hub {
    /// Waits until all have come.
    fn gather(&mut self, limit: &Limit) -> Result<(), RendezvousError> {
        let mut report_at = deadline_after(REPORT_INTERVAL);
        while self.members.iter().any(Option::is_none) {
            if limit.left().is_zero() {
                let (missing, count) = (self.missing(), self.own.count);
                return Err(RendezvousError::NotCome { missing, count, waited: limit.timeout });
            }
            if report_at <= Instant::now() {
                report_at = later(report_at, REPORT_INTERVAL);
                let (waited, most) = (limit.start.elapsed().as_secs(), limit.timeout);
                complain(format_args!("waiting for {} of {}, {waited} s of {most:?}", self.missing(), self.own.count));
            }
            let wait = BEAT_INTERVAL.min(limit.left());
            match self.events.recv_timeout(wait) {
                Ok(HubEvent::Came(newcomer)) => self.take_in(*newcomer)?,
                Ok(HubEvent::Stranger(error)) => self.report_stranger(&error),
                Ok(HubEvent::Gone { machine, is_silent }) => {
                    let how = if is_silent { "is silent" } else { "has gone" };
                    return Err(RendezvousError::Wrong(format!(
                        "{} {how} while the program started",
                        self.name(machine)
                    )));
                }
                Ok(HubEvent::Said(_, Up::Signal(signal))) => {
                    Signal::from_named_raw(signal)
                        .map_or(Ok(()), |signal| Err(RendezvousError::Interrupted(signal)))?;
                }
                Ok(HubEvent::Signal(signal)) => return Err(RendezvousError::Interrupted(signal)),
                Ok(HubEvent::Said(..) | HubEvent::Own(_) | HubEvent::OwnEnd | HubEvent::Asked)
                | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("this hub holds a sender"),
            }
            self.beat();
        }
        Ok(())
    }

    /// Returns the machines that have not come, as in "machines 1, 4, 5".
    fn missing(&self) -> String {
        let missing = (1..).zip(&self.members).filter(|(_, member)| member.is_none());
        let numbers: Vec<String> = missing.map(|(index, _): (u16, _)| index.to_string()).collect();
        format!("machine{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
    }

    fn name(&self, machine: u16) -> String {
        match self.member(machine) {
            Some(Member { joined, .. }) => {
                format!("machine {machine} (pid {} on {})", joined.join.process.pid, joined.join.host.name)
            }
            None => format!("machine {machine}"),
        }
    }

    fn member(&self, machine: u16) -> Option<&Member> {
        self.members.get(usize::from(machine).checked_sub(1)?)?.as_ref()
    }

    /// Accepts a machine, or refuses it with the reason. One with the key that does not fit ends the start.
    fn take_in(&mut self, newcomer: Newcomer) -> Result<(), RendezvousError> {
        let Newcomer { join, mut stream, reached_at } = newcomer;
        if let Some(reason) = self.misfit(&join) {
            let _ = stream.send(&encode(&Down::Refused(reason.clone()))); // it may have gone
            return Err(RendezvousError::Wrong(format!("pid {} on {}: {reason}", join.process.pid, join.host.name)));
        }
        let index = usize::from(join.index);
        if index == 0 || self.members[index - 1].is_some() {
            refuse_second(&mut stream, &join, &self.name(join.index));
            return Ok(());
        }
        let machine = join.index;
        let (reader, mut writer) = stream.split();
        let _ = writer.set_timeout(Some(SEND_TIMEOUT)); // else a send waits for longer
        receive(machine, reader, self.sender.clone())?;
        let process = join.host.is_same(&self.own.host).then(|| Process::hold(join.process)).flatten();
        let joined = Joined { join, reached_at };
        self.members[index - 1] = Some(Member { writer: Some(writer), joined, process, has_left: false });
        Ok(())
    }

    /// Returns the reason why this machine cannot be one of this program.
    fn misfit(&self, join: &Join) -> Option<String> {
        if join.count != self.own.count {
            let (theirs, own) = (join.count, self.own.count);
            return Some(format!("it counts {theirs} machines, machine 0 counts {own}: give all the same number"));
        }
        if join.index >= self.own.count {
            return Some(format!("it takes itself for machine {} of {}", join.index, self.own.count));
        }
        (join.image != self.own.image).then(|| {
            let (theirs, own) = (&join.image, &self.own.image);
            format!("it runs another program than machine 0: {theirs}, here {own} (build id/layout); use the same file")
        })
    }

    fn report_stranger(&mut self, error: &comm::Error) {
        let text = error.to_string();
        if self.strangers.len() < STRANGERS_MAX && self.strangers.insert(text.clone()) {
            complain(format_args!("somebody came to machine 0 and was turned away: {text}"));
        }
    }

    /// Makes the plan, and sends it to all machines.
    fn give_places(&mut self, limit: &Limit) -> Result<(Plan, Option<super::wire::MemoryTokens>), RendezvousError> {
        let mut all = vec![Joined { join: self.own.clone(), reached_at: None }];
        let joined =
            |member: &Member| Joined { join: member.joined.join.clone(), reached_at: member.joined.reached_at.clone() };
        all.extend(self.members.iter().flatten().map(joined));
        let plan = plan::plan(&all, limit.left())?;
        let tokens = plan::tokens(&plan)?;
        let text = serde_json::to_string(&plan).map_err(|error| RendezvousError::Wrong(error.to_string()))?;
        let hub = (self.own.process, self.own.host.clone());
        self.tell_all(|machine| {
            let (plan, memory, hub) = (text.clone(), tokens[usize::from(machine)], hub.clone());
            Down::Plan(Box::new(Gathered { plan, hub, memory }))
        });
        Ok((plan, tokens[0]))
    }

    /// Sends a heartbeat to the others, when it is due.
    fn beat(&mut self) {
        if self.beat_at <= Instant::now() {
            self.beat_at = deadline_after(BEAT_INTERVAL);
            self.tell_all(|_| Down::Beat);
        }
    }

    fn tell_all(&mut self, message: impl Fn(u16) -> Down) {
        for machine in 1..self.own.count {
            self.tell_one(machine, &message(machine));
        }
    }

    /// Sends to a machine. If that fails the machine has gone, or is treated so.
    fn tell_one(&mut self, machine: u16, message: &Down) {
        let Some(member) = self.members.get_mut(usize::from(machine) - 1).and_then(Option::as_mut) else { return };
        if member.writer.as_mut().is_some_and(|writer| writer.send(&encode(message)).is_err()) {
            member.writer = None;
            let _ = self.sender.send(HubEvent::Gone { machine, is_silent: false }); // this hub holds the receiver
        }
    }
}

fn refuse_second(stream: &mut comm::secure::SecureStream, join: &Join, first: &str) {
    let reason = format!(
        "it came as machine {}, but {first} is there already: give each process an index of its own, and start no \
         process again while others run",
        join.index
    );
    complain(format_args!("pid {} on {} was turned away: {reason}", join.process.pid, join.host.name));
    let _ = stream.send(&encode(&Down::Refused(reason))); // it may have gone
}

/// Receives a machine's messages on a thread of its own.
fn receive(machine: u16, mut reader: SecureReader, events: Sender<HubEvent>) -> Result<(), RendezvousError> {
    let _ = reader.set_timeout(Some(SILENCE)); // fails only without a bound
    let receive = move || {
        let is_silent = loop {
            match reader.receive(MESSAGE_BYTES_MAX) {
                Ok(Some(message)) => match decode::<Up>(&message) {
                    Some(Up::Beat) => {}
                    Some(said) => drop(events.send(HubEvent::Said(machine, said))), // the hub goes with the process
                    None => break false,
                },
                Err(comm::Error::TimedOut { .. }) => break true,
                Ok(None) | Err(_) => break false,
            }
        };
        let _ = events.send(HubEvent::Gone { machine, is_silent }); // as above
    };
    let thread = std::thread::Builder::new().name(format!("gossamer-from-{machine}")).stack_size(128 * 1024);
    let whose = format!("the thread that hears machine {machine}");
    thread.spawn(move || fate::or_end(&whose, receive)).map(drop).map_err(RendezvousError::system("start a thread"))
}

/// Makes the control channel of this machine: its end and ours.
pub(super) fn control_pair() -> Result<(Control, Arc<Control>), RendezvousError> {
    let (theirs, ours) = Control::pair().map_err(RendezvousError::system("make the control channel"))?;
    Ok((theirs, Arc::new(ours)))
}
