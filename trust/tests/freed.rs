//! No use of freed memory: the awkward ends again, under an allocator that never gives freed memory out twice, fills it
//! with a pattern, and checks at the end that it was not written to.

#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread;

use common::{Counted, Drops, Server, join_and_serve, serve_until};
use fastrand::Rng;
use trust::{Latch, Shared, Threadpool, Trust, local_trustee};

/// Pattern of freed memory. As a pointer it is not canonical, so following it ends the process.
const PATTERN: u8 = 0xD1;
/// Most freed memory that is kept.
const KEPT_BYTES: usize = 1 << 30;

struct Quarantine {
    on: AtomicBool,
    newest: AtomicPtr<Freed>,
    bytes: AtomicUsize,
}

/// Lies at the start of each freed block.
#[repr(C)]
struct Freed {
    next: *mut Freed,
    size: usize,
}

const HEAD: usize = size_of::<Freed>();

#[global_allocator]
static HEAP: Quarantine =
    Quarantine { on: AtomicBool::new(false), newest: AtomicPtr::new(ptr::null_mut()), bytes: AtomicUsize::new(0) };

/// Every block is a header of the library's own making (for the list) and then the caller's bytes.
fn padded(layout: Layout) -> (Layout, usize) {
    let offset = HEAD.next_multiple_of(layout.align());
    let align = layout.align().max(align_of::<Freed>());
    (Layout::from_size_align(offset + layout.size(), align).expect("a little more than a valid layout"), offset)
}

// SAFETY: blocks are the system's, with room for a header in front; a freed one is kept, or given back unchanged.
unsafe impl GlobalAlloc for Quarantine {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (padded, offset) = padded(layout);
        // SAFETY: the padded layout has a size.
        let block = unsafe { System.alloc(padded) };
        if block.is_null() { block } else { block.wrapping_add(offset) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let (padded, offset) = padded(layout);
        let block = at.wrapping_sub(offset);
        if !self.on.load(Ordering::Relaxed)
            || self.bytes.fetch_add(padded.size(), Ordering::Relaxed) > KEPT_BYTES
            || layout.size() > 1 << 20
        {
            // SAFETY: from `alloc`, with the same layout.
            return unsafe { System.dealloc(block, padded) };
        }
        // SAFETY: the caller gives the block up; the header lies before the caller's bytes, aligned for it.
        unsafe {
            ptr::write_bytes(at, PATTERN, layout.size());
            let head = at.sub(HEAD).cast::<Freed>();
            let mut next = self.newest.load(Ordering::Relaxed);
            loop {
                head.write_unaligned(Freed { next, size: layout.size() });
                match self.newest.compare_exchange(next, head, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(other) => next = other,
                }
            }
        }
    }
}

impl Quarantine {
    /// Checks all freed memory. Returns its number of blocks.
    fn check(&self) -> usize {
        let mut block = self.newest.load(Ordering::Acquire);
        let mut count = 0;
        while !block.is_null() {
            count += 1;
            // SAFETY: blocks in the list are kept for ever, their header and bytes are as `dealloc` left them.
            let (freed, bytes) = unsafe {
                let freed = block.read_unaligned();
                let bytes = std::slice::from_raw_parts(block.cast::<u8>().add(HEAD), freed.size);
                (freed, bytes)
            };
            if let Some(place) = bytes.iter().position(|&byte| byte != PATTERN) {
                panic!(
                    "byte {place} of a freed block of {} bytes was written to: {:x?}",
                    freed.size,
                    &bytes[..freed.size.min(64)]
                );
            }
            block = freed.next;
        }
        count
    }
}

struct Node {
    others: Vec<Trust<Node>>,
    counted: Counted<u64>,
}

impl Drop for Node {
    fn drop(&mut self) {
        for other in &self.others {
            other.apply_then(|node| node.counted.check(), |()| ());
            other.clear_poison();
        }
    }
}

/// Properties in rings, dropped by the end of their trustee.
fn rings(drops: &Drops) {
    let nodes: Vec<Trust<Node>> =
        (0..16).map(|n| local_trustee().entrust(Node { others: Vec::new(), counted: drops.value(n) })).collect();
    for (place, node) in nodes.iter().enumerate() {
        for step in [0, 1, 5] {
            let other = nodes[(place + step) % nodes.len()].clone();
            node.apply(move |node| node.others.push(other));
        }
    }
}

fn the_trustee_ends_with_rings_of_properties() {
    let drops = Drops::default();
    for _ in 0..50 {
        let drops = drops.clone();
        thread::spawn(move || rings(&drops)).join().unwrap();
    }
    assert_eq!(drops.count(), 50 * 16);
    let pool = Threadpool::builder().workers(3).pin(false).build();
    let nodes: Vec<Trust<Node>> =
        (0..60).map(|n| pool.entrust(Node { others: Vec::new(), counted: drops.value(n) })).collect();
    for (place, node) in nodes.iter().enumerate() {
        for step in [1, 2, 7] {
            let other = nodes[(place + step) % nodes.len()].clone();
            node.apply(move |node| node.others.push(other));
        }
    }
    drop(nodes);
    drop(pool);
    assert_eq!(drops.count(), 50 * 16 + 60);
}

