//! Two devices in one machine.

use super::rig::{
    self, DEVICES, Down, Lossy, TIMEOUT, each, lenient, on_device, open, open_shared, open_spoiled, party, pinned_kib,
    prepare,
};
use comm::conformance::{self, Effort, REGION_BYTES};
use comm::verbs::{Flag, REGION_KEY_AT, Settings, VerbsFabric, survey};
use comm::{Connection, Error, Fabric, Loss, MachineId, Region, ShareId, Wake, WorkerId};
use processes::{ChildProcess, in_role, run};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const A: MachineId = MachineId(0);
const B: MachineId = MachineId(1);
const MAIN: WorkerId = WorkerId(0);
/// Offsets for the tests of this file: a park word, and a word.
const PARK: usize = 0;
const WORD: usize = 64;

fn effort() -> Effort {
    Effort { writes: 4_000, wakes: 200, timeout: TIMEOUT }
}

fn conforms(machines: usize, settings: &Settings, effort: &Effort) -> Vec<VerbsFabric> {
    conform(open(&vec![3; machines], settings), effort)
}

fn conform(fabrics: Vec<VerbsFabric>, effort: &Effort) -> Vec<VerbsFabric> {
    let start = Instant::now();
    each(&fabrics, |fabric| conformance::run(fabric, effort));
    println!("{} ms: {:?}", start.elapsed().as_millis(), fabrics[0].counts());
    fabrics
}

#[test]
fn conforms_between_two_devices() {
    let before = pinned_kib();
    let fabrics = conforms(2, &lenient(), &effort());
    assert!(pinned_kib() > before, "a region in use is pinned");
    drop(fabrics);
    assert_eq!(pinned_kib(), before, "something is still pinned");
}

#[test]
fn conforms_between_three_machines() {
    conforms(3, &Settings { signal_every: 1, ..lenient() }, &effort());
}

#[test]
fn conforms_with_the_flag_in_the_same_write() {
    conforms(2, &Settings { flag: Flag::SameWrite, ..lenient() }, &effort());
}

#[test]
fn conforms_with_the_flag_in_a_second_write_and_the_shortest_queues() {
    let shortest = Settings {
        queue_depth: 8,
        signal_every: 1000,
        staging_bytes: 4096,
        inline_bytes: 0,
        flag: Flag::SecondWrite,
        ..lenient()
    };
    // soft-RoCE would accept it, but it must not happen: more requests than the queue holds.
    conforms(2, &shortest, &Effort { writes: 1_000, wakes: 50, timeout: TIMEOUT });
}

#[test]
fn conforms_with_a_queue_pair_that_all_workers_share() {
    conform(open_shared(&[3; 3], &lenient()), &effort());
    let shortest = Settings { queue_depth: 8, staging_bytes: 4096, flag: Flag::SecondWrite, ..lenient() };
    let fabrics = conform(open_shared(&[3; 2], &shortest), &Effort { writes: 1_000, wakes: 50, timeout: TIMEOUT });
    assert_eq!(fabrics[0].counts().queue_pairs, 1);
}

#[test]
fn conforms_while_packets_get_lost() {
    let _lossy = Lossy::new(1);
    conforms(2, &lenient(), &Effort { writes: 400, wakes: 20, timeout: 2 * TIMEOUT });
}

#[test]
fn one_packet_in_ten_may_get_lost() {
    let fabrics = open(&[1, 1], &lenient());
    let _lossy = Lossy::new(10);
    let mut there = fabrics[0].connect(B, MAIN).unwrap();
    let mut back = fabrics[1].connect(A, MAIN).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=30 {
                wait_for(&fabrics[1], round);
                let mut bytes = vec![0; 10_000];
                fabrics[1].region().read(128, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == round as u8), "write {round} is not whole");
                send(&mut *back, round);
            }
        });
        for round in 1..=30 {
            there.write(&[round as u8; 10_000], 128).unwrap();
            send(&mut *there, round);
            wait_for(&fabrics[0], round);
        }
    });
}

/// Writes the word, wakes and flushes.
fn send(connection: &mut dyn Connection, value: u64) {
    connection.write(&value.to_ne_bytes(), WORD).unwrap();
    connection.wake(PARK).unwrap();
    connection.flush().unwrap();
}

