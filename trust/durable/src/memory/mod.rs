//! Memory of a pool: private to the process. Each line is saved before a transaction first writes to it, and restored
//! if the transaction is undone.
//!
//! Here: lines, and the undo log of a transaction: saved lines, allocations, deferred frees. A pool that is being
//! opened: `opening.rs`. Not here: entering a transaction (`tx.rs`), the types of values (`types/`), files.
//!
//! Invariants:
//! - [touch-before-mut] A line is touched (its bit is set) before a `&mut` to a byte of it is handed out, and stays so
//!   to the end of the transaction. So a line is read for saving only while no `&mut` to it is in use.
//! - A line in which anything was live when the transaction began was saved when it was touched; a touched line
//!   that was not saved held nothing.
//! - A line that is not in the group is on the disk, or in an earlier group, with its present contents: `commit`
//!   leaves out lines that are equal to their saved copies.
//! - [free-after-commit] A slot freed in a transaction becomes free after the transaction, not during it.
//! - [pool-one-thread] One thread at a time has a pool's memory, and no code of users runs while `State` is borrowed.
//! - [values-accessible] The slots of all values are accessible, and so are the bits of their lines: the allocator's
//!   limit is the accessible size.

#![allow(unsafe_code)]

pub(crate) mod alloc;
mod bits;
pub(crate) mod copy;
mod opening;
mod region;
mod weak_ids;

use std::cell::{Cell, RefCell};
use std::io;

use alloc::{Alloc, PAGE};
use bits::{Bit, Bits};
use copy::{LINE, Line};
use region::Region;
use weak_ids::WeakIds;

/// Offset of the root. The line before it stays empty, because offset 0 means none.
pub(crate) const ROOT_AT: u64 = LINE as u64;
/// The largest root: it is saved at the start of each transaction.
pub(crate) const ROOT_BYTES_MAX: usize = 512;
/// The largest pool: its lines can be counted by a `u32`.
pub(crate) const LIMIT_MAX: usize = (1 << 31) * LINE;

/// A pool up to this size takes no more memory than it touches; a larger one may take up to one large page more.
const SMALL: usize = 2 << 20;

/// Deferred drop, for the end of the transaction: `count` values from `at` on.
pub(crate) struct Dropping {
    pub(crate) at: u64,
    pub(crate) count: u64,
    /// # Safety
    /// Called once, for values that nothing can reach any more.
    pub(crate) run: unsafe fn(&Memory, at: u64, count: u64),
}

#[derive(Default)]
struct Counts {
    saved: u64,
    changed: u64,
}

struct State {
    alloc: Alloc,
    saved_lines: Vec<u32>,
    saved: Vec<Line>,
    /// Lines that held nothing: the first and the count.
    fresh: Vec<(u32, u32)>,
    taken: Vec<(u64, usize)>,
    given: Vec<(u64, usize)>,
    queue: Vec<Dropping>,
    /// Lines that changed in this group.
    changed: Vec<u32>,
    weak_ids: WeakIds,
    counts: Counts,
}

/// See the file's documentation.
pub(crate) struct Memory {
    heap: Region,
    bits: Bits,
    /// Set in a transaction, clear in a read.
    is_writable: Cell<bool>,
    /// Key of the hashes of its maps.
    seed: Cell<u64>,
    /// Different each time that a pool is opened, anywhere.
    number: Cell<u64>,
    state: RefCell<State>,
}

impl Memory {
    /// Makes an empty pool for `limit` bytes.
    pub(crate) fn reserve(limit: usize) -> io::Result<Memory> {
        let limit = limit.clamp(2 * PAGE, LIMIT_MAX).next_multiple_of(PAGE);
        let heap = Region::reserve(limit)?;
        heap.prefer_large_pages(SMALL);
        let bits = Bits::of(limit / LINE)?;
        let state = State {
            alloc: Alloc::new(0, 1),
            saved_lines: Vec::new(),
            saved: Vec::new(),
            fresh: Vec::new(),
            taken: Vec::new(),
            given: Vec::new(),
            queue: Vec::new(),
            changed: Vec::new(),
            weak_ids: WeakIds::default(),
            counts: Counts::default(),
        };
        let memory = Memory {
            heap,
            bits,
            is_writable: Cell::new(false),
            seed: Cell::new(0),
            number: Cell::new(0),
            state: RefCell::new(state),
        };
        memory.grow(&mut memory.state.borrow_mut().alloc, PAGE)?;
        Ok(memory)
    }

