//! Faults by thread: how long each thread of this machine waited for pages, and which machines gave them. Kept from the
//! first question for them on; before that a fault costs nothing for it.
//!
//! Everything here runs on the page server unless stated otherwise.

use std::collections::BTreeMap;
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
    pub(super) fn charge(&mut self, threads: &[(u32, Instant)], now: Instant, came: Option<(u16, u64)>) {
        for (thread, since) in threads {
            let account = self.0.entry(*thread).or_default();
            account.waited = account.waited.saturating_add(now.saturating_duration_since(*since));
            if let Some((machine, bytes)) = came {
                *account.from.entry(machine).or_default() += bytes;
            }
        }
    }

    fn merge(&mut self, other: Accounts) {
        for (thread, account) in other.0 {
            let own = self.0.entry(thread).or_default();
            own.waited = own.waited.saturating_add(account.waited);
            account.from.into_iter().for_each(|(machine, bytes)| *own.from.entry(machine).or_default() += bytes);
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
        one.charge(&[(7, now), (8, now + ms(2))], now + ms(5), Some((3, 4096)));
        one.charge(&[(7, now)], now + ms(1), None);
        other.charge(&[(7, now)], now + ms(10), Some((3, 8192)));
        other.charge(&[(7, now + ms(9))], now, Some((1, 4096)));
        one.merge(other);
        let found: Vec<_> =
            one.0.iter().map(|(thread, account)| (*thread, account.waited, account.from.clone())).collect();
        let expected = [(7, ms(16), BTreeMap::from([(1, 4096), (3, 12288)])), (8, ms(3), BTreeMap::from([(3, 4096)]))];
        assert_eq!(found, expected);
    }
}
