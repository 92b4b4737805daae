//! Survey of this host's RDMA devices: the problems of unusable ones, and the choice of one for a fabric.
//!
//! Here: devices, ports and GIDs as `survey` reports them, and the choice. Not here: calls of libibverbs
//! (`raw`); the table of GIDs is read from sysfs, which also has their types.

use super::raw::{self, Device, DeviceLimits, PortState};
use super::settings::{Settings, mtu_bytes, mtu_number};
use crate::error::Error;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folder in which the kernel shows RDMA devices.
const SYSFS: &str = "/sys/class/infiniband";
const UNKNOWN: &str = "unknown";

/// Transport of a GID. The order is that of preference, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GidKind {
    /// RoCE v1: Ethernet only, not routable.
    RoceV1,
    /// RoCE v2: UDP over IP.
    RoceV2,
    /// InfiniBand.
    InfiniBand,
}

/// An address of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gid {
    /// Its index in the table.
    pub index: u8,
    /// The address.
    pub address: Ipv6Addr,
    /// Its transport.
    pub kind: GidKind,
}

/// A port of a device, and whether a fabric can use it.
#[derive(Debug, Clone)]
pub struct PortReport {
    /// Name of the device.
    pub device: String,
    /// Number of the port, from 1.
    pub port: u8,
    /// "active", "down" and so on.
    pub state: &'static str,
    /// Whether it is RoCE; otherwise it is InfiniBand.
    pub is_ethernet: bool,
    /// Bytes of a packet.
    pub mtu_bytes: u32,
    /// Its addresses, without the empty ones.
    pub gids: Vec<Gid>,
    /// Reason why it cannot be used, and the cure.
    pub problem: Option<String>,
}

impl fmt::Display for PortReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_ethernet { "RoCE" } else { "InfiniBand" };
        write!(f, "{} port {}: {kind}, {}, MTU {}", self.device, self.port, self.state, self.mtu_bytes)?;
        for gid in &self.gids {
            write!(f, ", GID {} = {} ({:?})", gid.index, shown(gid.address), gid.kind)?;
        }
        match &self.problem {
            Some(problem) => write!(f, "; not usable: {problem}"),
            None => Ok(()),
        }
    }
}

/// Returns an address as its owner would write it.
fn shown(address: Ipv6Addr) -> String {
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |address| address.to_string())
}

/// Returns the ports of all devices of this host.
///
/// # Errors
/// [`Error::Verbs`]: libibverbs is not installed, or cannot list them. No device at all is no error.
pub fn survey() -> Result<Vec<PortReport>, Error> {
    let mut reports = Vec::new();
    for name in raw::devices()? {
        match Device::open(&name).and_then(|device| Ok((device.limits()?, device))) {
            Ok((limits, device)) => {
                for port in 1..=limits.ports {
                    reports.push(match device.port(port) {
                        Ok(state) => report(&name, port, &state, gids(Path::new(SYSFS), &name, port, state.gids)),
                        Err(error) => unusable(&name, port, &error),
                    });
                }
            }
            Err(error) => reports.push(unusable(&name, 0, &error)),
        }
    }
    Ok(reports)
}

fn unusable(device: &str, port: u8, error: &Error) -> PortReport {
    let (device, problem) = (device.to_owned(), Some(error.to_string()));
    PortReport { device, port, state: UNKNOWN, is_ethernet: true, mtu_bytes: 0, gids: Vec::new(), problem }
}

/// Returns the name of an `enum ibv_port_state`.
fn state_name(state: u32) -> &'static str {
    match state {
        raw::PORT_DOWN => "down",
        raw::PORT_INIT => "initialising",
        raw::PORT_ARMED => "armed",
        raw::PORT_ACTIVE => "active",
        raw::PORT_ACTIVE_DEFER => "active, deferred",
        _ => UNKNOWN,
    }
}

fn report(device: &str, port: u8, state: &PortState, gids: Vec<Gid>) -> PortReport {
    let name = state_name(state.state);
    let problem = if state.state != raw::PORT_ACTIVE {
        Some(format!("the port is {name}: is its network interface up (`ip link`), its cable in?"))
    } else if state.is_ethernet && best(&gids).is_none() {
        Some("it has no GID: give its network interface an address".to_owned())
    } else if !state.is_ethernet && state.lid == 0 && gids.is_empty() {
        Some("it has neither LID nor GID: is a subnet manager running?".to_owned())
    } else {
        None
    };
    let (device, mtu_bytes, is_ethernet) = (device.to_owned(), mtu_bytes(state.mtu), state.is_ethernet);
    PortReport { device, port, state: name, is_ethernet, mtu_bytes, gids, problem }
}

