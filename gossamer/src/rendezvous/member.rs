//! Machine other than 0: joins, waits for the plan, and from then on carries its messages to and from machine 0.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use comm::descriptors::cure;
use comm::secure::{Key, SecureReader, SecureStream, SecureWriter};

use super::error::status;
use super::host::{self, HostIdentity};
use super::hub::{HubEndpoint, control_pair};
use super::process::{Process, ProcessIdentity};
use super::starter::Starter;
use super::wire::{Down, Gathered, Join, MESSAGE_BYTES_MAX, PURPOSE, Up, decode};
use super::{
    BEAT_INTERVAL, ControlBridge, Exchange, FAILURE_STATUS, Interrupts, Joint, LAST_MESSAGES_TIMEOUT, Limit, Place,
    RendezvousError, SILENCE, memory, plan, spawn,
};
use crate::bootstrap::{Bootstrap, HostAddress, Plan};
use crate::codec::encode;
use crate::complain::complain;
use crate::control::{Control, Message};
use crate::losses::record;
use crate::supervise::signals::describe;

/// Time in which one address must answer. No test depends on it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 2 });
/// Least time for one of several addresses, however little the others have left.
const LEAST_TIME: Duration = Duration::from_millis(100);
/// Wait before all addresses are tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Time for this process to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(2);

type Writer = Arc<Mutex<SecureWriter>>;

/// Meets machine 0, and through it all others.
pub(super) fn start(joint: &Joint, place: Place, limit: &Limit) -> Result<Bootstrap, RendezvousError> {
    let identity = HostIdentity::of_this_process();
    let stream = match &joint.exchange {
        Exchange::Known(target) => {
            let resolve = || target.resolve();
            connect(&resolve, &target.to_string(), &place.key, limit)?
        }
        Exchange::Starter => {
            let endpoint = joint.starter.publish(None, limit)?;
            joint.starter.watch()?;
            let endpoint: HubEndpoint = endpoint.and_then(|bytes| decode(&bytes)).ok_or_else(|| {
                RendezvousError::Wrong("the endpoint that machine 0 has published is invalid: use the same file".into())
            })?;
            let at = |ip: &IpAddr| HostAddress::new(*ip, endpoint.interface.clone()).socket(endpoint.port);
            let all: Result<Vec<SocketAddr>, _> = endpoint.addresses.iter().map(at).collect();
            let mut all = all.map_err(RendezvousError::system("use the address of machine 0 (GOSSAMER_ADDRESS)"))?;
            match endpoint.host.has_network_of(&identity) {
                true => all.sort_by_key(|address| !address.ip().is_loopback()),
                false => all.retain(|address| !address.ip().is_loopback()),
            }
            connect(&|| Ok(all.clone()), &format!("{all:?}"), &Key::from_bytes(endpoint.key), limit)?
        }
    };
    let wanted = host::wanted_address()?;
    let found = stream.tcp().local_addr().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST).into(), HostAddress::from);
    let join = Join {
        index: place.index,
        count: place.count,
        nonce: plan::random()?,
        host: identity,
        process: ProcessIdentity::of_this_process(),
        image: place.image,
        cores: host::cores(),
        is_address_wanted: wanted.is_some(),
        address: wanted.unwrap_or(found),
    };
    let own_host = join.host.clone();
    let (mut reader, mut writer) = stream.split();
    writer.set_timeout(Some(SILENCE)).map_err(RendezvousError::Comm)?;
    writer.send(&encode(&Up::Join(Box::new(join)))).map_err(|_| RendezvousError::HubGone)?;
    let writer = Arc::new(Mutex::new(writer));
    beat(&writer)?;
    pass_signals_on(&joint.interrupts, Arc::clone(&writer));
    reader.set_timeout(Some(SILENCE)).map_err(RendezvousError::Comm)?;
    let gathered = wait_for_plan(&mut reader)?;

    let wrong = |error: String| RendezvousError::Wrong(format!("the plan of machine 0 is invalid: {error}"));
    let plan: Plan = serde_json::from_str(&gathered.plan).map_err(|error| wrong(error.to_string()))?;
    plan.check().map_err(|error| wrong(error.to_string()))?;
    if plan.machines.len() != usize::from(place.count) {
        return Err(wrong(format!("{} machines, not {}", plan.machines.len(), place.count)));
    }
    let hub = gathered.hub.1.is_same(&own_host).then(|| Process::hold(gathered.hub.0)).flatten();
    // From here on this machine receives machine 0's messages during every wait: the machine that makes the memory may
    // go, and machine 0 reports that.
    let control = carry(reader, writer, hub, Arc::clone(&joint.starter))?;
    let group = plan.memory_group(place.index);
    let memory = match gathered.memory {
        Some(tokens) if !group.is_empty() => Some(memory::share(place.index, &group, tokens, limit)?),
        _ => None,
    };
    Ok(Bootstrap { machine: place.index, plan, memory, control })
}

