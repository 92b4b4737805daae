//! Paths to the other hosts at the ports of programs, for `gossamer-launch check`: a firewall may let through the port
//! of the daemons alone, and a path may lose large packets. `paths/trial.rs` tries one connection.
//!
//! The host that is asked ([`serve`]) connects to each of the others, which opens a port as a machine of a program does
//! ([`open`]). All trials begin within [`LIMIT`], and each takes seconds.

mod trial;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use comm::deadline::deadline_after;
use comm::secure::Key;
use gossamer::bootstrap::PortRange;
use rustix::net::{Shutdown, shutdown};

use super::session::while_beating;
use super::{Daemon, STACK_BYTES};
use crate::config::Host;
use crate::wire::link::{self, Link};
use crate::wire::{Path, Receiver, Reply, Request, Sender, WireError};
use trial::{LIMITS, Lost, Token, is_silent};

/// Time for all paths of one host; a path whose trial has not begun by then is reported.
const LIMIT: Duration = Duration::from_secs(20);
/// Paths that are tried at the same time: far fewer than `limits.connections`, for all hosts try theirs at once.
const AT_ONCE: usize = 16;
/// Time in which a port of the range has to become free: others who try take one, for seconds where packets are lost.
const FREE_LIMIT: Duration = Duration::from_secs(5);
const FREE_PAUSE: Duration = Duration::from_millis(20);

/// Tries the paths to these hosts, and tells of each.
pub(super) fn serve(daemon: &Daemon, mut link: Link, to: &[String]) -> Result<(), WireError> {
    let is_asked = |host: &&Host| host.name != daemon.host.name && to.contains(&host.name);
    // All hosts may be asked at the same time: each begins with the one after itself.
    let own = daemon.rack.hosts.iter().position(|host| host.name == daemon.host.name).unwrap_or(0);
    let (before, after) = daemon.rack.hosts.split_at(own);
    let hosts: Vec<&Host> = after.iter().chain(before).filter(is_asked).collect();
    let found = while_beating(&mut link.sender, |_| Ok(try_all(daemon, &hosts)));
    link.answer(&found.map_or_else(Reply::Refused, Reply::Paths))
}

