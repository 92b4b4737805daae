//! Connections by RDMA: which machines can reach one another, and how they exchange the data that the fabric `verbs`
//! needs about its peers.
//!
//! That data depends on the workers of all machines, which follow from all endpoints. So a machine with a device says
//! so in its endpoint, with the address of its mailbox. Once the endpoints are known, machines send one another a
//! second endpoint, for RDMA, over connections with the program's key; these are closed when all queue pairs are up.
//! Memory keys never travel in the clear.
//!
//! A device that is up may lead to another network than the peer's. So once all queue pairs are ready, each machine
//! tries to reach each peer, and sends it the result through its mailbox. `auto` uses TCP for a pair that failed.
//!
//! Here: the tries and their consequences. Not here: how the second endpoints travel (`mailboxes`).
//!
//! Invariant: whether a pair uses `verbs` follows from the plan, the two endpoints, and the results that both have
//! exchanged, so both reach the same decision.

mod mailboxes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comm::secure::Key;
use comm::tcp::Listener;
use comm::verbs::{self, Party, Settings, VerbsFabric};
use comm::{Error, MachineId, Region};
use serde::{Deserialize, Serialize};

use crate::bootstrap::{FabricChoice, Plan};
use crate::error::StartError;
use crate::rack::Transport;
use mailboxes::{Mailboxes, NO, Note, YES, refusal, refusal_reason};

/// RDMA offer of a machine with a device, in its endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// InfiniBand, RoCE v1 or v2: only peers of the same kind can talk.
    network: String,
    /// Address of its mailbox.
    pub(crate) mailbox: SocketAddr,
}

/// Machine that has an RDMA device, and so may be reached by RDMA.
pub(crate) struct Candidate {
    listener: Listener,
    settings: Settings,
    network: String,
    /// Time in which peers that are ready must answer over RDMA.
    answer_timeout: Duration,
    /// Whether there is no other transport.
    is_asked_for: bool,
}

/// Peers reached by RDMA.
#[derive(Default)]
pub(crate) struct Reached {
    /// `None` if none is.
    pub(crate) fabric: Option<VerbsFabric>,
    /// Peers not reached though both sides have devices, and why.
    pub(crate) missing: Vec<(MachineId, Error)>,
}

/// Transports by which this machine is to reach the others, once all endpoints are known.
pub(crate) struct Topology<'a> {
    pub(crate) own: MachineId,
    pub(crate) transports: &'a [Transport],
    /// Offers of the endpoints, by machine.
    pub(crate) offers: &'a [Option<Offer>],
    /// Number of threads of each machine that write to others.
    pub(crate) threads: &'a [u16],
    /// Machines have ways, on which all threads of a machine share a queue pair.
    pub(crate) has_ways: bool,
    pub(crate) deadline: Instant,
}

impl Candidate {
    /// Looks for a device if the plan has a use for one. `listen` makes a listener of this host.
    ///
    /// # Errors
    /// If RDMA was asked for by name and cannot be had: the reason.
    pub(crate) fn open(
        own: u16,
        plan: &Plan,
        transports: &[Transport],
        listen: impl FnOnce() -> Result<Listener, StartError>,
    ) -> Result<Option<Candidate>, StartError> {
        let is_asked_for = transports.contains(&Transport::Verbs);
        let is_welcome =
            plan.fabric == FabricChoice::Auto && transports.contains(&Transport::Tcp) && !plan.host_of(own).is_tcp_only;
        if !is_asked_for && !is_welcome {
            return Ok(None);
        }
        let found = settings(own, plan).and_then(|settings| Ok((verbs::network(&settings)?, settings)));
        match found {
            Ok((network, settings)) => {
                // Twice the time in which a live, reachable peer must have answered; longer if the program cannot start
                // without.
                let answer_timeout =
                    Duration::from_millis(plan.silence_ms.saturating_mul(if is_asked_for { 4 } else { 2 }));
                Ok(Some(Candidate { listener: listen()?, settings, network, answer_timeout, is_asked_for }))
            }
            Err(error) if is_asked_for => Err(StartError::fabric(error, plan)),
            Err(_) => Ok(None), // `auto` takes TCP
        }
    }

    pub(crate) fn offer(&self) -> Offer {
        Offer { network: self.network.clone(), mailbox: self.listener.address() }
    }

