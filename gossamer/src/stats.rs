//! Number of delegations, local and remote, and of values left from before losses. The workers count as they go;
//! reading disturbs none of them.

use trust::TrusteeReference;

use crate::rack::program;
use crate::remote::direct_ways;

/// Delegations that the workers of a machine have made since its start, sent by fibers of the program only. Those of
/// other threads of the process are not included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests to trustees of the same machine, each worker's own one included.
    pub local: u64,
    /// Requests to trustees of other machines.
    pub remote: u64,
    /// Values there now of properties of before the loss of a machine
    /// ([`survives`](crate::Builder::survives)). Not a count of work: those whose trusts the lost machine had stay.
    pub old_properties: u64,
    /// Direct ways there now: rings of single pairs of workers, where machines have ways
    /// ([`machine_ways`](crate::Builder::machine_ways)). Each of the two workers counts its own.
    pub direct_ways: u64,
}

impl std::ops::Add for Stats {
    type Output = Stats;
    fn add(self, other: Stats) -> Stats {
        Stats {
            local: self.local + other.local,
            remote: self.remote + other.remote,
            old_properties: self.old_properties + other.old_properties,
            direct_ways: self.direct_ways + other.direct_ways,
        }
    }
}

fn of_worker(trustee: &TrusteeReference) -> Stats {
    let Some(stats) = trust::stats(*trustee) else { return Stats::default() };
    let remote = stats.requests_sent_remote;
    let local = stats.requests_sent.saturating_sub(remote) + stats.requests_run_here;
    Stats { local, remote, old_properties: stats.old_properties, direct_ways: 0 }
}

/// Returns the delegations of this machine.
///
/// # Panics
/// Outside [`gossamer::main`](crate::main).
///
/// ```
/// gossamer::main(
///     || {
///         let counter = gossamer::entrust_on(gossamer::here(), 0);
///         counter.apply(|c| *c += 1);
///         assert!(gossamer::stats().local >= 1);
///     },
///     2,
/// );
/// ```
#[track_caller]
pub fn stats() -> Stats {
    let of_process = Stats { direct_ways: direct_ways(), ..Stats::default() };
    program().trustees.iter().map(of_worker).fold(of_process, std::ops::Add::add)
}

/// Returns the delegations of all machines together but the lost ones: asks each one, and waits. All answer, also while
/// all workers compute.
///
/// ```
/// gossamer::main(
///     || {
///         let counter = gossamer::entrust(0);
///         counter.apply(|c| *c += 1);
///         assert!(gossamer::rack_stats().local >= 1);
///         assert_eq!(gossamer::rack_stats().remote, 0); // one process
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main); in delegated closures and callbacks, where nothing may wait.
#[track_caller]
pub fn rack_stats() -> Stats {
    let rack = &program().rack;
    let others = (0u16..).take(rack.machines.len()).filter(|&machine| machine != rack.machine);
    others.fold(stats(), |sum, machine| match trust::link::call(rack.service(machine), stats) {
        Ok(stats) => sum + stats,
        Err(_) if rack.is_lost(machine) => sum,
        Err(error) => panic!("machine {machine} does not say what it has delegated: {error}"),
    })
}