#[test]
fn workers_may_differ_in_number() {
    let fabrics = open(&[1, 4], &lenient());
    // A worker that its peer lacks still writes, and so does the main thread.
    for (worker, value) in [(WorkerId(3), 7), (WorkerId(u16::MAX), 8)] {
        let mut connection = fabrics[1].connect(A, worker).unwrap();
        connection.write(&u64::to_ne_bytes(value), WORD).unwrap();
        connection.wake(PARK).unwrap();
        connection.flush().unwrap();
        wait_for(&fabrics[0], value);
    }
    let refused = fabrics[0].connect(B, WorkerId(1)).map(drop);
    assert!(matches!(refused, Err(Error::NoSuchWorker { worker: 1, workers: 1 })), "{refused:?}");
}

/// Parks until the word has this value.
fn wait_for(fabric: &VerbsFabric, value: u64) {
    let word = fabric.region().word(WORD).unwrap();
    // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
    let mut is_idle = || word.load(Ordering::Acquire) != value;
    while is_idle() {
        let woke = fabric.park(MAIN, PARK, TIMEOUT, &mut is_idle).unwrap();
        assert_ne!(woke, Wake::TimedOut, "{value} did not come");
    }
}

#[test]
fn a_batch_is_one_post_and_few_completions() {
    const BATCHES: u64 = 500;
    const WRITES: u64 = 25;
    let fabrics = open(&[1, 1], &Settings { flag: Flag::SameWrite, ..lenient() });
    let mut connection = fabrics[0].connect(B, MAIN).unwrap();
    let before = fabrics[0].counts();
    for batch in 1..=BATCHES {
        for number in 0..WRITES {
            let source = [[batch.to_ne_bytes(); 3], [(batch * WRITES + number).to_ne_bytes(); 3]].concat().concat();
            connection.write(&source, 128 + 64 * number as usize).unwrap();
        }
        connection.flush().unwrap();
        fabrics[0].poll(MAIN).unwrap();
    }
    connection.write(&1u64.to_ne_bytes(), WORD).unwrap();
    connection.wake(PARK).unwrap();
    connection.flush().unwrap();
    wait_for(&fabrics[1], 1);
    let after = fabrics[0].counts();
    let (writes, posts, signed) =
        (after.writes - before.writes, after.posts - before.posts, after.signed - before.signed);
    println!("{writes} writes, {posts} posts, {signed} signed: {after:?}");
    assert_eq!(writes, BATCHES * WRITES + 1);
    // Some batches are split where the queue or the ring is full; no more than one in five.
    assert!((BATCHES + 1..=BATCHES * 6 / 5).contains(&posts), "{posts} posts for {BATCHES} batches");
    assert!(signed * 20 <= writes, "{signed} of {writes} writes reported their completion");
}

#[test]
fn a_sleeper_is_sent_a_message_and_who_is_awake_is_not() {
    const ROUNDS: u64 = 50;
    let fabrics = open(&[1, 1], &lenient());
    let mut connection = fabrics[0].connect(B, MAIN).unwrap();
    let mut back = fabrics[1].connect(A, MAIN).unwrap();
    // The peer does not sleep: any number of wakes costs no message.
    for round in 1..=ROUNDS {
        connection.write(&round.to_ne_bytes(), WORD).unwrap();
        connection.wake(PARK).unwrap();
        connection.flush().unwrap();
        fabrics[0].poll(MAIN).unwrap();
    }
    let word = fabrics[1].region().word(WORD).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
    while word.load(Ordering::Acquire) != ROUNDS {
        assert!(Instant::now() < deadline, "the writes did not come");
        std::thread::yield_now();
    }
    assert_eq!((fabrics[0].counts().wake_messages, fabrics[1].counts().wake_messages_received), (0, 0));
    // Now each sleeps until the other writes.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                wait_for(&fabrics[1], ROUNDS + round);
                back.write(&round.to_ne_bytes(), WORD).unwrap();
                back.wake(PARK).unwrap();
                back.flush().unwrap();
            }
        });
        for round in 1..=ROUNDS {
            connection.write(&(ROUNDS + round).to_ne_bytes(), WORD).unwrap();
            connection.wake(PARK).unwrap();
            connection.flush().unwrap();
            wait_for(&fabrics[0], round);
        }
    });
    let counts = fabrics[1].counts();
    println!("{ROUNDS} rounds each way: {:?} and {counts:?}", fabrics[0].counts());
    assert!(counts.wake_messages_received > 0, "nobody was woken");
    assert!(
        counts.wake_messages_received <= 2 * ROUNDS,
        "{} wake messages for {ROUNDS} sleeps",
        counts.wake_messages_received
    );
}

