//! A persistent value goes to another thread.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn main_with(root: Durable<Root<'static>>) {
    root.apply(|root, _| {
        let one = &root.one;
        std::thread::scope(|scope| _ = scope.spawn(move || one.as_deref().copied()));
    });
}

fn main() {}
