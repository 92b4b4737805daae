//! The transaction itself leaves the closure.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn main_with(root: Durable<Root<'static>>) {
    root.apply(|_, tx| tx);
}

fn main() {}
