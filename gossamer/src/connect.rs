//! From the launch descriptor to an open fabric: how the machines of a program find one another.
//!
//! 1. this machine sends its *endpoint*, which others need to reach it, to the launcher
//! 2. the launcher answers with the program's key and the endpoints of all others
//! 3. the workers of each machine follow from the plan and the endpoints, the layout of all regions from the workers
//! 4. the fabric is opened; all machines exchange hellos over it, which tell whether all run the same program
//!
//! All steps share the plan's time limit for the start. An error names the machine that was waited for.
//!
//! Invariant: all machines compute workers and layout from the same plan and the same endpoints; the hellos verify it.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use comm::mixed::{MixedFabric, Part};
use comm::secure::Key;
use comm::shm::{self, RegionSize, ShmFabric};
use comm::tcp::{Limits, Listener, TcpFabric};
use comm::{Fabric, MachineId, Region};
use serde::{Deserialize, Serialize};

use crate::bootstrap::{FabricChoice, HostPlan, Plan, PortRange};
use crate::codec;
use crate::control::{Control, MAX_ENDPOINT_BYTES, Message};
use crate::error::StartError;
use crate::fate::StartMessage;
use crate::over_verbs::{Candidate, Offer, Reached, Topology, better_transports};
use crate::rack::Transport;
use crate::remote::{Hello, Image, Layout, Slots, exchange};
use crate::workers::{self, Asked};

/// Endpoint descriptor of a machine: the data that others need to connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Endpoint {
    /// Number of cores it may use.
    cores: u16,
    /// Address on which it listens, if it is to be reached by TCP.
    tcp: Option<SocketAddr>,
    /// Its RDMA offer, if it may be reached by RDMA.
    verbs: Option<Offer>,
}

/// Machine that is connected to all others.
pub(crate) struct Connected {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) layout: Arc<Layout>,
    /// The hellos of all machines, by machine.
    pub(crate) hellos: Vec<Hello>,
    /// Transport from here to each machine.
    pub(crate) transports: Vec<Transport>,
}

/// Deadline for the start.
struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }
}

/// Connects this machine with all others of the plan.
pub(crate) fn connect(
    own: u16,
    plan: &Plan,
    memory: Option<shm::Bootstrap>,
    control: &Control,
    messages: &Receiver<StartMessage>,
    asked: Asked,
    image: &Image,
) -> Result<Connected, StartError> {
    let deadline = Deadline { start: Instant::now(), limit: Duration::from_millis(plan.start_timeout_ms) };
    let transports: Vec<Transport> =
        (0u16..).zip(&plan.machines).map(|(machine, _)| transport(plan, own, machine)).collect();
    let candidate = Candidate::open(own, plan, &transports, || listen(own, plan))?;
    let listener = if transports.contains(&Transport::Tcp) { Some(listen(own, plan)?) } else { None };
    let cores = workers::usable(&workers::cores(plan.host_of(own))?);
    let (tcp, verbs) = (listener.as_ref().map(Listener::address), candidate.as_ref().map(Candidate::offer));
    let endpoint = Endpoint { cores: cores.try_into().unwrap_or(u16::MAX), tcp, verbs };
    control.send(&Message::Endpoint { bytes: endpoint.encode() })?;
    let (key, mut endpoints) = gather(own, endpoint, plan, messages, &deadline)?;
    add_interfaces(plan, &mut endpoints)?;

    let cores: Vec<u16> = endpoints.iter().map(|endpoint| endpoint.cores).collect();
    let offers: Vec<Option<Offer>> = endpoints.iter().map(|endpoint| endpoint.verbs.clone()).collect();
    let transports = better_transports(plan, own, &transports, &offers);
    let candidate = candidate.filter(|_| transports.contains(&Transport::Verbs));
    let workers = workers::divide(plan, &cores, asked.threads)?;
    let layout = Layout::choose(workers, asked.hidden, Slots::of(plan), asked.machine_ways);
    let layout = Arc::new(layout.with_direct_ways(asked.direct_ways));
    let threads: Vec<u16> = (0..layout.machines()).map(|machine| layout.threads(machine)).collect();
    let topology = Topology {
        own: MachineId(own),
        transports: &transports,
        offers: &offers,
        threads: &threads,
        has_ways: layout.has_ways(),
        deadline: deadline_after(deadline.left()),
    };
    let parts = Parts { own: topology.own, plan, region: layout.region_size(own), topology, deadline };
    let opened = parts.open(memory, listener, candidate, &endpoints, key);
    let (fabric, transports) = opened.map_err(|error| StartError::fabric(error, plan))?;
    let name = plan.host_of(own).name.clone();
    let hellos = exchange(&*fabric, &layout, image.id(), name, parts.deadline.left())?;
    Ok(Connected { fabric, layout, hellos, transports })
}

