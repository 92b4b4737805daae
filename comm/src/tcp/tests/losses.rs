//! Machines and connections that are lost: killed, silent, slow or broken ones, and graceful ends, which are none.

use super::*;

#[test]
fn timed_a_killed_machine_is_noticed() {
    let mut processes = start_all(3, "death");
    let victim = processes.remove(usize::from(VICTIM.0));
    victim.stdout.wait_for(READY);
    let start = Instant::now();
    victim.signal(Signal::KILL);
    processes.into_iter().for_each(ChildProcess::passes);
    assert!(start.elapsed() < limits::bound(Duration::from_secs(20)), "noticed after {:?}", start.elapsed());
}

#[test]
fn a_machine_that_stands_still_is_noticed() {
    let mut processes = start_all(3, "silence");
    let victim = processes.remove(usize::from(VICTIM.0));
    victim.stdout.wait_for(READY);
    victim.signal(Signal::STOP);
    processes.into_iter().for_each(ChildProcess::passes);
}

#[test]
fn leaving_in_order_is_no_death() {
    let mut fabrics = open_all(3, 4096, Limits::default());
    drop(fabrics.pop());
    for fabric in &fabrics {
        assert_eq!(wait_for_loss(fabric, MachineId(2)), Loss::Left);
        assert_eq!(fabric.watch(&[], Duration::ZERO).unwrap(), None);
        assert_eq!(fabric.cause(MachineId(2)), None);
        assert_eq!(fabric.lost(MachineId(1 - fabric.machine().0)).unwrap(), None);
        let mut connection = fabric.connect(MachineId(2), WorkerId(0)).unwrap();
        connection.write(&[1; 64 << 10 >> 4], 0).unwrap();
        connection.flush().unwrap();
    }
    // All at once.
    std::thread::scope(|scope| {
        for fabric in fabrics {
            scope.spawn(move || drop(fabric));
        }
    });
}

/// A machine that was declared dead and runs on: it writes as fast as it can while another one shuts it out.
#[test]
fn nothing_of_a_machine_that_is_shut_out_arrives() {
    let fabrics = open_all(3, 1 << 16, Limits::default());
    let (fabric, zombie) = (&fabrics[0], &fabrics[1]);
    let word = || fabric.region().word(0).unwrap().load(Ordering::Acquire); // pairs as in `wait_for_word`
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut connection = zombie.connect(fabric.machine(), WorkerId(0)).unwrap();
            let mut number: u64 = 0;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                connection.write(&number.to_ne_bytes(), 0).unwrap();
                connection.flush().unwrap();
            }
            number
        });
        let start = Instant::now();
        while word() < 100 {
            assert!(start.elapsed() < TIMEOUT, "nothing came");
            std::thread::yield_now();
        }
        fabric.fence(zombie.machine(), TIMEOUT).unwrap();
        let last = word();
        assert_eq!(fabric.lost(zombie.machine()).unwrap(), Some(Loss::Died));
        assert_eq!(fabric.cause(zombie.machine()).unwrap(), "it was declared dead");
        assert_eq!(fabric.watch(&[zombie.machine()], Duration::ZERO).unwrap(), None);
        // The third machine's writes come as before, on a connection that is made now.
        let mut third = fabrics[2].connect(fabric.machine(), WorkerId(0)).unwrap();
        for number in 1..=1000 {
            third.write(&u64::to_ne_bytes(number), 8).unwrap();
            third.flush().unwrap();
            wait_for_word(fabric.region(), 8, number);
            assert_eq!(word(), last, "a write of a machine that is shut out has arrived");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > last, "it has written since");
        assert_eq!(word(), last);
    });
    // No new connection of it is let in, and this side's writes to it vanish.
    let mut again = zombie.connect(fabric.machine(), WorkerId(1)).unwrap();
    let _ = again.write(&[7; 8], 0).and_then(|()| again.flush());
    let mut there = fabric.connect(zombie.machine(), WorkerId(0)).unwrap();
    there.write(&[7; 8], 0).and_then(|()| there.flush()).unwrap();
    assert!(matches!(fabric.fence(MachineId(7), TIMEOUT), Err(Error::NoSuchPeer { .. })));
}

/// A worker writes while its peer leaves: that never counts as a death.
#[test]
fn writing_to_who_leaves_is_no_death() {
    for _ in 0..10 {
        let mut fabrics = open_all(2, 1 << 20, Limits::default());
        let leaving = fabrics.pop().unwrap();
        let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(leaving));
            while fabrics[0].lost(MachineId(1)).unwrap().is_none() {
                connection.write(&[1; 1 << 16], 0).unwrap();
                connection.flush().unwrap();
            }
        });
        (0..10).for_each(|_| connection.write(&[1; 1 << 16], 0).unwrap());
        assert_eq!(fabrics[0].lost(MachineId(1)).unwrap(), Some(Loss::Left), "{:?}", fabrics[0].cause(MachineId(1)));
    }
}

