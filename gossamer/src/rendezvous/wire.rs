//! Messages between machine 0 and the others, over one [`comm::secure`] connection each. Messages between a machine and
//! its launcher ([`crate::control`]) travel inside, as packets.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::host::HostIdentity;
use super::process::ProcessIdentity;
use crate::bootstrap::HostAddress;
use crate::codec;

/// Purpose of the connections, and version of their messages.
pub(super) const PURPOSE: &str = "gossamer meeting 3";
/// Longest message: a plan of 1024 machines is shorter.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A machine's description of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Join {
    pub(super) index: u16,
    pub(super) count: u16,
    /// Random number of this process alone.
    pub(super) nonce: [u8; 16],
    pub(super) host: HostIdentity,
    pub(super) process: ProcessIdentity,
    /// Build id and layout of the program.
    pub(super) image: String,
    /// Cores in its affinity.
    pub(super) cores: Vec<u16>,
    /// Address by which the others reach it.
    pub(super) address: HostAddress,
    /// The address is the user's, not a detected one.
    pub(super) is_address_wanted: bool,
}

/// Message from a machine to machine 0.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Up {
    /// The first message.
    Join(Box<Join>),
    /// Heartbeat.
    Beat,
    /// A message of its control channel.
    Packet(Vec<u8>),
    /// It got this signal.
    Signal(i32),
    /// It was told to end, and does.
    Left,
}

/// Message from machine 0 to a machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Down {
    /// The machine cannot take part, for this reason.
    Refused(String),
    /// The program will not start, for this reason.
    GivenUp(String),
    /// Heartbeat.
    Beat,
    /// All have come.
    Plan(Box<Gathered>),
    /// A message of the control channel.
    Packet(Vec<u8>),
}

/// Data that a machine needs to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Gathered {
    /// The plan, as JSON.
    pub(super) plan: String,
    /// The process of machine 0, for those of its host.
    pub(super) hub: (ProcessIdentity, HostIdentity),
    /// Tokens for the memory of its host, if it shares some.
    pub(super) memory: Option<MemoryTokens>,
}

/// Tokens by which the machines of one host find the one that makes their memory, and recognise each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemoryTokens {
    /// Name of the socket; every process of the host can see it.
    pub(super) name: [u8; 16],
    /// Known to machines of the program alone: the asking side sends the first, the answering side the second.
    pub(super) ask: [u8; 16],
    pub(super) answer: [u8; 16],
}

/// Decodes the message, if it is one.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    codec::decode::<T, MESSAGE_BYTES_MAX>(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_damaged_ones_are_refused() {
        let join = Join {
            index: 3,
            count: 9,
            nonce: [7; 16],
            host: HostIdentity::of_this_process(),
            process: ProcessIdentity::of_this_process(),
            image: "abc/1".into(),
            cores: vec![0, 5],
            address: "fe80::1%eth0".parse().unwrap(),
            is_address_wanted: false,
        };
        let bytes = codec::encode(&Up::Join(Box::new(join)));
        let Some(Up::Join(found)) = decode::<Up>(&bytes) else { panic!("not decoded") };
        assert_eq!((found.index, found.cores.as_slice(), found.process.pid), (3, &[0, 5][..], std::process::id()));
        for len in 0..bytes.len() {
            assert!(decode::<Up>(&bytes[..len]).is_none());
        }
        assert!(decode::<Up>(&[&bytes[..], &[0]].concat()).is_none());
        assert!(decode::<Down>(&[9]).is_none());
    }
}
