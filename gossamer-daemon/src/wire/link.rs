//! A connection between hosts from its first byte to the end of the greetings: connect, agree on the key, greet. Also
//! its end with an only answer. The requests are not here.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use comm::deadline::deadline_after;
use comm::descriptors;
use comm::secure::{Keys, SecureReader, SecureStream, SecureWriter};

use super::message::{Hello, MAX_MESSAGE_BYTES, Reply};
use super::stream::{Receiver, Sender, WireError};
use crate::config::{Host, RackConfig};

/// Purpose of the connections of daemons; part of the proof between both sides.
const PURPOSE: &str = "gossamer-daemon";

/// Pauses before a connection that was evicted is tried again.
const EVICTED_PAUSES_MS: [u64; 6] = [10, 30, 100, 200, 400, 400];
/// Least time for one of several addresses, however little time the others have left.
const LEAST_TIME: Duration = Duration::from_millis(100);

/// A connection on which both sides have greeted.
pub struct Link {
    /// The receiving end.
    pub receiver: SecureReader,
    /// The sending end.
    pub sender: SecureWriter,
    /// Greeting of the other side.
    pub theirs: Hello,
    /// Least difference between the other side's clock and this one's: its greeting travelled for an unknown time.
    pub clocks_apart: Duration,
    /// Its address.
    pub peer: SocketAddr,
    /// Whether the connection was made with the old key, though this side has the new one: the other side lacks that.
    pub has_old_key: bool,
}

/// Reason why a host's daemon cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Its address does not resolve.
    #[error("its address {address:?} is unknown: {source}{}; see `address` in {rack}", descriptors::cure(source))]
    Address {
        /// The address in `rack.yaml`.
        address: String,
        /// The cause.
        source: io::Error,
        /// The file.
        rack: String,
    },
    /// Only this host itself can be reached at its address.
    #[error("{0}")]
    CutOff(String),
    /// Nothing answers there.
    #[error("{address} cannot be reached: {source}{} (the address is that of {rack})", cure(source))]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
        /// The `rack.yaml` with that address, which may not be the intended one.
        rack: String,
    },
    /// The host answers, but the conversation fails.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Another host answers there.
    #[error(
        "the daemon at {address} is that of host {theirs} of rack {rack}: see the addresses in rack.yaml, here and \
         there"
    )]
    Name {
        /// The address.
        address: SocketAddr,
        /// Its own name.
        theirs: String,
        /// Its rack.
        rack: String,
    },
}

fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "; is gossamer-daemon running there, on that port?",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "; is the host up, and no firewall in between? A slow network needs a longer timeouts.connect_ms"
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "; is the address right, and the link up?"
        }
        _ => descriptors::cure(error),
    }
}

