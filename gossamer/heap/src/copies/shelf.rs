//! The map of copies of one machine, by address: a copy, or its reader and the waiters. The map decides which caller
//! reads, which ones wait, and which entry replaces another; not here: locks, memory, and reads. A shelf lies under a
//! lock [map-lock-short], so its caller drops the values it returns outside of that.
//!
//! Invariants
//! - Of a name there is at most one copy, and it is found under that very name only.
//! - A waiter of a read is notified when it has come, failed, or given way to another object: the waiter is given back,
//!   or dropped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;

use crate::name::{At, Name, Version};

/// Copies `B`, and waiters `W`.
pub(super) struct Shelf<B, W>(HashMap<At, Copy<B, W>, FixedState>);

/// The entry of an address.
pub(super) struct Copy<B, W> {
    version: Version,
    state: State<B, W>,
}

enum State<B, W> {
    /// The last caller that began to read it, and when it last made progress.
    Fetching {
        number: u64,
        since: Instant,
        waiting: Vec<W>,
    },
    Here(B),
}

/// The task of a caller that found no copy.
pub(super) enum Turn<P> {
    /// Read it.
    Fetch,
    /// Wait, then look again.
    Wait(P),
    /// Look again: it came just now.
    Look,
}

impl<B, W> Default for Shelf<B, W> {
    fn default() -> Self {
        Shelf(HashMap::with_hasher(FixedState::with_seed(0)))
    }
}

impl<B, W> Shelf<B, W> {
    /// The copy of that name.
    pub(super) fn find(&self, name: Name) -> Option<&B> {
        match self.0.get(&name.at) {
            Some(Copy { version, state: State::Here(block) }) if *version == name.version => Some(block),
            _ => None,
        }
    }

    /// Decides whether the caller reads the object or waits; `number` is the caller's, `waits` its waiter. If the
    /// reader has made no progress for so long the caller reads it too: the reader's worker may be computing. Returns
    /// the replaced entry of another version as well.
    pub(super) fn begin<P>(
        &mut self,
        name: Name,
        number: u64,
        now: Instant,
        limit: Duration,
        waits: impl FnOnce() -> (W, P),
    ) -> (Turn<P>, Option<Copy<B, W>>) {
        match self.0.get_mut(&name.at) {
            Some(copy) if copy.version == name.version => match &mut copy.state {
                State::Fetching { since, waiting, .. } if now.saturating_duration_since(*since) < limit => {
                    let (waiter, pending) = waits();
                    waiting.push(waiter);
                    (Turn::Wait(pending), None)
                }
                // The other reader may still finish: the first one stores its copy. From now on waiters wait for this
                // one.
                State::Fetching { number: last, since, .. } => {
                    (*last, *since) = (number, now);
                    (Turn::Fetch, None)
                }
                State::Here(_) => (Turn::Look, None),
            },
            // A name without an owner, of an object that was prefetched: it does not replace a newer one.
            Some(copy) if copy.version > name.version => (Turn::Fetch, None),
            _ => {
                let state = State::Fetching { number, since: now, waiting: Vec::new() };
                (Turn::Fetch, self.0.insert(name.at, Copy { version: name.version, state }))
            }
        }
    }

    /// Stores a copy that has come. Returns its waiters.
    pub(super) fn come(&mut self, name: Name, block: B) -> Vec<W> {
        match self.0.get_mut(&name.at) {
            Some(copy) if copy.version == name.version => match &mut copy.state {
                State::Here(_) => Vec::new(),
                State::Fetching { waiting, .. } => {
                    let waiting = std::mem::take(waiting);
                    copy.state = State::Here(block);
                    waiting
                }
            },
            _ => Vec::new(),
        }
    }

    /// A waiter of this read must not overtake it.
    pub(super) fn goes_on(&mut self, name: Name, number: u64, now: Instant) {
        if let Some(Copy { state: State::Fetching { number: last, since, .. }, .. }) = self.0.get_mut(&name.at)
            && *last == number
        {
            *since = now;
        }
    }

    /// Ends a read, in whatever way it ended: the waiters of one that failed, or was unwound, look for themselves.
    #[must_use]
    pub(super) fn ended(&mut self, name: Name, number: u64) -> Option<Copy<B, W>> {
        let own = |copy: &Copy<B, W>| matches!(&copy.state, State::Fetching { number: last, .. } if *last == number);
        if self.0.get(&name.at).is_some_and(own) { self.0.remove(&name.at) } else { None }
    }

    /// All copies of this machine.
    pub(super) fn copies(&self) -> impl Iterator<Item = (At, &B)> {
        self.0.iter().filter_map(|(at, copy)| match &copy.state {
            State::Here(block) => Some((*at, block)),
            State::Fetching { .. } => None,
        })
    }

