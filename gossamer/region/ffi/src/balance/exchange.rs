//! Choice of the threads that change places, where both hosts are full.
//!
//! Each waits for pages of the other's machine. If they wait for the same pages, they would wait as before: a thread
//! changes places only with one whose pages are others, and if more threads there than here wait for its own, or none
//! of either: threads that only read those pages, or only write them, may not be seen to wait.

use std::collections::BTreeMap;

use super::away::Away;

/// Part of the pages of two threads from which they share them.
const SHARED: f64 = 0.25;
/// Pages by which two threads are compared.
const SAMPLE: usize = 16;

/// Whether two threads wait for the same pages: of the least pages of both many are in both samples. `one` and `other`:
/// the least pages of each, in order.
fn share(one: &[u64], other: &[u64]) -> bool {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let (mut all, mut shared) = (0_usize, 0_usize);
    while all < SAMPLE {
        let Some(least) = one.peek().into_iter().chain(other.peek()).min().copied() else { break };
        let is_of_both = [one.next_if_eq(&least), other.next_if_eq(&least)].iter().all(Option::is_some);
        (all, shared) = (all + 1, shared + usize::from(is_of_both));
    }
    all > 0 && shared as f64 >= SHARED * all as f64
}

/// A thread that waits, with the number of its kind: threads of one kind wait for the same pages.
#[derive(Clone, Copy)]
struct Waiting<'a> {
    away: &'a Away,
    kind: usize,
}

/// Threads that wait, by kind. Hundreds of threads are mostly of few kinds: these are compared, once each, and not the
/// threads.
struct Kinds<'a> {
    waiting: Vec<Waiting<'a>>,
    /// Whether each kind shares pages with each.
    share: Vec<Vec<bool>>,
}

impl Kinds<'_> {
    fn of(away: &[Away]) -> Kinds<'_> {
        let (mut numbers, mut samples) = (BTreeMap::new(), Vec::new());
        let waiting = away.iter().map(|one| {
            let least: Vec<u64> = one.sample.iter().take(SAMPLE).copied().collect();
            let kind = *numbers.entry(least).or_insert_with_key(|least| {
                samples.push(least.clone());
                samples.len() - 1
            });
            Waiting { away: one, kind }
        });
        let waiting = waiting.collect();
        let share = samples.iter().map(|one| samples.iter().map(|other| share(one, other)).collect()).collect();
        Kinds { waiting, share }
    }

    fn share(&self, one: Waiting<'_>, other: Waiting<'_>) -> bool {
        self.share[one.kind][other.kind]
    }

    /// Returns how many more threads that wait for the pages of `one` are there than here, if it should go.
    fn gain(&self, one: Waiting<'_>) -> Option<usize> {
        let sharing = |machine: u16| {
            let others = self.waiting.iter().filter(|other| other.away.thread != one.away.thread);
            others.filter(|other| other.away.from == machine && self.share(one, **other)).count()
        };
        let (here, there) = (sharing(one.away.from), sharing(one.away.to));
        match there.checked_sub(here) {
            Some(0) if here > 0 => None,
            gain => gain,
        }
    }
}