/// Measures the cost of large payloads as they are, and of a one-sided READ of them instead: with their
/// memory registered for each, or for ever. docs/rdma.md has the decision.
#[test]
fn a_large_payload_goes_in_pieces_and_registers_nothing() {
    const MIB: usize = 1 << 20;
    const WRITES: usize = 64;
    let fabrics = open(&[1, 1], &lenient());
    let mut connection = fabrics[0].connect(B, MAIN).unwrap();
    let source = vec![7; MIB / WRITES];
    let before = fabrics[0].counts();
    for _ in 0..WRITES {
        connection.write(&source, 1024).unwrap();
    }
    send(&mut *connection, 1);
    wait_for(&fabrics[1], 1);
    let after = fabrics[0].counts();
    let (requests, posts) = (after.requests - before.requests, after.posts - before.posts);
    println!("1 MiB: {requests} requests, {posts} posts, {} signed", after.signed - before.signed);
    assert_eq!(after.registered_bytes, before.registered_bytes);
    // At most one post for each quarter of the staging memory, and a few because it was full.
    assert!(posts <= 40, "{posts} posts for 1 MiB");

    let register = |bytes: usize| {
        let region = Arc::new(Region::anonymous(bytes).unwrap());
        for word in region.words(0, bytes).unwrap().iter().step_by(512) {
            word.store(1, Ordering::Relaxed);
        }
        let start = Instant::now();
        drop(VerbsFabric::prepare(&on_device(0, &lenient()), party(0, &[1, 1]), region).unwrap());
        start.elapsed()
    };
    let least = |measure: &dyn Fn() -> std::time::Duration| (0..5).map(|_| measure()).min().unwrap();
    let (short, long) = (least(&|| register(MIB)), least(&|| register(17 * MIB)));
    let (from, mut to) = (vec![1u8; 16 * MIB], vec![2u8; 16 * MIB]);
    let mut start = Instant::now();
    let mut copied = std::time::Duration::MAX;
    for _ in 0..5 {
        to.copy_from_slice(&from);
        copied = copied.min(start.elapsed());
        start = Instant::now();
    }
    assert_eq!(to[MIB], 1);
    println!("coming up and down with 1 MiB: {short:?}, with 17 MiB: {long:?}; 16 MiB copied: {copied:?}");
}

/// A sender that writes much without sleeping itself, and has several completions at once, misses no sleeper.
#[test]
fn no_sleeper_waits_for_the_look_twice_a_second() {
    const BURSTS: u64 = 60;
    let fabrics = open(&[1, 1], &lenient());
    let mut connection = fabrics[0].connect(B, MAIN).unwrap();
    let mut back = fabrics[1].connect(A, MAIN).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for burst in 1..=BURSTS {
                wait_for(&fabrics[1], burst);
                send(&mut *back, burst);
            }
        });
        let answer = fabrics[0].region().word(WORD).unwrap();
        for burst in 1..=BURSTS {
            for write in 1..=12 {
                connection.write(&[write; 4096], 4096).unwrap();
                connection.wake(PARK).unwrap();
                connection.flush().unwrap();
            }
            send(&mut *connection, burst);
            let deadline = Instant::now() + TIMEOUT;
            // Acquire, pairs with the Release of the flag word: [flag-last] of the contract.
            while answer.load(Ordering::Acquire) != burst {
                fabrics[0].poll(MAIN).unwrap();
                assert!(Instant::now() < deadline, "no answer to burst {burst}");
                std::thread::yield_now();
            }
        }
    });
    let counts = fabrics[0].counts();
    println!("{BURSTS} bursts: {counts:?}");
    // On a busy machine the look twice a second may come before a sender that had no CPU; not for most bursts.
    assert!(
        counts.late_wake_messages <= BURSTS / 2,
        "{} of {} wake messages were late",
        counts.late_wake_messages,
        counts.wake_messages
    );
}

