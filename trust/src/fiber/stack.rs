//! Stacks for fibers: guarded, pooled, coloured. One [`StackPool`] a worker, used by that worker's thread only.
//!
//! Here: where a stack lies in memory, its guard, when its pages go back to the kernel. Not here: the switch between
//! stacks (`jump`), the report of an overflow (`overflow`).
//!
//! A *slab* is one mapping cut into equal slots, low addresses first:
//!
//! ```text
//!   slot i: | guard (no access) | usable: at least stack_bytes .......... top | colour |
//!           ^ slab + i * stride  ^ bottom()                                    ^ top() = end of the slot - colour(i)
//! ```
//!
//! Invariants:
//! - [stack-slab]: a [`Stack`] holds an `Rc` of its slab, so the slab stays mapped as long as any of its stacks lives,
//!   also past the end of the pool.
//! - [stack-slot]: a slot is handed out once, by `carve`; afterwards its `Stack`, which is neither `Clone` nor `Copy`,
//!   is the only owner. Slots do not overlap.
//! - [stack-idle]: nothing runs on a stack that lies in the pool: `put` takes it by value and its contents are dead.
//!
//! Memory: guards are page-table markers (`MADV_GUARD_INSTALL`, Linux 6.13), so a hundred thousand stacks cost a few
//! mappings instead of two each; older kernels get `mprotect`. Slabs are reserved, not committed (`MAP_NORESERVE`, no
//! huge pages), so a stack costs the pages it touched. A slab holds more stacks the more are in use, and is unmapped
//! with the last of its stacks.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io::{self, Read};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use super::footprint::{Footprint, page_bytes};

/// The smallest stack: below it not even a panic's unwinding and message fit.
pub(crate) const MIN_STACK_BYTES: usize = 16 * 1024;
/// The largest stack. A limit only so that a wrong unit is found, and sizes never overflow.
pub(crate) const MAX_STACK_BYTES: usize = 1 << 30;

/// Guard under each stack. More than one page, since C code that was built without stack probes steps over a page.
const GUARD_BYTES: usize = 16 * 1024;
/// Distance of one colour from the next: two cache lines, because the prefetcher fetches lines in pairs.
const COLOUR_BYTES: usize = 128;
/// Stacks in a pool's first slab; each later slab holds twice as many as the one before.
const FIRST_SLAB_STACKS: usize = 16;
/// No slab is larger than this, unless a single stack is.
const MAX_SLAB_BYTES: usize = 256 << 20;
/// Most idle stacks that keep their pages.
const MAX_HOT_STACKS: usize = 1024;
/// Most memory that the idle stacks may keep; where stacks are large it leaves fewer of them.
const MAX_HOT_BYTES: usize = 64 << 20;
const MIN_HOT_STACKS: usize = 16;

/// `MADV_GUARD_INSTALL` of <linux/mman.h> (Linux 6.13); the libc crate does not name it yet.
const MADV_GUARD_INSTALL: libc::c_int = 102;
/// An advice that does not exist.
const MADV_UNKNOWN: libc::c_int = libc::c_int::MAX;

const _: () = assert!(COLOUR_BYTES.is_multiple_of(64), "tops must keep the alignment that every ABI asks for");

/// Reason why there is no stack, with the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StackError {
    /// The size asked for is outside of [`MIN_STACK_BYTES`]..=[`MAX_STACK_BYTES`].
    #[error(
        "a fiber's stack cannot have {stack_bytes} bytes; give stack_bytes a value from {MIN_STACK_BYTES} to \
         {MAX_STACK_BYTES}"
    )]
    Size { stack_bytes: usize },
    /// The kernel refuses the address space or the guard.
    #[error(
        "the kernel gives no memory for fiber stacks ({slab_bytes} bytes of address space: {source}); run fewer fibers \
         at once, make stack_bytes smaller, or raise the limit (ulimit -v, vm.overcommit_memory)"
    )]
    Memory { slab_bytes: usize, source: io::Error },
    /// The process has as many mappings as it may (`vm.max_map_count`); `needed` is a limit that allows twice the
    /// stacks.
    #[error(
        "no more fiber stacks: the process has {used} memory mappings of at most {limit}, and without \
         MADV_GUARD_INSTALL (Linux 6.13) each stack takes two; raise vm.max_map_count: sysctl -w \
         vm.max_map_count={needed}"
    )]
    Mappings { used: usize, limit: usize, needed: usize },
}

