//! Reading an object's bytes from its machine, which needs no worker there.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::RefCell;
use std::time::{Duration, Instant};

use comm::{Error, ReadId, ShareId};
use gossamer::link;

use super::Fault;
use crate::name::{At, Name};
use crate::replicas::promoted::{self, Replica};
use crate::replicas::switch;
use crate::{places, stats, tasks};

/// Most bytes of one read.
const PIECE_BYTES: usize = 64 << 20;
/// Number of turns in which a waiting fiber looks each time; afterwards it looks from time to time.
const EAGER: Duration = Duration::from_micros(100);
const NAP: Duration = Duration::from_micros(50);
/// Wait between looks whether a loss is settled.
const UNSETTLED: Duration = Duration::from_millis(1);

thread_local! {
    /// Reads of this worker whose fibers were unwound: the next read takes and drops their bytes.
    static LEFT: RefCell<Vec<Asked>> = const { RefCell::new(Vec::new()) };
}

/// A read that has begun.
struct Asked {
    machine: u16,
    read_id: ReadId,
    bytes: usize,
    is_taken: bool,
}

impl Asked {
    fn take(&mut self, into: &mut [u8]) -> Result<bool, Error> {
        let taken = link::take(self.machine, self.read_id, into);
        // An error has used the read id up.
        self.is_taken = !matches!(taken, Ok(false));
        taken
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_taken {
            let left = Asked { is_taken: true, ..*self };
            let _ = LEFT.try_with(|all| all.borrow_mut().push(left));
        }
    }
}

/// Takes the bytes of reads that no fiber waits for any more.
fn drop_left() {
    let left = LEFT.take();
    for mut asked in left {
        let mut into = vec![0; asked.bytes];
        // Put back by its drop if it is not there yet.
        let _ = asked.take(&mut into);
    }
}

/// Reads an object that is not mapped, whole words; of a lost machine its replica. Other fibers run meanwhile; `look`
/// is called each time before they do.
///
/// # Errors
/// [`Fault::Lost`], once all machines have agreed on that; [`Fault::Unreadable`]: nothing is there, or the program
/// ends.
pub(crate) fn fetch(name: Name, layout: Layout, into: &mut [u8], mut look: impl FnMut()) -> Result<(), Fault> {
    let lost = match fetch_bytes(name.at, into, &mut look) {
        Err(Fault::Lost(lost)) if switch::are_on() => lost,
        other => return other,
    };
    loop {
        let (machine, start) = match promoted::find(name, layout).map_err(Fault::Lost)? {
            Replica::Here(object) => {
                // SAFETY: rooms are whole words; the replica does not change while its name is held.
                unsafe { object.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
                return Ok(());
            }
            Replica::Far { machine, start } => (machine, start),
        };
        let bytes = |machine, start, into: &mut [u8]| read(machine, link::REPLICAS, start, into, &mut look);
        match promoted::read(name, layout, (machine, start), into, bytes) {
            Ok(read) => return read.map_err(Fault::Lost),
            // No replica is there.
            Err(Error::NotCommitted { .. } | Error::NoSuchShare { .. }) => return Err(Fault::Lost(lost)),
            Err(Error::Gone { .. }) => {
                // Its machine is lost, too, once all have agreed on that; another one may have the replica.
                while !link::is_lost(machine) {
                    if trust::link::is_ending() {
                        return Err(Fault::Lost(lost));
                    }
                    gossamer::sleep(UNSETTLED);
                }
            }
            Err(error) => return Err(Fault::Unreadable(error.to_string())),
        }
    }
}

/// Reads words of a partition, as they are.
///
/// # Errors
/// Those of `fetch`.
pub(crate) fn fetch_bytes(at: At, into: &mut [u8], look: impl FnMut()) -> Result<(), Fault> {
    drop_left();
    places::check(at).map_err(Fault::Lost)?;
    let machine = places::places()[at.place() as usize].machine;
    match read(machine, link::HEAP, places::offset_in_share(at), into, look) {
        Ok(()) => Ok(()),
        Err(error) => Err(fault(at, &error)),
    }
}

/// Returns the reason for a read that failed. A peer that is gone may be lost: waits until that is settled, for till
/// then the program goes by the fate of the others.
fn fault(at: At, error: &Error) -> Fault {
    while matches!(error, Error::Gone { .. }) && link::outlives_losses() && !trust::link::is_ending() {
        if let Err(lost) = places::check(at) {
            return Fault::Lost(lost);
        }
        gossamer::sleep(UNSETTLED);
    }
    Fault::Unreadable(error.to_string())
}

fn read(machine: u16, share: ShareId, start: usize, into: &mut [u8], mut look: impl FnMut()) -> Result<(), Error> {
    let (since, bytes) = (Instant::now(), into.len());
    for (index, piece) in into.chunks_mut(PIECE_BYTES).enumerate() {
        let read_id = link::read(machine, share, start + index * PIECE_BYTES, piece.len())?;
        let mut read = Asked { machine, read_id, bytes: piece.len(), is_taken: false };
        let asked = Instant::now();
        while !read.take(piece)? {
            look();
            if asked.elapsed() < EAGER {
                gossamer::yield_now();
            } else {
                gossamer::sleep(NAP);
            }
        }
    }
    let own = stats::own();
    own.fetches.add(1);
    own.fetched_bytes.add(bytes as u64);
    let time = since.elapsed();
    own.fetch_ns.add(time.as_nanos() as u64);
    tasks::note_fetch(machine, bytes, time);
    Ok(())
}
