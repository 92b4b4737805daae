//! Address of a host in a plan: an IP address, and for a link-local one (`fe80::1%eth0`) the name of its interface.
//!
//! Interfaces travel by name: their numbers differ between hosts. Each host looks the name up for itself, as it does
//! with a name in `rack.yaml`.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::unix::net::UnixDatagram;
use std::str::FromStr;

use rustix::net::netdevice::{index_to_name, name_to_index};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Address of a host.
///
/// ```
/// use gossamer::bootstrap::HostAddress;
/// let address: HostAddress = "fe80::1%lo".parse().unwrap();
/// assert_eq!(address.to_string(), "fe80::1%lo");
/// assert_eq!(address.socket(7117).unwrap().to_string(), "[fe80::1%1]:7117"); // `lo` has the number 1
/// assert!("192.0.2.1.7".parse::<HostAddress>().unwrap_err().contains("no IP address"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    ip: IpAddr,
    interface: Option<String>,
}

impl HostAddress {
    /// Makes an address; only link-local addresses keep the interface.
    ///
    /// ```
    /// use gossamer::bootstrap::HostAddress;
    /// let eth0 = || Some("eth0".to_owned());
    /// assert_eq!(HostAddress::new("fe80::1".parse().unwrap(), eth0()).to_string(), "fe80::1%eth0");
    /// assert_eq!(HostAddress::new("::1".parse().unwrap(), eth0()).to_string(), "::1");
    /// ```
    #[must_use]
    pub fn new(ip: IpAddr, interface: Option<String>) -> HostAddress {
        let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        HostAddress { ip, interface: interface.filter(|_| is_link_local) }
    }

    /// Returns the IP address.
    ///
    /// ```
    /// use gossamer::bootstrap::HostAddress;
    /// assert_eq!("fe80::1%eth0".parse::<HostAddress>().unwrap().ip().to_string(), "fe80::1");
    /// ```
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the name of the interface, or its number in digits.
    ///
    /// ```
    /// use gossamer::bootstrap::HostAddress;
    /// assert_eq!("fe80::1%eth0".parse::<HostAddress>().unwrap().interface(), Some("eth0"));
    /// assert_eq!("192.0.2.1".parse::<HostAddress>().unwrap().interface(), None);
    /// ```
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Returns the address with a port, as this host uses it to listen or to connect. Example: at the [type](Self).
    ///
    /// # Errors
    /// When this host has no interface of that name.
    pub fn socket(&self, port: u16) -> io::Result<SocketAddr> {
        let (IpAddr::V6(ip), Some(name)) = (self.ip, &self.interface) else {
            return Ok(SocketAddr::new(self.ip, port));
        };
        let index = match name.parse() {
            Ok(number) => number,
            Err(_) => name_to_index(UnixDatagram::unbound()?, name)
                .map_err(|error| io::Error::other(format!("interface {name} of this host: {error}")))?,
        };
        Ok(SocketAddrV6::new(ip, port, 0, index).into())
    }
}

impl From<IpAddr> for HostAddress {
    fn from(ip: IpAddr) -> HostAddress {
        HostAddress::new(ip, None)
    }
}

/// The address without its port; an IPv4 address that was written as one of IPv6 is one of IPv4.
impl From<SocketAddr> for HostAddress {
    fn from(address: SocketAddr) -> HostAddress {
        let interface = match address {
            SocketAddr::V6(address) if address.scope_id() != 0 => {
                let name = UnixDatagram::unbound().and_then(|any| Ok(index_to_name(any, address.scope_id())?));
                Some(name.unwrap_or_else(|_| address.scope_id().to_string()))
            }
            _ => None,
        };
        HostAddress::new(address.ip().to_canonical(), interface)
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{}%{interface}", self.ip),
            None => self.ip.fmt(f),
        }
    }
}

impl FromStr for HostAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<HostAddress, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let (ip, interface) = match bare.split_once('%') {
            Some((ip, interface)) if !interface.is_empty() => (ip, Some(interface.to_owned())),
            _ => (bare, None),
        };
        let ip = ip.parse().map_err(|_| format!("{text:?} is no IP address"))?;
        Ok(HostAddress::new(ip, interface))
    }
}

impl Serialize for HostAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_interface_by_name() {
        for (written, text, socket) in [
            ("127.0.0.9", "127.0.0.9", "127.0.0.9:5"),
            ("::1", "::1", "[::1]:5"),
            ("[::1]", "::1", "[::1]:5"),
            ("::1%lo", "::1", "[::1]:5"),
            ("fe80::1%lo", "fe80::1%lo", "[fe80::1%1]:5"),
            ("[fe80::1%1]", "fe80::1%1", "[fe80::1%1]:5"),
            ("fe80::1", "fe80::1", "[fe80::1]:5"),
        ] {
            let address: HostAddress = written.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.socket(5).unwrap().to_string().as_str()), (text, socket));
            let json = serde_json::to_string(&address).unwrap();
            assert_eq!(serde_json::from_str::<HostAddress>(&json).unwrap(), address);
        }
        for written in ["", "%lo", "fe80::1%", "host", "[::1", "[::1]:5", "1.2.3"] {
            assert!(written.parse::<HostAddress>().is_err(), "{written}");
        }
        let missing = "fe80::1%nowhere0".parse::<HostAddress>().unwrap().socket(5).unwrap_err();
        assert!(missing.to_string().contains("interface nowhere0 of this host"), "{missing}");
    }

    #[test]
    fn the_address_of_a_socket_has_its_interface() {
        for (socket, text) in [
            ("[fe80::7%1]:9", "fe80::7%lo"),
            ("[fe80::7%4000000]:9", "fe80::7%4000000"),
            ("[::ffff:192.0.2.1]:9", "192.0.2.1"),
            ("[2001:db8::1]:9", "2001:db8::1"),
        ] {
            let socket: SocketAddr = socket.parse().unwrap();
            assert_eq!(HostAddress::from(socket).to_string(), text);
        }
    }
}