/// The actual size of a stack when `stack_bytes` are asked for: rounded up to whole pages.
///
/// # Errors
/// [`StackError::Size`] outside of [`MIN_STACK_BYTES`]..=[`MAX_STACK_BYTES`].
pub(crate) fn round_stack_bytes(stack_bytes: usize) -> Result<usize, StackError> {
    if !(MIN_STACK_BYTES..=MAX_STACK_BYTES).contains(&stack_bytes) {
        return Err(StackError::Size { stack_bytes });
    }
    Ok(stack_bytes.next_multiple_of(page_bytes()))
}

/// An owned stack with a guard below it, empty or about to be reused. Give it back with [`StackPool::put`]; a stack
/// that is merely dropped is lost to the pool, and its memory is freed with its slab.
#[derive(Debug)]
pub(crate) struct Stack {
    top: NonNull<u8>,
    /// [stack-slab]. `Rc` also keeps the stack on its thread, as fibers are.
    slab: Rc<Slab>,
}

impl Stack {
    /// The end from which the stack grows downwards; a multiple of 64.
    pub(crate) fn top(&self) -> *mut c_void {
        self.top.as_ptr().cast()
    }

    /// The lowest usable address.
    pub(crate) fn bottom(&self) -> *mut c_void {
        self.top().with_addr(self.slot_end() - self.slab.slots.usable_bytes)
    }

    /// Addresses that fault: they end at [`bottom`](Self::bottom).
    pub(crate) fn guard(&self) -> Range<usize> {
        let bottom = self.bottom().addr();
        bottom - self.slab.slots.guard_bytes..bottom
    }

    /// The slot ends at the end of the page that holds the byte below the top.
    fn slot_end(&self) -> usize {
        self.top.addr().get().next_multiple_of(self.slab.slots.page_bytes)
    }

    /// Gives the pages back to the kernel; the stack reads as zeros afterwards.
    fn purge(&self) {
        let bytes = self.slab.slots.usable_bytes;
        // SAFETY: [stack-slab], [stack-slot]: [bottom, bottom + bytes) is mapped and this stack's alone; [stack-idle]:
        // `put` is the only caller. A refusal (locked memory) leaves the pages where they are, which is allowed.
        unsafe { libc::madvise(self.bottom(), bytes, libc::MADV_DONTNEED) };
    }
}

/// Layout of a slab's slots; the same for all slabs of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots {
    page_bytes: usize,
    guard_bytes: usize,
    /// The stack's bytes and the page for its colour.
    usable_bytes: usize,
}

impl Slots {
    fn new(stack_bytes: usize) -> Slots {
        let page_bytes = page_bytes();
        let usable_bytes = stack_bytes + page_bytes;
        let mut guard_bytes = GUARD_BYTES.next_multiple_of(page_bytes);
        // An odd number of pages in all: an even one would map the tops of all stacks to a part of the TLB's sets, a
        // power of two to very few. From some hundred fibers on that is much of a switch's time.
        if ((guard_bytes + usable_bytes) / page_bytes).is_multiple_of(2) {
            guard_bytes += page_bytes;
        }
        Slots { page_bytes, guard_bytes, usable_bytes }
    }

    /// Half a page of colours: a fiber that uses little of its stack still touches one page, not two.
    fn colours(&self) -> usize {
        self.page_bytes / 2 / COLOUR_BYTES
    }

    /// Bytes from one slot to the next.
    fn stride(&self) -> usize {
        self.guard_bytes + self.usable_bytes
    }
}

/// One mapping, unmapped when the last stack in it goes.
#[derive(Debug)]
struct Slab {
    base: NonNull<u8>,
    bytes: usize,
    slots: Slots,
    /// Records the mapping.
    footprint: Footprint,
}

