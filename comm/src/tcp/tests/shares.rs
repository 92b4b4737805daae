//! Shares over `tcp`: readers that take nothing, frames outside of a share, owners that answer nonsense.

use super::*;

#[test]
fn shares_outlive_a_machine() {
    let mut processes = start_all(3, "shares");
    let victim = processes.remove(usize::from(VICTIM.0));
    victim.stdout.wait_for(READY);
    victim.signal(Signal::KILL);
    processes.into_iter().for_each(ChildProcess::passes);
}

/// Opens two machines, the second with a share of this many units, all committed and filled with their numbers.
fn open_with_share(units: usize) -> Vec<TcpFabric> {
    let fabrics = open_all(2, 4096, Limits::default());
    fabrics[1].open_share(SHARE, units * UNIT).unwrap();
    fabrics[1].commit(SHARE, 0..units * UNIT).unwrap();
    let own = fabrics[1].mapped(MachineId(1), SHARE).unwrap().unwrap();
    own.words().iter().enumerate().for_each(|(at, word)| word.store(at as u64, Ordering::Relaxed));
    fabrics
}

/// Takes a read once it has come.
fn take(connection: &mut dyn Connection, read_id: ReadId, bytes: usize) -> Result<Vec<u8>, Error> {
    let (start, mut into) = (Instant::now(), vec![0; bytes]);
    while !connection.take(read_id, &mut into)? {
        assert!(start.elapsed() < TIMEOUT, "a read never ended");
        std::thread::yield_now();
    }
    Ok(into)
}

#[test]
fn a_frame_outside_a_share_is_the_end_of_its_sender() {
    for wire in [
        frame::share_write_head(SHARE, UNIT, 8).to_vec(),
        frame::share_write_head(ShareId(1), 0, 8).to_vec(),
        Question::Part { share: SHARE, offset: UNIT - 8, bytes: 16 }.to_bytes().to_vec(),
        // Twice the limit under way, at once.
        Question::Part { share: SHARE, offset: 0, bytes: UNIT }.to_bytes().repeat(2 * UNDER_WAY_BYTES_MAX / UNIT),
    ] {
        let fabrics = open_with_share(1);
        let (mut stream, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 9 }, TIMEOUT).unwrap();
        stream.write_all(&wire).unwrap();
        assert_eq!(wait_for_loss(&fabrics[1], MachineId(0)), Loss::Died);
        let cause = fabrics[1].cause(MachineId(0)).unwrap();
        assert!(cause.contains("worker 9") && cause.contains("share"), "{cause}");
    }
}

/// A peer that asks and never reads the answers does not hold up others.
#[test]
fn a_reader_that_takes_nothing_is_alone_with_it() {
    let fabrics = open_with_share(16);
    let (mut idle, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 9 }, TIMEOUT).unwrap();
    let part = |number: usize| Question::Part { share: SHARE, offset: number * UNIT, bytes: UNIT }.to_bytes();
    (0..16).for_each(|number| idle.write_all(&part(number)).unwrap());
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    for number in 0..100 {
        let read_id = connection.read_share(SHARE, 8 * number, UNIT).unwrap();
        assert_eq!(take(&mut *connection, read_id, UNIT).unwrap()[..8], (number as u64).to_ne_bytes());
    }
    // The owed answers are there in the end.
    let mut answers = vec![0; 16 * (8 + UNIT)];
    idle.read_exact(&mut answers).unwrap();
    assert_eq!(answers[answers.len() - 8..], (16 * UNIT as u64 / 8 - 1).to_ne_bytes());
    assert_eq!(fabrics[1].lost(MachineId(0)).unwrap(), None);
}

/// Returns the number of bytes sent into a connection of this process and not read yet, by the system's own count.
fn queued_bytes(stream: &TcpStream) -> usize {
    let ends = [stream.local_addr().unwrap(), stream.peer_addr().unwrap()].map(|end| format!(":{:04X}", end.port()));
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let queued = |from: &str, to: &str, place: usize| {
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let mut found = rows.filter(|row| row.len() > 4 && row[1].ends_with(from) && row[2].ends_with(to));
        let queues = found.next().expect("the connection is in the table")[4];
        usize::from_str_radix(queues.split(':').nth(place).unwrap(), 16).unwrap()
    };
    queued(&ends[1], &ends[0], 0) + queued(&ends[0], &ends[1], 1)
}

