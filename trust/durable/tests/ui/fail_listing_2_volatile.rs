//! Listing 2: a transaction changes a volatile variable.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn main_with(root: Durable<Root<'static>>) {
    let mut done = false;
    root.apply(|_, _| done = true);
    println!("{done}");
}

fn main() {}
