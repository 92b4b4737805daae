//! Types that mean nothing after a restart.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

#[derive(Persist)]
#[repr(C)]
struct Refused {
    text: String,
    list: Vec<u8>,
    reference: &'static u8,
    function: fn(),
    tuple: (u8, u8),
    trust: trust::Trust<u8>,
    option: Option<u32>,
}

fn main() {}