fn try_all(daemon: &Daemon, hosts: &[&Host]) -> Vec<Path> {
    let (next, found, deadline) = (AtomicUsize::new(0), Mutex::new(Vec::new()), deadline_after(LIMIT));
    let work = || {
        while let Some(host) = hosts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = try_host(daemon, host, deadline);
            found.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(hosts.len()) {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            if thread.spawn_scoped(scope, work).is_err() {
                break; // this thread does it all
            }
        }
        work();
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn try_host(daemon: &Daemon, host: &Host, deadline: Instant) -> Path {
    let mut path = Path { to: host.name.clone(), address: String::new(), trouble: String::new() };
    let ports = daemon.rack.ports_of(host);
    // A firewall may let a part of the range through.
    let ends: &[bool] = if ports.is_some_and(|ports| ports.first() < ports.last()) { &[false, true] } else { &[false] };
    for is_last in ends {
        let tried = if Instant::now() < deadline {
            try_port(daemon, host, *is_last, &mut path.address)
        } else {
            Err(format!("it was not tried within {LIMIT:?}: other paths took that long"))
        };
        if let Err(trouble) = tried {
            path.trouble = format!("from {} to {}: {trouble}", daemon.host.name, host.name);
            break;
        }
    }
    path
}

/// Tries one port of a host; notes the address.
fn try_port(daemon: &Daemon, host: &Host, is_last: bool, tried: &mut String) -> Result<(), String> {
    let mut link = match link::connect(&daemon.rack, host, &daemon.key_file.keys()) {
        Ok(link) => link,
        Err(_) if daemon.neighbours.has_trouble(&host.name) => return Ok(()), // told already
        Err(error) => return Err(error.to_string()),
    };
    link.set_timeout(daemon.rack.timeouts.connect().saturating_add(FREE_LIMIT)).map_err(|error| error.to_string())?;
    let asked = link.sender.send_message(&Request::Probe { is_last });
    match asked.and_then(|()| link.receiver.receive_message()).map_err(|error| error.to_string())? {
        Reply::Probing { port, token } => {
            let mut address = link.peer;
            address.set_port(port);
            *tried = address.to_string();
            let told = |lost| in_words(&daemon.host.name, &host.name, address, daemon.rack.ports_of(host), &lost);
            trial::run(address, &token, &LIMITS).map_err(told)
        }
        Reply::Unknown => Ok(()), // the last port is in use
        Reply::Refused(reason) => Err(reason),
        _ => Err("it answers what was not asked".into()),
    }
}

/// Describes a failed trial, with the cure.
fn in_words(own: &str, other: &str, address: SocketAddr, ports: Option<PortRange>, lost: &Lost) -> String {
    let large = |from: &str, to: &str, error: &io::Error| match is_silent(error) {
        true => format!(
            "small packets pass, large ones from {from} to {to} are lost (MTU; at {address}): the path takes smaller \
             packets than the hosts' interfaces: lower their MTU, or let ICMP through"
        ),
        false => format!("the connection to {address} ended while large packets went from {from} to {to}: {error}"),
    };
    match lost {
        Lost::Connect(error) => {
            let cure = match ports {
                Some(ports) => format!("let {ports}, the `ports` in rack.yaml, through"),
                None => "programs take any free port; choose a range, `ports` in rack.yaml, on all hosts, and let it \
                         through"
                    .to_owned(),
            };
            format!("cannot connect to {address}, a port for programs: {error}; a firewall? {cure}")
        }
        Lost::Small(error) => {
            format!("a connection to {address} is made, but nothing passes: {error}; a firewall, NAT or proxy?")
        }
        Lost::There(error) => large(own, other, error),
        Lost::Back(error) => large(other, own, error),
    }
}

/// Opens a port as a machine of a program does, and answers the one who asked there.
pub(super) fn open(daemon: &Daemon, mut link: Link, is_last: bool) -> Result<(), WireError> {
    let ports = daemon.rack.ports_of(&daemon.host);
    let bind = |port| {
        let mut address = daemon.address;
        address.set_port(port);
        TcpListener::bind(address)
    };
    let is_taken = |error: &io::Error| error.kind() == ErrorKind::AddrInUse;
    let listener = match ports {
        Some(ports) if is_last => bind(ports.last()),
        _ => bind_in_time(|| PortRange::bind(ports, bind, is_taken), is_taken),
    };
    let opened = listener.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
    let (port, listener) = match (opened, ports) {
        (Ok(opened), _) => opened,
        (Err(error), _) if is_last && is_taken(&error) => return link.answer(&Reply::Unknown),
        (Err(error), Some(ports)) if is_taken(&error) => {
            let name = &daemon.host.name;
            let reason = format!("all ports of {ports} are taken on {name}: no other program can start; widen `ports`");
            return link.answer(&Reply::Refused(reason));
        }
        (Err(error), _) => return link.answer(&Reply::Refused(format!("it cannot listen: {error}"))),
    };
    let mut token = Token::default();
    token.copy_from_slice(&Key::generate()?.as_bytes()[..size_of::<Token>()]);
    link.set_timeout(LIMIT)?;
    link.sender.send_message(&Reply::Probing { port, token })?;
    let Link { mut receiver, .. } = link;
    std::thread::scope(|scope| {
        // One who cannot connect closes the link: the port is for others then.
        let watch = || {
            let _ = receiver.receive_bytes(); // its end
            let _ = shutdown(&listener, Shutdown::Both); // it listens no more, which `answer` sees
        };
        let _ = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, watch); // else it waits longer
        trial::answer(&listener, &token, &LIMITS);
    });
    Ok(())
}

/// Binds again while all ports are taken, for a while.
fn bind_in_time(
    bind: impl Fn() -> io::Result<TcpListener>,
    is_taken: impl Fn(&io::Error) -> bool,
) -> io::Result<TcpListener> {
    let deadline = deadline_after(FREE_LIMIT);
    loop {
        match bind() {
            Err(error) if is_taken(&error) && Instant::now() < deadline => std::thread::sleep(FREE_PAUSE),
            bound => return bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firewall_is_told_from_a_path_that_loses_large_packets() {
        let ports = "7200-7299".parse().ok();
        let address = "192.0.2.2:7200".parse().unwrap();
        let silence = || io::Error::from(ErrorKind::TimedOut);
        let told = |ports, lost| in_words("alpha", "beta", address, ports, &lost);
        for (text, words) in [
            (told(ports, Lost::Connect(silence())), "cannot connect to 192.0.2.2:7200, a port for programs: timed out"),
            (told(ports, Lost::Connect(silence())), "a firewall? let 7200-7299, the `ports` in rack.yaml, through"),
            (told(None, Lost::Connect(silence())), "choose a range, `ports` in rack.yaml, on all hosts"),
            (told(ports, Lost::Small(silence())), "but nothing passes"),
            (told(ports, Lost::There(silence())), "small packets pass, large ones from alpha to beta are lost (MTU"),
            (told(ports, Lost::Back(silence())), "small packets pass, large ones from beta to alpha are lost (MTU"),
            (told(ports, Lost::Back(ErrorKind::ConnectionReset.into())), "ended while large packets went from beta"),
        ] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_port_that_is_free_a_moment_later_is_taken() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let first = Mutex::new(Some(first));
        let bind = || {
            let bound = TcpListener::bind(address);
            first.lock().unwrap().take(); // the next attempt succeeds
            bound
        };
        let is_taken = |error: &io::Error| error.kind() == ErrorKind::AddrInUse;
        assert_eq!(bind_in_time(bind, is_taken).unwrap().local_addr().unwrap(), address);
    }
}