/// Returns the greeting of this side. `host`: the own name of a daemon; for a launcher, the name of the host it wants.
#[must_use]
pub fn greeting(rack: &RackConfig, host: &str, cores: u16) -> Hello {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Hello {
        release: format!("{} {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")),
        rack: rack.name.clone(),
        host: host.to_owned(),
        fingerprint: rack.fingerprint(),
        cores,
        is_drained: false,
        clock_ms: u64::try_from(clock.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Returns whether the other side has closed the connection before the handshake was over: a daemon evicts connections
/// where too many unauthenticated ones come from one address (`daemon/admission.rs`); a holder of the key tries again.
fn was_evicted(error: &WireError) -> bool {
    matches!(error, WireError::Closed | WireError::Secure(comm::Error::Closed { .. }))
}

/// Connects to a host's daemon; again, where the connection was evicted before it could show the key, and with the old
/// key where the host does not have the new one.
///
/// # Errors
/// [`LinkError`], after `timeouts.connect_ms` of the rack at the latest for each of its steps.
pub fn connect(rack: &RackConfig, host: &Host, keys: &Keys) -> Result<Link, LinkError> {
    let timeout = rack.timeouts.connect();
    let addresses = rack.addresses_of(host).map_err(|source| LinkError::Address {
        address: host.address.clone(),
        source,
        rack: file_of(rack),
    })?;
    if let Some(trouble) = addresses.first().and_then(|first| rack.why_cut_off_at(host, *first)) {
        return Err(LinkError::CutOff(trouble));
    }
    let deadline = deadline_after(timeout);
    let mut failed: Option<LinkError> = None;
    for (number, address) in addresses.iter().enumerate() {
        // Each address has its share of the time that is left, so one that does not answer leaves some to those after
        // it.
        let left = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - number) as u32;
        match connect_at(rack, host, keys, *address, left.max(LEAST_TIME)) {
            Ok(link) => return Ok(link),
            Err(error) if failed.as_ref().is_none_or(|before| before.rank() <= error.rank()) => failed = Some(error),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or_else(|| LinkError::Address {
        address: host.address.clone(),
        source: io::Error::other("it has no address"),
        rack: file_of(rack),
    }))
}

/// Returns the path of the rack's file for messages.
fn file_of(rack: &RackConfig) -> String {
    std::path::absolute(&rack.path).unwrap_or_else(|_| rack.path.clone()).display().to_string()
}

/// Connects to a host's daemon at one of its addresses, again where strangers took the connection's place; `left` is
/// for the TCP connection alone.
fn connect_at(
    rack: &RackConfig,
    host: &Host,
    keys: &Keys,
    address: SocketAddr,
    left: Duration,
) -> Result<Link, LinkError> {
    let timeout = rack.timeouts.connect();
    let own = greeting(rack, &host.name, 0);
    let mut pauses = EVICTED_PAUSES_MS.into_iter().map(Duration::from_millis);
    let (mut key, mut old) = (keys.current(), keys.old());
    let link = loop {
        let began = Instant::now();
        let tcp = TcpStream::connect_timeout(&address, left);
        let tcp = tcp.map_err(|source| LinkError::Connect { address, source, rack: file_of(rack) })?;
        let linked = SecureStream::connect(tcp, key, PURPOSE, timeout).map_err(WireError::from);
        match linked.and_then(|stream| greet(stream, &own, address, timeout, began)) {
            Ok(link) => break Link { has_old_key: keys.old() == Some(key), ..link },
            Err(WireError::Secure(comm::Error::WrongKey { .. })) if let Some(other) = old.take() => key = other,
            Err(error) => match pauses.next().filter(|_| was_evicted(&error)) {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(error.into()),
            },
        }
    };
    if link.theirs.host != host.name {
        let Hello { host: theirs, rack, .. } = link.theirs;
        return Err(LinkError::Name { address, theirs, rack });
    }
    Ok(link)
}

impl LinkError {
    /// Returns the rank of the error among those of several addresses: the connection that came furthest tells most.
    fn rank(&self) -> u8 {
        match self {
            // Not of the host at all.
            LinkError::Connect { source, .. } if !descriptors::cure(source).is_empty() => 4,
            LinkError::Wire(WireError::Secure(comm::Error::WrongKey { .. } | comm::Error::OtherPurpose { .. })) => 3,
            LinkError::Name { .. } => 3,
            LinkError::Wire(error) if was_evicted(error) => 1,
            LinkError::Wire(WireError::Secure(comm::Error::NotGossamer { .. } | comm::Error::TimedOut { .. })) => 1,
            LinkError::Wire(_) => 2,
            LinkError::Address { .. } | LinkError::CutOff(_) | LinkError::Connect { .. } => 0,
        }
    }
}

/// Greets an incoming connection; `own` is called once the peer has shown the key.
///
/// # Errors
/// [`WireError`]: the peer has no key, or is no gossamer program.
pub fn accept(tcp: TcpStream, keys: &Keys, own: impl FnOnce() -> Hello, timeout: Duration) -> Result<Link, WireError> {
    let (peer, began) = (tcp.peer_addr()?, Instant::now());
    let (stream, has_old_key) = SecureStream::accept_any(tcp, keys, PURPOSE, timeout)?;
    Ok(Link { has_old_key, ..greet(stream, &own(), peer, timeout, began)? })
}

/// Greets: both sides send before they receive, so each learns the other's version, also a different one. The
/// connection `began` at that time.
fn greet(
    mut stream: SecureStream,
    own: &Hello,
    peer: SocketAddr,
    timeout: Duration,
    began: Instant,
) -> Result<Link, WireError> {
    stream.set_timeout(Some(timeout))?;
    stream.send(&own.pack())?;
    let bytes = stream.receive(MAX_MESSAGE_BYTES)?.ok_or(WireError::Closed)?;
    let theirs = Hello::unpack(&bytes)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let clocks_apart = apart(now.saturating_sub(began.elapsed()), now, Duration::from_millis(theirs.clock_ms));
    let (receiver, sender) = stream.split();
    Ok(Link { receiver, sender, theirs, clocks_apart, peer, has_old_key: false })
}

/// Returns how far another clock's time is from these two of this one, between which it was read; zero within them.
fn apart(from: Duration, to: Duration, theirs: Duration) -> Duration {
    from.saturating_sub(theirs).max(theirs.saturating_sub(to))
}

impl Link {
    /// Sets a limit for each receive and each send.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), WireError> {
        self.receiver.set_timeout(Some(timeout))?;
        Ok(self.sender.set_timeout(Some(timeout))?)
    }

    /// Sends the only answer, and waits until it has arrived: an early close could destroy it.
    ///
    /// # Errors
    /// When the answer cannot be sent.
    pub fn answer(mut self, reply: &Reply) -> Result<(), WireError> {
        self.sender.send_message(reply)?;
        match self.receiver.receive_bytes() {
            Ok(_) | Err(_) => Ok(()), // the other side's close
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_network_is_not_a_wrong_clock() {
        let seconds = Duration::from_secs_f64;
        // It takes each message 12.5 s: the greeting is written when the first has come, or any time later.
        let (began, now) = (seconds(1000.0), seconds(1050.0));
        for written in [1012.5, 1025.0, 1037.5, 1000.0, 1050.0] {
            assert_eq!(apart(began, now, seconds(written)), Duration::ZERO, "{written}");
        }
        // Clocks that differ for sure.
        assert_eq!(apart(began, now, seconds(970.0)), seconds(30.0));
        assert_eq!(apart(began, now, seconds(1080.0)), seconds(30.0));
        assert_eq!(apart(seconds(1000.0), seconds(1000.1), seconds(0.0)), seconds(1000.0));
    }

    #[test]
    fn of_several_addresses_the_connection_that_came_furthest_is_told() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7117));
        let connect = |number: i32| LinkError::Connect {
            address,
            source: io::Error::from_raw_os_error(number),
            rack: "rack.yaml".into(),
        };
        let peer = || "somebody".to_owned();
        let secure = |error| LinkError::Wire(WireError::Secure(error));
        let rising = [
            vec![connect(libc::ECONNREFUSED), connect(libc::ETIMEDOUT), connect(libc::EHOSTUNREACH)],
            vec![
                secure(comm::Error::NotGossamer { peer: peer() }),
                secure(comm::Error::Closed { peer: peer(), doing: "while it was waited for" }),
                LinkError::Wire(WireError::Closed),
            ],
            vec![secure(comm::Error::Unwanted { peer: peer() })],
            vec![
                secure(comm::Error::WrongKey { peer: peer() }),
                LinkError::Name { address, theirs: "b".into(), rack: "r".into() },
            ],
            vec![connect(libc::EMFILE), connect(libc::ENFILE)],
        ];
        for (rank, errors) in (0..).zip(&rising) {
            errors.iter().for_each(|error| assert_eq!(error.rank(), rank, "{error}"));
        }
        let text = connect(libc::EMFILE).to_string();
        assert!(text.contains("`ulimit -n`"), "{text}");
    }
}
