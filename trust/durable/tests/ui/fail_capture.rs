//! A reference is captured.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn main_with(root: Durable<Root<'static>>, text: &'static str) {
    root.apply(move |_, _| drop(text));
}

fn main() {}