impl Endpoint {
    fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    fn decode(bytes: &[u8]) -> Option<Endpoint> {
        codec::decode::<_, MAX_ENDPOINT_BYTES>(bytes).ok()
    }
}

/// Waits for the key and the endpoints of all others.
fn gather(
    own: u16,
    own_endpoint: Endpoint,
    plan: &Plan,
    messages: &Receiver<StartMessage>,
    deadline: &Deadline,
) -> Result<(Key, Vec<Endpoint>), StartError> {
    let mut key = None;
    let mut endpoints = vec![None; plan.machines.len()];
    endpoints[usize::from(own)] = Some(own_endpoint);
    loop {
        if let (Some(key), true) = (&key, endpoints.iter().all(Option::is_some)) {
            return Ok((Key::clone(key), endpoints.into_iter().flatten().collect()));
        }
        match messages.recv_timeout(deadline.left()) {
            Ok(StartMessage::Secret(secret)) => key = Some(secret),
            Ok(StartMessage::Peer(machine, bytes)) => {
                let bad = |what| StartError::BadEndpoint { machine, what };
                let place = endpoints.get_mut(usize::from(machine)).ok_or(bad("there is no such machine"))?;
                if place.is_some() {
                    return Err(bad("it has come before"));
                }
                *place = Some(Endpoint::decode(&bytes).ok_or(bad("it is none of this version of gossamer"))?);
            }
            // The sender lives as long as the process, so this error is the deadline.
            Err(_) => {
                let missing = (0u16..).zip(&endpoints).filter(|(_, endpoint)| endpoint.is_none());
                let missing: Vec<String> = missing.map(|(machine, _)| plan.name_of(machine)).collect();
                let missing = if missing.is_empty() { "the launcher".to_owned() } else { missing.join(", ") };
                return Err(StartError::NoEndpoint { missing, waited_ms: plan.start_timeout_ms });
            }
        }
    }
}

/// Returns the transport by which `own` reaches `peer`.
fn transport(plan: &Plan, own: u16, peer: u16) -> Transport {
    match plan.fabric {
        _ if own == peer => Transport::Here,
        _ if plan.memory_group(own).contains(&peer) => Transport::Shm,
        FabricChoice::Verbs => Transport::Verbs,
        _ => Transport::Tcp,
    }
}

/// Opens the listener to which machines of other hosts, or those of this one by TCP, will connect.
fn listen(own: u16, plan: &Plan) -> Result<Listener, StartError> {
    let host = plan.host_of(own);
    let HostPlan { name, ports, .. } = host;
    let mut address = socket_of(host, 0)?;
    let bind = |port| {
        address.set_port(port);
        Listener::bind(address)
    };
    let listener = PortRange::bind(*ports, bind, is_address_in_use);
    let listener = listener.map_err(|error| match ports {
        Some(ports) if is_address_in_use(&error) => {
            StartError::NoPort { machine: own, host: name.clone(), ports: *ports }
        }
        _ => StartError::fabric(error, plan),
    })?;
    let silence = Duration::from_millis(plan.silence_ms);
    // The clock is checked at each heartbeat, and traffic heard in between counts from that check. So with the limit of
    // 3 s silence is reported 2.5 to 3.25 s after it began, as a launcher reports that of a host.
    let heartbeat = silence / 12;
    Ok(listener.with_limits(Limits { heartbeat, silence: silence.saturating_sub(heartbeat) }))
}

/// Returns the address of a host as this one uses it.
fn socket_of(host: &HostPlan, port: u16) -> Result<SocketAddr, StartError> {
    let HostPlan { name, bind, .. } = host;
    let useless = |source| StartError::Interface { host: name.clone(), address: bind.clone(), source };
    bind.socket(port).map_err(useless)
}

/// Gives link-local addresses the interface that reaches them from here: each host has a number of its own for it.
fn add_interfaces(plan: &Plan, endpoints: &mut [Endpoint]) -> Result<(), StartError> {
    for (machine, endpoint) in (0u16..).zip(endpoints) {
        let host = plan.host_of(machine);
        let mailbox = endpoint.verbs.as_mut().map(|offer| &mut offer.mailbox);
        for address in endpoint.tcp.iter_mut().chain(mailbox).filter(|_| host.bind.interface().is_some()) {
            *address = socket_of(host, address.port())?;
        }
    }
    Ok(())
}

/// Returns whether a listener failed because others have its port.
fn is_address_in_use(error: &comm::Error) -> bool {
    matches!(error, comm::Error::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse)
}

/// Inputs from which the fabrics of this machine are made.
struct Parts<'a> {
    own: MachineId,
    plan: &'a Plan,
    region: RegionSize,
    /// Topology with the preferred transports.
    topology: Topology<'a>,
    deadline: Deadline,
}