/// Tries the addresses until machine 0 answers at one.
fn connect(
    resolve: &dyn Fn() -> std::io::Result<Vec<SocketAddr>>,
    name: &str,
    key: &Key,
    limit: &Limit,
) -> Result<SecureStream, RendezvousError> {
    let (mut failures, mut is_told) = (Failures::default(), false);
    loop {
        match resolve() {
            Ok(all) => {
                let (mut is_final, mut another) = (!all.is_empty(), None);
                for address in all {
                    let error = match connect_to(address, key, limit) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => error,
                    };
                    match is_of_another(&error) {
                        true => another = Some(error.to_string()),
                        false => is_final = false,
                    }
                    failures.add(rank(&error), error.to_string());
                }
                // The listeners are not this program's, at any of its addresses: that will not change.
                if is_final {
                    return Err(RendezvousError::NotOurs(failures.text()));
                }
                if let Some(text) = another.filter(|_| !std::mem::replace(&mut is_told, true)) {
                    let timeout = limit.timeout;
                    complain(format_args!("{text}; other addresses of {name} are tried, for {timeout:?} in all"));
                }
            }
            // A service's name may come later.
            Err(error) => failures.add(0, format!("looking up {name}: {error}{}", cure(&error))),
        }
        if limit.left().is_zero() {
            return Err(RendezvousError::Unreachable {
                at: name.to_owned(),
                waited: limit.timeout,
                cause: failures.text(),
            });
        }
        std::thread::sleep(RETRY.min(limit.left()));
    }
}

/// The most telling failure of all attempts so far, and the last one.
#[derive(Default)]
struct Failures {
    telling: Option<(u8, String)>,
    last: String,
}

impl Failures {
    /// Adds a failure; of equals the later one is kept.
    fn add(&mut self, rank: u8, text: String) {
        if self.telling.as_ref().is_none_or(|(before, _)| *before <= rank) {
            self.telling = Some((rank, text.clone()));
        }
        self.last = text;
    }

    fn text(self) -> String {
        match self.telling {
            Some((_, text)) if text != self.last => format!("{text} (the last attempt: {})", self.last),
            _ => self.last,
        }
    }
}

/// Returns whether the listener belongs to another program, or has another key.
fn is_of_another(error: &comm::Error) -> bool {
    matches!(error, comm::Error::WrongKey { .. } | comm::Error::OtherPurpose { .. })
}

/// Returns the rank of a failure among those of several attempts: the connection that came furthest tells most, and a
/// lack on this side more than any.
fn rank(error: &comm::Error) -> u8 {
    match error {
        error if is_of_another(error) => 3,
        comm::Error::System { source, .. } if !cure(source).is_empty() => 4,
        comm::Error::System { .. } => 0,
        comm::Error::Closed { .. } | comm::Error::TimedOut { .. } | comm::Error::NotGossamer { .. } => 1,
        _ => 2,
    }
}

fn connect_to(address: SocketAddr, key: &Key, limit: &Limit) -> Result<SecureStream, comm::Error> {
    let timeout = CONNECT_TIMEOUT.min(limit.left()).max(LEAST_TIME);
    let tcp = TcpStream::connect_timeout(&address, timeout);
    let tcp = tcp.map_err(|source| comm::Error::System { doing: format!("connecting to {address}"), source })?;
    SecureStream::connect(tcp, key, PURPOSE, CONNECT_TIMEOUT)
}