/// A machine on a busy host answers late: it gets no second connection, whose work would be in vain too.
#[test]
fn timed_a_late_answer_is_waited_for() {
    let (fake, fabric, _control) = Fake::with_peer(4096, Limits::default());
    std::thread::scope(|scope| {
        let reaching = scope.spawn(|| fabric.reach(VICTIM, Use::Data { worker: 0 }, TIMEOUT).unwrap());
        let mut late = IncomingHandshake::new(fake.listener.accept().unwrap().0);
        // The fault itself: the machine stands still for that long.
        std::thread::sleep(Duration::from_secs(1));
        limits::wait_until("the handshake ends", || {
            matches!(late.advance(&fake.key, fake.region_bytes, |_| true), Progress::Authenticated(_))
        });
        reaching.join().unwrap();
    });
    fake.listener.set_nonblocking(true).unwrap();
    assert_eq!(fake.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "there was another attempt");
}

/// The receiver takes a few bytes at a time: everything arrives, in order, and the sender holds no more than
/// its limit.
#[test]
fn a_slow_reader_holds_the_sender_up_and_loses_nothing() {
    const WRITES: u64 = 1500;
    let (fake, fabric, _control) = Fake::with_peer(1 << 20, Limits::default());
    let (mut stream, mut connection) = fake.connection(&fabric, 3);
    let expected = region(1 << 20);
    let received = region(1 << 20);
    std::thread::scope(|scope| {
        let expected = &expected;
        scope.spawn(move || {
            for number in 1..=WRITES {
                // From 8 bytes to 64 KiB: held back, sent directly, and beyond the buffer's room.
                let bytes = 8 << (number % 14);
                let offset = (number as usize * 4096) % ((1 << 20) - bytes) / 8 * 8;
                let source: Vec<u8> = (0..bytes as u64).map(|index| (index ^ number) as u8).collect();
                connection.write(&source, offset).unwrap();
                expected.publish(offset, &source).unwrap();
                connection.wake(4 * (number as usize % 100)).unwrap();
                if number % 7 == 0 {
                    connection.flush().unwrap();
                }
                assert!(connection.held_capacity() <= 128 << 10, "{} bytes are held", connection.held_capacity());
            }
            assert!(connection.is_connected());
        });
        let (mut intake, mut woken, mut buffer) = (Intake::default(), 0, vec![0; 5003]);
        loop {
            let bytes = stream.read(&mut buffer).unwrap();
            if bytes == 0 {
                break;
            }
            let taken = intake.take(&buffer[..bytes], &received, &mut |event| {
                woken += 1;
                assert_eq!(event, Event::Wake(4 * (woken % 100)), "wakes come in order");
                Ok(())
            });
            taken.unwrap();
        }
        assert_eq!(woken, WRITES as usize);
        assert!(!intake.is_within_frame());
    });
    let words = |region: &Region| -> Vec<u64> {
        region.words(0, 1 << 20).unwrap().iter().map(|word| word.load(Ordering::Relaxed)).collect()
    };
    assert!(words(&expected) == words(&received));
}

