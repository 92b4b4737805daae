//! Listing 2: a persistent value is the result of a transaction.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn main_with(root: Durable<Root<'static>>) {
    let one = root.apply(|root, _| root.one.take());
    drop(one);
}

fn main() {}
