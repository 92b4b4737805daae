//! Cores that hosts have idle, or lack, all through the last second.
//!
//! Threads on their way count as if they were there: another one that took their core would be one too many when they
//! arrive. So while one of two threads that change places is tied, nobody takes the place of the other.

use std::collections::BTreeMap;

use super::{Balance, Load};

/// A host at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostLoad {
    pub(super) cores: f64,
    /// Cores that its threads want, and those that they would want if they never waited for pages.
    pub(super) wanted: f64,
    pub(super) wanted_with_pages: f64,
}

/// All hosts at one time.
pub(super) type Hosts = BTreeMap<usize, HostLoad>;

impl Balance {
    /// Returns how many cores each host has beside those that its threads use, by this measure.
    pub(super) fn room(&self, loads: &[Load], used: fn(&HostLoad) -> f64) -> BTreeMap<usize, f64> {
        let mut room = self.least(|host| host.cores - used(host));
        self.take_those_on_their_way(loads, false, &mut room);
        room
    }

    /// Returns how many cores each host has too few.
    pub(super) fn excess(&self, loads: &[Load]) -> BTreeMap<usize, f64> {
        let mut excess = self.least(|host| host.wanted - host.cores);
        self.take_those_on_their_way(loads, true, &mut excess);
        excess
    }

    /// Takes a core from the hosts where moves begin whose thread is still there, or from those where they end and it
    /// is not yet.
    fn take_those_on_their_way(&self, loads: &[Load], is_source: bool, values: &mut BTreeMap<usize, f64>) {
        let load_of = |machine: u16| loads.iter().find(|load| load.machine == machine);
        for (thread, trial) in &self.trials {
            let (Some(from), Some(to)) = (load_of(trial.from), load_of(trial.to)) else { continue };
            let end = if is_source { from } else { to };
            let is_there = end.threads.iter().any(|seen| seen.id == *thread);
            if from.host != to.host
                && is_there == is_source
                && let Some(value) = values.get_mut(&end.host)
            {
                *value -= 1.0;
            }
        }
    }

    /// Returns the least value of each host in the last second, of those that were known all the while.
    fn least(&self, value: impl Fn(&HostLoad) -> f64) -> BTreeMap<usize, f64> {
        let mut all = self.hosts.iter().map(|(_, hosts)| hosts);
        let first: Hosts = all.next().cloned().unwrap_or_default();
        let mut least: BTreeMap<usize, f64> = first.iter().map(|(host, load)| (*host, value(load))).collect();
        for hosts in all {
            least.retain(|host, least| {
                let now = hosts.get(host).map(&value);
                *least = least.min(now.unwrap_or_default());
                now.is_some()
            });
        }
        least
    }
}
