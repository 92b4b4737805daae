//! Cases of shares: their orders, bounds, commit and release, many reads, and the death of either side.
//!
//! Messages between the cases are barriers: a write to every peer, on the same connections, and a wait for theirs.

use super::{
    BARRIER, EFFORT_VARIABLE, Effort, LINE_BYTES, MACHINES_MAX, MAIN, Machine, PARK_WAKE, SHARE_FLAG, load, peers,
    stream,
};
use crate::{
    Connection, Error, Fabric, MachineId, ReadId, SHARE_UNIT_BYTES, SHARES_MAX, Share, ShareId, WORD_BYTES, Wake,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const UNIT: usize = SHARE_UNIT_BYTES;
/// A share that the cases use in full.
const SMALL: ShareId = ShareId(0);
const SMALL_BYTES: usize = 48 * UNIT;
/// A share of which the cases use little.
const SPARSE: ShareId = ShareId(SHARES_MAX as u8 - 1);
/// Bytes before its last unit: 64 GiB, or 4 with a small effort, because qemu pays 16 bytes for each mapped page. Also
/// a border of two of the 64 MiB chunks of `verbs`; the last chunk is short.
fn sparse_border() -> usize {
    let is_small = std::env::var(EFFORT_VARIABLE).is_ok_and(|effort| effort == "small");
    if is_small { 1 << 32 } else { 1 << 36 }
}

/// Length of one write of the stream, and number of places for such writes: no machine gets as far ahead of another.
const BLOCK_BYTES: usize = 8 << 10;
const BLOCKS: u64 = 2 * MACHINES_MAX as u64;

/// Calls `look` until it returns something, and polls the fabric meanwhile.
fn wait<R>(fabric: &dyn Fabric, timeout: Duration, what: &str, mut look: impl FnMut() -> Option<R>) -> R {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        fabric.poll(MAIN).unwrap();
        assert!(start.elapsed() < timeout, "{what}");
        std::thread::yield_now();
    }
}

/// Takes a read once it has come.
fn take(
    fabric: &dyn Fabric,
    connection: &mut dyn Connection,
    read_id: ReadId,
    bytes: usize,
    timeout: Duration,
) -> Result<Vec<u8>, Error> {
    let mut into = vec![0xcd; bytes];
    let mut look = || match connection.take(read_id, &mut into) {
        Ok(false) => None,
        other => Some(other),
    };
    let taken = wait(fabric, timeout, "a read never ended", &mut look);
    taken.map(|is_there| {
        assert!(is_there);
        into
    })
}

/// Returns whether an access was refused as one that no machine may make.
fn is_refused<R>(result: &Result<R, Error>) -> bool {
    matches!(result, Err(Error::Misaligned { .. } | Error::OutOfRange { .. } | Error::NoSuchShare { .. }))
}

/// Bytes for a place in a share; each word says where it belongs.
fn stamped(machine: MachineId, number: u64, bytes: usize) -> Vec<u8> {
    stream::stamped(machine, 7, number, bytes)
}