impl Slab {
    fn map(stacks: usize, slots: Slots, footprint: &Footprint) -> Result<Slab, StackError> {
        let bytes = stacks * slots.stride();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(memory_error(bytes, io::Error::last_os_error()));
        }
        // SAFETY: the mapping just made. A huge page would make each stack cost 2 MiB; kernels without them answer
        // EINVAL, which is as good.
        unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        let base = NonNull::new(base.cast()).expect("mmap never returns address 0 unless asked to");
        footprint.add(base.addr().get(), bytes);
        Ok(Slab { base, bytes, slots, footprint: footprint.clone() })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.footprint.remove(self.base.addr().get());
        // SAFETY: [stack-slab]: no stack of this slab is left; base and bytes are those of the mmap call. If the kernel
        // refuses (it would have to split a mapping and may not), the address space stays reserved, no more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Kind of guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardBy {
    /// Markers in the page table: no mapping is split.
    Marker,
    /// `mprotect`: the guard becomes a mapping of its own, the stack above it another.
    Protect,
}

/// Gives out stacks of one size and takes them back, for one worker's thread.
///
/// The stack returned last is taken first, for its lines are still in the cache. Of the idle stacks the most recent
/// ([`MAX_HOT_STACKS`], less for large stacks) keep their pages; older ones give theirs to the kernel and keep only
/// address space, until they are needed again or the pool goes.
#[derive(Debug)]
pub(crate) struct StackPool {
    stack_bytes: usize,
    slots: Slots,
    guard_by: GuardBy,
    /// The slab being cut and how many of its slots are already cut.
    slab: Option<Rc<Slab>>,
    slab_carved: usize,
    next_slab_stacks: usize,
    /// Slots cut in all, which numbers the colours.
    carved: usize,
    /// Idle, pages kept: oldest in front, next to be taken at the back.
    hot: VecDeque<Stack>,
    hot_max: usize,
    /// Idle, pages returned.
    cold: Vec<Stack>,
    footprint: Footprint,
}

impl StackPool {
    /// A pool of stacks with at least `stack_bytes` usable bytes each, rounded up to pages. Maps nothing yet.
    ///
    /// # Errors
    /// [`StackError::Size`], see [`round_stack_bytes`].
    pub(crate) fn new(stack_bytes: usize) -> Result<StackPool, StackError> {
        let stack_bytes = round_stack_bytes(stack_bytes)?;
        Ok(StackPool {
            stack_bytes,
            slots: Slots::new(stack_bytes),
            guard_by: GuardBy::Marker,
            slab: None,
            slab_carved: 0,
            next_slab_stacks: FIRST_SLAB_STACKS,
            carved: 0,
            hot: VecDeque::new(),
            hot_max: (MAX_HOT_BYTES / stack_bytes).clamp(MIN_HOT_STACKS, MAX_HOT_STACKS),
            cold: Vec::new(),
            footprint: Footprint::default(),
        })
    }

    /// Record of its mappings.
    pub(crate) fn footprint(&self) -> Footprint {
        self.footprint.clone()
    }

    /// The size of every stack of this pool, in bytes, rounded up to pages.
    pub(crate) fn stack_bytes(&self) -> usize {
        self.stack_bytes
    }

