//! The conformance suite over the simulated network, and the cases of this network alone: cuts, deaths.

use super::*;
use crate::conformance::{self, Effort, REGION_BYTES};
use std::sync::atomic::Ordering;
use std::time::Instant;

const TIMEOUT: Duration = limits::HANG;

fn open_all(network: &Network, machines: u16, region_bytes: usize) -> Vec<SimFabric> {
    std::thread::scope(|scope| {
        let open = |machine| {
            let region = Arc::new(Region::anonymous(region_bytes).unwrap());
            network.open(MachineId(machine), region, TIMEOUT).unwrap()
        };
        let opening: Vec<_> = (0..machines).map(|machine| scope.spawn(move || open(machine))).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn conditions(seed: u64, delay_us: u64, silence: Duration) -> Conditions {
    Conditions { seed, delay: Duration::ZERO..=Duration::from_micros(delay_us), silence }
}

/// A short silence, for cuts that must be noticed.
const SHORT: Duration = Duration::from_millis(50);

fn load(fabric: &SimFabric, offset: usize) -> u64 {
    // Acquire of [flag-last], with the Release in `Region::publish`.
    fabric.region().word(offset).unwrap().load(Ordering::Acquire)
}

/// Polls until the word is `value`.
fn wait_for(fabric: &SimFabric, offset: usize, value: u64) {
    let start = Instant::now();
    while load(fabric, offset) != value {
        assert!(start.elapsed() < TIMEOUT, "{value} did not come");
        std::thread::yield_now();
    }
}

#[test]
fn conforms_whatever_the_seed() {
    for (seed, machines, delay_us) in [(1, 2, 0), (2, 3, 30), (3, 4, 300)] {
        let network = Network::new(machines, conditions(seed, delay_us, TIMEOUT)).unwrap();
        let fabrics = open_all(&network, machines, REGION_BYTES);
        let effort = Effort { writes: 10_000, wakes: 500, timeout: TIMEOUT };
        std::thread::scope(|scope| {
            for fabric in &fabrics {
                scope.spawn(|| conformance::run(fabric, &effort));
            }
        });
    }
}

#[test]
fn a_killed_machine_is_noticed() {
    let victim = MachineId(1);
    let network = Network::new(3, Conditions::default()).unwrap();
    let fabrics = open_all(&network, 3, REGION_BYTES);
    network.kill(victim);
    for fabric in fabrics.iter().filter(|fabric| fabric.machine() != victim) {
        conformance::notices_death(fabric, victim, TIMEOUT, || ());
        assert_eq!(fabric.cause(victim).as_deref(), Some("it was killed"));
    }
}

#[test]
fn shares_outlive_a_machine() {
    let victim = MachineId(1);
    let network = Network::new(3, conditions(4, 100, TIMEOUT)).unwrap();
    let fabrics = open_all(&network, 3, REGION_BYTES);
    std::thread::scope(|scope| {
        for fabric in &fabrics {
            let die = || network.kill(victim);
            scope.spawn(move || conformance::shares_outlive_a_machine(fabric, victim, TIMEOUT, die));
        }
    });
}

#[test]
fn a_read_that_meets_a_cut_comes_after_it_or_not_at_all() {
    const SHARE: ShareId = ShareId(0);
    let network = Network::new(2, conditions(1, 0, SHORT)).unwrap();
    let fabrics = open_all(&network, 2, 4096);
    fabrics[1].open_share(SHARE, crate::SHARE_UNIT_BYTES).unwrap();
    fabrics[1].commit(SHARE, 0..crate::SHARE_UNIT_BYTES).unwrap();
    let mut reader = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    let mut take = |is_restored: bool| {
        network.cut(MachineId(1));
        let read_id = reader.read_share(SHARE, 0, 8).unwrap();
        assert!(!reader.take(read_id, &mut [0; 8]).unwrap());
        if is_restored {
            network.restore(MachineId(1));
        }
        let start = Instant::now();
        loop {
            match reader.take(read_id, &mut [0; 8]) {
                Ok(false) => assert!(start.elapsed() < TIMEOUT, "it waits for ever"),
                other => return other,
            }
            std::thread::yield_now();
        }
    };
    assert!(take(true).unwrap());
    assert!(matches!(take(false), Err(Error::Gone { machine: MachineId(1) })));
}

#[test]
fn a_machine_that_is_cut_off_and_the_others_take_one_another_for_dead() {
    let network = Network::new(3, conditions(1, 0, SHORT)).unwrap();
    let fabrics = open_all(&network, 3, 4096);
    network.cut(MachineId(2));
    for fabric in &fabrics[..2] {
        assert_eq!(fabric.watch(&[], TIMEOUT).unwrap(), Some(MachineId(2)));
        assert_eq!(fabric.cause(MachineId(2)).unwrap(), "it was silent for 50ms");
        assert_eq!(fabric.lost(MachineId(1 - fabric.machine().0)).unwrap(), None, "those two hear one another");
    }
    assert!(fabrics[2].watch(&[], TIMEOUT).unwrap().is_some());
    // The one it misses first is random.
    let start = std::time::Instant::now();
    for peer in [0, 1].map(MachineId) {
        while fabrics[2].lost(peer).unwrap().is_none() && start.elapsed() < TIMEOUT {
            std::thread::yield_now();
        }
        assert_eq!(fabrics[2].lost(peer).unwrap(), Some(Loss::Died));
    }
}

#[test]
fn what_was_sent_in_a_short_cut_comes_after_it_in_order() {
    let network = Network::new(2, conditions(5, 20, TIMEOUT)).unwrap();
    let fabrics = open_all(&network, 2, 4096);
    let mut out = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    network.cut(MachineId(0));
    for number in 1..=100u64 {
        out.write(&[number, number].map(u64::to_ne_bytes).concat(), 0).unwrap();
        out.flush().unwrap();
    }
    network.restore(MachineId(0));
    out.write(&1u64.to_ne_bytes(), 64).unwrap();
    out.flush().unwrap();
    wait_for(&fabrics[1], 64, 1);
    assert_eq!((load(&fabrics[1], 0), load(&fabrics[1], 8)), (100, 100), "a write came late");
    assert_eq!(fabrics[1].lost(MachineId(0)).unwrap(), None);
}

#[test]
fn nothing_comes_through_a_cut() {
    let network = Network::new(3, conditions(1, 0, TIMEOUT)).unwrap();
    let fabrics = open_all(&network, 3, 4096);
    let mut cut = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    let mut whole = fabrics[0].connect(MachineId(2), WorkerId(0)).unwrap();
    network.cut(MachineId(1));
    for connection in [&mut cut, &mut whole] {
        connection.write(&[1; 8], 0).unwrap();
        connection.flush().unwrap();
    }
    // The delivery thread takes loads by their time: the second is due no earlier than the first.
    wait_for(&fabrics[2], 0, u64::from_ne_bytes([1; 8]));
    assert_eq!(load(&fabrics[1], 0), 0);
}

#[test]
fn nothing_is_sent_before_the_flush() {
    let network = Network::new(2, conditions(1, 0, TIMEOUT)).unwrap();
    let fabrics = open_all(&network, 2, 4096);
    let mut held = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    let mut other = fabrics[0].connect(MachineId(1), WorkerId(1)).unwrap();
    held.write(&[1; 8], 0).unwrap();
    other.write(&[1; 8], 64).unwrap();
    other.flush().unwrap();
    wait_for(&fabrics[1], 64, u64::from_ne_bytes([1; 8]));
    assert_eq!(load(&fabrics[1], 0), 0, "a missing flush is to be found by tests");
}

#[test]
fn a_sender_without_room_is_let_go_when_its_peer_dies() {
    let network = Network::new(2, conditions(1, 0, SHORT)).unwrap();
    let fabrics = open_all(&network, 2, 1 << 20);
    let mut out = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    network.cut(MachineId(1));
    let bulk = vec![1; 1 << 20];
    // More than there is room for on the way.
    for _ in 0..8 {
        out.write(&bulk, 0).unwrap();
        out.flush().unwrap();
    }
    assert_eq!(fabrics[0].lost(MachineId(1)).unwrap(), Some(Loss::Died));
}

#[test]
fn leaving_in_order_is_no_death() {
    let network = Network::new(2, Conditions::default()).unwrap();
    let mut fabrics = open_all(&network, 2, 4096);
    drop(fabrics.pop());
    assert_eq!(fabrics[0].lost(MachineId(1)).unwrap(), Some(Loss::Left));
    assert_eq!(fabrics[0].watch(&[], Duration::ZERO).unwrap(), None);
    assert_eq!(fabrics[0].cause(MachineId(1)), None);
}

#[test]
fn a_machine_that_never_joins_is_named() {
    let network = Network::new(2, Conditions::default()).unwrap();
    let region = || Arc::new(Region::anonymous(64).unwrap());
    let opened = network.open(MachineId(0), region(), Duration::from_millis(5));
    assert!(matches!(opened, Err(Error::PeerMissing { machine: MachineId(1), .. })));
    for machine in [0, 2] {
        let opened = network.open(MachineId(machine), region(), TIMEOUT);
        assert!(matches!(opened, Err(Error::Bootstrap { .. })));
    }
}

#[test]
fn chance_follows_the_seed() {
    let tosses = |seed, worker| {
        let flow = Flow { from: MachineId(0), to: MachineId(1), worker: WorkerId(worker) };
        ether::tosses(seed, flow, 100)
    };
    assert_eq!(tosses(1, 0), tosses(1, 0));
    assert_ne!(tosses(1, 0), tosses(2, 0));
    assert_ne!(tosses(1, 0), tosses(1, 1));
}
