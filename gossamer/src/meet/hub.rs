//! Machine 0: accepts all others, gives each its place, and supervises the program to its end (`hub/keep.rs`).
//!
//! ```text
//! Joining  -Join->  all have come  -Plan->  Endpoint, Secret, Peer, Ready  ->  Running
//! Running  -Beat, Lost, Failed->  End  -Left->
//! ```

mod keep;

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

use super::host::{self, HostIdentity};
use super::plan::{self, Known};
use super::port::{self, Newcomer};
use super::process::{Process, ProcessIdentity};
use super::wire::{Down, Gathered, Join, MESSAGE_BYTES_MAX, Up, decode, encode};
use super::{BEAT_INTERVAL, Exchange, Joint, Limit, MeetError, Place, SILENCE, TELL_INTERVAL, memory, plain};
use crate::bootstrap::{Bootstrap, Plan, PortRange};
use crate::complain::complain;
use crate::control::{Control, Message};
use crate::fate;

/// Time after which a machine that does not read its messages counts as gone.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
/// Strangers that are reported; more are not.
const STRANGERS_MAX: usize = 3;
/// Most addresses offered to others: as many as fit into a process manager's value.
const ADDRESSES_MAX: usize = 12;

/// Event for machine 0.
pub(super) enum News {
    /// A machine has come.
    Came(Box<Newcomer>),
    /// A connection without the key, or without a valid greeting.
    Stranger(comm::Error),
    /// Message of a machine.
    Said(u16, Up),
    /// End of a machine's messages: it is silent, or its connection has ended.
    Gone { machine: u16, is_silent: bool },
    /// Message of machine 0 itself.
    Own(Message),
    /// End of machine 0's own messages.
    OwnEnd,
    /// This process got a signal.
    Signal(Signal),
    /// A viewer of the program has asked.
    Asked,
}

/// Endpoint of machine 0, as the process manager passes it on; it is secret.
#[derive(Serialize, Deserialize)]
pub(super) struct Card {
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
    known: Known,
    /// Its process, if it is on this host and can be held.
    process: Option<Process>,
    has_left: bool,
}

/// State of machine 0 while the others come.
struct Hub {
    own: Join,
    /// By index, from 1.
    members: Vec<Option<Member>>,
    news: Receiver<News>,
    tell: Sender<News>,
    strangers: HashSet<String>,
    beat_at: Instant,
}

/// Meets all others as machine 0.
pub(super) fn meet(joint: &Joint, place: Place, limit: &Limit) -> Result<Bootstrap, MeetError> {
    let (tell, news) = mpsc::channel();
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
    let listener = listener.map_err(MeetError::system(listening))?;
    let port = listener.local_addr().map_err(MeetError::system(listening))?.port();
    port::listen(listener, place.key.clone(), tell.clone())?;
    let identity = HostIdentity::of_this_process();
    if matches!(joint.exchange, Exchange::Starter) {
        let mut addresses = wanted.as_ref().map_or_else(host::addresses, |address| vec![address.ip()]);
        let interface = wanted.as_ref().and_then(|address| address.interface()).map(str::to_owned);
        addresses.truncate(ADDRESSES_MAX);
        let card = Card { addresses, interface, port, key: *place.key.as_bytes(), host: identity.clone() };
        joint.starter.publish(Some(&encode(&card)), limit)?;
        joint.starter.watch()?;
    }
    let heard = tell.clone();
    joint.interrupts.pass_on(move |signal, _| drop(heard.send(News::Signal(signal)))); // the hub goes with the process
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
    let mut hub = Hub { own, members, news, tell, strangers: HashSet::new(), beat_at: Instant::now() };
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
    let control = keep::begin(hub, &plan, place.key, Arc::clone(&joint.starter))?;
    Ok(Bootstrap { machine: 0, plan, memory, control })
}

