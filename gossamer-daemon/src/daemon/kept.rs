//! Last output of the programs of this host, running and ended: for `gossamer-launch logs --output`.
//!
//! Invariants: at most [`KEPT_BYTES`] are kept of each program, and only the last [`KEPT_PROGRAMS`] ended ones. Pieces
//! are numbered from 0 as they come, so that a follower misses no kept piece, and notices each one that was dropped.

use comm::deadline::deadline_after;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::wire::{ProgramId, Written};

/// Most bytes kept of one program, with the overhead of each piece.
const KEPT_BYTES: usize = 256 << 10;
/// Number of ended programs that are remembered.
const KEPT_PROGRAMS: usize = 32;
/// Overhead of a piece.
const PIECE_BYTES: usize = 64;

/// Output of all programs.
#[derive(Default)]
pub struct Kept {
    programs: Mutex<VecDeque<Output>>,
    changed: Condvar,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Output {
    program: ProgramId,
    pieces: VecDeque<Written>,
    bytes: usize,
    /// Number of the first kept piece.
    first: u64,
    exits: Vec<(u16, i32)>,
    has_ended: bool,
}

/// New output of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct NewOutput {
    /// New pieces, in order.
    pub pieces: Vec<Written>,
    /// Whether pieces before them were dropped.
    pub is_cut: bool,
    /// Number of the next piece.
    pub next: u64,
    /// Exit statuses of its machines so far, as `wait` gives them.
    pub exits: Vec<(u16, i32)>,
    /// Whether nothing more will come.
    pub has_ended: bool,
}

impl Kept {
    fn programs(&self) -> MutexGuard<'_, VecDeque<Output>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all output.
    pub fn state(&self) -> VecDeque<Output> {
        self.programs().clone()
    }

    /// Replaces all output by that of a former daemon.
    pub fn resume(&self, state: VecDeque<Output>) {
        *self.programs() = state;
    }

    /// Adds a program that starts.
    pub fn begin(&self, program: ProgramId) {
        let (pieces, exits) = Default::default();
        self.programs().push_back(Output { program, pieces, bytes: 0, first: 0, exits, has_ended: false });
    }

    fn change(&self, program: ProgramId, change: impl FnOnce(&mut Output)) {
        let mut programs = self.programs();
        if let Some(output) = programs.iter_mut().rfind(|output| output.program == program) {
            change(output);
        }
        drop(programs);
        self.changed.notify_all();
    }

    /// Adds output of a program.
    pub fn push(&self, program: ProgramId, written: Written) {
        self.change(program, |output| {
            output.bytes += written.bytes.len() + PIECE_BYTES;
            output.pieces.push_back(written);
            while output.bytes > KEPT_BYTES {
                let Some(oldest) = output.pieces.pop_front() else { break };
                output.bytes -= oldest.bytes.len() + PIECE_BYTES;
                output.first += 1;
            }
        });
    }

    /// Notes the exit of one of its machines.
    pub fn exit(&self, program: ProgramId, machine: u16, status: i32) {
        self.change(program, |output| output.exits.push((machine, status)));
    }

    /// Returns the exit statuses of a program's machines here so far, as `wait` gives them.
    pub fn exits(&self, program: ProgramId) -> Vec<(u16, i32)> {
        let programs = self.programs();
        programs.iter().rfind(|output| output.program == program).map_or_else(Vec::new, |output| output.exits.clone())
    }

    /// Notes the end of a program; forgets the oldest ended ones, if there are too many.
    pub fn end(&self, program: ProgramId) {
        self.change(program, |output| output.has_ended = true);
        let mut programs = self.programs();
        let ended = programs.iter().filter(|output| output.has_ended).count();
        if ended > KEPT_PROGRAMS
            && let Some(oldest) = programs.iter().position(|output| output.has_ended)
        {
            programs.remove(oldest);
        }
    }

