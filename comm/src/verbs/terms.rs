//! Exchanged data of two machines' endpoints, and the consequences: whether they fit together, and by which path.
//!
//! Here: endpoints in and out. Not here: their bytes (`endpoint`), making and connecting queue pairs
//! (`resources`, `open`).

use super::Party;
use super::endpoint::{Line, Remote, VerbsEndpoint};
use super::link::{Bounds, RemoteEnd};
use super::raw::{self, MemoryRegion, Path, QueuePair};
use super::resources::{Own, PeerQueues};
use super::settings::{Flag, Settings};
use super::survey::{Choice, GidKind};
use crate::error::Error;

/// Returns the endpoint of a machine with these resources.
pub(super) fn endpoint(own: &Own, ways: &[PeerQueues]) -> VerbsEndpoint {
    let Own { party, choice, memory, board, board_memory, .. } = own;
    let remote = |memory: &MemoryRegion| Remote {
        address: memory.region().base().expose_provenance() as u64,
        key: memory.remote_key(),
    };
    let line = |way: &PeerQueues| Line {
        peer: way.peer,
        board_part: board.part(way.peer).unwrap_or(0) as u32,
        queue_pairs: std::iter::once(&way.heartbeat)
            .chain(way.queues.iter().map(|queue| &**queue))
            .map(QueuePair::number)
            .collect(),
    };
    VerbsEndpoint {
        machine: party.machine,
        machines: party.machines,
        lanes: party.workers + 1,
        is_ethernet: choice.is_ethernet,
        is_in_order: ways.iter().all(|way| way.heartbeat.places_in_order()),
        is_routable: choice.gid.kind == GidKind::RoceV2,
        is_shared: party.is_shared,
        mtu: choice.mtu as u8,
        gid: choice.gid.address.octets(),
        lid: choice.lid,
        region: remote(memory),
        region_bytes: memory.region().bytes() as u64,
        board: remote(board_memory),
        reads_served: reads_at_once(choice.limits.reads_served),
        lines: ways.iter().map(line).collect(),
    }
}

/// Returns the peer's entry for this machine, after a check that both fit together.
pub(super) fn matching<'a>(
    endpoint: &'a VerbsEndpoint,
    party: &Party,
    way: &PeerQueues,
    choice: &Choice,
) -> Result<&'a Line, Error> {
    let (own, peer) = (party.machine, way.peer);
    let refuse = |what: String| Err(Error::verbs(format!("{own} and {peer} do not fit together: {what}")));
    if endpoint.machines != party.machines {
        return refuse(format!(
            "one is of a program of {} machines, the other of {}",
            party.machines, endpoint.machines
        ));
    }
    if endpoint.is_shared != party.is_shared {
        return refuse("one has machine ways, the other has not: set GOSSAMER_MACHINE_WAYS alike on both".to_owned());
    }
    if usize::from(endpoint.lanes) != way.lanes {
        return refuse(format!("it has {} workers, not {}", endpoint.lanes.saturating_sub(1), way.lanes - 1));
    }
    if let Some(difference) = difference(endpoint, choice.is_ethernet, choice.gid.kind) {
        return refuse(difference.to_owned());
    }
    let line = endpoint.lines.iter().find(|line| line.peer == own);
    match line.filter(|line| line.queue_pairs.len() == 1 + way.queues.len()) {
        Some(line) => Ok(line),
        None => {
            refuse(format!("its endpoint does not offer the {} queue pairs that {own} expects", 1 + way.queues.len()))
        }
    }
}

/// Returns why a peer with this endpoint is on another kind of network.
fn difference(endpoint: &VerbsEndpoint, is_ethernet: bool, kind: GidKind) -> Option<&'static str> {
    if endpoint.is_ethernet != is_ethernet {
        Some("one is on InfiniBand, the other on Ethernet (RoCE): set device in rack.yaml")
    } else if is_ethernet && endpoint.is_routable != (kind == GidKind::RoceV2) {
        Some("one uses RoCE v1, the other v2: set gid_index in rack.yaml")
    } else {
        None
    }
}

