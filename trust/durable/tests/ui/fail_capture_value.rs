//! A persistent value is captured by a closure for another trust.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn main_with(root: Durable<Root<'static>>, other: trust::Trust<u8>) {
    root.apply(move |root, _| {
        let one = root.one.take();
        other.apply_then(move |_| drop(one), |()| ());
    });
}

fn main() {}