impl Hub {
    /// Waits until all have come.
    fn gather(&mut self, limit: &Limit) -> Result<(), MeetError> {
        let mut tell_at = deadline_after(TELL_INTERVAL);
        while self.members.iter().any(Option::is_none) {
            if limit.left().is_zero() {
                let (missing, count) = (self.missing(), self.own.count);
                return Err(MeetError::NotCome { missing, count, waited: limit.timeout });
            }
            if tell_at <= Instant::now() {
                tell_at = later(tell_at, TELL_INTERVAL);
                let (waited, most) = (limit.start.elapsed().as_secs(), limit.timeout);
                complain(format_args!("waiting for {} of {}, {waited} s of {most:?}", self.missing(), self.own.count));
            }
            let wait = BEAT_INTERVAL.min(limit.left());
            match self.news.recv_timeout(wait) {
                Ok(News::Came(newcomer)) => self.take_in(*newcomer)?,
                Ok(News::Stranger(error)) => self.tell_of_stranger(&error),
                Ok(News::Gone { machine, is_silent }) => {
                    let how = if is_silent { "is silent" } else { "has gone" };
                    return Err(MeetError::Wrong(format!("{} {how} while the program started", self.name(machine))));
                }
                Ok(News::Said(_, Up::Signal(signal))) => {
                    Signal::from_named_raw(signal).map_or(Ok(()), |signal| Err(MeetError::Interrupted(signal)))?;
                }
                Ok(News::Signal(signal)) => return Err(MeetError::Interrupted(signal)),
                Ok(News::Said(..) | News::Own(_) | News::OwnEnd | News::Asked) | Err(RecvTimeoutError::Timeout) => {}
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
            Some(Member { known, .. }) => {
                format!("machine {machine} (pid {} on {})", known.join.process.pid, known.join.host.name)
            }
            None => format!("machine {machine}"),
        }
    }

    fn member(&self, machine: u16) -> Option<&Member> {
        self.members.get(usize::from(machine).checked_sub(1)?)?.as_ref()
    }

    /// Accepts a machine, or refuses it with the reason. One with the key that does not fit ends the start.
    fn take_in(&mut self, newcomer: Newcomer) -> Result<(), MeetError> {
        let Newcomer { join, mut stream, met_at } = newcomer;
        if let Some(reason) = self.misfit(&join) {
            let _ = stream.send(&encode(&Down::Refused(reason.clone()))); // it may have gone
            return Err(MeetError::Wrong(format!("pid {} on {}: {reason}", join.process.pid, join.host.name)));
        }
        let index = usize::from(join.index);
        if index == 0 || self.members[index - 1].is_some() {
            refuse_second(&mut stream, &join, &self.name(join.index));
            return Ok(());
        }
        let machine = join.index;
        let (reader, mut writer) = stream.split();
        let _ = writer.set_timeout(Some(SEND_TIMEOUT)); // else a send waits for longer
        hear(machine, reader, self.tell.clone())?;
        let process = join.host.is_same(&self.own.host).then(|| Process::hold(join.process)).flatten();
        let known = Known { join, met_at };
        self.members[index - 1] = Some(Member { writer: Some(writer), known, process, has_left: false });
        Ok(())
    }

    /// Returns the reason why this machine cannot be one of this program.
    fn misfit(&self, join: &Join) -> Option<String> {
        if join.count != self.own.count {
            let (theirs, own) = (join.count, self.own.count);
            return Some(format!("it was told that there are {theirs} machines, machine 0 that there are {own}"));
        }
        if join.index >= self.own.count {
            return Some(format!("it takes itself for machine {} of {}", join.index, self.own.count));
        }
        (join.image != self.own.image).then(|| {
            let (theirs, own) = (&join.image, &self.own.image);
            format!("it runs another program than machine 0: {theirs}, here {own} (build id/layout); use the same file")
        })
    }

    fn tell_of_stranger(&mut self, error: &comm::Error) {
        let text = error.to_string();
        if self.strangers.len() < STRANGERS_MAX && self.strangers.insert(text.clone()) {
            complain(format_args!("somebody came to machine 0 and was turned away: {text}"));
        }
    }

    /// Makes the plan, and sends it to all machines.
    fn give_places(&mut self, limit: &Limit) -> Result<(Plan, Option<super::wire::MemoryTokens>), MeetError> {
        let mut all = vec![Known { join: self.own.clone(), met_at: None }];
        let known = |member: &Member| Known { join: member.known.join.clone(), met_at: member.known.met_at.clone() };
        all.extend(self.members.iter().flatten().map(known));
        let plan = plan::plan(&all, limit.left())?;
        let tokens = plan::tokens(&plan)?;
        let text = serde_json::to_string(&plan).map_err(|error| MeetError::Wrong(error.to_string()))?;
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
            let _ = self.tell.send(News::Gone { machine, is_silent: false }); // this hub holds the receiver
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
fn hear(machine: u16, mut reader: SecureReader, news: Sender<News>) -> Result<(), MeetError> {
    let _ = reader.set_timeout(Some(SILENCE)); // fails only without a bound
    let hear = move || {
        let is_silent = loop {
            match reader.receive(MESSAGE_BYTES_MAX) {
                Ok(Some(message)) => match decode::<Up>(&message) {
                    Some(Up::Beat) => {}
                    Some(said) => drop(news.send(News::Said(machine, said))), // the hub goes with the process
                    None => break false,
                },
                Err(comm::Error::TimedOut { .. }) => break true,
                Ok(None) | Err(_) => break false,
            }
        };
        let _ = news.send(News::Gone { machine, is_silent }); // as above
    };
    let thread = std::thread::Builder::new().name(format!("gossamer-hear-{machine}")).stack_size(128 * 1024);
    let whose = format!("the thread that hears machine {machine}");
    thread.spawn(move || fate::or_end(&whose, hear)).map(drop).map_err(MeetError::system("start a thread"))
}

/// Makes the control channel of this machine: its end and ours.
pub(super) fn control_pair() -> Result<(Control, Arc<Control>), MeetError> {
    let (theirs, ours) = Control::pair().map_err(MeetError::system("make the control channel"))?;
    Ok((theirs, Arc::new(ours)))
}