fn wait_for_plan(reader: &mut SecureReader) -> Result<Gathered, RendezvousError> {
    loop {
        let message =
            reader.receive(MESSAGE_BYTES_MAX).map_err(|_| RendezvousError::HubGone)?.ok_or(RendezvousError::HubGone)?;
        match decode(&message) {
            Some(Down::Beat) => {}
            Some(Down::Plan(gathered)) => return Ok(*gathered),
            Some(Down::Refused(reason)) => return Err(RendezvousError::Refused(reason)),
            Some(Down::GivenUp(reason)) => return Err(RendezvousError::GivenUp(reason)),
            Some(Down::Packet(_)) | None => {
                return Err(RendezvousError::Wrong("machine 0 sent an invalid message: use the same file".to_owned()));
            }
        }
    }
}

fn send(writer: &Writer, message: &Up) -> Result<(), comm::Error> {
    writer.lock().unwrap_or_else(PoisonError::into_inner).send(&encode(message))
}

/// Sends heartbeats to machine 0, until one fails.
fn beat(writer: &Writer) -> Result<(), RendezvousError> {
    let writer = Arc::clone(writer);
    spawn("gossamer-beat", move || {
        while send(&writer, &Up::Beat).is_ok() {
            std::thread::sleep(BEAT_INTERVAL);
        }
    })
}

/// Passes the first signal to this machine on to the program; the second ends this machine itself.
fn pass_signals_on(interrupts: &Interrupts, writer: Writer) {
    interrupts.pass_on(move |signal, signals| {
        let _ = send(&writer, &Up::Signal(signal.as_raw())); // if this fails the machine ends all the same
        let until = deadline_after(END_TIMEOUT);
        while Instant::now() < until && signals.take().is_none() {
            std::thread::sleep(Duration::from_millis(50));
        }
        complain(format_args!("this machine was ended by {}", describe(signal.as_raw())));
        std::process::exit(status(signal).into());
    });
}

/// Carries the messages between this machine and its launcher over this connection, from here on.
fn carry(
    reader: SecureReader,
    writer: Writer,
    hub: Option<Process>,
    starter: Arc<Starter>,
) -> Result<Control, RendezvousError> {
    let (theirs, ours) = control_pair()?;
    ControlBridge::begin(Arc::clone(&ours));
    let (up, words) = (Arc::clone(&writer), Arc::clone(&ours));
    spawn("gossamer-up", move || {
        while let Ok(Some(message)) = words.receive() {
            if send(&up, &Up::Packet(message.encode())).is_err() {
                break; // machine 0 has gone, which the other thread sees
            }
        }
        ControlBridge::finish();
    })?;
    spawn("gossamer-down", move || pass_down(reader, &writer, &ours, hub.as_ref(), &starter))?;
    Ok(theirs)
}

fn pass_down(mut reader: SecureReader, writer: &Writer, ours: &Control, hub: Option<&Process>, starter: &Starter) {
    let why = loop {
        match reader.receive(MESSAGE_BYTES_MAX) {
            Ok(Some(message)) => match decode(&message) {
                Some(Down::Packet(packet)) => match Message::decode(&packet) {
                    Ok(message @ Message::End { .. }) => leave(&message, writer, ours, starter),
                    Ok(message) => drop(ours.send(&message)), // this machine has ended
                    Err(error) => break error.to_string(),
                },
                Some(Down::GivenUp(reason)) => give_up(&reason, starter),
                Some(_) => {}
                None => break "sent an invalid message".to_owned(),
            },
            Ok(None) | Err(comm::Error::Closed { .. }) => {
                break "has gone before the program had finished: killed, crashed, or its host is off".to_owned();
            }
            Err(comm::Error::TimedOut { .. }) => {
                // Where the program outlives machines this one may be lost, and machine 0 well.
                hub.into_iter().filter(|_| !record::may_come()).for_each(Process::kill);
                break format!("cannot be reached: nothing was heard of it for {SILENCE:?}");
            }
            Err(error) => break format!("cannot be reached: {error}"),
        }
    };
    if record::may_come() {
        complain(format_args!("machine 0 {why}; this machine was ended"));
    } else {
        complain(format_args!("machine 0 {why}; the program was ended"));
        starter.abort(FAILURE_STATUS, "gossamer has lost machine 0");
    }
    std::process::exit(FAILURE_STATUS.into());
}

