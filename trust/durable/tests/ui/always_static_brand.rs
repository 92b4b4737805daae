//! A brand that outlives its pool, in a type without one.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

#[derive(Persist)]
#[repr(C)]
struct Sneaky {
    one: Option<PBox<'static, u64>>,
}

fn main() {}
