//! Reading an object's bytes from its machine, which needs no worker there.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use comm::ReadId;
use gossamer::link;

use crate::name::At;
use crate::{places, stats};

/// Most bytes of one read.
const PIECE_BYTES: usize = 64 << 20;
/// Number of turns in which a waiting fiber looks each time; afterwards it looks from time to time.
const EAGER: Duration = Duration::from_micros(100);
const NAP: Duration = Duration::from_micros(50);

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
    fn take(&mut self, into: &mut [u8]) -> Result<bool, String> {
        let taken = link::take(self.machine, self.read_id, into);
        // An error has used the read id up.
        self.is_taken = !matches!(taken, Ok(false));
        taken.map_err(|error| error.to_string())
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

/// Reads an object that is not mapped, whole words. Other fibers run meanwhile; `look` is called each time before they
/// do.
///
/// # Errors
/// In words: its machine is lost, or nothing is there.
pub(crate) fn fetch(at: At, into: &mut [u8], mut look: impl FnMut()) -> Result<(), String> {
    drop_left();
    let machine = places::places()[at.place() as usize].machine;
    let (since, start, bytes) = (Instant::now(), places::offset_in_share(at), into.len());
    for (index, piece) in into.chunks_mut(PIECE_BYTES).enumerate() {
        let read_id = link::read(machine, link::HEAP, start + index * PIECE_BYTES, piece.len());
        let read_id = read_id.map_err(|error| error.to_string())?;
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
    own.fetch_ns.add(since.elapsed().as_nanos() as u64);
    Ok(())
}