    /// Makes the first `end` bytes accessible, with the bits of their lines [values-accessible].
    ///
    /// # Errors
    /// If the pool is smaller, or the system refuses.
    #[cold]
    fn grow(&self, alloc: &mut Alloc, end: usize) -> io::Result<()> {
        self.heap.grow(end)?;
        self.bits.grow(self.heap.accessible() / LINE)?;
        alloc.set_limit(self.heap.accessible());
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.heap.base()
    }

    pub(crate) fn limit(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.get()
    }

    pub(crate) fn set_seed(&self, seed: u64) {
        self.seed.set(seed);
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    pub(crate) fn set_number(&self, number: u64) {
        self.number.set(number);
    }

    /// Returns the address of the offset `at`.
    #[inline(always)]
    pub(crate) fn at(&self, at: u64) -> *mut u8 {
        debug_assert!(at < self.heap.accessible() as u64);
        // SAFETY: offsets come from the allocator or were checked when the pool was opened: they are within the heap,
        // and accessible [values-accessible].
        unsafe { self.heap.base().add(at as usize) }
    }

    /// Returns the end of the last slot ever allocated, in bytes from the start.
    pub(crate) fn high_water(&self) -> usize {
        self.state.borrow().alloc.high_water()
    }

    /// Returns the bytes of the allocated slots.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.state.borrow().alloc.allocated_bytes()
    }

