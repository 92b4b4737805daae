//! `spin::Mutex`, the spinlock of the thesis (2.6.1).

use spin::Mutex;

use super::counter::{Counter, increment};
use crate::contender::Kind;

/// A counter under `spin::Mutex`.
#[derive(Debug)]
pub struct SpinCounter(Mutex<u64>);

impl Counter for SpinCounter {
    const NAME: &'static str = "spin";
    const KIND: Kind = Kind::Lock;
    type Local = ();

    fn zero() -> Self {
        Self(Mutex::new(0))
    }

    #[inline(always)]
    fn fetch_add<const PAUSE: bool>(&self, (): &mut ()) -> u64 {
        increment::<PAUSE>(&mut self.0.lock())
    }

    fn value(&mut self) -> u64 {
        *self.0.get_mut()
    }
}
