//! The conformance suite over machines of two hosts: `shm` within each, another fabric between them.

use super::*;
use crate::conformance::{self, Effort, REGION_BYTES};
use crate::secure::Key;
use crate::shm::{self, ShmFabric};
use crate::sim::{Conditions, Network};
use crate::tcp::{Limits, Listener, TcpFabric};
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::Instant;

const TIMEOUT: Duration = limits::HANG;
/// Machine `i` is on host `HOSTS[i]`.
const HOSTS: [usize; 4] = [0, 1, 0, 1];

fn group(host: usize) -> Vec<MachineId> {
    (0..4).map(MachineId).filter(|machine| HOSTS[usize::from(machine.0)] == host).collect()
}

/// Network between the two hosts: opens a machine's end of it on a region.
type Join<'a> = &'a (dyn Fn(MachineId, Arc<Region>) -> Box<dyn Fabric> + Sync);

/// Opens machine `machine` of the two hosts.
fn open(machine: MachineId, segments: &[shm::Segments; 2], join: Join<'_>) -> MixedFabric {
    let host = HOSTS[usize::from(machine.0)];
    let local = group(host);
    let place = local.iter().position(|peer| *peer == machine).unwrap();
    let bootstrap = segments[host].bootstrap(MachineId(place as u16)).unwrap();
    let shm = ShmFabric::open_group(bootstrap, &local, 4, REGION_BYTES.into(), TIMEOUT).unwrap();
    let remote = join(machine, shm.shared_region());
    let local = local.into_iter().filter(|peer| *peer != machine).collect();
    let parts = vec![Part { fabric: Box::new(shm), peers: local }, Part { fabric: remote, peers: group(1 - host) }];
    MixedFabric::new(parts).unwrap()
}

fn open_all(join: Join<'_>) -> Vec<MixedFabric> {
    let segments = [shm::create(2).unwrap(), shm::create(2).unwrap()];
    std::thread::scope(|scope| {
        let open = |machine| {
            let segments = &segments;
            scope.spawn(move || open(MachineId(machine), segments, join))
        };
        let opening: Vec<_> = (0..4).map(open).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn open_all_on(network: &Network) -> Vec<MixedFabric> {
    open_all(&|machine, region| Box::new(network.open(machine, region, TIMEOUT).unwrap()))
}

fn conform(fabrics: &[MixedFabric]) {
    let effort = Effort { writes: 10_000, wakes: 1_000, timeout: TIMEOUT };
    std::thread::scope(|scope| {
        for fabric in fabrics {
            scope.spawn(|| conformance::run(fabric, &effort));
        }
    });
}

#[test]
fn conforms_over_two_hosts_and_a_bad_network() {
    let network = Network::new(4, Conditions { silence: TIMEOUT, ..Conditions::default() }).unwrap();
    conform(&open_all_on(&network));
}

#[test]
fn conforms_over_two_hosts_and_tcp() {
    let key = Key::generate().unwrap();
    let listeners = [(); 4].map(|()| {
        let limits = Limits { silence: TIMEOUT, ..Limits::default() };
        Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap().with_limits(limits)
    });
    let addresses = listeners.each_ref().map(Listener::address);
    let listeners = Mutex::new(listeners.map(Some));
    let join = |machine: MachineId, region| -> Box<dyn Fabric> {
        let listener = listeners.lock().unwrap()[usize::from(machine.0)].take().unwrap();
        // Only machines of the other host are peers here.
        let is_remote = |peer: &usize| HOSTS[*peer] != HOSTS[usize::from(machine.0)];
        let peers = (0..4).map(|peer| is_remote(&peer).then(|| addresses[peer])).collect();
        Box::new(TcpFabric::open(listener, machine, peers, key.clone(), region, TIMEOUT).unwrap())
    };
    conform(&open_all(&join));
}

#[test]
fn a_death_in_any_part_is_noticed() {
    let network = Network::new(4, Conditions::default()).unwrap();
    let fabrics = open_all_on(&network);
    network.kill(MachineId(3));
    for fabric in [&fabrics[0], &fabrics[2]] {
        conformance::notices_death(fabric, MachineId(3), TIMEOUT, || ());
        assert_eq!(fabric.cause(MachineId(3)).as_deref(), Some("it was killed"));
    }
    // Also by the network, though the part of this peer is the memory that both map.
    assert_eq!(fabrics[1].watch(&[], TIMEOUT).unwrap(), Some(MachineId(3)));
}

#[test]
fn a_second_death_is_noticed_too() {
    let network = Network::new(4, Conditions::default()).unwrap();
    let fabrics = open_all_on(&network);
    for (victim, known) in [(MachineId(3), &[][..]), (MachineId(2), &[MachineId(3)])] {
        network.kill(victim);
        assert_eq!(fabrics[0].watch(known, TIMEOUT).unwrap(), Some(victim));
    }
}

#[test]
fn leaving_in_order_is_no_death_and_at_once() {
    let network = Network::new(4, Conditions::default()).unwrap();
    let mut fabrics = open_all_on(&network);
    let start = Instant::now();
    drop(fabrics.pop());
    assert!(start.elapsed() < TIMEOUT, "the watchers were not let go");
    for fabric in &fabrics {
        assert_eq!(fabric.lost(MachineId(3)).unwrap(), Some(Loss::Left));
        assert_eq!(fabric.watch(&[], Duration::ZERO).unwrap(), None);
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let refused = |parts: Vec<Part>, text: &str| match MixedFabric::new(parts) {
        Err(Error::Bootstrap { reason }) => assert!(reason.contains(text), "{reason}"),
        other => panic!("{other:?}"),
    };
    let region = || Arc::new(Region::anonymous(64).unwrap());
    let open = |own: u16, region: &Arc<Region>| -> Box<dyn Fabric> {
        let network = Network::new(2, Conditions::default()).unwrap();
        let (other, region) = (network.clone(), Arc::clone(region));
        std::thread::scope(|scope| {
            let peer = scope.spawn(move || {
                other.open(MachineId(1 - own), Arc::new(Region::anonymous(64).unwrap()), TIMEOUT).unwrap()
            });
            let fabric = network.open(MachineId(own), region, TIMEOUT).unwrap();
            peer.join().unwrap();
            Box::new(fabric)
        })
    };
    let part = |own, region: &_, peers: &[u16]| Part {
        fabric: open(own, region),
        peers: peers.iter().copied().map(MachineId).collect(),
    };
    let shared = region();
    refused(vec![], "no fabric");
    refused(vec![part(0, &shared, &[])], "no fabric reaches machine 1");
    refused(vec![part(0, &shared, &[0, 1])], "machine 0 is no peer of machine 0");
    refused(vec![part(0, &shared, &[1, 2])], "machine 2 is no peer");
    refused(vec![part(0, &shared, &[1]), part(0, &shared, &[1])], "by two fabrics");
    refused(vec![part(0, &shared, &[1]), part(0, &region(), &[])], "regions of their own");
    refused(vec![part(0, &shared, &[1]), part(1, &shared, &[0])], "put together");
    assert!(MixedFabric::new(vec![part(0, &shared, &[1]), part(0, &shared, &[])]).is_ok());
}
