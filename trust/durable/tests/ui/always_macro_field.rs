//! A macro in the place of a type, which may give another one each time.

use trust_durable::*;

macro_rules! of_any_pool {
    ($brand:lifetime) => { Option<PBox<'static, u64>> };
}

#[derive(Persist)]
#[repr(C)]
struct Root<'p> {
    one: of_any_pool!('p),
    cell: PCell<'p, u64>,
}

#[derive(Persist)]
#[repr(u8)]
enum Choice<'p> {
    One(PVec<'p, of_any_pool!('p)>),
}

fn main() {}