/// Returns the table of GIDs of a port, from sysfs, without the empty entries.
fn gids(sysfs: &Path, device: &str, port: u8, count: u32) -> Vec<Gid> {
    let folder: PathBuf = sysfs.join(device).join("ports").join(port.to_string());
    let read = |name: String| std::fs::read_to_string(folder.join(name)).ok();
    let entry = |index: u8| {
        let address: Ipv6Addr = read(format!("gids/{index}"))?.trim().parse().ok()?;
        let kind = match read(format!("gid_attrs/types/{index}"))?.trim() {
            "RoCE v2" => GidKind::RoceV2,
            "IB/RoCE v1" if is_infiniband(&folder) => GidKind::InfiniBand,
            _ => GidKind::RoceV1,
        };
        (!address.is_unspecified()).then_some(Gid { index, address, kind })
    };
    (0..=u8::MAX).take(count as usize).filter_map(entry).collect()
}

fn is_infiniband(port: &Path) -> bool {
    std::fs::read_to_string(port.join("link_layer")).is_ok_and(|layer| layer.trim() == "InfiniBand")
}

/// Returns the best GID: routable before not, IPv4 before IPv6, global before link-local.
fn best(gids: &[Gid]) -> Option<Gid> {
    let rank = |gid: &Gid| {
        let is_link_local = gid.address.segments()[0] == 0xfe80;
        (gid.kind, gid.address.to_ipv4_mapped().is_some(), !is_link_local, std::cmp::Reverse(gid.index))
    };
    gids.iter().copied().max_by_key(rank)
}

/// The device, port and address that a fabric uses.
pub(super) struct Choice {
    pub(super) device: Arc<Device>,
    pub(super) limits: DeviceLimits,
    pub(super) port: u8,
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) is_ethernet: bool,
    /// Number of `enum ibv_mtu`.
    pub(super) mtu: u32,
    /// Longest message.
    pub(super) message_bytes: usize,
}

/// Chooses by the settings, and where they leave it open, by usability.
pub(super) fn choose(settings: &Settings) -> Result<Choice, Error> {
    let reports = survey()?;
    let (chosen, gid) = pick(settings, &reports)?;
    let device = Device::open(&chosen.device)?;
    let limits = device.limits()?;
    let state = device.port(chosen.port)?;
    let mtu = settings.mtu.map_or(Ok(state.mtu), mtu_number)?;
    let (lid, is_ethernet) = (state.lid, state.is_ethernet);
    let (port, message_bytes) = (chosen.port, state.message_bytes as usize);
    Ok(Choice { device, limits, port, gid, lid, is_ethernet, mtu, message_bytes })
}

/// Chooses the port and address on a host with these ports.
fn pick<'a>(settings: &Settings, reports: &'a [PortReport]) -> Result<(&'a PortReport, Gid), Error> {
    settings.check()?;
    let wanted = |report: &&PortReport| {
        settings.device.as_ref().is_none_or(|device| *device == report.device)
            && settings.port.is_none_or(|port| port == report.port)
    };
    let candidates: Vec<&PortReport> = reports.iter().filter(wanted).collect();
    let Some(chosen) = candidates.iter().find(|report| report.problem.is_none()) else {
        return Err(Error::verbs(none_fit(settings, reports, &candidates)));
    };
    let (device, port) = (&chosen.device, chosen.port);
    let gid = match settings.gid_index {
        Some(index) => chosen.gids.iter().copied().find(|gid| gid.index == index).ok_or_else(|| {
            let known: Vec<String> =
                chosen.gids.iter().map(|gid| format!("{} = {}", gid.index, shown(gid.address))).collect();
            Error::verbs(format!("gid_index is {index}, but {device} port {port} has {}", known.join(", ")))
        })?,
        None => {
            best(&chosen.gids).unwrap_or(Gid { index: 0, address: Ipv6Addr::UNSPECIFIED, kind: GidKind::InfiniBand })
        }
    };
    let limit = chosen.mtu_bytes;
    if let Some(bytes) = settings.mtu.filter(|bytes| u32::from(*bytes) > limit) {
        return Err(Error::verbs(format!(
            "mtu is {bytes}, but {device} port {port} carries {limit} bytes: raise the MTU of its network interface, \
             or leave mtu out"
        )));
    }
    Ok((chosen, gid))
}

/// Returns the kind of network that a fabric with these settings would use, in words that are equal on
/// machines that can reach each other: "InfiniBand", "RoCE v1", "RoCE v2".
///
/// # Errors
/// [`Error::Verbs`]: there is none, and why.
pub fn network(settings: &Settings) -> Result<String, Error> {
    settings.check()?;
    let name = match choose(settings)?.gid.kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
    };
    Ok(name.to_owned())
}

