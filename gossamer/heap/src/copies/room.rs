//! Room for copies and objects: above nine tenths of the heap copies that nobody reads go, the oldest first.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use gossamer::Place;

use super::block::Block;
use super::{ALL, OWN, lock, shard};
use crate::error::Error;
use crate::{here, limit, partition, stats};

/// Longest time for which a caller that needs room waits for other workers.
const WAIT: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Counts the bytes of a copy as used. Waits where room has to be made.
///
/// # Errors
/// There is none, though all copies that nobody reads have gone.
pub(crate) fn reserve(bytes: usize) -> Result<(), Error> {
    let wanted = bytes as u64;
    if limit::reserve(wanted, limit::high()) {
        return Ok(());
    }
    drop_unread();
    evict(wanted, limit::high());
    // The rest above this mark is for callers that need it now.
    if limit::reserve(wanted, limit::limit())
        || (make_room(wanted, limit::limit(), true) && limit::reserve(wanted, limit::limit()))
    {
        Ok(())
    } else {
        Err(limit::full(bytes))
    }
}

/// Drops copies, and gives free units back, until so many bytes more fit below `most`; waits for other workers to do so
/// too if it `waits`, where it may. Whether they fit.
pub(crate) fn make_room(wanted: u64, most: u64, waits: bool) -> bool {
    let fits = || limit::used().saturating_add(wanted) <= most;
    if wanted > most {
        return false;
    }
    drop_unread();
    evict(wanted, most);
    if fits() {
        return true;
    }
    if let Some(own) = partition::existing() {
        own.trim();
    }
    if waits && here::is_known_worker() {
        ask_others();
        let end = deadline_after(WAIT);
        while !fits() && Instant::now() < end && trust::may_wait() {
            gossamer::sleep(LOOK_EVERY);
            evict(wanted, most);
        }
    }
    fits()
}

/// This worker keeps no copy in its list that no guard has. The machine still has it.
fn drop_unread() {
    let taken = OWN.try_with(|own| {
        let mut own = own.try_borrow_mut().ok()?;
        Some(own.extract_if(|_, (_, pin)| Rc::strong_count(pin) == 1).collect::<Vec<_>>())
    });
    drop(taken);
}

/// Drops copies that no worker has in its list, the oldest first, until so many bytes more fit below `most`, and some
/// more, so that the next need not look again at once.
fn evict(wanted: u64, most: u64) {
    let short = limit::used().saturating_add(wanted).saturating_sub(most);
    if short == 0 {
        return;
    }
    let bytes = short.saturating_add(limit::limit() / 16);
    let mut unread = Vec::new();
    for shard in ALL.iter() {
        let shelf = lock(shard);
        let here = shelf.copies().filter(|(_, block)| Arc::strong_count(block) == 1);
        unread.extend(here.map(|(at, block)| (block.number, at, block.taken())));
    }
    unread.sort_unstable_by_key(|(number, ..)| *number);
    let mut left = bytes;
    for (number, at, size) in unread {
        if left == 0 {
            break;
        }
        let is_unread = |block: &Arc<Block>| block.number == number && Arc::strong_count(block) == 1;
        // A later reader would find it here, so it has no readers.
        let gone = shard(at).take_if(at, is_unread);
        if gone.is_some() {
            drop(gone);
            left = left.saturating_sub(size);
            stats::own().evictions.add(1);
        }
    }
}

/// Asks the other workers of this machine to drop unread copies, and to give free units back.
fn ask_others() {
    let (rack, here) = (gossamer::rack(), gossamer::here());
    let workers = 0..rack.machines()[usize::from(here.machine)].workers;
    for place in workers.map(|worker| Place::of(here.machine, worker)).filter(|place| *place != here) {
        let asked = |_: &[u8]| {
            drop_unread();
            if let Some(own) = partition::existing() {
                own.trim();
            }
        };
        trust::link::post(place.trustee(), asked, &[]);
    }
}