#[test]
fn shares_are_registered_in_chunks_and_read_in_parts() {
    const SHARE: ShareId = ShareId(0);
    const MIB: usize = 1 << 20;
    let fabrics = open(&[1, 1], &lenient());
    let before = fabrics[1].counts().registered_bytes;
    fabrics[1].open_share(SHARE, 80 * MIB).unwrap();
    let map = fabrics[1].counts().registered_bytes - before;
    assert!(map < MIB as u64, "{map} bytes are pinned of a share of which nothing is committed");
    fabrics[1].commit(SHARE, 70 * MIB..71 * MIB).unwrap();
    fabrics[1].commit(SHARE, 72 * MIB..73 * MIB).unwrap();
    // The second chunk, which is the rest of the share.
    assert_eq!(fabrics[1].counts().registered_bytes - before - map, 16 * MIB as u64);
    let own = fabrics[1].mapped(B, SHARE).unwrap().unwrap();
    let mut connection = fabrics[0].connect(B, MAIN).unwrap();
    connection.write_share(SHARE, 70 * MIB, &vec![3; MIB]).unwrap();
    let read_id = connection.read_share(SHARE, 70 * MIB, MIB).unwrap();
    let (mut bytes, deadline) = (vec![0; MIB], Instant::now() + TIMEOUT);
    while !connection.take(read_id, &mut bytes).unwrap() {
        assert!(Instant::now() < deadline, "the read did not end");
        std::thread::yield_now();
    }
    assert!(bytes.iter().all(|byte| *byte == 3), "a read did not see the write before it");
    assert!(own.words()[70 * MIB / 8].load(Ordering::Acquire) == u64::from_ne_bytes([3; 8]));
    let refused = connection.write_share(SHARE, 71 * MIB, &[1; 8]);
    assert!(matches!(refused, Err(Error::NotCommitted { .. })), "{refused:?}");
    assert_eq!(fabrics[0].lost(B).unwrap(), None);
    println!("{:?}", fabrics[0].counts());
}

/// A machine leaves amid reads: its readers learn that nothing comes any more.
#[test]
fn reads_of_who_is_gone_end() {
    let mut fabrics = open(&[1, 1, 1], &lenient());
    fabrics[2].open_share(ShareId(1), 1 << 20).unwrap();
    fabrics[2].commit(ShareId(1), 0..1 << 20).unwrap();
    let mut connection = fabrics[0].connect(MachineId(2), MAIN).unwrap();
    let first = connection.read_share(ShareId(1), 0, 8).unwrap();
    drop(fabrics.pop());
    let second = connection.read_share(ShareId(1), 0, 8).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    for read_id in [first, second] {
        let ended = loop {
            match connection.take(read_id, &mut [0; 8]) {
                Ok(false) => assert!(Instant::now() < deadline, "a read of who is gone never ended"),
                other => break other,
            }
            std::thread::yield_now();
        };
        assert!(matches!(ended, Ok(true) | Err(Error::Gone { .. })), "{ended:?}");
    }
}

#[test]
fn what_leaves_in_order_has_not_died() {
    let mut fabrics = open(&[1, 1, 1], &lenient());
    let leaver = fabrics.pop().unwrap();
    let mut connection = leaver.connect(A, MAIN).unwrap();
    connection.write(&5u64.to_ne_bytes(), WORD).unwrap();
    connection.wake(PARK).unwrap();
    // Not flushed: leaving does that.
    drop(leaver);
    wait_for(&fabrics[0], 5);
    for fabric in &fabrics {
        assert_eq!(fabric.lost(MachineId(2)).unwrap(), Some(Loss::Left));
        assert_eq!((fabric.watch(&[], std::time::Duration::ZERO).unwrap(), fabric.cause(MachineId(2))), (None, None));
    }
    // Writes to a gone peer do no harm, and the others continue.
    let mut gone = fabrics[0].connect(MachineId(2), MAIN).unwrap();
    gone.write(&[1; 4096], 0).unwrap();
    gone.flush().unwrap();
    let mut there = fabrics[0].connect(B, MAIN).unwrap();
    there.write(&6u64.to_ne_bytes(), WORD).unwrap();
    there.wake(PARK).unwrap();
    there.flush().unwrap();
    wait_for(&fabrics[1], 6);
    drop(connection);
}

