//! Listing 4: a value of one pool in another.

use trust_durable::*;

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: Option<PBox<'p, u64>>,
    cell: PCell<'p, u64>,
}

fn exchange<'a, 'b>(one: &mut Root<'a>, tx: &Tx<'b>) {
    one.one = Some(PBox::new(1, tx));
}

fn main() {}