/// A firewall forgets a connection and then refuses it: the worker waits for a write to its region, and sends
/// nothing that would reveal the loss.
#[test]
fn a_connection_that_is_reset_is_missed_though_nobody_writes() {
    let (fake, fabric, control) = Fake::with_peer(4096, Limits::default());
    let connection = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| fake.accept().0);
        let connection = fabric.connect(VICTIM, WorkerId(3)).unwrap();
        let accepted = accepting.join().unwrap();
        rustix::net::sockopt::set_socket_linger(&accepted, Some(Duration::ZERO)).unwrap();
        connection
    });
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    let cause = fabric.cause(VICTIM).unwrap();
    assert!(cause.contains("the connection to it broke: Connection reset"), "{cause}");
    drop(connection);
    // A live peer is not told that this machine has ended.
    control.set_nonblocking(true).unwrap();
    let mut said = [0; 256];
    loop {
        match (&control).read(&mut said) {
            Ok(bytes) => assert!(bytes > 0, "the control connection was closed"),
            Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// The heartbeats of one connection are lost on the way, those of the machine are not.
#[test]
fn a_connection_that_falls_silent_is_missed() {
    let (fake, fabric, control) = Fake::with_peer(4096, SHORT);
    let claim = |worker| Claim {
        from: VICTIM,
        to: MachineId(0),
        machines: 2,
        region_bytes: 4096,
        purpose: Use::Data { worker },
    };
    let never = Fake::connect(&fake.key, fake.peer, claim(0)).unwrap();
    let mut silent = Fake::connect(&fake.key, fake.peer, claim(1)).unwrap();
    silent.write_all(&frame::HEARTBEAT).unwrap();
    let start = Instant::now();
    while fabric.lost(VICTIM).unwrap().is_none() {
        assert!(start.elapsed() < TIMEOUT, "nobody misses it");
        (&control).write_all(b"h").unwrap();
        std::thread::sleep(SHORT.heartbeat); // the interval of its heartbeats
    }
    let cause = fabric.cause(VICTIM).unwrap();
    assert!(cause.contains("the packets of one connection to"), "{cause}");
    drop((never, silent));
}

/// An unused connection has heartbeats, and frames around them stay whole.
#[test]
fn a_connection_that_nobody_uses_gives_signs_of_life() {
    let limits = Limits { silence: TIMEOUT, ..SHORT };
    let (fake, fabric, _control) = Fake::with_peer(4096, limits);
    let (mut accepted, mut connection) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| fake.accept().0);
        let connection = fabric.connect(VICTIM, WorkerId(3)).unwrap();
        (accepting.join().unwrap(), connection)
    });
    let mut word = [0; 8];
    for number in 0..3_u64 {
        connection.write(&number.to_le_bytes(), 8).unwrap();
        connection.flush().unwrap();
        let mut beats = 0;
        loop {
            accepted.read_exact(&mut word).unwrap();
            match word == frame::HEARTBEAT {
                true => beats += 1,
                false => break assert_eq!(word, frame::head(8, 8)),
            }
        }
        accepted.read_exact(&mut word).unwrap();
        assert_eq!(word, number.to_le_bytes());
        while beats < 2 {
            accepted.read_exact(&mut word).unwrap();
            assert_eq!(word, frame::HEARTBEAT);
            beats += 1;
        }
    }
}

/// A peer that lives and sends heartbeats, but not the answers it owes: they are lost on the way.
#[test]
fn answers_that_do_not_come_are_missed() {
    let (fake, fabric, control) = Fake::with_peer(4096, SHORT);
    let (stream, mut connection) = fake.connection(&fabric, 3);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && (&control).write_all(b"h").is_ok() {
                std::thread::sleep(SHORT.heartbeat); // the interval of its heartbeats
            }
        });
        let read = connection.read_share(SHARE, 0, 16);
        is_over.store(true, Ordering::Relaxed);
        // The first query is for the share's length, and gets no answer.
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
        let cause = fabric.cause(VICTIM).unwrap();
        assert!(cause.contains("the packets of one connection to 127.0.0.1:") && cause.contains("MTU"), "{cause}");
    });
    drop(stream);
}

/// The receiver takes nothing and sends nothing: the sender waits, in bounded memory, until its peer is given
/// up; from then on writes vanish.
#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    let (fake, fabric, _control) = Fake::with_peer(1 << 20, SHORT);
    let (_stream, mut connection) = fake.connection(&fabric, 0);
    let source = vec![1; 16 << 10];
    let start = Instant::now();
    let mut writes: u64 = 0;
    while connection.is_connected() {
        connection.write(&source, 0).unwrap();
        assert!(connection.held_capacity() <= 128 << 10);
        assert!(start.elapsed() < TIMEOUT, "the peer was not given up after {writes} writes");
        writes += 1;
    }
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    assert_eq!(fabric.watch(&[], TIMEOUT).unwrap(), Some(VICTIM));
    let cause = fabric.cause(VICTIM).unwrap();
    assert!(cause.contains("nothing was heard") || cause.contains("broke"), "{cause}");
    connection.write(&source, 0).unwrap();
    connection.flush().unwrap();
}

/// A connection of a worker breaks while the peer seems to live: that is the peer's death, for its writes are lost.
#[test]
fn a_broken_connection_is_a_death() {
    let (fake, fabric, _control) = Fake::with_peer(1 << 20, Limits::default());
    let (stream, mut connection) = fake.connection(&fabric, 0);
    drop(stream);
    let start = Instant::now();
    while connection.is_connected() {
        connection.write(&[1; 8], 0).unwrap();
        connection.flush().unwrap();
        assert!(start.elapsed() < TIMEOUT);
    }
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    assert!(fabric.cause(VICTIM).unwrap().contains("broke"));
}