    /// Connects to all peers that are to be reached by RDMA.
    ///
    /// # Errors
    /// If RDMA was asked for by name, also when a peer is not reached.
    pub(crate) fn connect(self, topology: &Topology<'_>, key: Key, region: Arc<Region>) -> Result<Reached, Error> {
        let machines = topology.transports.len() as u16;
        let peers: Vec<MachineId> = (0..machines).map(MachineId).filter(|peer| topology.is_peer(*peer)).collect();
        let party = Party {
            machine: topology.own,
            machines,
            workers: topology.workers(topology.own),
            peers: peers.iter().map(|peer| (*peer, topology.workers(*peer))).collect(),
            is_shared: topology.has_ways,
        };
        let prepared = match VerbsFabric::prepare(&self.settings, party, region) {
            Err(error) if self.is_asked_for => return Err(error),
            prepared => prepared,
        };
        let mut mailboxes = Mailboxes::open(self.listener, topology, peers.clone(), key)?;
        let endpoint = prepared.as_ref().map_or_else(refusal, |prepared| prepared.endpoint().to_vec());
        let endpoints = mailboxes.exchange(&endpoint, topology.deadline)?;
        let mut missing = Vec::new();
        let mut connected = match prepared {
            Ok(mut prepared) => {
                for (peer, reason) in
                    endpoints.iter().filter_map(|(peer, endpoint)| Some((*peer, refusal_reason(*peer, endpoint)?)))
                {
                    prepared.leave_out(peer);
                    missing.push((peer, Error::Verbs { reason }));
                }
                Some(prepared.connect(&endpoints)?)
            }
            Err(error) => {
                let reason = format!("{} has an RDMA device that it cannot use: {error}", topology.own);
                missing.extend(peers.iter().map(|peer| (*peer, Error::Verbs { reason: reason.clone() })));
                None
            }
        };
        // No peer is tried before it is ready, so a live one answers at once.
        mailboxes.tell(Note::Ready, |_| YES)?;
        mailboxes.hear(Note::Ready, topology.deadline)?;
        if let Some(connected) = &mut connected {
            missing.extend(connected.greet(self.answer_timeout.min(topology.left() / 2))?);
        }
        let is_reached = |peer| !missing.iter().any(|(other, _)| *other == peer);
        mailboxes.tell(Note::Reached, |peer| if is_reached(peer) { YES } else { NO })?;
        if !self.is_asked_for || missing.is_empty() {
            for (peer, answer) in mailboxes.hear(Note::Reached, topology.deadline)? {
                if answer != YES && missing.iter().all(|(other, _)| *other != peer) {
                    let reason =
                        format!("{peer} does not reach {} by RDMA, though it is reached from there", topology.own);
                    missing.push((peer, Error::Verbs { reason }));
                }
            }
        }
        if self.is_asked_for
            && let Some((_, error)) = missing.pop()
        {
            return Err(error);
        }
        let without: Vec<MachineId> = missing.iter().map(|(peer, _)| *peer).collect();
        let is_any_reached = peers.iter().any(|peer| !without.contains(peer));
        let fabric = match connected {
            Some(connected) if is_any_reached => Some(connected.open(&without)?),
            _ => None,
        };
        Ok(Reached { fabric, missing })
    }
}

impl Topology<'_> {
    fn is_peer(&self, peer: MachineId) -> bool {
        self.transports[usize::from(peer.0)] == Transport::Verbs
    }

    /// Returns the number of a machine's workers as the fabric sees them: ways have one more, behind all threads.
    fn workers(&self, machine: MachineId) -> u16 {
        self.threads[usize::from(machine.0)].saturating_add(u16::from(self.has_ways))
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// Returns the transports once the endpoints are known: RDMA where `auto` would take TCP and both have devices of one
/// kind.
pub(crate) fn better_transports(
    plan: &Plan,
    own: u16,
    transports: &[Transport],
    offers: &[Option<Offer>],
) -> Vec<Transport> {
    let network = |machine: usize| offers[machine].as_ref().map(|offer| &offer.network);
    let mine = network(usize::from(own));
    let better = |(peer, transport): (usize, &Transport)| match transport {
        Transport::Tcp if plan.fabric == FabricChoice::Auto && mine.is_some() && network(peer) == mine => {
            Transport::Verbs
        }
        transport => *transport,
    };
    transports.iter().enumerate().map(better).collect()
}

/// Returns the fabric's settings: those of the plan for this host, and the time for which a peer may be silent.
fn settings(own: u16, plan: &Plan) -> Result<Settings, Error> {
    let host = plan.host_of(own).verbs.clone().unwrap_or_default();
    let defaults = Settings::default();
    let mtu = host.mtu_bytes.map(|bytes| u16::try_from(bytes).unwrap_or(u16::MAX));
    let (device, port, gid_index) = (host.device, host.port, host.gid_index);
    let timeout = timeout(plan.silence_ms, defaults.retries);
    Ok(Settings { device, port, gid_index, mtu, timeout, ..defaults })
}

/// Returns the timeout exponent with which a silent peer is given up within `silence_ms`: the device sends once and
/// then `retries` times, each time waiting for 4.096 µs times 2 to the power of this.
fn timeout(silence_ms: u64, retries: u8) -> u8 {
    let unit_ns = 4096 * (u64::from(retries) + 1);
    let units = (silence_ms.saturating_mul(1_000_000) / unit_ns).max(1);
    (units.ilog2() as u8).clamp(8, 22)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(network: &str) -> Option<Offer> {
        Some(Offer { network: network.to_owned(), mailbox: ([192, 0, 2, 1], 4711).into() })
    }

    #[test]
    fn auto_takes_rdma_where_both_have_the_same_kind() {
        let mut plan = Plan::local(4, FabricChoice::Auto, None);
        let transports = [Transport::Here, Transport::Shm, Transport::Tcp, Transport::Tcp];
        let offers = [offer("RoCE v2"), offer("RoCE v2"), offer("RoCE v2"), offer("InfiniBand")];
        assert_eq!(
            better_transports(&plan, 0, &transports, &offers),
            [Transport::Here, Transport::Shm, Transport::Verbs, Transport::Tcp]
        );
        let offers = [None, offer("RoCE v2"), None, None];
        assert_eq!(better_transports(&plan, 0, &transports, &offers), transports, "nobody has a device");
        plan.fabric = FabricChoice::Tcp;
        let offers = [offer("RoCE v2"), None, offer("RoCE v2"), None];
        assert_eq!(better_transports(&plan, 0, &transports, &offers), transports, "TCP was asked for");
    }

    #[test]
    fn a_silent_peer_is_given_up_within_the_plans_time() {
        for silence_ms in [100, 1_000, 3_000, 20_000] {
            let given_up_ns = 7 * (4096u64 << timeout(silence_ms, 6));
            assert!(given_up_ns <= silence_ms * 1_000_000 && given_up_ns > silence_ms * 400_000, "{silence_ms}");
        }
        assert_eq!((timeout(0, 6), timeout(u64::MAX, 6)), (8, 22));
    }
}
