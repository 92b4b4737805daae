//! Host of this process: which other machines run on it, and its address.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

use super::RendezvousError;
use crate::bootstrap::HostAddress;

/// This machine's address for the others, or the network that has it.
const ADDRESS: &str = "GOSSAMER_ADDRESS";

/// Identity of a host. Machines with the same identity can share memory and see one another's processes. Two containers
/// of a host differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostIdentity {
    /// Id of this boot of the kernel.
    pub(super) boot: String,
    pub(super) pid_namespace: u64,
    pub(super) net_namespace: u64,
    pub(super) user: u32,
    /// The host's own name.
    pub(super) name: String,
}

impl HostIdentity {
    pub(super) fn of_this_process() -> HostIdentity {
        let namespace = |kind: &str| std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |found| found.ino());
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        HostIdentity {
            boot: boot.trim().to_owned(),
            pid_namespace: namespace("pid"),
            net_namespace: namespace("net"),
            user: rustix::process::getuid().as_raw(),
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        }
    }

    /// Returns whether both see the same loopback network.
    pub(super) fn has_network_of(&self, other: &HostIdentity) -> bool {
        (&self.boot, self.net_namespace) == (&other.boot, other.net_namespace)
    }

    /// Returns whether a process id means the same to both. False if the kernel does not tell.
    pub(super) fn is_same(&self, other: &HostIdentity) -> bool {
        self == other && !self.boot.is_empty() && self.pid_namespace != 0 && self.net_namespace != 0
    }
}

/// Returns the cores in the affinity of this process.
pub(super) fn cores() -> Vec<u16> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).filter_map(|core| core.try_into().ok()).collect()
}

/// Returns this machine's address for the others, if the user has set it.
pub(super) fn wanted_address() -> Result<Option<HostAddress>, RendezvousError> {
    let Ok(value) = std::env::var(ADDRESS) else { return Ok(None) };
    if value.is_empty() {
        return Ok(None);
    }
    if let Ok(address) = value.parse() {
        return Ok(Some(address));
    }
    let expected = "an address of this host, or a network of one, such as 10.1.0.0/16";
    let wrong = |value| RendezvousError::Variable { name: ADDRESS, value, expected };
    let Some(network) = Network::parse(&value) else { return Err(wrong(value)) };
    let found = addresses().into_iter().find(|address| network.contains(*address));
    found.map(|address| Some(address.into())).ok_or_else(|| wrong(value))
}

/// Network, such as `10.1.0.0/16`.
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse().ok()?);
        (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(Network { address, bits })
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - self.bits;
                network.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - self.bits;
                network.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

/// Returns the addresses of this host that others may know, those of the loopback network last.
pub(super) fn addresses() -> Vec<IpAddr> {
    // An address of an interface that is down is listed too, and reaches nobody.
    let found = if_addrs::get_if_addrs().unwrap_or_default().into_iter().filter(if_addrs::Interface::is_oper_up);
    // Link-local addresses are of no use without an interface.
    let is_usable = |address: &IpAddr| !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let mut all: Vec<IpAddr> = found.map(|interface| interface.ip()).filter(is_usable).collect();
    all.sort_by_key(|address| (address.is_loopback(), *address));
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_loopback_network_come_last() {
        let found = addresses();
        let first = found.iter().position(IpAddr::is_loopback).expect("this host has a loopback network");
        assert!(found[first..].iter().all(IpAddr::is_loopback), "{found:?}");
    }

    #[test]
    fn networks_contain_what_begins_as_they_do() {
        let network = Network::parse("10.1.0.0/16").unwrap();
        assert!(network.contains("10.1.200.3".parse().unwrap()) && !network.contains("10.2.0.1".parse().unwrap()));
        assert!(Network::parse("0.0.0.0/0").unwrap().contains("192.0.2.1".parse().unwrap()));
        assert!(Network::parse("fd00::/8").unwrap().contains("fd12::1".parse().unwrap()));
        assert!(!Network::parse("fd00::/8").unwrap().contains("10.0.0.1".parse().unwrap()));
        assert!(["10.1.0.0", "10.1.0.0/33", "x/8", "10.1.0.0/"].iter().all(|text| Network::parse(text).is_none()));
    }

    #[test]
    fn a_host_is_itself_and_nothing_that_hides_its_names() {
        let own = HostIdentity::of_this_process();
        assert!(own.is_same(&own.clone()) && own.has_network_of(&own));
        let container = HostIdentity { pid_namespace: own.pid_namespace + 1, ..own.clone() };
        assert!(!own.is_same(&container) && own.has_network_of(&container));
        let hidden = HostIdentity { pid_namespace: 0, ..own };
        assert!(!hidden.is_same(&hidden.clone()));
    }
}