/// Ends this process: machine 0 could not make the shared resources of the start.
fn give_up(reason: &str, starter: &Starter) -> ! {
    let error = RendezvousError::GivenUp(reason.to_owned());
    complain(format_args!("{error}"));
    starter.abort(error.status(), &error.to_string());
    std::process::exit(error.status().into());
}

/// Ends this process with status 0: machine 0 has said that all is over.
fn leave(end: &Message, writer: &Writer, ours: &Control, starter: &Starter) -> ! {
    let _ = send(writer, &Up::Left); // if this fails machine 0 sees the end of the connection
    starter.finalize();
    let _ = ours.send(end); // the receiver exits
    std::thread::sleep(LAST_MESSAGES_TIMEOUT);
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Listens at an address of the loopback network, with another key, for so many connections.
    fn other(address: [u8; 4], connections: usize) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::from(address), 0)).unwrap();
        let (at, key) = (listener.local_addr().unwrap(), Key::generate().unwrap());
        std::thread::spawn(move || {
            for _ in 0..connections {
                let tcp = listener.accept().unwrap().0;
                drop(SecureStream::accept(tcp, &key, PURPOSE, limits::HANG));
            }
        });
        at
    }

    fn refused(address: [u8; 4]) -> SocketAddr {
        TcpListener::bind((Ipv4Addr::from(address), 0)).unwrap().local_addr().unwrap()
    }

    fn fails(all: &[SocketAddr], timeout: Duration) -> RendezvousError {
        let limit = Limit { start: Instant::now(), timeout };
        let connected = connect(&|| Ok(all.to_vec()), "meethere:7399", &Key::generate().unwrap(), &limit);
        connected.err().expect("nobody has this key")
    }

    #[test]
    fn another_key_is_told_whatever_the_other_addresses_of_the_name_do() {
        let short = Duration::from_millis(300);
        let (wrong, closed) = (other([127, 0, 0, 2], usize::MAX), refused([127, 0, 0, 3]));
        for all in [[wrong, closed], [closed, wrong]] {
            let text = fails(&all, short).to_string();
            let expected =
                format!("machine 0 could not be reached at meethere:7399 within {short:?}: {wrong} has another key");
            assert!(text.starts_with(&expected), "{text}");
        }
        // It has gone since, as machine 0 that has given up.
        let gone = other([127, 0, 0, 2], 1);
        let text = fails(&[gone, closed], short).to_string();
        assert!(text.contains(&format!("{gone} has another key")) && text.contains("(the last attempt: "), "{text}");
        // Nobody is there at all.
        let text = fails(&[closed, refused([127, 0, 0, 4])], short).to_string();
        assert!(text.contains("refused") && !text.contains("key"), "{text}");
    }

    #[test]
    fn another_key_at_all_addresses_of_a_name_is_final() {
        let all = [other([127, 0, 0, 2], usize::MAX), other([127, 0, 0, 3], usize::MAX)];
        for all in [&all[..1], &all[..]] {
            let error = fails(all, 10 * limits::HANG);
            assert!(
                matches!(error, RendezvousError::NotOurs(_)) && error.to_string().contains("has another key"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_failure_that_tells_more_is_kept() {
        let system = |kind: i32| comm::Error::System {
            doing: "connecting".into(),
            source: std::io::Error::from_raw_os_error(kind),
        };
        let peer = || "somebody".to_owned();
        let rising = [
            system(libc::ECONNREFUSED),
            comm::Error::Closed { peer: peer(), doing: "before it had said who it is" },
            comm::Error::Unwanted { peer: peer() },
            comm::Error::WrongKey { peer: peer() },
            system(libc::EMFILE),
        ];
        let texts: Vec<String> = rising.iter().map(ToString::to_string).collect();
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
            let mut failures = Failures::default();
            order.iter().for_each(|at: &usize| failures.add(rank(&rising[*at]), texts[*at].clone()));
            let text = failures.text();
            assert!(text.starts_with(&texts[4]) && text.contains("`ulimit -n`"), "{text}");
        }
    }
}
