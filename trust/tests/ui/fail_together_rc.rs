//! Values of `together` travel: those of latches that only their own thread may touch do not.
use std::rc::Rc;
use trust::{Latch, Trust, together};

fn sum(a: &Trust<Latch<Rc<u32>>>, b: &Trust<Latch<Rc<u32>>>) -> u32 {
    together((a, b), |(a, b)| **a + **b)
}

fn main() {
    let _ = sum;
}
