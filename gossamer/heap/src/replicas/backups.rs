//! The machine that has the replicas of another one's objects: its backup. All machines reckon alike whose it is, and
//! was when a machine was lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gossamer::link;

use super::head::EPOCHS;

/// The backup of this machine, and the number of it among those that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backup {
    pub(super) machine: u16,
    /// From 1 on.
    pub(super) epoch: u8,
}

const UNKNOWN: u64 = 0;
const NONE: u64 = 1 << 16;

/// A [`Backup`] as a word; `NONE` beside an epoch.
static CURRENT: AtomicU64 = AtomicU64::new(UNKNOWN);
/// The lost machines, in the order that all see. `CURRENT` is changed under its lock.
static LOST: Mutex<Vec<u16>> = Mutex::new(Vec::new());

/// Returns this machine's backup, if it has one.
#[inline]
pub(super) fn current() -> Option<Backup> {
    // Relaxed: a later value comes with the loss, of which each worker is told.
    let word = match CURRENT.load(Ordering::Relaxed) {
        UNKNOWN => first(),
        word => word,
    };
    (word & NONE == 0).then_some(Backup { machine: word as u16, epoch: (word >> 32) as u8 })
}

#[cold]
fn first() -> u64 {
    let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    if CURRENT.load(Ordering::Relaxed) == UNKNOWN {
        set(1, &lost);
    }
    CURRENT.load(Ordering::Relaxed)
}

fn set(epoch: u64, lost: &[u16]) {
    let next = (epoch <= u64::from(EPOCHS)).then(|| choose(gossamer::rack().machine(), lost)).flatten();
    CURRENT.store(epoch << 32 | next.map_or(NONE, u64::from), Ordering::Relaxed);
}

/// Notes the loss of a machine, which may be the backup.
pub(super) fn lose(machine: u16) {
    let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    lost.push(machine);
    let word = CURRENT.load(Ordering::Relaxed);
    if word != UNKNOWN && word & NONE == 0 && word as u16 == machine {
        set((word >> 32) + 1, &lost);
    }
}

/// Returns the machine that has the replicas of a lost one: the first in its order that lives, for each that was there
/// before it was its backup, or got them from the one that was (`refill.rs`).
pub(super) fn of_lost(machine: u16) -> Option<u16> {
    choose(machine, &link::lost_machines())
}

/// Returns the machine that is to get the replicas of a lost one, too, if this machine has them.
pub(super) fn next_of_lost(machine: u16) -> Option<u16> {
    let (own, mut lost) = (gossamer::rack().machine(), link::lost_machines());
    if choose(machine, &lost) != Some(own) {
        return None;
    }
    lost.push(own);
    choose(machine, &lost)
}

fn choose(machine: u16, lost: &[u16]) -> Option<u16> {
    let rack = gossamer::rack();
    let hosts: Vec<&str> = rack.machines().iter().map(|machine| machine.host.as_str()).collect();
    order(machine, &hosts).into_iter().find(|backup| !lost.contains(backup))
}

/// Machines that may be the backup of one, the best first: those of other hosts, from one on that differs by the
/// machine, then those of its own. The loss of machine 0 ends the program, so it has none.
fn order(machine: u16, hosts: &[&str]) -> Vec<u16> {
    if machine == 0 {
        return Vec::new();
    }
    let own = hosts[usize::from(machine)];
    let (mut far, mut near): (Vec<u16>, Vec<u16>) =
        (0..hosts.len() as u16).filter(|one| *one != machine).partition(|one| hosts[usize::from(*one)] != own);
    for some in [&mut far, &mut near] {
        let turns = usize::from(machine).checked_rem(some.len()).unwrap_or_default();
        some.rotate_left(turns);
    }
    far.append(&mut near);
    far
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_on_other_hosts_first_and_differ() {
        assert!(order(0, &["a", "b"]).is_empty());
        assert_eq!(order(1, &["a", "b"]), [0]);
        let hosts = ["a", "a", "a", "b", "b", "b"];
        let first: Vec<u16> = (1..6).map(|machine| order(machine, &hosts)[0]).collect();
        assert_eq!(first, [4, 5, 0, 1, 2]);
        assert_eq!(order(1, &hosts), [4, 5, 3, 2, 0]);
        let one_host: Vec<u16> = (1..4).map(|machine| order(machine, &["a"; 4])[0]).collect();
        assert_eq!(one_host, [2, 3, 0]);
    }
}
