//! An attribute below the derive takes away the layout that the derive has seen.

use trust_durable::*;
use trust_durable_derive::without_repr;

#[derive(Persist)]
#[without_repr]
#[repr(u8)]
enum Moved {
    One(u32, u8),
    Two,
}

#[derive(Persist)]
#[without_repr]
#[repr(u8)]
enum WithoutTag {
    One(bool),
    Two,
}

#[derive(Persist)]
#[without_repr]
#[repr(u8)]
enum Single {
    One,
}

#[derive(Persist)]
#[without_repr]
#[repr(C)]
struct Fields<'p> {
    first: u8,
    boxed: PBox<'p, u8>,
}

// These are as they say.
#[derive(Persist)]
#[repr(u8)]
enum Kept<'p> {
    One(u32, u8),
    Two,
    Three { list: PVec<'p, u8>, flag: bool } = 7,
}

#[derive(Persist)]
#[repr(C, align(16))]
struct Aligned {
    first: u8,
    second: u64,
}

#[derive(Persist)]
#[repr(transparent)]
struct Transparent<T: Persist>(T);

fn main() {}