fn trusts_come_back_to_an_ending_trustee_as_captures() {
    let drops = Drops::default();
    for round in 0..60 {
        let server = Server::start();
        let own: Vec<Trust<Counted<u64>>> = (0..4).map(|n| server.trustee.entrust(drops.value(n))).collect();
        server.stop();
        for number in 0..200 {
            // Captures trusts of the trustee that refuses it, or runs it.
            let (first, second) = (own[number % 4].clone(), own[(number + 1) % 4].clone());
            own[number % 3]
                .call()
                .apply(move |v| {
                    v.check();
                    drop(first);
                    second.apply_then(|v| v.check(), |()| ());
                    drop(second);
                })
                .then(|_| ());
            if number % 50 == round % 50 {
                trust::yield_now();
            }
        }
        server.end();
        drop(own);
    }
    serve_until(|| drops.count() == 240);
}

fn fibers_wait_while_things_end() {
    for _ in 0..20 {
        let pool = Threadpool::builder().workers(2).pin(false).build();
        let server = Server::start();
        let (property, latch) = (server.trustee.entrust(0u64), server.trustee.entrust(Latch::new(0u64)));
        let fibers: Vec<_> = (0..20)
            .map(|number| {
                let (property, latch) = (property.clone(), latch.clone());
                pool.spawn(move || {
                    for turn in 0..20 {
                        let _ = property.call().apply(|v| *v += 1).wait();
                        latch.launch_then(|v| *v += 1, |()| ());
                        if turn == number {
                            trust::sleep(std::time::Duration::from_micros(1));
                        }
                    }
                })
            })
            .collect();
        server.end();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
}

fn trusts_are_cloned_sent_and_dropped_at_random() {
    const STEPS: usize = 4_000;
    let drops = Drops::default();
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let made = Shared::new(AtomicUsize::new(0));
    // Two plain threads and this one, which keep some trusts and send others on, through shared shelves.
    let shelf = Shared::new(std::sync::Mutex::new(Vec::<Trust<Counted<u64>>>::new()));
    let work = |seed: u64| {
        let (shelf, made, drops, trustees) = (shelf.clone(), made.clone(), drops.clone(), pool.trustees().to_vec());
        move || {
            let mut random = Rng::with_seed(seed);
            let mut own: Vec<Trust<Counted<u64>>> = Vec::new();
            for step in 0..STEPS {
                match random.usize(..8) {
                    0 if own.len() < 20 => {
                        made.fetch_add(1, Ordering::Relaxed);
                        let at = random.usize(..trustees.len() + 1);
                        let trustee = trustees.get(at).copied().unwrap_or_else(local_trustee);
                        own.push(trustee.entrust(drops.value(step as u64)));
                    }
                    1 => shelf.lock().unwrap().extend(own.last().cloned()),
                    2 => own.extend(shelf.lock().unwrap().pop()),
                    3 if !own.is_empty() => drop(own.swap_remove(random.usize(..own.len()))),
                    4 if !own.is_empty() => {
                        let (one, other) =
                            (own[random.usize(..own.len())].clone(), own[random.usize(..own.len())].clone());
                        one.call()
                            .apply(move |v| {
                                v.check();
                                other.call().apply(|v| v.check()).then(|_| ());
                            })
                            .then(|_| ());
                    }
                    _ => trust::yield_now(),
                }
            }
        }
    };
    let threads = [thread::spawn(work(1)), thread::spawn(work(2))];
    work(3)();
    threads.into_iter().for_each(join_and_serve);
    shelf.lock().unwrap().clear();
    drop(pool);
    serve_until(|| drops.count() == made.load(Ordering::Relaxed));
}

#[test]
fn trap_12_freed_memory_is_not_written_to() {
    let _watch = watchdog!();
    HEAP.on.store(true, Ordering::SeqCst);
    the_trustee_ends_with_rings_of_properties();
    trusts_come_back_to_an_ending_trustee_as_captures();
    fibers_wait_while_things_end();
    trusts_are_cloned_sent_and_dropped_at_random();
    HEAP.on.store(false, Ordering::SeqCst);
    let blocks = HEAP.check();
    assert!(blocks > 1_000, "{blocks} blocks");
    // The check does find a write to freed memory.
    HEAP.on.store(true, Ordering::SeqCst);
    let bait = Box::into_raw(Box::new([7u8; 100]));
    // SAFETY: from `into_raw`; the block is in the quarantine afterwards, which never gives it away.
    unsafe {
        drop(Box::from_raw(bait));
        HEAP.on.store(false, Ordering::SeqCst);
        bait.cast::<u8>().add(50).write_volatile(0);
    }
    assert!(std::panic::catch_unwind(|| HEAP.check()).is_err());
}