/// Reads of one queue pair that the devices of both sides process at once, where they have room for as many.
const READS_AT_ONCE: u8 = 4;

/// Returns the number of reads at once where there is room for `limit`. Each device serves at least one.
fn reads_at_once(limit: u8) -> u8 {
    limit.clamp(1, READS_AT_ONCE)
}

/// Returns the path to the peer's queue pairs, without their numbers.
pub(super) fn path(endpoint: &VerbsEndpoint, settings: &Settings, choice: &Choice) -> Path {
    Path {
        port: choice.port,
        gid_index: choice.gid.index,
        mtu: choice.mtu.min(u32::from(endpoint.mtu)).clamp(raw::MTU_256, raw::MTU_4096),
        peer_queue_pair: 0,
        peer_gid: endpoint.gid,
        peer_lid: endpoint.lid,
        is_global: choice.is_ethernet || (choice.lid == 0 || endpoint.lid == 0),
        traffic_class: settings.traffic_class,
        service_level: settings.service_level,
        timeout: settings.timeout,
        retries: settings.retries,
        reads_served: reads_at_once(choice.limits.reads_served),
        // More than the other device has room for would break the connection.
        reads_begun: reads_at_once(choice.limits.reads_begun.min(endpoint.reads_served)),
    }
}

/// Returns the data of the other end, from its endpoint.
pub(super) fn remote_end(
    endpoint: &VerbsEndpoint,
    line: &Line,
    way: &PeerQueues,
    settings: &Settings,
) -> Result<RemoteEnd, Error> {
    let region_bytes = usize::try_from(endpoint.region_bytes)
        .map_err(|_| Error::verbs(format!("{} states a region of {} bytes", way.peer, endpoint.region_bytes)))?;
    Ok(RemoteEnd {
        peer: way.peer,
        region: endpoint.region,
        region_bytes,
        board: endpoint.board.at(line.board_part as usize),
        directory: endpoint.board,
        lanes: way.lanes,
        has_second_write: match settings.flag {
            Flag::Auto => !endpoint.is_in_order,
            Flag::SameWrite => false,
            Flag::SecondWrite => true,
        },
    })
}

/// Returns the bounds of a link on this device.
pub(super) fn bounds(settings: &Settings, choice: &Choice) -> Bounds {
    Bounds {
        queue_depth: u64::from(settings.queue_depth),
        signal_every: u64::from(settings.signal_every.min(settings.queue_depth / 4).max(1)),
        message_bytes: choice.message_bytes.max(4096),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MachineId;

    #[test]
    fn reads_at_once_are_as_many_as_both_devices_have_room_for() {
        assert_eq!([0, 1, 2, 4, 16, u8::MAX].map(reads_at_once), [1, 1, 2, 4, 4, 4]);
    }

    #[test]
    fn other_networks_are_told_with_what_to_set() {
        let none = Remote { address: 0, key: 0 };
        let mut endpoint = VerbsEndpoint {
            machine: MachineId(1),
            machines: 2,
            lanes: 2,
            is_ethernet: true,
            is_in_order: false,
            is_routable: true,
            is_shared: false,
            mtu: 3,
            gid: [0; 16],
            lid: 0,
            region: none,
            region_bytes: 0,
            board: none,
            reads_served: 0,
            lines: Vec::new(),
        };
        assert_eq!(difference(&endpoint, true, GidKind::RoceV2), None);
        assert!(
            difference(&endpoint, true, GidKind::RoceV1)
                .unwrap()
                .contains("one uses RoCE v1, the other v2: set gid_index")
        );
        assert!(
            difference(&endpoint, false, GidKind::InfiniBand)
                .unwrap()
                .contains("one is on InfiniBand, the other on Ethernet")
        );
        endpoint.is_ethernet = false;
        assert_eq!(difference(&endpoint, false, GidKind::InfiniBand), None);
        assert!(difference(&endpoint, true, GidKind::RoceV2).is_some());
    }
}
