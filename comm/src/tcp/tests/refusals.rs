//! Peers that are refused: nonsense, a wrong key, strangers.

use super::*;

#[test]
fn nonsense_is_the_end_of_its_sender_alone() {
    let key = Key::generate().unwrap();
    let listeners = [listen(), listen()];
    let [own, other] = listeners.each_ref().map(Listener::address);
    // Machine 0 is the fake one, 1 and 2 are real.
    let peers = vec![Some("127.0.0.1:1".parse().unwrap()), Some(own), Some(other)];
    let claim =
        |to: u16, purpose| Claim { from: MachineId(0), to: MachineId(to), machines: 3, region_bytes: 4096, purpose };
    let fabrics: Vec<TcpFabric> = std::thread::scope(|scope| {
        let open = |listener, machine| {
            TcpFabric::open(listener, machine, peers.clone(), key.clone(), region(4096), TIMEOUT).unwrap()
        };
        let opening: Vec<_> = (1..).map(MachineId).zip(listeners).collect();
        let opening: Vec<_> =
            opening.into_iter().map(|(machine, listener)| scope.spawn(move || open(listener, machine))).collect();
        let controls = [own, other].into_iter().zip(1..);
        let controls: Vec<_> =
            controls.map(|(address, to)| Fake::connect(&key, address, claim(to, Use::Control)).unwrap()).collect();
        let fabrics = opening.into_iter().map(|thread| thread.join().unwrap()).collect();
        // Claims that no machine makes are refused, and do no harm.
        for wrong in [
            Claim { from: MachineId(1), ..claim(1, Use::Data { worker: 0 }) },
            Claim { from: MachineId(9), ..claim(1, Use::Data { worker: 0 }) },
            Claim { machines: 4, ..claim(1, Use::Data { worker: 0 }) },
            claim(2, Use::Data { worker: 0 }),
            claim(1, Use::Control),
        ] {
            let refused = Fake::connect(&key, own, wrong).unwrap_err();
            assert!(matches!(refused, Error::Unwanted { .. }), "{wrong:?}: {refused}");
        }
        let mut stream = Fake::connect(&key, own, claim(1, Use::Data { worker: 5 })).unwrap();
        // A good write, then one outside the region.
        stream.write_all(&frame::head(8, 8)).unwrap();
        stream.write_all(&7_u64.to_ne_bytes()).unwrap();
        stream.write_all(&frame::head(4096, 8)).unwrap();
        stream.write_all(&[1; 8]).unwrap();
        // Both sides close; the read returns the end, or a reset.
        let _ = stream.read(&mut [0; 8]);
        drop(controls);
        fabrics
    });
    let [real, other] = fabrics.as_slice() else { panic!("two machines") };
    assert_eq!(wait_for_loss(real, MachineId(0)), Loss::Died);
    let cause = real.cause(MachineId(0)).unwrap();
    assert!(cause.contains("worker 5") && cause.contains("4096"), "{cause}");
    wait_for_word(real.region(), 8, 7);
    assert_eq!(real.lost(MachineId(2)).unwrap(), None);
    let mut connection = other.connect(MachineId(1), WorkerId(0)).unwrap();
    connection.write(&9_u64.to_ne_bytes(), 16).unwrap();
    connection.flush().unwrap();
    wait_for_word(real.region(), 16, 9);
}

#[test]
fn a_wrong_key_is_told() {
    let listeners = [listen(), listen()];
    let peers: Vec<_> = listeners.iter().map(|listener| Some(listener.address())).collect();
    let [first, second] = listeners;
    std::thread::scope(|scope| {
        let open = |listener, machine| {
            let key = Key::generate().unwrap();
            let timeout = Duration::from_secs(2);
            TcpFabric::open(listener, MachineId(machine), peers.clone(), key, region(8), timeout).unwrap_err()
        };
        let first = scope.spawn(move || open(first, 0));
        let second = open(second, 1);
        let first = first.join().unwrap();
        assert!(matches!(&first, Error::WrongKey { peer } if peer.contains("machine 1")), "{first}");
        assert!(matches!(second, Error::PeerMissing { machine: MachineId(0), .. }), "{second}");
    });
}

/// Silent strangers, and strangers that send anything, more than are handled at once: the machines continue,
/// and new connections are made.
#[test]
fn strangers_do_no_harm() {
    let key = Key::generate().unwrap();
    let listeners = [listen(), listen()];
    let addresses = listeners.each_ref().map(Listener::address);
    let peers: Vec<_> = addresses.into_iter().map(Some).collect();
    let [first, second] = listeners;
    std::thread::scope(|scope| {
        let open = |listener, machine| {
            let region = region(4096);
            TcpFabric::open(listener, MachineId(machine), peers.clone(), key.clone(), region, TIMEOUT).unwrap()
        };
        let first = scope.spawn(move || open(first, 0));
        let second = open(second, 1);
        let first = first.join().unwrap();
        let (mut strangers, mut random) = (Vec::new(), SmallRng::seed_from_u64(1));
        for number in 0..150 {
            let mut stranger = TcpStream::connect(addresses[1]).unwrap();
            let said: Vec<u8> = (&mut random).random_iter().take(number * 2).collect();
            // The other side may close it before all is sent.
            let _ = stranger.write_all(&said);
            strangers.push(stranger);
        }
        let mut connection = first.connect(MachineId(1), WorkerId(0)).unwrap();
        connection.write(&9_u64.to_ne_bytes(), 16).unwrap();
        connection.flush().unwrap();
        wait_for_word(second.region(), 16, 9);
        assert_eq!((first.lost(MachineId(1)).unwrap(), second.lost(MachineId(0)).unwrap()), (None, None));
    });
}