#[test]
fn a_wrong_key_ends_with_its_cause() {
    let fabrics = open_spoiled(&[1, 1], &lenient(), |machine, endpoint| {
        if machine == 1 {
            endpoint[REGION_KEY_AT] ^= 0x5a;
        }
    });
    let mut connection = fabrics[0].connect(B, MAIN).unwrap();
    connection.write(&1u64.to_ne_bytes(), WORD).unwrap();
    connection.wake(PARK).unwrap();
    connection.flush().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while fabrics[0].lost(B).unwrap().is_none() {
        fabrics[0].poll(MAIN).unwrap();
        assert!(Instant::now() < deadline, "the refusal was not noticed");
        std::thread::yield_now();
    }
    assert_eq!(fabrics[0].watch(&[], TIMEOUT).unwrap(), Some(B));
    let cause = fabrics[0].cause(B).unwrap();
    assert!(cause.contains("wrong key"), "{cause}");
}

#[test]
fn a_port_that_goes_down_is_told() {
    let fabrics = open(&[1, 1], &lenient());
    let start = Instant::now();
    let down = Down::new();
    assert_eq!(fabrics[0].watch(&[], TIMEOUT).unwrap(), Some(B));
    println!("noticed after {} ms", start.elapsed().as_millis());
    let cause = fabrics[0].cause(B).unwrap();
    // Silence on a real port; soft-RoCE no longer finds a route.
    assert!(cause.contains("does not answer") || cause.contains("cannot send"), "{cause}");
    assert!(cause.contains("port 1 of rxeA is down"), "{cause}");
    let refused = prepare(0, &[1, 1], &lenient()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("rxeA port 1: RoCE, down"), "{refused}");
    drop(down);
    drop(fabrics);
    // The device can be used again.
    let fabrics = open(&[1, 1], &lenient());
    send(&mut *fabrics[0].connect(B, MAIN).unwrap(), 1);
    wait_for(&fabrics[1], 1);
}

#[test]
fn what_cannot_be_had_is_refused_with_its_reason() {
    let refusal = |settings: &Settings| {
        let region = Arc::new(Region::anonymous(REGION_BYTES).unwrap());
        VerbsFabric::prepare(settings, party(0, &[1, 1]), region).map(drop).unwrap_err().to_string()
    };
    let device = Some(DEVICES[0].to_owned());
    for (settings, said) in [
        (Settings { device: Some("mlx5_9".to_owned()), ..lenient() }, "there is no mlx5_9 on this host"),
        (Settings { port: Some(2), ..lenient() }, "there is no port 2 on this host; it has rxeA port 1"),
        (Settings { device: device.clone(), gid_index: Some(200), ..lenient() }, "gid_index is 200, but rxeA"),
        (Settings { device, mtu: Some(123), ..lenient() }, "mtu is 123"),
        (Settings { retries: 7, ..lenient() }, "retries is 7: it may be 1 to 6"),
    ] {
        let refusal = refusal(&settings);
        assert!(refusal.contains(said), "{refusal}");
    }
    let ports = survey().unwrap();
    assert_eq!(ports.len(), 2);
    assert!(ports.iter().all(|port| port.problem.is_none() && port.is_ethernet && !port.gids.is_empty()), "{ports:?}");
}