    /// Removes a copy, if it is this one.
    #[must_use]
    pub(super) fn take_if(&mut self, at: At, is_it: impl FnOnce(&B) -> bool) -> Option<Copy<B, W>> {
        let is_it = |copy: &Copy<B, W>| match &copy.state {
            State::Here(block) => is_it(block),
            State::Fetching { .. } => false,
        };
        if self.0.get(&at).is_some_and(is_it) { self.0.remove(&at) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCH_LIMIT: Duration = Duration::from_secs(1);

    fn name(version: u64) -> Name {
        Name { at: At::new(1, 16), version: Version::new(version).unwrap() }
    }

    /// Blocks and waiters are numbers.
    struct Machine {
        shelf: Shelf<u64, u64>,
        start: Instant,
    }

    impl Machine {
        fn new() -> Machine {
            Machine { shelf: Shelf::default(), start: Instant::now() }
        }

        /// The task that a caller is given at a second, in a word.
        fn begin(&mut self, version: u64, number: u64, second: u64) -> &'static str {
            let now = self.start + Duration::from_secs(second);
            match self.shelf.begin(name(version), number, now, FETCH_LIMIT, || (number, ())).0 {
                Turn::Fetch => "fetch",
                Turn::Wait(()) => "wait",
                Turn::Look => "look",
            }
        }
    }

    #[test]
    fn one_reads_and_the_others_wait_for_it() {
        let mut machine = Machine::new();
        assert_eq!((machine.begin(5, 1, 0), machine.begin(5, 2, 0), machine.begin(5, 3, 0)), ("fetch", "wait", "wait"));
        assert_eq!(machine.shelf.come(name(5), 77), [2, 3]);
        assert_eq!((machine.begin(5, 4, 9), machine.shelf.find(name(5))), ("look", Some(&77)));
        assert!(machine.shelf.find(name(4)).is_none());
        assert!(machine.shelf.find(name(6)).is_none(), "a copy is found under its own name only");
        assert!(machine.shelf.ended(name(5), 1).is_none(), "it is here");
    }

    /// The reader has made no progress for too long.
    #[test]
    fn who_waits_too_long_reads_for_itself_and_the_first_to_come_counts() {
        let mut machine = Machine::new();
        assert_eq!((machine.begin(5, 1, 0), machine.begin(5, 2, 0)), ("fetch", "wait"));
        assert_eq!((machine.begin(5, 3, 2), machine.begin(5, 4, 2)), ("fetch", "wait"));
        machine.shelf.goes_on(name(5), 1, machine.start + Duration::from_secs(9));
        assert_eq!(machine.begin(5, 5, 4), "fetch", "the first one's sign of life counts no more");
        machine.shelf.goes_on(name(5), 5, machine.start + Duration::from_secs(6));
        assert_eq!(machine.begin(5, 6, 6), "wait");
        assert_eq!(machine.shelf.come(name(5), 1), [2, 4, 6]);
        assert!(machine.shelf.come(name(5), 3).is_empty());
        assert_eq!(machine.shelf.find(name(5)), Some(&1));
    }

    #[test]
    fn a_newer_name_takes_the_place_and_an_older_one_does_not() {
        let mut machine = Machine::new();
        assert_eq!((machine.begin(5, 1, 0), machine.begin(5, 2, 0)), ("fetch", "wait"));
        let now = machine.start;
        let (turn, before) = machine.shelf.begin(name(6), 3, now, FETCH_LIMIT, || (3, ()));
        assert!(
            matches!(turn, Turn::Fetch) && before.is_some(),
            "who waits for the old one is told, by the drop of it"
        );
        assert!(machine.shelf.come(name(5), 50).is_empty() && machine.shelf.find(name(5)).is_none());
        assert!(machine.shelf.ended(name(5), 1).is_none(), "the new one's read goes on");
        assert!(machine.shelf.come(name(6), 60).is_empty());
        assert_eq!(machine.begin(5, 4, 0), "fetch");
        assert!(machine.shelf.come(name(5), 51).is_empty());
        assert_eq!((machine.shelf.find(name(6)), machine.shelf.find(name(5))), (Some(&60), None));
    }

    #[test]
    fn reads_that_fail_leave_nothing_and_what_is_read_stays() {
        let mut machine = Machine::new();
        assert_eq!((machine.begin(5, 1, 0), machine.begin(5, 2, 0)), ("fetch", "wait"));
        assert!(machine.shelf.ended(name(5), 1).is_some(), "with who waits");
        assert_eq!(machine.begin(5, 3, 0), "fetch");
        machine.shelf.come(name(5), 77);
        assert_eq!(machine.shelf.copies().collect::<Vec<_>>(), [(name(5).at, &77)]);
        assert!(machine.shelf.take_if(name(5).at, |block| *block != 77).is_none());
        assert!(machine.shelf.take_if(name(5).at, |block| *block == 77).is_some());
        assert!(machine.shelf.find(name(5)).is_none());
    }
}