/// Answers that the owner's socket does not take continue when it has room again.
#[test]
fn an_answer_that_does_not_fit_the_socket_goes_on() {
    const UNITS: usize = 8;
    let fabrics = open_with_share(UNITS);
    let (mut stream, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 9 }, TIMEOUT).unwrap();
    let part = |number: usize| Question::Part { share: SHARE, offset: number * UNIT, bytes: UNIT }.to_bytes();
    let mut asked = 0;
    loop {
        for number in 0..UNITS {
            stream.write_all(&part(number)).unwrap();
        }
        asked += UNITS * (8 + UNIT);
        assert!(asked < 64 << 20, "the system's buffers have no end");
        // A second word that arrives by itself is taken after the queries were answered, as far as there is room.
        for offset in [8, 16] {
            stream.write_all(&[frame::head(offset, 8), (asked as u64).to_ne_bytes()].concat()).unwrap();
            wait_for_word(fabrics[1].region(), offset, asked as u64);
        }
        if queued_bytes(&stream) < asked {
            break;
        }
    }
    let mut answer = vec![0; 8 + UNIT];
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    for number in 0..asked / answer.len() {
        stream.read_exact(&mut answer).unwrap();
        let first = (number % UNITS * UNIT / 8) as u64;
        assert_eq!(answer[8..16], first.to_ne_bytes(), "answer {number}");
    }
    assert_eq!(fabrics[1].lost(MachineId(0)).unwrap(), None);
}

/// Answers go out by the accepted end: small ones must not wait for the acknowledgement of those before.
#[test]
fn both_ends_of_a_data_connection_send_at_once() {
    let fabrics = open_with_share(1);
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    let read_id = connection.read_share(SHARE, 0, 8).unwrap();
    take(&mut *connection, read_id, 8).unwrap();
    assert_eq!(fabrics[1].poller.lock().accepted_nodelays(), [true]);
    let (made, _) = fabrics[0].reach(MachineId(1), Use::Data { worker: 1 }, TIMEOUT).unwrap();
    assert!(made.nodelay().unwrap());
}

#[test]
fn reads_that_nobody_takes_are_no_death() {
    let fabrics = open_with_share(64);
    let mut connection = fabrics[0].connect(MachineId(1), WorkerId(0)).unwrap();
    for _ in 0..4 {
        connection.read_share(SHARE, 0, 64 * UNIT).unwrap();
    }
    connection.write(&[3; 8], 64).unwrap();
    drop(connection);
    wait_for_word(fabrics[1].region(), 64, u64::from_ne_bytes([3; 8]));
    let mut other = fabrics[0].connect(MachineId(1), WorkerId(1)).unwrap();
    let read_id = other.read_share(SHARE, 8, 8).unwrap();
    assert_eq!(take(&mut *other, read_id, 8).unwrap(), 1u64.to_ne_bytes());
    // A connection that had ended by a reset would be a death by now.
    assert_eq!(fabrics[1].watch(&[], Duration::from_millis(700)).unwrap(), None);
    assert_eq!(fabrics[1].lost(MachineId(0)).unwrap(), None);
}

#[test]
fn an_owner_that_answers_nonsense_is_dead() {
    let (fake, fabric, _control) = Fake::with_peer(4096, Limits::default());
    let (mut stream, mut connection) = fake.connection(&fabric, 3);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut question = [0; frame::SHARE_HEAD_BYTES];
            stream.read_exact(&mut question).unwrap();
            // One unit, which is committed.
            let map = [16, UNIT as u64, 1].map(u64::to_le_bytes);
            stream.write_all(map.as_flattened()).unwrap();
            stream.read_exact(&mut question).unwrap();
            stream.write_all(&24u64.to_le_bytes()).unwrap();
            let _ = stream.read(&mut question);
        });
        let read_id = connection.read_share(SHARE, 0, 16).unwrap();
        let taken = take(&mut connection, read_id, 16);
        assert!(matches!(taken, Err(Error::Gone { machine: VICTIM })), "{taken:?}");
        drop(connection);
    });
    assert_eq!(wait_for_loss(&fabric, VICTIM), Loss::Died);
    assert!(fabric.cause(VICTIM).unwrap().contains("sent answers"));
}
