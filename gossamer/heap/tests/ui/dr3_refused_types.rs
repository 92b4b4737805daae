//! Types that the heap refuses, each with the cure.

use gossamer_heap::{Global, Shared};

struct Counter {
    hits: std::sync::atomic::AtomicU64,
}

fn main() {
    let _ = Global::new(vec![1u8]);
    let _ = Global::new(std::cell::Cell::new(1u8));
    let _ = Shared::new(Counter { hits: 0.into() });
    let _ = Global::new(main as fn());
}
