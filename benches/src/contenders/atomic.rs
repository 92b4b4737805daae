//! One relaxed `fetch_add`, the best that hardware offers where the critical section is a single addition.

use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
};

use super::counter::Counter;
use crate::contender::Kind;

/// A counter that is an atomic.
#[derive(Debug)]
pub struct AtomicCounter(AtomicU64);

impl Counter for AtomicCounter {
    const NAME: &'static str = "atomic";
    const KIND: Kind = Kind::Atomic;
    type Local = ();

    fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline(always)]
    fn fetch_add<const PAUSE: bool>(&self, (): &mut ()) -> u64 {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if PAUSE {
            spin_loop();
        }
        before
    }

    fn value(&mut self) -> u64 {
        *self.0.get_mut()
    }
}
