//! Faults by thread: how long each thread of this machine waited for pages, and which machines gave them. Kept from the
//! first question for them on; before that a fault costs nothing for it.
//!
//! Everything here runs on the page server unless stated otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gossamer::link;
use serde::{Deserialize, Serialize};
use trust::link::post;

use super::with;

/// Faults of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultsOfThread {
    /// Time for which it waited for pages.
    pub waited: Duration,
    /// Bytes that came, by machine.
    pub from: BTreeMap<u16, u64>,
    /// Pages that came, as numbers of all 64 bits that are the same on all machines: the least of them.
    pub sample: BTreeSet<u64>,
}

/// Pages of a sample.
const SAMPLE: usize = 16;

/// A run that has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    pub(super) from: u16,
    pub(super) bytes: u64,
    pub(super) region: u32,
    pub(super) page: u32,
}

impl Came {
    /// Spreads the page's number over all bits, so that the least ones are any of a program's.
    fn number(&self) -> u64 {
        let number = (u64::from(self.region) << 32 | u64::from(self.page)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

impl FaultsOfThread {
    fn note_page(&mut self, number: u64) {
        if self.sample.len() < SAMPLE || self.sample.last().is_some_and(|last| number < *last) {
            self.sample.insert(number);
        }
        if self.sample.len() > SAMPLE {
            self.sample.pop_last();
        }
    }
}

/// In a fiber: returns the faults of this machine's threads since the last call, by the system's ids of the threads; at
/// the first call there are none.
pub fn take_faults() -> BTreeMap<u32, FaultsOfThread> {
    let (promise, taken) = trust::promise();
    post(link::page_server(gossamer::rack().machine()), move |_| promise.keep_with(take()), &[]);
    taken.wait().unwrap_or_default() // none at the program's end
}

fn take() -> BTreeMap<u32, FaultsOfThread> {
    with(|server, _| {
        server.is_counting = true;
        let (now, mut all) = (Instant::now(), Accounts::default());
        for kept in server.regions.iter_mut().flatten() {
            for waiting in kept.waiting.values_mut() {
                all.charge(&waiting.threads, now, None);
                waiting.threads.iter_mut().for_each(|(_, since)| *since = now);
            }
            all.merge(std::mem::take(&mut kept.accounts));
        }
        all.0
    })
}

/// Accounts of threads, by the system's ids.
#[derive(Debug, Default)]
pub(super) struct Accounts(BTreeMap<u32, FaultsOfThread>);

impl Accounts {
    /// Adds what these threads waited until now, each since its time, and the bytes that have come for them.
    pub(super) fn charge(&mut self, threads: &[(u32, Instant)], now: Instant, came: Option<Came>) {
        for (thread, since) in threads {
            let account = self.0.entry(*thread).or_default();
            account.waited = account.waited.saturating_add(now.saturating_duration_since(*since));
            if let Some(came) = came {
                *account.from.entry(came.from).or_default() += came.bytes;
                account.note_page(came.number());
            }
        }
    }

    fn merge(&mut self, other: Accounts) {
        for (thread, account) in other.0 {
            let own = self.0.entry(thread).or_default();
            own.waited = own.waited.saturating_add(account.waited);
            account.from.into_iter().for_each(|(machine, bytes)| *own.from.entry(machine).or_default() += bytes);
            account.sample.into_iter().for_each(|page| own.note_page(page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_charged_what_each_waited_and_whose_bytes_came() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let (mut one, mut other) = (Accounts::default(), Accounts::default());
        let came = |from, bytes| Some(Came { from, bytes, region: 0, page: 5 });
        one.charge(&[(7, now), (8, now + ms(2))], now + ms(5), came(3, 4096));
        one.charge(&[(7, now)], now + ms(1), None);
        other.charge(&[(7, now)], now + ms(10), came(3, 8192));
        other.charge(&[(7, now + ms(9))], now, came(1, 4096));
        one.merge(other);
        let found: Vec<_> =
            one.0.iter().map(|(thread, account)| (*thread, account.waited, account.from.clone())).collect();
        let expected = [(7, ms(16), BTreeMap::from([(1, 4096), (3, 12288)])), (8, ms(3), BTreeMap::from([(3, 4096)]))];
        assert_eq!(found, expected);
    }

    /// Threads that wait for the same pages have the same sample, in whatever order these come.
    #[test]
    fn samples_are_the_least_pages_that_came() {
        let sample = |pages: &mut dyn Iterator<Item = u32>, region| {
            let mut all = Accounts::default();
            for page in pages {
                let came = Came { from: 1, bytes: 4096, region, page };
                all.charge(&[(7, Instant::now())], Instant::now(), Some(came));
            }
            all.0.remove(&7).unwrap().sample
        };
        let all = sample(&mut (0..500), 0);
        assert_eq!((all.len(), &sample(&mut (0..500).rev().chain(0..500), 0)), (SAMPLE, &all));
        let shared = |other: BTreeSet<u64>| all.intersection(&other).count();
        assert_eq!((shared(sample(&mut (0..500), 1)), shared(sample(&mut (500..1000), 0))), (0, 0));
        assert!((3..14).contains(&shared(sample(&mut (250..750), 0))), "a third of both");
    }
}
