//! Endpoint descriptor: the addresses, keys and queue pair numbers by which peers reach a machine.
//!
//! Here: encoding and decoding. Not here: the exchange (the launcher, over its own channel). An endpoint
//! comes from elsewhere: every length is checked, and nothing in it is used before it fits.
//!
//! Layout, little-endian: magic (8) · machine (2) · machines (2) · lanes (2) · flags (1) · mtu (1) · gid (16) · lid (2)
//! · region key (4), address (8), bytes (8) · board key (4), address (8) · reads served (1) · peers (2), then for each
//! peer: machine (2) · its part of the board (4) · queue pairs (2), each 3 bytes.

use crate::error::Error;
use crate::ids::MachineId;

/// "gsm", verbs, and the version of this layout.
const MAGIC: [u8; 8] = *b"gsm-vrb2";
/// Largest endpoint that the launcher carries.
pub(super) const ENDPOINT_BYTES_MAX: usize = 16 << 10;
/// Position of the region's key, for tests that spoil it.
pub const REGION_KEY_AT: usize = 34;
const ETHERNET: u8 = 1;
const IN_ORDER: u8 = 2;
const ROUTABLE: u8 = 4;
const SHARED: u8 = 8;

/// Registered memory, as peers address it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) key: u32,
}

impl Remote {
    /// Returns the place `bytes` further on. The addresses of a peer are not trusted: its device, or that of
    /// this machine, refuses unregistered ones.
    pub(super) fn at(self, bytes: usize) -> Remote {
        Remote { address: self.address.wrapping_add(bytes as u64), ..self }
    }
}

/// Part of an endpoint for one peer of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) peer: MachineId,
    /// Offset of the peer's part of this machine's board.
    pub(super) board_part: u32,
    /// Number of the heartbeat's queue pair, then one for each lane, or one that all workers share.
    pub(super) queue_pairs: Vec<u32>,
}

/// Endpoint of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerbsEndpoint {
    pub(super) machine: MachineId,
    pub(super) machines: u16,
    pub(super) lanes: u16,
    pub(super) is_ethernet: bool,
    /// Whether the device places the bytes of a write in order.
    pub(super) is_in_order: bool,
    /// Whether it uses RoCE v2.
    pub(super) is_routable: bool,
    /// Whether its workers share one queue pair to each peer.
    pub(super) is_shared: bool,
    pub(super) mtu: u8,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) region: Remote,
    pub(super) region_bytes: u64,
    pub(super) board: Remote,
    /// Reads of a queue pair that the device serves at once.
    pub(super) reads_served: u8,
    pub(super) lines: Vec<Line>,
}

impl VerbsEndpoint {
    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(self.is_ethernet, ETHERNET)
            | flag(self.is_in_order, IN_ORDER)
            | flag(self.is_routable, ROUTABLE)
            | flag(self.is_shared, SHARED);
        let mut bytes = MAGIC.to_vec();
        for number in [self.machine.0, self.machines, self.lanes] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([flags, self.mtu]);
        bytes.extend(self.gid);
        bytes.extend(self.lid.to_le_bytes());
        bytes.extend(self.region.key.to_le_bytes());
        bytes.extend(self.region.address.to_le_bytes());
        bytes.extend(self.region_bytes.to_le_bytes());
        bytes.extend(self.board.key.to_le_bytes());
        bytes.extend(self.board.address.to_le_bytes());
        bytes.push(self.reads_served);
        bytes.extend((self.lines.len() as u16).to_le_bytes());
        for line in &self.lines {
            bytes.extend(line.peer.0.to_le_bytes());
            bytes.extend(line.board_part.to_le_bytes());
            bytes.extend((line.queue_pairs.len() as u16).to_le_bytes());
            for number in &line.queue_pairs {
                bytes.extend(&number.to_le_bytes()[..3]); // 24 bits by InfiniBand's definition
            }
        }
        if bytes.len() > ENDPOINT_BYTES_MAX {
            return Err(Error::verbs(format!(
                "{} machines with up to {} workers need more than an endpoint's {ENDPOINT_BYTES_MAX} bytes: use fewer \
                 workers",
                self.machines,
                self.lines.iter().map(|line| line.queue_pairs.len()).max().unwrap_or(0)
            )));
        }
        Ok(bytes)
    }

    /// Decodes the endpoint that is said to come from `machine`.
    pub(super) fn decode(machine: MachineId, bytes: &[u8]) -> Result<VerbsEndpoint, Error> {
        let refuse = |what: &str| {
            Error::verbs(format!("the endpoint of {machine} {what}: do all machines run the same version?"))
        };
        if bytes.len() > ENDPOINT_BYTES_MAX || !bytes.starts_with(&MAGIC) {
            return Err(refuse("is none of this version"));
        }
        let endpoint = Reader(&bytes[MAGIC.len()..]).endpoint().ok_or_else(|| refuse("is cut short or too long"))?;
        if endpoint.machine != machine {
            return Err(refuse(&format!("is that of {}", endpoint.machine)));
        }
        Ok(endpoint)
    }
}