    /// Returns the number of lines saved since it was opened, and how many of these had changed.
    pub(crate) fn lines(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.counts.saved, state.counts.changed)
    }

    /// Has anything changed in this group?
    pub(crate) fn has_changes(&self) -> bool {
        !self.state.borrow().changed.is_empty()
    }

    pub(crate) fn changed_lines(&self) -> usize {
        self.state.borrow().changed.len()
    }

    /// Marks these bytes as written in this transaction, saving their lines. Bytes outside of the pool (a value on the
    /// stack) are ignored.
    #[inline(always)]
    pub(crate) fn touch(&self, at: *const u8, bytes: usize) {
        let start = (at as usize).wrapping_sub(self.heap.base() as usize);
        if start >= self.heap.len() || bytes == 0 {
            return;
        }
        for line in start / LINE..=(start + bytes - 1) / LINE {
            if !self.bits.has(line, Bit::Touched) {
                self.save(line);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn save(&self, line: usize) {
        assert!(self.is_writable.get(), "a persistent value was to be changed outside of a transaction");
        let mut state = self.state.borrow_mut();
        self.bits.set(line, Bit::Touched);
        state.saved_lines.push(line as u32);
        // SAFETY: a line of the heap; it was not touched, so no `&mut` to it is in use [touch-before-mut].
        unsafe { Line::push(self.at((line * LINE) as u64), &mut state.saved) };
    }

    /// Allocates `bytes`, none of which is touched yet; `None` if there is no space.
    pub(crate) fn take(&self, bytes: usize) -> Option<u64> {
        debug_assert!(self.is_writable.get());
        let mut state = self.state.borrow_mut();
        let alloc = &mut state.alloc;
        let at = match alloc.take(bytes) {
            Some(at) => at,
            None => {
                let limit = alloc.limit_to_take(bytes)?;
                self.grow(alloc, limit).ok()?;
                alloc.take(bytes)?
            }
        };
        state.taken.push((at, bytes));
        Some(at)
    }

    /// Touches the first `bytes` of the slot at `at`, which was allocated in this transaction for `room` bytes.
    pub(crate) fn touch_fresh(&self, at: u64, bytes: usize, room: usize) {
        if bytes == 0 {
            return;
        }
        let (first, last) = (at as usize / LINE, (at as usize + bytes - 1) / LINE);
        let has_own_lines = Alloc::room_bytes(room).is_multiple_of(LINE);
        for line in first..=last {
            if self.bits.has(line, Bit::Touched) {
                continue;
            }
            if !has_own_lines && self.state.borrow().alloc.is_line_shared(line, at) {
                self.save(line);
                continue;
            }
            self.bits.set(line, Bit::Touched);
            let mut state = self.state.borrow_mut();
            match state.fresh.last_mut() {
                Some((start, count)) if *start + *count == line as u32 => *count += 1,
                _ => state.fresh.push((line as u32, 1)),
            }
        }
    }

    /// Frees a slot at the end of the transaction.
    pub(crate) fn give(&self, at: u64, bytes: usize) {
        self.state.borrow_mut().given.push((at, bytes));
    }

    /// Drops these values at the end of the transaction.
    pub(crate) fn drop_later(&self, dropping: Dropping) {
        self.state.borrow_mut().queue.push(dropping);
    }

    pub(crate) fn with_weak_ids<R>(&self, f: impl FnOnce(&mut WeakIds) -> R) -> R {
        f(&mut self.state.borrow_mut().weak_ids)
    }

    /// Begins a transaction: from here on lines may be touched.
    pub(crate) fn begin(&self) {
        self.is_writable.set(true);
    }

    /// Runs the deferred drops, including those that they defer in turn.
    ///
    /// # Panics
    /// If a destructor of the user's panics.
    pub(crate) fn run_queue(&self) {
        loop {
            let Some(next) = self.state.borrow_mut().queue.pop() else { return };
            // SAFETY: the destructor of the one owner queued it, once.
            unsafe { (next.run)(self, next.at, next.count) };
        }
    }

    /// Ends the transaction: changed lines become part of the group.
    pub(crate) fn commit(&self) {
        self.is_writable.set(false);
        let state = &mut *self.state.borrow_mut();
        // One call settles the whole heap, for all lines.
        copy::settle(self.base());
        state.counts.saved += state.saved.len() as u64;
        for (&line, saved) in state.saved_lines.iter().zip(&state.saved) {
            let line = line as usize;
            self.bits.clear(line, Bit::Touched);
            // SAFETY: a line of the heap, settled; the transaction's code has returned, so no reference to it is in
            // use.
            if unsafe { saved.is_at(self.at((line * LINE) as u64)) } {
                continue;
            }
            state.counts.changed += 1;
            if self.bits.set(line, Bit::Changed) {
                state.changed.push(line as u32);
            }
        }
        state.saved_lines.clear();
        state.saved.clear();
        // A loop over nothing is a call or two, in each transaction.
        if !state.fresh.is_empty() {
            for (start, count) in state.fresh.drain(..) {
                for line in start as usize..(start + count) as usize {
                    self.bits.clear(line, Bit::Touched);
                    state.counts.changed += 1;
                    if self.bits.set(line, Bit::Changed) {
                        state.changed.push(line as u32);
                    }
                }
            }
        }
        state.taken.clear();
        if !state.given.is_empty() {
            for (at, bytes) in state.given.drain(..) {
                state.alloc.give(at, bytes);
            }
        }
        state.weak_ids.commit();
        state.shrink();
    }

    /// Undoes the transaction.
    pub(crate) fn undo(&self) {
        self.is_writable.set(false);
        let state = &mut *self.state.borrow_mut();
        for (line, saved) in state.saved_lines.drain(..).zip(state.saved.drain(..)).rev() {
            self.bits.clear(line as usize, Bit::Touched);
            // SAFETY: as in `commit`.
            unsafe { saved.write(self.at(u64::from(line) * LINE as u64)) };
        }
        for (start, count) in state.fresh.drain(..) {
            for line in start as usize..(start + count) as usize {
                self.bits.clear(line, Bit::Touched);
                // Its old contents are not restored. So the line counts as changed and goes to the disk, or the next
                // transaction would compare it with bytes that the disk does not have.
                if self.bits.set(line, Bit::Changed) {
                    state.changed.push(line as u32);
                }
            }
        }
        for (at, bytes) in state.taken.drain(..).rev() {
            state.alloc.give(at, bytes);
        }
        state.given.clear();
        state.queue.clear();
        state.weak_ids.undo();
        state.shrink();
    }

    /// Closes the group: returns the runs of its lines, each as first line and count.
    pub(crate) fn take_changes(&self) -> Vec<(u32, u32)> {
        let mut state = self.state.borrow_mut();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for line in state.changed.drain(..) {
            self.bits.clear(line as usize, Bit::Changed);
            match runs.last_mut() {
                Some((start, count)) if *start + *count == line => *count += 1,
                _ => runs.push((line, 1)),
            }
        }
        state.changed.shrink_to(1 << 16);
        runs
    }

    /// Appends a copy of `len` bytes from `at` on. No transaction runs.
    pub(crate) fn copy_out(&self, at: usize, len: usize, to: &mut Vec<u8>) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.heap.accessible()), "a slice beyond the pool");
        assert!(!self.is_writable.get(), "a copy in the middle of a transaction");
        // SAFETY: in range, and no reference is in use.
        unsafe { copy::append(to, self.at(at as u64), len) };
    }
}

impl State {
    /// Shrinks the buffers, so that one large transaction does not keep its memory for ever.
    #[inline(always)]
    fn shrink(&mut self) {
        shrink(&mut self.saved);
        shrink(&mut self.saved_lines);
        shrink(&mut self.fresh);
        shrink(&mut self.taken);
        shrink(&mut self.given);
        shrink(&mut self.queue);
    }
}

#[inline(always)]
fn shrink<T>(buffer: &mut Vec<T>) {
    const KEPT: usize = 1 << 16;
    if buffer.capacity() > KEPT {
        buffer.shrink_to(KEPT);
    }
}
