//! Machine ways with one direct way a worker: a pair that exchanges much has it, until another pair needs it more.

use gossamer::{Place, Trust};

/// Counts the calls at one place.
struct Pair {
    counter: Trust<u64>,
    calls: u64,
}

impl Pair {
    fn with(machine: u16) -> Pair {
        Pair { counter: gossamer::entrust_on(Place { machine, worker: 0 }, 0), calls: 0 }
    }

    /// Makes some calls of all sizes, two of them under way at a time; each comes in its order.
    fn call(&mut self) {
        for bytes in [1, 100, 10_000, 300_000, 0, 8, 70_000] {
            let sent = vec![self.calls as u8; bytes];
            let add = |counter: &mut u64, bytes: Vec<u8>| {
                *counter += 1;
                (*counter, bytes)
            };
            self.counter.apply_then(|counter| *counter += 1, |()| ());
            self.calls += 2;
            assert!(self.counter.apply_with(add, sent.clone()) == (self.calls, sent));
        }
    }

    /// Direct ways of the machine at the other end.
    fn ways(&self) -> u64 {
        self.counter.apply(|_| gossamer::stats().direct_ways)
    }
}

pub fn direct() {
    let (mut first, mut second) = (Pair::with(1), Pair::with(2));
    assert_eq!(gossamer::rack_stats().direct_ways, 0);
    limits::wait_until("the first pair has a direct way", || {
        first.call();
        (first.ways(), gossamer::stats().direct_ways) == (1, 1)
    });
    limits::wait_until("the second one has the ring", || {
        second.call();
        (first.ways(), second.ways()) == (0, 1)
    });
    first.call();
    limits::wait_until("the first one has it again", || {
        first.call();
        (first.ways(), second.ways()) == (1, 0)
    });
    second.call();
    assert!(gossamer::rack_stats().direct_ways <= 2);
}