/// Returns the reason why no port is usable.
fn none_fit(settings: &Settings, reports: &[PortReport], candidates: &[&PortReport]) -> String {
    let listed = |reports: &mut dyn Iterator<Item = &PortReport>| {
        reports.map(PortReport::to_string).collect::<Vec<_>>().join("; ")
    };
    if reports.is_empty() {
        return "this host has no RDMA device (for tests on plain Ethernet: `modprobe rdma_rxe; rdma link add rxe0 type \
                rxe netdev eth0`); use fabric tcp or auto"
            .to_owned();
    }
    if candidates.is_empty() {
        let wanted = [settings.device.clone(), settings.port.map(|port| format!("port {port}"))];
        let wanted: Vec<String> = wanted.into_iter().flatten().collect();
        return format!("there is no {} on this host; it has {}", wanted.join(" "), listed(&mut reports.iter()));
    }
    format!("no port can be used: {}", listed(&mut candidates.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u8, address: &str, kind: GidKind) -> Gid {
        Gid { index, address: address.parse().unwrap(), kind }
    }

    #[test]
    fn the_best_gid_is_routable_and_ipv4() {
        let table = [
            gid(0, "fe80::1", GidKind::RoceV1),
            gid(1, "fe80::1", GidKind::RoceV2),
            gid(2, "::ffff:10.0.0.1", GidKind::RoceV1),
            gid(3, "::ffff:10.0.0.1", GidKind::RoceV2),
            gid(4, "2001:db8::1", GidKind::RoceV2),
            gid(5, "::ffff:10.0.0.2", GidKind::RoceV2),
        ];
        assert_eq!(best(&table).unwrap().index, 3);
        assert_eq!(best(&table[..2]).unwrap().index, 1);
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn gids_are_read_from_sysfs_without_the_empty_ones() {
        let root = std::env::temp_dir().join(format!("comm-survey-{}", std::process::id()));
        let port = root.join("dev0/ports/1");
        std::fs::create_dir_all(port.join("gids")).unwrap();
        std::fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        let entries = [
            ("fe80:0000:0000:0000:0000:0000:0000:0001\n", "IB/RoCE v1\n"),
            ("0000:0000:0000:0000:0000:0000:0000:0000\n", "RoCE v2\n"),
            ("0000:0000:0000:0000:0000:ffff:0a4f:0001\n", "RoCE v2\n"),
            ("no address", "RoCE v2\n"),
        ];
        for (index, (address, kind)) in entries.into_iter().enumerate() {
            std::fs::write(port.join(format!("gids/{index}")), address).unwrap();
            std::fs::write(port.join(format!("gid_attrs/types/{index}")), kind).unwrap();
        }
        let found = gids(&root, "dev0", 1, 6);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [gid(0, "fe80::1", GidKind::RoceV1), gid(2, "::ffff:10.79.0.1", GidKind::RoceV2)]);
    }

    #[test]
    fn a_port_that_is_down_says_so_and_what_helps() {
        let state = PortState { state: 1, mtu: 3, lid: 0, is_ethernet: true, message_bytes: 1 << 20, gids: 1 };
        let report = report("mlx5_0", 1, &state, Vec::new());
        assert_eq!(
            report.to_string(),
            "mlx5_0 port 1: RoCE, down, MTU 1024; not usable: the port is down: is its network interface up (`ip \
             link`), its cable in?"
        );
        let settings = Settings { device: Some("mlx5_1".to_owned()), ..Settings::default() };
        let message = none_fit(&settings, std::slice::from_ref(&report), &[]);
        assert!(message.starts_with("there is no mlx5_1 on this host; it has mlx5_0 port 1"), "{message}");
        assert!(none_fit(&settings, &[], &[]).contains("no RDMA device"));
    }

    /// docs/rdma.md has a table of the settings in `rack.yaml`, and of the error for each wrong value.
    #[test]
    fn wrong_settings_say_what_the_documentation_says() {
        let port = |state: &'static str, mtu_bytes, problem: Option<&str>| PortReport {
            device: "mlx5_0".to_owned(),
            port: 1,
            state,
            is_ethernet: true,
            mtu_bytes,
            gids: vec![gid(3, "::ffff:192.0.2.1", GidKind::RoceV2)],
            problem: problem.map(str::to_owned),
        };
        let whole = [port("active", 4096, None)];
        let narrow = [port("active", 1024, None)];
        let down =
            [port("down", 4096, Some("the port is down: is its network interface up (`ip link`), its cable in?"))];
        let plain = Settings::default;
        let cases = [
            (Settings { device: Some("mlx5_9".to_owned()), ..plain() }, &whole[..]),
            (Settings { port: Some(2), ..plain() }, &whole),
            (Settings { port: Some(0), ..plain() }, &whole),
            (Settings { gid_index: Some(200), ..plain() }, &whole),
            (Settings { mtu: Some(4096), ..plain() }, &narrow),
            (plain(), &down),
            (plain(), &[]),
        ];
        let told = include_str!("../../../docs/rdma.md");
        for (settings, ports) in cases {
            let said = pick(&settings, ports).map(drop).unwrap_err().to_string();
            let reason = said.split_once(": ").map_or(&*said, |(_, reason)| reason).replace('`', "");
            assert!(told.contains(&format!("`{reason}`")), "docs/rdma.md does not have `{reason}`");
        }
        assert!(pick(&plain(), &whole).is_ok());
    }

    #[test]
    fn without_a_device_the_reason_is_told() {
        // A host with a usable device has nothing to report here; every other one names its lack.
        if let Err(error) = choose(&Settings::default()) {
            let said = error.to_string();
            assert!(
                said.contains("libibverbs") || said.contains("no RDMA device") || said.contains("no port"),
                "{said}"
            );
        }
    }
}