/// Takes an endpoint apart, front to back.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn endpoint(mut self) -> Option<VerbsEndpoint> {
        let (machine, machines, lanes) = (MachineId(self.u16()?), self.u16()?, self.u16()?);
        let [flags, mtu] = self.bytes()?;
        let (gid, lid) = (self.bytes()?, self.u16()?);
        let key = self.u32()?;
        let region = Remote { key, address: self.u64()? };
        let region_bytes = self.u64()?;
        let key = self.u32()?;
        let board = Remote { key, address: self.u64()? };
        let [reads_served] = self.bytes()?;
        let mut lines = Vec::new();
        for _ in 0..self.u16()? {
            let (peer, board_part, count) = (MachineId(self.u16()?), self.u32()?, self.u16()?);
            let queue_pairs = (0..count).map(|_| self.u24()).collect::<Option<Vec<u32>>>()?;
            lines.push(Line { peer, board_part, queue_pairs });
        }
        let is = |bit| flags & bit != 0;
        let (is_ethernet, is_in_order, is_routable, is_shared) = (is(ETHERNET), is(IN_ORDER), is(ROUTABLE), is(SHARED));
        self.0.is_empty().then_some(VerbsEndpoint {
            machine,
            machines,
            lanes,
            is_ethernet,
            is_in_order,
            is_routable,
            is_shared,
            mtu,
            gid,
            lid,
            region,
            region_bytes,
            board,
            reads_served,
            lines,
        })
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u24(&mut self) -> Option<u32> {
        self.bytes().map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(peers: u16, queue_pairs: usize) -> VerbsEndpoint {
        let line = |peer| Line {
            peer: MachineId(peer),
            board_part: 128 * u32::from(peer),
            queue_pairs: (0..queue_pairs as u32).map(|number| 0x00ab_cd00 + number).collect(),
        };
        VerbsEndpoint {
            machine: MachineId(3),
            machines: peers + 4,
            lanes: 5,
            is_ethernet: true,
            is_in_order: false,
            is_routable: true,
            is_shared: queue_pairs == 2,
            mtu: 3,
            gid: *b"0123456789abcdef",
            lid: 77,
            region: Remote { address: 0x7fff_0000_1000, key: 0xdead_beef },
            region_bytes: 1 << 33,
            board: Remote { address: 0x7fff_ffff_f000, key: 9 },
            reads_served: 4,
            lines: (4..4 + peers).map(line).collect(),
        }
    }

    #[test]
    fn an_endpoint_comes_back_as_it_was() {
        for (peers, queue_pairs) in [(0, 0), (1, 3), (63, 66), (999, 2)] {
            let endpoint = endpoint(peers, queue_pairs);
            let bytes = endpoint.encode().unwrap();
            assert_eq!(VerbsEndpoint::decode(MachineId(3), &bytes).unwrap(), endpoint);
            assert_eq!(bytes[REGION_KEY_AT..REGION_KEY_AT + 4], endpoint.region.key.to_le_bytes());
        }
        assert!(endpoint(64, 256).encode().unwrap_err().to_string().contains("fewer workers"));
    }

    #[test]
    fn no_cut_and_no_flipped_bit_makes_it_panic() {
        let bytes = endpoint(3, 4).encode().unwrap();
        for length in 0..bytes.len() {
            assert!(VerbsEndpoint::decode(MachineId(3), &bytes[..length]).is_err(), "{length} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = VerbsEndpoint::decode(MachineId(3), &flipped);
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(VerbsEndpoint::decode(MachineId(3), &longer).is_err());
        let said = VerbsEndpoint::decode(MachineId(2), &bytes).unwrap_err().to_string();
        assert!(said.contains("the endpoint of machine 2 is that of machine 3"), "{said}");
    }
}
