//! `std::sync::Mutex`.

use std::sync::Mutex;

use super::counter::{Counter, increment};
use crate::contender::Kind;

/// A counter under `std::sync::Mutex`.
#[derive(Debug)]
pub struct MutexCounter(Mutex<u64>);

impl Counter for MutexCounter {
    const NAME: &'static str = "std-mutex";
    const KIND: Kind = Kind::Lock;
    type Local = ();

    fn zero() -> Self {
        Self(Mutex::new(0))
    }

    #[inline(always)]
    fn fetch_add<const PAUSE: bool>(&self, (): &mut ()) -> u64 {
        increment::<PAUSE>(&mut self.0.lock().expect("an increment does not panic"))
    }

    fn value(&mut self) -> u64 {
        *self.0.get_mut().expect("an increment does not panic")
    }
}