#[test]
fn machines_that_do_not_fit_are_refused() {
    let settings = lenient();
    let refusal = |own: u16, workers: &[u16], other: &[u16], timeout| {
        let other = prepare(1, other, &settings).unwrap();
        let prepared = prepare(own, workers, &settings).unwrap();
        prepared.open(&[(B, other.endpoint().to_vec())], timeout).map(drop).unwrap_err().to_string()
    };
    let said = refusal(0, &[1, 1], &[1, 1, 1], TIMEOUT);
    assert!(said.contains("one is of a program of 2 machines, the other of 3"), "{said}");
    let said = refusal(0, &[1, 1], &[1, 2], TIMEOUT);
    assert!(said.contains("it has 2 workers, not 1"), "{said}");
    let said = refusal(0, &[2, 1], &[1, 1], TIMEOUT);
    assert!(said.contains("queue pairs"), "{said}");
    // A machine that never opens.
    let said = refusal(0, &[1, 1], &[1, 1], std::time::Duration::from_millis(100));
    assert!(said.contains("machine 1 did not connect its queue pairs"), "{said}");
    let alone = prepare(0, &[1, 1], &settings).unwrap();
    assert!(alone.open(&[], TIMEOUT).unwrap_err().to_string().contains("machine 1 has sent no endpoint"));
}

/// Body of the processes that other tests start.
#[test]
#[ignore = "what the processes run that other tests start"]
fn child_process() {
    let Some(role) = processes::role() else { return };
    if role == "memlock" {
        println!("\nsaid {}", prepare(0, &[1, 1], &lenient()).map(drop).unwrap_err());
        return;
    }
    let prepared = prepare(1, &[1, 1], &lenient()).unwrap();
    println!("\nendpoint {}", hex::encode(prepared.endpoint()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let fabric = prepared.open(&[(A, hex::decode(line.trim()).unwrap())], TIMEOUT).unwrap();
    conformance::notices_death(&fabric, B, TIMEOUT, || println!("ready"));
}

#[test]
fn a_killed_machine_is_noticed_in_time() {
    let mut command = in_role("pair::child_process", "victim");
    command.stdin(Stdio::piped());
    let mut victim = ChildProcess::start_with_input(command);
    let endpoint = hex::decode(victim.stdout.line("endpoint ")).unwrap();
    let prepared = prepare(0, &[1, 1], &lenient()).unwrap();
    victim.write(&format!("{}\n", hex::encode(prepared.endpoint())));
    let fabric = prepared.open(&[(B, endpoint)], TIMEOUT).unwrap();
    victim.stdout.wait_for("ready\n");
    victim.signal(Signal::KILL);
    let start = Instant::now();
    conformance::notices_death(&fabric, B, TIMEOUT, || {});
    println!("noticed after {} ms: {}", start.elapsed().as_millis(), fabric.cause(B).unwrap());
    assert!(fabric.cause(B).unwrap().contains("does not answer"));
}

#[test]
fn too_little_memory_that_may_be_locked_is_told_with_its_cure() {
    // Only root may lock any amount: another user, with the devices open to all.
    rig::command("chmod 666 /dev/infiniband/uverbs0 /dev/infiniband/uverbs1");
    let role = in_role("pair::child_process", "memlock");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "ulimit -l 64; exec \"$0\" \"$@\""]).arg(role.get_program()).args(role.get_args());
    shell.envs(role.get_envs().filter_map(|(name, value)| Some((name, value?)))).uid(65534).gid(65534);
    let said = run(shell).stdout;
    assert!(said.contains("limit on locked memory is 65536 bytes") && said.contains("ulimit -l unlimited"), "{said}");
}

#[test]
fn a_device_in_use_by_two_machines_serves_both() {
    let workers = [1, 1];
    let same = |machine| on_device(0, &lenient()).device.map(|device| (machine, device));
    assert_eq!(same(0).unwrap().1, same(1).unwrap().1);
    let settings = Settings { device: Some(DEVICES[0].to_owned()), ..lenient() };
    let prepared: Vec<_> = (0..2)
        .map(|machine| {
            let region = Arc::new(Region::anonymous(REGION_BYTES).unwrap());
            VerbsFabric::prepare(&settings, party(machine, &workers), region).unwrap()
        })
        .collect();
    let endpoints: Vec<_> = (0..).map(MachineId).zip(prepared.iter().map(|one| one.endpoint().to_vec())).collect();
    let fabrics: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> =
            prepared.into_iter().map(|one| scope.spawn(|| one.open(&endpoints, TIMEOUT).unwrap())).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut connection = fabrics[0].connect(B, MAIN).unwrap();
    connection.write(&9u64.to_ne_bytes(), WORD).unwrap();
    connection.wake(PARK).unwrap();
    connection.flush().unwrap();
    wait_for(&fabrics[1], 9);
}