    /// A stack, contents unspecified: the one returned last, else a new one.
    ///
    /// # Errors
    /// When the kernel gives no more memory or mappings; the pool stays as it was, and later calls may succeed.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<Stack, StackError> {
        match self.hot.pop_back() {
            Some(stack) => Ok(stack),
            None => self.take_cold(),
        }
    }

    /// Takes back a stack of this pool, which must not be in use any more.
    #[inline]
    pub(crate) fn put(&mut self, stack: Stack) {
        debug_assert_eq!(stack.slab.slots, self.slots, "a stack of another pool");
        self.hot.push_back(stack);
        if self.hot.len() > self.hot_max {
            self.cool_oldest();
        }
    }

    #[cold]
    fn cool_oldest(&mut self) {
        if let Some(stack) = self.hot.pop_front() {
            stack.purge();
            self.cold.push(stack);
        }
    }

    #[cold]
    fn take_cold(&mut self) -> Result<Stack, StackError> {
        match self.cold.pop() {
            Some(stack) => Ok(stack),
            None => self.carve(),
        }
    }

    /// Cuts the next slot from the slab, with its guard.
    fn carve(&mut self) -> Result<Stack, StackError> {
        let slab = match &self.slab {
            Some(slab) if (self.slab_carved + 1) * self.slots.stride() <= slab.bytes => Rc::clone(slab),
            _ => self.grow()?,
        };
        // SAFETY: the slab has room for slot `slab_carved`, checked above or just made.
        let slot = unsafe { slab.base.add(self.slab_carved * self.slots.stride()) };
        self.install_guard(slot, slab.bytes)?;
        let colour = self.carved % self.slots.colours() * COLOUR_BYTES;
        // SAFETY: in the slot, since the colour is less than the page that the slot has for it.
        let top = unsafe { slot.add(self.slots.stride() - colour) };
        self.slab_carved += 1;
        self.carved += 1;
        Ok(Stack { top, slab })
    }

    /// Maps the next slab; where the kernel refuses a large one, a smaller one.
    fn grow(&mut self) -> Result<Rc<Slab>, StackError> {
        let max_stacks = (MAX_SLAB_BYTES / self.slots.stride()).max(1);
        let mut stacks = self.next_slab_stacks.min(max_stacks);
        let slab = loop {
            match Slab::map(stacks, self.slots, &self.footprint) {
                Ok(slab) => break Rc::new(slab),
                Err(error) if stacks == 1 => return Err(error),
                Err(_) => stacks /= 2,
            }
        };
        self.next_slab_stacks = (stacks * 2).min(max_stacks);
        self.slab_carved = 0;
        self.slab = Some(Rc::clone(&slab));
        Ok(slab)
    }

    /// Makes the lowest `guard_bytes` of the slot fault.
    fn install_guard(&mut self, slot: NonNull<u8>, slab_bytes: usize) -> Result<(), StackError> {
        let address = slot.as_ptr().cast();
        // SAFETY: [stack-slot]: the slot is not handed out yet, so nothing uses these pages of our mapping.
        let obeys = |advice| unsafe { libc::madvise(address, self.slots.guard_bytes, advice) } == 0;
        if self.guard_by == GuardBy::Marker {
            // qemu's emulation of system calls takes any advice, and does nothing: it takes an unknown one, too.
            let takes_any = self.carved == 0 && obeys(MADV_UNKNOWN);
            if !takes_any && obeys(MADV_GUARD_INSTALL) {
                return Ok(());
            }
            // EINVAL: a kernel before 6.13, or locked memory (mlockall).
            self.guard_by = GuardBy::Protect;
        }
        // SAFETY: as above.
        if unsafe { libc::mprotect(address, self.slots.guard_bytes, libc::PROT_NONE) } == 0 {
            return Ok(());
        }
        Err(memory_error(slab_bytes, io::Error::last_os_error()))
    }
}

/// Returns the error for a refusal: tells "no more mappings" from "no more memory", which the kernel does not.
fn memory_error(slab_bytes: usize, source: io::Error) -> StackError {
    /// Mappings that the kernel counts and /proc does not list, or the other way around.
    const SLACK: usize = 16;
    if source.raw_os_error() == Some(libc::ENOMEM)
        && let Some(used) = mappings_in_use()
        && let Some(limit) = max_map_count()
        && used + SLACK >= limit
    {
        return StackError::Mappings { used, limit, needed: limit.saturating_mul(2).next_multiple_of(1024) };
    }
    StackError::Memory { slab_bytes, source }
}

/// Lines of /proc/self/maps, counted without a heap allocation: there may be no mapping left to grow the heap with.
fn mappings_in_use() -> Option<usize> {
    let mut file = std::fs::File::open("/proc/self/maps").ok()?;
    let mut buffer = [0; 1024];
    let mut lines = 0;
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(lines),
            read => lines += buffer[..read].iter().filter(|&&byte| byte == b'\n').count(),
        }
    }
}

fn max_map_count() -> Option<usize> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(crate) mod child;
#[cfg(test)]
mod tests;
