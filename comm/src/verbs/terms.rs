//! What two machines tell one another by their cards, and what follows: whether they fit together, and by which way.
//!
//! Here: cards in and out. Not here: their bytes (`card`), making and connecting queue pairs (`resources`, `open`).

use super::Party;
use super::card::{Card, Line, Remote};
use super::link::{Bounds, Far};
use super::raw::{MemoryRegion, Path, QueuePair};
use super::resources::{Own, Way};
use super::settings::{Flag, Settings};
use super::survey::{Choice, GidKind};
use crate::error::Error;

/// The card of a machine with these resources.
pub(super) fn card(own: &Own, ways: &[Way]) -> Card {
    let Own { party, choice, memory, board, board_memory, .. } = own;
    let remote = |memory: &MemoryRegion| Remote {
        address: memory.region().base().expose_provenance() as u64,
        key: memory.remote_key(),
    };
    let line = |way: &Way| Line {
        peer: way.peer,
        board_part: board.part(way.peer).unwrap_or(0) as u32,
        queue_pairs: std::iter::once(&way.heartbeat)
            .chain(way.queues.iter().map(|queue| &**queue))
            .map(QueuePair::number)
            .collect(),
    };
    Card {
        machine: party.machine,
        machines: party.machines,
        lanes: party.workers + 1,
        is_ethernet: choice.is_ethernet,
        is_in_order: ways.iter().all(|way| way.heartbeat.places_in_order()),
        is_routable: choice.gid.kind == GidKind::RoceV2,
        mtu: choice.mtu as u8,
        gid: choice.gid.address.octets(),
        lid: choice.lid,
        region: remote(memory),
        region_bytes: memory.region().bytes() as u64,
        board: remote(board_memory),
        lines: ways.iter().map(line).collect(),
    }
}

/// The peer's line about this machine, once it is clear that both fit together.
pub(super) fn matching<'a>(card: &'a Card, party: &Party, way: &Way, choice: &Choice) -> Result<&'a Line, Error> {
    let (own, peer) = (party.machine, way.peer);
    let refuse = |what: String| Err(Error::verbs(format!("{own} and {peer} do not fit together: {what}")));
    if card.machines != party.machines {
        return refuse(format!("one is of a program of {} machines, the other of {}", party.machines, card.machines));
    }
    if usize::from(card.lanes) != way.lanes {
        return refuse(format!("it has {} workers, not {}", card.lanes.saturating_sub(1), way.lanes - 1));
    }
    if let Some(difference) = difference(card, choice.is_ethernet, choice.gid.kind) {
        return refuse(difference.to_owned());
    }
    let line = card.lines.iter().find(|line| line.peer == own);
    match line.filter(|line| line.queue_pairs.len() == 1 + way.queues.len()) {
        Some(line) => Ok(line),
        None => refuse(format!("its card does not offer the {} queue pairs that {own} expects", 1 + way.queues.len())),
    }
}

/// Why a peer with this card is on another kind of network.
fn difference(card: &Card, is_ethernet: bool, kind: GidKind) -> Option<&'static str> {
    if card.is_ethernet != is_ethernet {
        Some("one is on InfiniBand, the other on Ethernet (RoCE): set device in rack.yaml")
    } else if is_ethernet && card.is_routable != (kind == GidKind::RoceV2) {
        Some("one uses RoCE v1, the other v2: set gid_index in rack.yaml")
    } else {
        None
    }
}

/// The way to the peer's queue pairs, but for their numbers.
pub(super) fn path(card: &Card, settings: &Settings, choice: &Choice) -> Path {
    Path {
        port: choice.port,
        gid_index: choice.gid.index,
        mtu: choice.mtu.min(u32::from(card.mtu)).clamp(1, 5),
        peer_queue_pair: 0,
        peer_gid: card.gid,
        peer_lid: card.lid,
        is_global: choice.is_ethernet || (choice.lid == 0 || card.lid == 0),
        traffic_class: settings.traffic_class,
        service_level: settings.service_level,
        timeout: settings.timeout,
        retries: settings.retries,
    }
}

/// What its card says of the other end.
pub(super) fn far(card: &Card, line: &Line, way: &Way, settings: &Settings) -> Result<Far, Error> {
    let region_bytes = usize::try_from(card.region_bytes)
        .map_err(|_| Error::verbs(format!("{} tells a region of {} bytes", way.peer, card.region_bytes)))?;
    Ok(Far {
        peer: way.peer,
        region: card.region,
        region_bytes,
        board: Remote { address: card.board.address.wrapping_add(u64::from(line.board_part)), key: card.board.key },
        lanes: way.lanes,
        has_second_write: match settings.flag {
            Flag::Auto => !card.is_in_order,
            Flag::SameWrite => false,
            Flag::SecondWrite => true,
        },
    })
}

/// What a link keeps to on this device.
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
    use crate::fabric::MachineId;

    #[test]
    fn other_networks_are_told_with_what_to_set() {
        let none = Remote { address: 0, key: 0 };
        let mut card = Card {
            machine: MachineId(1),
            machines: 2,
            lanes: 2,
            is_ethernet: true,
            is_in_order: false,
            is_routable: true,
            mtu: 3,
            gid: [0; 16],
            lid: 0,
            region: none,
            region_bytes: 0,
            board: none,
            lines: Vec::new(),
        };
        assert_eq!(difference(&card, true, GidKind::RoceV2), None);
        assert!(
            difference(&card, true, GidKind::RoceV1).unwrap().contains("one uses RoCE v1, the other v2: set gid_index")
        );
        assert!(
            difference(&card, false, GidKind::InfiniBand)
                .unwrap()
                .contains("one is on InfiniBand, the other on Ethernet")
        );
        card.is_ethernet = false;
        assert_eq!(difference(&card, false, GidKind::InfiniBand), None);
        assert!(difference(&card, true, GidKind::RoceV2).is_some());
    }
}
