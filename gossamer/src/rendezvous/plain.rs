//! Rendezvous without a process manager: variables for the address of machine 0, the number of machines, this machine's
//! index, and the key's file. Kubernetes' Indexed Jobs set the index by themselves.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::path::PathBuf;

use comm::secure::Key;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use super::RendezvousError;
use super::variables::{Get, number, text};
use crate::bootstrap::{HostAddress, MACHINES_MAX};

const MEET: &str = "GOSSAMER_MEET";
const COUNT: &str = "GOSSAMER_COUNT";
const INDEX: &str = "GOSSAMER_INDEX";
const JOB_INDEX: &str = "JOB_COMPLETION_INDEX";
const KEY_FILE: &str = "GOSSAMER_KEY_FILE";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Values of the variables.
#[derive(Debug)]
pub(super) struct Settings {
    host: String,
    port: u16,
    pub(super) index: u16,
    pub(super) count: u16,
    key_file: PathBuf,
    is_kubernetes: bool,
}

/// Address of machine 0.
#[derive(Debug, Clone)]
pub(super) struct Target {
    host: String,
    port: u16,
}

/// Reads the variables; `None` if the address of machine 0 is not set.
pub(super) fn settings(get: Get<'_>) -> Result<Option<Settings>, RendezvousError> {
    let cure = "set GOSSAMER_MEET=HOST:PORT, GOSSAMER_COUNT, GOSSAMER_INDEX and GOSSAMER_KEY_FILE for each process";
    let Some(place) = text(get, MEET) else {
        let present = [COUNT, INDEX].into_iter().find(|name| text(get, name).is_some());
        return present.map_or(Ok(None), |present| Err(RendezvousError::Missing { missing: MEET, present, cure }));
    };
    let missing = |missing| RendezvousError::Missing { missing, present: MEET, cure };
    let expected = "HOST:PORT";
    let parts =
        place.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port != 0)?)));
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        return Err(RendezvousError::Variable { name: MEET, value: place, expected });
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let expected = "a number from 1 to 1024";
    let count: u16 = number(get, COUNT, expected)?.ok_or(missing(COUNT))?;
    if count == 0 || usize::from(count) > MACHINES_MAX {
        return Err(RendezvousError::Variable { name: COUNT, value: count.to_string(), expected });
    }
    let expected = "a number from 0 to GOSSAMER_COUNT - 1";
    let (name, index) = match number::<u16>(get, INDEX, expected)? {
        Some(index) => (INDEX, index),
        None => (JOB_INDEX, number(get, JOB_INDEX, expected)?.ok_or(missing(INDEX))?),
    };
    if index >= count {
        return Err(RendezvousError::Variable { name, value: index.to_string(), expected });
    }
    let key_file = text(get, KEY_FILE).ok_or(missing(KEY_FILE))?.into();
    let is_kubernetes = text(get, "KUBERNETES_SERVICE_HOST").is_some();
    Ok(Some(Settings { host, port, index, count, key_file, is_kubernetes }))
}

impl Settings {
    pub(super) fn key(&self) -> Result<Key, RendezvousError> {
        Key::read_mounted(&self.key_file).map_err(RendezvousError::Comm)
    }

    pub(super) fn target(&self) -> Target {
        Target { host: self.host.clone(), port: self.port }
    }

    /// Returns the launcher's name.
    pub(super) fn name(&self) -> String {
        match self.is_kubernetes {
            true => "kubernetes".to_owned(),
            false => format!("a rendezvous at {}", self.target()),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Target {
    /// Listens as machine 0: at that address, or, if it is a name, at all of this host, for a service's name may not be
    /// known yet.
    pub(super) fn listen(&self) -> std::io::Result<TcpListener> {
        match self.host.parse::<HostAddress>() {
            Ok(address) if address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                TcpListener::bind(address.socket(self.port)?)
            }
            _ => listen_everywhere(self.port),
        }
    }

    /// Returns the addresses that the name stands for now.
    pub(super) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        comm::descriptors::resolve(&self.host, self.port)
    }
}

/// Listens at all addresses, of both families if there are both.
pub(super) fn listen_everywhere(port: u16) -> std::io::Result<TcpListener> {
    match listen_by_both(port) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        listener => listener,
    }
}

/// Makes one listener for both families, whatever `net.ipv6.bindv6only` says.
fn listen_by_both(port: u16) -> std::io::Result<TcpListener> {
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_ipv6_v6only(&socket, false)?;
    set_socket_reuseaddr(&socket, true)?; // as the standard library does
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(variables: &[(&'static str, &str)]) -> Result<Option<Settings>, RendezvousError> {
        settings(&|name| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_variables_are_read_and_the_index_may_be_the_jobs() {
        let all = [(MEET, "gossamer-0.work:7117"), (COUNT, "3"), (KEY_FILE, "/k"), (JOB_INDEX, "2"), (INDEX, "1")];
        let found = by(&all).unwrap().unwrap();
        assert_eq!((found.host.as_str(), found.port, found.index, found.count), ("gossamer-0.work", 7117, 1, 3));
        assert_eq!(by(&all[..4]).unwrap().unwrap().index, 2);
        let six = by(&[(MEET, "[::1]:5"), (COUNT, "2"), (KEY_FILE, "/k"), (INDEX, "0")]).unwrap().unwrap();
        assert_eq!((six.host.as_str(), six.target().to_string().as_str()), ("::1", "[::1]:5"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let with = |place: &'static str, count: &'static str, index: &'static str| {
            by(&[(MEET, place), (COUNT, count), (INDEX, index), (KEY_FILE, "k")]).unwrap_err().to_string()
        };
        for place in ["host", "host:", ":7", "host:0", "host:70000"] {
            assert!(with(place, "2", "0").contains("GOSSAMER_MEET has the value"), "{place}");
        }
        assert!(with("h:1", "0", "0").contains("GOSSAMER_COUNT has the value \"0\""));
        assert!(with("h:1", "1025", "0").contains("GOSSAMER_COUNT has the value \"1025\""));
        assert!(with("h:1", "2", "2").contains("GOSSAMER_INDEX has the value \"2\""));
        assert!(with("h:1", "2", "-1").contains("GOSSAMER_INDEX has the value \"-1\""));
    }
}