impl Machine<'_> {
    fn timeout(&self) -> Duration {
        self.effort.timeout
    }

    /// Reads from the next machine, and waits for the result.
    fn read_next(&mut self, share: ShareId, offset: usize, bytes: usize) -> Result<Vec<u8>, Error> {
        let (fabric, timeout) = (self.fabric, self.timeout());
        let next = self.next();
        let read_id = next.read_share(share, offset, bytes)?;
        take(fabric, next, read_id, bytes, timeout)
    }

    fn own(&self, share: ShareId) -> Arc<Share> {
        let own = self.fabric.mapped(self.fabric.machine(), share).unwrap();
        own.expect("the own shares are mapped")
    }

    /// Runs all cases of shares.
    pub(super) fn uses_shares(&mut self) {
        self.opens_shares();
        self.barrier();
        self.is_refused_what_is_not_committed();
        self.barrier();
        self.uses_what_was_committed();
        self.barrier();
        self.reads_in_plenty();
        self.barrier();
        self.streams_to_shares();
        self.barrier();
        self.releases();
        self.barrier();
        self.check_no_losses();
    }

    /// Opens of unknown shares, and of shares that cannot be opened.
    fn opens_shares(&mut self) {
        let fabric = self.fabric;
        let next = self.next();
        for share in [SMALL, ShareId(SHARES_MAX as u8), ShareId(255)] {
            assert!(matches!(next.write_share(share, 0, &[1; 8]), Err(Error::NoSuchShare { .. })), "{share}");
            assert!(matches!(next.read_share(share, 0, 8), Err(Error::NoSuchShare { .. })), "{share}");
            assert!(matches!(fabric.commit(share, 0..UNIT), Err(Error::NoSuchShare { .. })), "{share}");
            assert!(matches!(fabric.release(share, 0..UNIT), Err(Error::NoSuchShare { .. })), "{share}");
            assert!(fabric.mapped(fabric.machine(), share).is_err(), "{share}");
        }
        for (share, bytes) in [(SHARES_MAX as u8, UNIT), (0, 0), (0, UNIT - 8), (0, usize::MAX - UNIT + 1)] {
            let opened = fabric.open_share(ShareId(share), bytes);
            assert!(matches!(opened, Err(Error::Share { .. })), "{share} {bytes}: {opened:?}");
        }
        self.barrier();
        fabric.open_share(SMALL, SMALL_BYTES).unwrap();
        fabric.open_share(SPARSE, sparse_border() + UNIT).unwrap();
        assert!(matches!(fabric.open_share(SMALL, SMALL_BYTES), Err(Error::Share { .. })), "it is open");
        assert_eq!(self.own(SMALL).bytes(), SMALL_BYTES);
        for stranger in [MachineId(fabric.machines()), MachineId(u16::MAX)] {
            assert!(matches!(fabric.mapped(stranger, SMALL), Err(Error::NoSuchPeer { .. })));
        }
    }

    /// Accesses out of bounds, and to uncommitted ranges, are refused, and no machine dies of them.
    fn is_refused_what_is_not_committed(&mut self) {
        let fabric = self.fabric;
        let next = self.next();
        // First access of a connection to a share whose length it does not know yet.
        for offset in [1 << 60, usize::MAX - 7, 1 << 40] {
            let written = next.write_share(SMALL, offset, &[1; 8]);
            assert!(matches!(written, Err(Error::OutOfRange { .. })), "{offset}: {written:?}");
            let read = next.read_share(SPARSE, offset, 8);
            assert!(matches!(read, Err(Error::OutOfRange { .. })), "{offset}: {read:?}");
        }
        for (offset, bytes) in [(SMALL_BYTES, 8), (SMALL_BYTES - 8, 16), (usize::MAX - 7, 8), (1 << 60, 8)] {
            let source = vec![1; bytes];
            assert!(matches!(next.write_share(SMALL, offset, &source), Err(Error::OutOfRange { .. })), "{offset}");
            assert!(matches!(next.read_share(SMALL, offset, bytes), Err(Error::OutOfRange { .. })), "{offset}");
        }
        for (offset, bytes) in [(4, 8), (0, 12), (0, 0)] {
            let source = vec![1; bytes];
            assert!(matches!(next.write_share(SMALL, offset, &source), Err(Error::Misaligned { .. })), "{offset}");
            assert!(matches!(next.read_share(SMALL, offset, bytes), Err(Error::Misaligned { .. })), "{offset}");
        }
        let written = next.write_share(SMALL, 0, &[1; 8]);
        assert!(matches!(written, Err(Error::NotCommitted { .. })), "{written:?}");
        let read = self.read_next(SMALL, 0, 8);
        assert!(matches!(read, Err(Error::NotCommitted { offset: 0, bytes: 8, .. })), "{read:?}");
        // A read of any length takes no memory, and the writes behind it arrive.
        let whole = sparse_border() + UNIT;
        let long = self.next().read_share(SPARSE, 0, whole).unwrap();
        let room = self.next().take(long, &mut [0; 8]);
        assert!(matches!(room, Err(Error::WrongRoom { bytes, .. }) if bytes == whole), "{room:?}");
        let read = self.read_next(SPARSE, whole - 8, 8);
        assert!(matches!(read, Err(Error::NotCommitted { bytes: 8, .. })), "{read:?}");
        for range in [0..SMALL_BYTES + UNIT, SMALL_BYTES..SMALL_BYTES + UNIT] {
            assert!(matches!(fabric.commit(SMALL, range), Err(Error::OutOfRange { .. })));
        }
        assert!(matches!(fabric.commit(SMALL, 8..UNIT), Err(Error::Misaligned { .. })));
        self.barrier();

        // One unit is committed: an access that is partly outside of it is refused whole.
        fabric.commit(SMALL, UNIT..2 * UNIT).unwrap();
        self.barrier();
        let next = self.next();
        next.write_share(SMALL, UNIT, &[1; UNIT]).unwrap();
        for offset in [UNIT - 8, 2 * UNIT - 8] {
            let written = next.write_share(SMALL, offset, &[2; 16]);
            assert!(matches!(written, Err(Error::NotCommitted { .. })), "{written:?}");
        }
        assert!(matches!(self.read_next(SMALL, UNIT - 8, 16), Err(Error::NotCommitted { .. })));
        assert!(matches!(self.read_next(SMALL, UNIT, 2 * UNIT), Err(Error::NotCommitted { .. })));
        assert_eq!(self.read_next(SMALL, UNIT, UNIT).unwrap(), [1; UNIT]);
        let mut into = [0; 8];
        assert!(matches!(self.next().take(ReadId(u64::MAX), &mut into), Err(Error::NoSuchRead { .. })));
        self.barrier();
        let own = self.own(SMALL);
        assert!(own.words()[UNIT / 8..2 * UNIT / 8].iter().all(|word| word.load(Ordering::Relaxed) == !0 / 255));
        assert!(own.is_committed(UNIT, UNIT) && !own.is_committed(UNIT - 8, 16));
    }

    /// [commit-before-message], [message-after-writes] and [read-after-message]; a read sees earlier writes of its
    /// connection.
    fn uses_what_was_committed(&mut self) {
        let fabric = self.fabric;
        let (own, previous) = (fabric.machine(), self.previous());
        fabric.commit(SMALL, 0..SMALL_BYTES).unwrap();
        let border = sparse_border();
        fabric.commit(SPARSE, border - UNIT..border + UNIT).unwrap();
        self.barrier(); // [commit-before-message]: the next machine has committed as well
        let places = [
            (SMALL, 0, 8),
            (SMALL, 64, 4096),
            (SMALL, UNIT - 16, 32),
            (SMALL, 2 * UNIT + 8, UNIT),
            (SMALL, 4 * UNIT, 20 * UNIT + 8),
            (SPARSE, border - 4096, 8192),
        ];
        for (number, (share, offset, bytes)) in (1..).zip(places) {
            let mut source = stamped(own, number, bytes);
            self.next().write_share(share, offset, &source).unwrap();
            source.fill(0xee);
            if number % 2 == 1 {
                let read = self.read_next(share, offset, bytes).unwrap();
                assert!(read == stamped(own, number, bytes), "a read did not see write {number} before it");
            }
        }
        self.barrier(); // [message-after-writes]: the previous machine has written
        for (number, (share, offset, bytes)) in (1..).zip(places) {
            let mut copy = vec![0; bytes];
            self.own(share).data().read(offset, &mut copy).unwrap();
            assert!(copy == stamped(previous, number, bytes), "write {number} of {previous} is not whole");
        }
        self.barrier();
        // [read-after-message]: the owner's store before its message.
        let word = 3 * UNIT / 8;
        self.own(SMALL).words()[word].store(70 + u64::from(own.0), Ordering::Relaxed);
        self.barrier();
        for peer in peers(fabric) {
            let timeout = self.timeout();
            let connection = self.to(peer);
            let read_id = connection.read_share(SMALL, 8 * word, 8).unwrap();
            let read = take(fabric, connection, read_id, 8, timeout).unwrap();
            assert_eq!(read, (70 + u64::from(peer.0)).to_ne_bytes(), "what {peer} stored before its message");
        }
    }

    /// All machines have more reads under way than the limit, and take them in another order; one is never taken.
    fn reads_in_plenty(&mut self) {
        let fabric = self.fabric;
        let (own, timeout) = (fabric.machine(), self.timeout());
        let share = self.own(SMALL);
        let words = share.words();
        for (index, word) in words.iter().enumerate() {
            word.store(stream::mix(index as u64) ^ u64::from(own.0), Ordering::Relaxed);
        }
        self.barrier();
        let next_id = MachineId((own.0 + 1) % fabric.machines());
        let reads = (self.effort.writes / 50).clamp(8, 40);
        let next = self.next();
        let read = |number: u64| {
            let bytes = WORD_BYTES * (1 + stream::mix(number) as usize % (3 * UNIT / WORD_BYTES));
            (WORD_BYTES * (stream::mix(!number) as usize % ((SMALL_BYTES - bytes) / WORD_BYTES)), bytes)
        };
        let mut pending: Vec<(u64, ReadId)> = Vec::new();
        for number in 0..reads {
            let (offset, bytes) = read(number);
            pending.push((number, next.read_share(SMALL, offset, bytes).unwrap()));
        }
        let _forgotten = pending.pop();
        pending.sort_by_key(|(number, _)| stream::mix(*number));
        for (number, read_id) in pending {
            let (offset, bytes) = read(number);
            let room = next.take(read_id, &mut vec![0; bytes + 8]);
            assert!(matches!(room, Err(Error::WrongRoom { .. })), "{room:?}");
            let found = take(fabric, next, read_id, bytes, timeout).unwrap();
            let expected = (offset / 8..(offset + bytes) / 8)
                .flat_map(|at| (stream::mix(at as u64) ^ u64::from(next_id.0)).to_ne_bytes());
            assert!(found.into_iter().eq(expected), "read {number} is not what is there");
            let again = next.take(read_id, &mut vec![0; bytes]);
            assert!(matches!(again, Err(Error::NoSuchRead { .. })), "{again:?}");
        }
    }

    /// Rounds of a write to the next machine's share, a message behind it, and a read of the previous machine's share.
    fn streams_to_shares(&mut self) {
        let fabric = self.fabric;
        let (own, previous, timeout) = (fabric.machine(), self.previous(), self.timeout());
        let share = self.own(SMALL);
        // Each machine stores its round in its own share before it sends it in a message.
        let round_at = SMALL_BYTES - UNIT;
        share.words()[round_at / 8].store(0, Ordering::Relaxed);
        self.barrier();
        for round in 1..=self.effort.writes.div_ceil(200).min(1000) {
            let block = (round % BLOCKS) as usize * BLOCK_BYTES;
            share.words()[round_at / 8].store(round, Ordering::Relaxed);
            let next = self.next();
            let (front, back) = (stamped(own, round, BLOCK_BYTES / 2), stamped(own, !round, BLOCK_BYTES / 2));
            next.write_share(SMALL, block, &front).unwrap();
            next.write_share(SMALL, block + BLOCK_BYTES / 2, &back).unwrap();
            next.write(&round.to_ne_bytes(), SHARE_FLAG).unwrap();
            next.wake(PARK_WAKE).unwrap();
            next.flush().unwrap();
            while load(fabric.region(), SHARE_FLAG) < round {
                fabric.poll(MAIN).unwrap();
                let mut is_idle = || load(fabric.region(), SHARE_FLAG) < round;
                let woke = fabric.park(MAIN, PARK_WAKE, timeout, &mut is_idle).unwrap();
                assert_ne!(woke, Wake::TimedOut, "round {round} of {previous} did not come");
            }
            let mut copy = vec![0; BLOCK_BYTES];
            share.data().read(block, &mut copy).unwrap();
            let (front, back) = copy.split_at(BLOCK_BYTES / 2);
            let is_whole = front == stamped(previous, round, BLOCK_BYTES / 2)
                && back == stamped(previous, !round, BLOCK_BYTES / 2);
            assert!(is_whole, "round {round}: a message overtook a write to a share");
            let connection = self.to(previous);
            let read_id = connection.read_share(SMALL, round_at, 8).unwrap();
            let read = take(fabric, connection, read_id, 8, timeout).unwrap();
            let seen = u64::from_ne_bytes(*read.first_chunk().unwrap());
            assert!(seen >= round, "a read saw {seen} after the message of round {round}");
        }
    }

    /// A range that is released after all machines have stopped using it; a use of it in spite of that; and a
    /// second commit of the same range.
    fn releases(&mut self) {
        let fabric = self.fabric;
        let own = self.own(SMALL);
        let (range, last) = (8 * UNIT..24 * UNIT, 24 * UNIT - 4096);
        own.words()[range.start / 8..range.end / 8].iter().for_each(|word| word.store(7, Ordering::Relaxed));
        self.barrier();
        assert_eq!(self.read_next(SMALL, last, 8).unwrap(), 7u64.to_ne_bytes());
        self.barrier();
        fabric.release(SMALL, range.clone()).unwrap();
        self.barrier();
        for offset in [range.start, last] {
            match self.read_next(SMALL, offset, 4096) {
                Err(Error::NotCommitted { .. }) => {}
                Ok(read) => {
                    let mut words = read.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
                    assert!(words.all(|word| word == 0 || word == 7), "neither old bytes nor zeros");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.read_next(SMALL, range.end, 8).unwrap().len(), 8, "what is beside it is there");
        self.barrier();
        fabric.commit(SMALL, range.clone()).unwrap();
        self.barrier();
        let read = self.read_next(SMALL, range.start, range.len()).unwrap();
        assert!(read.iter().all(|byte| *byte == 0), "what is committed again is 0");
        self.next().write_share(SMALL, last, &[9; 4096]).unwrap();
        self.barrier();
        assert_eq!(own.words()[last / 8].load(Ordering::Relaxed), u64::from_ne_bytes([9; 8]));
        fabric.release(SMALL, range.clone()).unwrap();
        self.barrier();
        // Too late: no machine dies of it, and the writes after it on the connection arrive.
        match self.next().write_share(SMALL, last, &[5; 4096]) {
            Ok(()) | Err(Error::NotCommitted { .. }) => {}
            other => panic!("{other:?}"),
        }
        self.next().write_share(SMALL, 0, &[6; 8]).unwrap();
        self.barrier();
        assert_eq!(own.words()[0].load(Ordering::Relaxed), u64::from_ne_bytes([6; 8]));
    }
}

/// Death amid reads, run by all machines of a rack, three or more. `victim` dies while reads of its own and
/// of others are under way: it calls `die` at that point. The others learn of the death, get each read or an
/// error for it, and go on.
///
/// # Panics
/// If a machine waits for ever, or the surviving machines cannot use each other's shares.
pub fn shares_outlive_a_machine(fabric: &dyn Fabric, victim: MachineId, timeout: Duration, die: impl FnOnce()) {
    let effort = Effort { timeout, ..Effort::full() };
    let mut machine = Machine::new(fabric, &effort);
    let own = fabric.machine();
    fabric.open_share(SMALL, SMALL_BYTES).unwrap();
    fabric.commit(SMALL, 0..SMALL_BYTES).unwrap();
    machine.own(SMALL).words()[0].store(40 + u64::from(own.0), Ordering::Relaxed);
    machine.barrier();
    let begin = |machine: &mut Machine<'_>, peer| {
        let connection = machine.to(peer);
        let pending = (0..4).map(|_| connection.read_share(SMALL, 0, SMALL_BYTES).unwrap()).collect::<Vec<_>>();
        connection.flush().unwrap();
        pending
    };
    if own == victim {
        peers(fabric).for_each(|peer| drop(begin(&mut machine, peer)));
        // Its own messages may die with the victim: it waits until all others are past the barrier.
        let is_there = |peer| load(fabric.region(), BARRIER + LINE_BYTES * usize::from(peer)) > 1;
        let are_there = || peers(fabric).all(|peer| is_there(peer.0)).then_some(());
        wait(fabric, timeout, "the others did not come past the barrier", are_there);
        return die();
    }
    let pending = begin(&mut machine, victim);
    let connection = machine.to(victim);
    connection.write(&2u64.to_ne_bytes(), BARRIER + LINE_BYTES * usize::from(own.0)).unwrap();
    connection.flush().unwrap();
    assert_eq!(fabric.watch(&[], timeout).unwrap(), Some(victim), "who died");
    let connection = machine.to(victim);
    for read_id in pending {
        match take(fabric, connection, read_id, SMALL_BYTES, timeout) {
            Ok(_) | Err(Error::Gone { .. }) => {}
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
    for offset in [0, 8 * UNIT] {
        if let Ok(read_id) = connection.read_share(SMALL, offset, 8) {
            let read = take(fabric, connection, read_id, 8, timeout);
            assert!(matches!(read, Ok(_) | Err(Error::Gone { .. })), "{read:?}");
        }
        let _ = connection.write_share(SMALL, offset, &[1; 4096]).and_then(|()| connection.flush());
    }
    // The death of the owner excuses no invalid access: neither to a share that was used, nor to an unknown one.
    for share in [SMALL, SPARSE] {
        for (offset, bytes) in [(0, 0), (4, 8), (usize::MAX - 7, 8), (1 << 60, 8), (8, usize::MAX - 7)] {
            let refused = connection.read_share(share, offset, bytes);
            assert!(is_refused(&refused), "{share} {offset} {bytes}: {refused:?}");
        }
        for (offset, source) in [(0, &[][..]), (4, &[1; 8]), (usize::MAX - 7, &[1; 8]), (1 << 60, &[1; 8])] {
            let refused = connection.write_share(share, offset, source);
            assert!(is_refused(&refused), "{share} {offset}: {refused:?}");
        }
    }
    // A read that the dead owner will never send takes no memory.
    match connection.read_share(SPARSE, 0, 1 << 41) {
        Ok(read_id) => assert!(matches!(connection.take(read_id, &mut [0; 8]), Err(Error::WrongRoom { .. }))),
        other => assert!(matches!(other, Err(Error::NoSuchShare { .. })), "{other:?}"),
    }
    machine.barrier_without(Some(victim));
    for peer in peers(fabric).filter(|peer| *peer != victim) {
        let connection = machine.to(peer);
        let read_id = connection.read_share(SMALL, 0, 8).unwrap();
        let read = take(fabric, connection, read_id, 8, timeout).unwrap();
        assert_eq!(read, (40 + u64::from(peer.0)).to_ne_bytes());
        connection.write_share(SMALL, UNIT * usize::from(1 + own.0), &stamped(own, 1, 4096)).unwrap();
    }
    machine.barrier_without(Some(victim));
    for peer in peers(fabric).filter(|peer| *peer != victim) {
        let mut copy = vec![0; 4096];
        machine.own(SMALL).data().read(UNIT * usize::from(1 + peer.0), &mut copy).unwrap();
        assert!(copy == stamped(peer, 1, 4096), "{peer} and {own} do not go on");
    }
    machine.barrier_without(Some(victim));
}
