//! A layout that is not promised.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

#[derive(Persist)]
struct Plain {
    value: u64,
}

#[derive(Persist)]
enum Choice {
    One,
}

fn main() {}
