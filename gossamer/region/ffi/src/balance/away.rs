//! Choice of the threads that go to the machines for whose pages they wait.
//!
//! Threads that share pages wait for one another's: each could go to the others. Of two machines whose threads wait for
//! each other's pages the fewer go to the more, and all at once or none, so that they meet: a part of them would leave
//! as many apart as before, and room for the next to go. In one round a machine that threads leave gets none, and none
//! leaves a machine that gets some: they would change places, and wait as before.

use std::collections::BTreeMap;

use super::{Pages, Sample};

/// Part of its time from which a thread waits much: of that in which it computes or waits for pages, as on a crowded
/// host it waits for a core most of the time; and the least part of all time.
const MUCH: f64 = 0.2;
const LEAST: f64 = 0.02;
/// Part of the bytes from which one machine gives most.
const MOST: f64 = 2.0 / 3.0;

/// A thread that waits for the pages of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Away {
    pub(super) thread: u64,
    pub(super) from: u16,
    pub(super) to: u16,
    /// Whether it may go.
    pub(super) is_free: bool,
    /// Part of the time for which it waits.
    pub(super) waited: f64,
    pub(super) sample: Sample,
}

/// Returns the part of the time for which a thread waited, and the machine that gave the most bytes, if it waited much
/// and that machine gave most of them. `last`: for which part of each time it computed, and its pages.
pub(super) fn giver(last: &[&(f64, Pages)]) -> Option<(f64, u16)> {
    let mean = |part: fn(&(f64, Pages)) -> f64| last.iter().map(|one| part(one)).sum::<f64>() / last.len() as f64;
    let (busy, waited) = (mean(|(busy, _)| *busy), mean(|(_, pages)| pages.waited));
    let mut given = BTreeMap::<u16, u64>::new();
    for (machine, bytes) in last.iter().flat_map(|(_, pages)| &pages.from) {
        *given.entry(*machine).or_default() += bytes;
    }
    let all: u64 = given.values().sum();
    let (machine, most) = given.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    let is_much = waited >= LEAST && waited >= MUCH * (busy + waited);
    (is_much && most as f64 >= MOST * all as f64).then_some((waited, machine))
}

/// Returns the threads that go now. `under_way`: the machines between which threads are, or may have to go back; `room`
/// takes the room for so many threads that go from one machine to another, or what there is of it, and returns it;
/// where all have to go, it takes none that is too little.
pub(super) fn chosen(
    away: Vec<Away>,
    under_way: &[(u16, u16)],
    mut room: impl FnMut((u16, u16), usize, bool) -> usize,
) -> Vec<Away> {
    let mut ways: BTreeMap<(u16, u16), Vec<Away>> = BTreeMap::new();
    away.into_iter().for_each(|one| ways.entry((one.from, one.to)).or_default().push(one));
    let mut ways: Vec<_> = ways.into_iter().collect();
    // Threads that have to stay get the others; else the fewer go.
    let bound = |threads: &[Away]| threads.iter().filter(|one| !one.is_free).count();
    ways.sort_by_key(|((_, to), threads)| (bound(threads), threads.len(), *to));
    let both_ways: Vec<(u16, u16)> = ways.iter().map(|((from, to), _)| (*to, *from)).collect();
    let (mut left, mut entered): (Vec<u16>, Vec<u16>) = under_way.iter().copied().unzip();
    let mut chosen = Vec::new();
    for ((from, to), mut threads) in ways {
        if left.contains(&to) || entered.contains(&from) {
            continue;
        }
        threads.retain(|one| one.is_free);
        threads.sort_by(|one, other| other.waited.total_cmp(&one.waited).then(one.thread.cmp(&other.thread)));
        threads.truncate(room((from, to), threads.len(), both_ways.contains(&(from, to))));
        if !threads.is_empty() {
            left.push(from);
            entered.push(to);
        }
        chosen.append(&mut threads);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_much_for_the_machine_that_gives_most_of_its_pages() {
        /// Parts of the time for which a thread computed and waited, and the bytes by machine.
        type Time<'a> = (f64, f64, &'a [(u16, u64)]);
        let giver = |all: &[Time]| {
            let pages = |(busy, waited, from): &Time| {
                (*busy, Pages { waited: *waited, from: from.to_vec(), sample: Sample::new() })
            };
            let all: Vec<_> = all.iter().map(pages).collect();
            super::giver(&all.iter().collect::<Vec<_>>()).map(|(_, machine)| machine)
        };
        assert_eq!(giver(&[(0.7, 0.3, &[(1, 8192), (2, 4096)])]), Some(1));
        assert_eq!(giver(&[(0.7, 0.3, &[(1, 8192), (2, 4097)])]), None, "less than two thirds");
        assert_eq!(giver(&[(0.7, 0.3, &[(1, 4096)]), (0.7, 0.3, &[(2, 8192)])]), Some(2), "of all the time");
        assert_eq!(giver(&[(0.9, 0.1, &[(1, 4096)])]), None, "a tenth of the time");
        assert_eq!(giver(&[(0.1, 0.1, &[(1, 4096)])]), Some(1), "it waits for a core, too");
        assert_eq!(giver(&[(0.0, 0.01, &[(1, 4096)])]), None, "hardly ever");
        assert_eq!(giver(&[(0.5, 0.5, &[])]), None, "it has waited until others had dropped a page");
    }
}