/// Returns pairs that change places now, of threads that wait, all between two machines; `may` says whether threads may
/// go from one machine to another. None of them shares pages with one that goes the other way.
pub(super) fn pairs(away: &[Away], may: impl Fn(u16, u16) -> bool) -> Vec<(Away, Away)> {
    let kinds = Kinds::of(away);
    let is_willing =
        |Waiting { away, .. }: &&Waiting| away.is_free && !away.sample.is_empty() && may(away.from, away.to);
    let willing = kinds.waiting.iter().filter(is_willing);
    let mut willing: Vec<(usize, Waiting)> = willing.filter_map(|one| Some((kinds.gain(*one)?, *one))).collect();
    willing.sort_by(|(gain, Waiting { away: one, .. }), (of_other, Waiting { away: other, .. })| {
        let order = of_other.cmp(gain).then(other.waited.total_cmp(&one.waited));
        order.then(one.thread.cmp(&other.thread))
    });
    let way = |one: &Waiting| (one.away.from, one.away.to);
    let mut pairs: Vec<(Waiting, Waiting)> = Vec::new();
    for (_, one) in &willing {
        // All first ones go the way of the first of them.
        if pairs.first().is_some_and(|(first, _)| way(one) != way(first)) {
            continue;
        }
        let is_other = |other: &Waiting| {
            way(other) == (one.away.to, one.away.from)
                && !kinds.share(*one, *other)
                && pairs.iter().all(|(first, second)| {
                    let meets = kinds.share(*one, *second) || kinds.share(*first, *other);
                    second.away.thread != other.away.thread && !meets
                })
        };
        if let Some(other) = willing.iter().map(|(_, other)| *other).find(is_other) {
            pairs.push((*one, other));
        }
    }
    pairs.into_iter().map(|(one, other)| (one.away.clone(), other.away.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Sample;

    /// A thread on a machine of two that waits for the other one's pages: for these.
    fn on(machine: u16, thread: u64, pages: std::ops::Range<u64>) -> Away {
        Away { thread, from: machine, to: 1 - machine, is_free: true, waited: 0.5, sample: pages.collect() }
    }

    fn pairs(away: &[Away]) -> Vec<(u64, u64)> {
        super::pairs(away, |_, _| true).iter().map(|(one, other)| (one.thread, other.thread)).collect()
    }

    #[test]
    fn threads_share_pages_that_are_many_of_both_of_theirs() {
        let share = |one: std::ops::Range<u64>, other: std::ops::Range<u64>| {
            let away = [on(0, 1, one), on(1, 2, other)];
            let kinds = Kinds::of(&away);
            kinds.share(kinds.waiting[0], kinds.waiting[1])
        };
        assert!(share(5..6, 5..6) && share(0..16, 12..16) && share(0..16, 0..4));
        assert!(!share(0..16, 13..29) && !share(0..2, 2..4));
        assert!(share(0..16, 0..100), "the least of each are compared");
        assert!(!share(0..0, 0..0));
    }

    /// By sets of all pages of both, also those beyond the sample.
    #[test]
    fn threads_share_pages_as_their_sets_say() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut found = [0; 2];
        for _ in 0..2000 {
            let most = random.u64(1..60);
            let sets = [0; 2].map(|_| (0..random.usize(..40)).map(|_| random.u64(..most)).collect::<Sample>());
            let all: Vec<u64> = sets[0].union(&sets[1]).take(SAMPLE).copied().collect();
            let shared = all.iter().filter(|page| sets.iter().all(|set| set.contains(page))).count();
            let expected = !all.is_empty() && 4 * shared >= all.len();
            let away = sets.map(|sample| Away { sample, ..on(0, 1, 0..0) });
            let kinds = Kinds::of(&away);
            assert_eq!(kinds.share(kinds.waiting[0], kinds.waiting[1]), expected, "{away:?}");
            assert_eq!(kinds.share(kinds.waiting[1], kinds.waiting[0]), expected, "{away:?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|found| *found > 100), "{found:?}");
    }

    /// Policies decide ten times a second, also for hundreds of threads.
    #[test]
    fn threads_that_wait_for_the_same_pages_are_compared_once() {
        // Pages beyond the sample differ, by thread.
        let pages = |thread: u64| (thread / 100) * 1000..(thread / 100) * 1000 + SAMPLE as u64 + thread;
        let all: Vec<Away> = (0..400).map(|thread| on((thread / 200) as u16, thread, pages(thread))).collect();
        let kinds = Kinds::of(&all);
        assert_eq!((kinds.waiting.len(), kinds.share.len()), (400, 4));
        assert_eq!(pairs(&all), [], "all of each kind are together");
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