    /// Returns the output from piece `from` on; waits up to `limit` for it, or for the end of the program. `None` for
    /// an unknown program.
    pub fn after(&self, program: ProgramId, from: u64, limit: Duration) -> Option<NewOutput> {
        let end = deadline_after(limit);
        let mut programs = self.programs();
        loop {
            let output = programs.iter().rfind(|output| output.program == program)?;
            let next = output.first + output.pieces.len() as u64;
            let left = end.saturating_duration_since(Instant::now());
            if from < next || output.has_ended || left.is_zero() {
                let skipped = usize::try_from(from.saturating_sub(output.first)).unwrap_or(usize::MAX);
                let pieces: Vec<Written> = output.pieces.iter().skip(skipped).cloned().collect();
                let (is_cut, exits, has_ended) = (from < output.first, output.exits.clone(), output.has_ended);
                return Some(NewOutput { pieces, is_cut, next, exits, has_ended });
            }
            programs = self.changed.wait_timeout(programs, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Stream;

    const ID: ProgramId = ProgramId(7);

    fn piece(bytes: &[u8]) -> Written {
        Written { machine: 1, stream: Stream::Out, bytes: bytes.to_vec() }
    }

    #[test]
    fn the_last_output_is_kept_and_what_is_not_is_told() {
        let kept = Kept::default();
        assert_eq!(kept.after(ID, 0, Duration::ZERO), None);
        kept.begin(ID);
        let empty = kept.after(ID, 0, Duration::ZERO).unwrap();
        assert_eq!((empty.pieces.len(), empty.next, empty.is_cut, empty.has_ended), (0, 0, false, false));
        kept.push(ID, piece(b"first"));
        kept.push(ID, piece(b"second"));
        let output = kept.after(ID, 1, Duration::ZERO).unwrap();
        assert_eq!((output.pieces, output.next), (vec![piece(b"second")], 2));
        // The overhead of single bytes counts.
        for bytes in [1, 1000, KEPT_BYTES / 2, KEPT_BYTES * 2] {
            (0..2 * KEPT_BYTES / (bytes + PIECE_BYTES) + 2).for_each(|_| kept.push(ID, piece(&vec![b'x'; bytes])));
            let output = kept.after(ID, 0, Duration::ZERO).unwrap();
            let held: usize = output.pieces.iter().map(|piece| piece.bytes.len() + PIECE_BYTES).sum();
            assert!(output.is_cut && held <= KEPT_BYTES, "{bytes}: {held}");
            assert!(kept.after(ID, output.next, Duration::ZERO).unwrap().pieces.is_empty());
        }
    }

    #[test]
    fn ended_programs_are_kept_for_a_while() {
        let kept = Kept::default();
        kept.begin(ProgramId(1000)); // still running
        for number in 0..KEPT_PROGRAMS as u32 + 3 {
            kept.begin(ProgramId(number));
            kept.push(ProgramId(number), piece(b"x"));
            kept.exit(ProgramId(number), 1, 256);
            kept.end(ProgramId(number));
        }
        assert_eq!(kept.after(ProgramId(2), 0, Duration::ZERO), None);
        let output = kept.after(ProgramId(3), 0, Duration::from_secs(60)).unwrap();
        assert_eq!((output.pieces.len(), output.has_ended, output.exits), (1, true, vec![(1, 256)]));
        assert!(kept.after(ProgramId(1000), 0, Duration::ZERO).is_some());
    }

    #[test]
    fn who_follows_is_woken() {
        let kept = Kept::default();
        kept.begin(ID);
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let (mut from, mut count) = (0, 0);
                loop {
                    let output = kept.after(ID, from, Duration::from_secs(60)).unwrap();
                    (from, count) = (output.next, count + output.pieces.len());
                    if output.has_ended {
                        return count;
                    }
                }
            });
            (0..500).for_each(|_| kept.push(ID, piece(b"x")));
            kept.end(ID);
            assert_eq!(follower.join().unwrap(), 500);
        });
    }
}
