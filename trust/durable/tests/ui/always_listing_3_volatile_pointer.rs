//! Listing 3: a volatile pointer in a pool.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn main_with(root: Durable<Root<'static>>) {
    root.apply(|_, tx| drop(PBox::new(Box::new(10), tx)));
}

fn main() {}