impl Parts<'_> {
    /// Opens one fabric where all others are reached by the same transport, else one for each transport, joined into a
    /// mixed fabric. Returns it with the transports. All machines open shared memory first, then RDMA, so no cycle of
    /// waiters can form.
    fn open(
        &self,
        memory: Option<shm::Bootstrap>,
        listener: Option<Listener>,
        candidate: Option<Candidate>,
        endpoints: &[Endpoint],
        key: Key,
    ) -> Result<(Arc<dyn Fabric>, Vec<Transport>), comm::Error> {
        let memory = memory.map(|memory| self.open_shm(memory)).transpose()?;
        let region = match &memory {
            Some(memory) => memory.shared_region(),
            None => Arc::new(Region::anonymous(self.region.bytes)?),
        };
        let reached = candidate
            .map(|candidate| candidate.connect(&self.topology, key.clone(), Arc::clone(&region)))
            .transpose()?;
        let Reached { fabric: verbs, missing } = reached.unwrap_or_default();
        let mut transports = self.topology.transports.to_vec();
        missing.iter().for_each(|(peer, _)| transports[usize::from(peer.0)] = Transport::Tcp);
        self.warn(&missing);
        let peers = |transport: Transport| {
            (0u16..).zip(&transports).filter(move |(_, found)| **found == transport).map(|(peer, _)| MachineId(peer))
        };
        let part = |fabric: Box<dyn Fabric>, transport| Part { fabric, peers: peers(transport).collect() };
        let mut parts = Vec::new();
        if let Some(memory) = memory {
            parts.push(part(Box::new(memory), Transport::Shm));
        }
        if let Some(verbs) = verbs {
            parts.push(part(Box::new(verbs), Transport::Verbs));
        }
        if let Some(listener) = listener.filter(|_| transports.contains(&Transport::Tcp)) {
            parts.push(part(Box::new(self.open_tcp(listener, &transports, endpoints, key, region)?), Transport::Tcp));
        }
        let fabric: Arc<dyn Fabric> = match parts.pop() {
            Some(only) if parts.is_empty() => Arc::from(only.fabric),
            last => Arc::new(MixedFabric::new(parts.into_iter().chain(last).collect())?),
        };
        Ok((fabric, transports))
    }

    /// Names in one line the peers that are reached by TCP although both sides have devices; the lower-numbered machine
    /// of a pair reports it.
    fn warn(&self, missing: &[(MachineId, comm::Error)]) {
        let pairs: Vec<String> = missing
            .iter()
            .filter(|(peer, _)| *peer > self.own)
            .map(|(peer, error)| format!("{} ({error})", self.plan.name_of(peer.0)))
            .collect();
        if !pairs.is_empty() {
            let (own, pairs) = (self.plan.name_of(self.own.0), pairs.join(", "));
            let line = format!(
                "gossamer: {own} and these have RDMA devices that do not reach one another, and take TCP: {pairs}; \
                 name the right devices under `rdma:` in rack.yaml, or write `fabric: tcp`\n"
            );
            let _ = std::io::stderr().write_all(line.as_bytes()); // the program runs even if the line has no reader
        }
    }

    fn open_shm(&self, memory: shm::Bootstrap) -> Result<ShmFabric, comm::Error> {
        let group: Vec<MachineId> = self.plan.memory_group(self.own.0).into_iter().map(MachineId).collect();
        let machines = self.topology.transports.len() as u16;
        ShmFabric::open_group(memory, &group, machines, self.region, self.deadline.left())
    }

    fn open_tcp(
        &self,
        listener: Listener,
        transports: &[Transport],
        endpoints: &[Endpoint],
        key: Key,
        region: Arc<Region>,
    ) -> Result<TcpFabric, comm::Error> {
        let address =
            |(transport, endpoint): (&Transport, &Endpoint)| endpoint.tcp.filter(|_| *transport == Transport::Tcp);
        let addresses = transports.iter().zip(endpoints).map(address).collect();
        TcpFabric::open(listener, self.own, addresses, key, region, self.deadline.left())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn endpoint(cores: u16) -> Endpoint {
        Endpoint { cores, tcp: Some(([192, 0, 2, 1], 4711).into()), verbs: None }
    }

    fn deadline(limit: Duration) -> Deadline {
        Deadline { start: Instant::now(), limit }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn machines_of_one_host_listen_at_ports_of_the_range_until_it_is_used_up() {
        let mut plan = Plan::local(3, FabricChoice::Tcp, None);
        plan.hosts[0].bind = "127.77.12.34".parse().unwrap(); // this test's own
        plan.hosts[0].ports = "7200-7201".parse().ok();
        let all = [listen(0, &plan).unwrap(), listen(1, &plan).unwrap()];
        assert_eq!(all.each_ref().map(|listener| listener.address().port()), [7200, 7201]);
        let refused = listen(2, &plan).unwrap_err().to_string();
        assert!(refused.contains("all ports of 7200-7201 are taken") && refused.contains("widen `ports`"), "{refused}");
        plan.hosts[0].ports = None;
        assert!(![0, 7200, 7201].contains(&listen(2, &plan).unwrap().address().port()));
    }

    #[test]
    fn link_local_addresses_get_the_interface_of_this_host() {
        let mut plan = Plan::local(2, FabricChoice::Tcp, None);
        plan.hosts.push(HostPlan { bind: "fe80::1%lo".parse().unwrap(), ..plan.hosts[0].clone() });
        plan.machines[1].host = 1;
        let received = Endpoint { tcp: Some("[fe80::1]:4711".parse().unwrap()), ..endpoint(1) };
        let mut all = [endpoint(1), Endpoint::decode(&received.encode()).unwrap()];
        add_interfaces(&plan, &mut all).unwrap();
        let addresses = all.map(|endpoint| endpoint.tcp.unwrap().to_string());
        assert_eq!(addresses, ["192.0.2.1:4711", "[fe80::1%1]:4711"]);
        plan.hosts[1].bind = "fe80::1%nowhere0".parse().unwrap();
        let refused = add_interfaces(&plan, &mut [endpoint(1), received]).unwrap_err().to_string();
        assert!(refused.starts_with("the address fe80::1%nowhere0 of host "), "{refused}");
    }

    #[test]
    fn endpoints_survive_and_damaged_ones_are_refused() {
        let bytes = endpoint(7).encode();
        assert_eq!(Endpoint::decode(&bytes), Some(endpoint(7)));
        for len in 0..bytes.len() {
            assert_eq!(Endpoint::decode(&bytes[..len]), None);
        }
        assert_eq!(Endpoint::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn the_key_and_all_endpoints_are_waited_for_in_any_order() {
        let plan = Plan::local(3, FabricChoice::Tcp, None);
        let (tell, messages) = mpsc::channel();
        tell.send(StartMessage::Peer(2, endpoint(2).encode())).unwrap();
        tell.send(StartMessage::Secret(Key::from_bytes([5; 32]))).unwrap();
        tell.send(StartMessage::Peer(0, endpoint(0).encode())).unwrap();
        let (key, endpoints) = gather(1, endpoint(1), &plan, &messages, &deadline(LONG)).unwrap();
        assert_eq!((key, endpoints), (Key::from_bytes([5; 32]), vec![endpoint(0), endpoint(1), endpoint(2)]));
    }

    #[test]
    fn endpoints_that_do_not_come_or_fit_are_named() {
        let mut plan = Plan::local(3, FabricChoice::Tcp, None);
        plan.hosts[0].name = "alpha".into();
        let gather_from = |messages: &[(u16, Vec<u8>)]| {
            let (tell, heard) = mpsc::channel();
            messages
                .iter()
                .for_each(|(machine, bytes)| tell.send(StartMessage::Peer(*machine, bytes.clone())).unwrap());
            gather(1, endpoint(1), &plan, &heard, &deadline(Duration::from_millis(10))).unwrap_err().to_string()
        };
        let text = gather_from(&[(0, endpoint(0).encode())]);
        assert!(text.contains("no message came from machine 2 on alpha within"), "{text}");
        let text = gather_from(&[(0, endpoint(0).encode()), (2, endpoint(2).encode())]);
        assert!(text.contains("no message came from the launcher"), "{text}");
        assert!(gather_from(&[(0, vec![1, 2, 3])]).contains("endpoint of machine 0 is invalid: it is none of this"));
        assert!(gather_from(&[(1, endpoint(1).encode())]).contains("it has come before"));
        assert!(gather_from(&[(3, endpoint(1).encode())]).contains("there is no such machine"));
    }

    #[test]
    fn each_pair_has_the_best_transport() {
        let mut plan = Plan::local(4, FabricChoice::Auto, None);
        plan.hosts.push(plan.hosts[0].clone());
        plan.machines[3].host = 1;
        let transports = |plan: &Plan, own| (0..4).map(|peer| transport(plan, own, peer)).collect::<Vec<_>>();
        assert_eq!(transports(&plan, 1), [Transport::Shm, Transport::Here, Transport::Shm, Transport::Tcp]);
        assert_eq!(transports(&plan, 3), [Transport::Tcp, Transport::Tcp, Transport::Tcp, Transport::Here]);
        plan.fabric = FabricChoice::Tcp;
        assert_eq!(transports(&plan, 0), [Transport::Here, Transport::Tcp, Transport::Tcp, Transport::Tcp]);
        plan.fabric = FabricChoice::Verbs;
        assert_eq!(transports(&plan, 0), [Transport::Here, Transport::Verbs, Transport::Verbs, Transport::Verbs]);
    }
}
