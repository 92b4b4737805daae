//! Choice of the threads that change places, where both hosts are full.
//!
//! Each waits for pages of the other's machine. If they wait for the same pages, they would wait as before: a thread
//! changes places only with one whose pages are others, and if more threads there than here wait for its own, or none
//! of either: threads that only read those pages, or only write them, may not be seen to wait.

use std::collections::BTreeSet;

use super::Sample;
use super::away::Away;

/// Part of the pages of two threads from which they share them.
const SHARED: f64 = 0.25;
/// Pages by which two threads are compared.
const SAMPLE: usize = 16;

/// Whether two threads wait for the same pages: of the least pages of both many are in both samples.
fn share(one: &Sample, other: &Sample) -> bool {
    let all: BTreeSet<u64> = one.union(other).take(SAMPLE).copied().collect();
    let shared = all.iter().filter(|page| one.contains(page) && other.contains(page)).count();
    !all.is_empty() && shared as f64 >= SHARED * all.len() as f64
}

/// Returns how many more threads that wait for the pages of `one` are there than here, if it should go.
fn gain(one: &Away, away: &[Away]) -> Option<usize> {
    let sharing = |machine: u16| {
        let is_other = |other: &&Away| other.from == machine && other.thread != one.thread;
        away.iter().filter(is_other).filter(|other| share(&one.sample, &other.sample)).count()
    };
    let (here, there) = (sharing(one.from), sharing(one.to));
    match there.checked_sub(here) {
        Some(0) if here > 0 => None,
        gain => gain,
    }
}

/// Returns pairs that change places now, of threads that wait, all between two machines; `may` says whether threads may
/// go from one machine to another. None of them shares pages with one that goes the other way.
pub(super) fn pairs(away: &[Away], may: impl Fn(u16, u16) -> bool) -> Vec<(Away, Away)> {
    let is_willing = |one: &&Away| one.is_free && !one.sample.is_empty() && may(one.from, one.to);
    let mut willing: Vec<(usize, &Away)> =
        away.iter().filter(is_willing).filter_map(|one| Some((gain(one, away)?, one))).collect();
    willing.sort_by(|(gain, one), (of_other, other)| {
        let order = of_other.cmp(gain).then(other.waited.total_cmp(&one.waited));
        order.then(one.thread.cmp(&other.thread))
    });
    let mut pairs: Vec<(Away, Away)> = Vec::new();
    for (_, one) in &willing {
        // All first ones go the way of the first of them.
        if pairs.first().is_some_and(|(first, _)| (one.from, one.to) != (first.from, first.to)) {
            continue;
        }
        let is_other = |other: &&Away| {
            (other.from, other.to) == (one.to, one.from)
                && !share(&one.sample, &other.sample)
                && pairs.iter().all(|(first, second)| {
                    let meets = share(&one.sample, &second.sample) || share(&first.sample, &other.sample);
                    second.thread != other.thread && !meets
                })
        };
        if let Some(other) = willing.iter().map(|(_, other)| *other).find(is_other) {
            pairs.push((Away::clone(one), other.clone()));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread on a machine of two that waits for the other one's pages: for these.
    fn on(machine: u16, thread: u64, pages: std::ops::Range<u64>) -> Away {
        Away { thread, from: machine, to: 1 - machine, is_free: true, waited: 0.5, sample: pages.collect() }
    }

    fn pairs(away: &[Away]) -> Vec<(u64, u64)> {
        super::pairs(away, |_, _| true).iter().map(|(one, other)| (one.thread, other.thread)).collect()
    }

    #[test]
    fn threads_share_pages_that_are_many_of_both_of_theirs() {
        let set = |pages: std::ops::Range<u64>| pages.collect::<Sample>();
        assert!(share(&set(5..6), &set(5..6)) && share(&set(0..16), &set(12..16)) && share(&set(0..16), &set(0..4)));
        assert!(!share(&set(0..16), &set(13..29)) && !share(&set(0..2), &set(2..4)));
        assert!(share(&set(0..16), &set(0..100)), "the least of each are compared");
        assert!(!share(&set(0..0), &set(0..0)));
    }

    #[test]
    fn threads_change_places_with_those_whose_pages_are_others() {
        assert_eq!(pairs(&[on(0, 1, 0..4), on(1, 2, 0..4)]), [], "they would wait as before");
        assert_eq!(pairs(&[on(0, 1, 0..4), on(1, 2, 4..8)]), [(1, 2)], "those there may not be seen to wait");
        let crosswise = [on(0, 1, 0..4), on(0, 2, 4..8), on(1, 3, 0..4), on(1, 4, 4..8)];
        assert_eq!(pairs(&crosswise), [(1, 4)], "the others stay, or they would be apart again");
        let with_bound = [on(0, 1, 0..4), Away { is_free: false, ..on(1, 2, 4..8) }];
        assert_eq!(pairs(&with_bound), []);
        assert!(super::pairs(&crosswise, |from, _| from == 0).is_empty());
    }

    #[test]
    fn threads_go_where_more_of_theirs_are() {
        // Two of one kind and one of the other on each machine: the ones change places.
        let two = [on(0, 1, 0..4), on(0, 2, 0..4), on(0, 3, 4..8), on(1, 4, 0..4), on(1, 5, 4..8), on(1, 6, 4..8)];
        assert_eq!(pairs(&two), [(3, 4)]);
        let even = [on(0, 1, 0..4), on(0, 2, 0..4), on(1, 3, 0..4), on(1, 4, 4..8)];
        assert_eq!(pairs(&even), [], "there are as many of theirs here as there");
        let all = [on(0, 1, 0..4), on(0, 2, 4..8), on(1, 3, 8..12), on(1, 4, 12..16)];
        assert_eq!(pairs(&all), [(1, 3), (2, 4)], "several at once");
    }
}
