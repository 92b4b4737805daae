//! A persistent value in a thread-local, which the paper misses.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

thread_local!(static STASH: std::cell::RefCell<Option<PBox<'static, u64>>> = const { std::cell::RefCell::new(None) });

fn main_with(root: Durable<Root<'static>>) {
    root.apply(|root, _| STASH.set(root.one.take()));
}

fn main() {}
