//! Counters, under a lock each or atomic: std's and parking_lot's mutex, and the two locks of the thesis (2.6.1), a
//! spinlock and an MCS queue lock.

use super::counter::{Counter, increment};
use crate::prelude::*;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use synctools::mcs::{MCSLock, MCSNode};

/// A counter under a mutex; `$checked` follows a call that may find the mutex poisoned.
macro_rules! mutex_counter {
    ($counter:ident, $name:literal, $mutex:ty $(, $($checked:tt)+)?) => {
        #[doc = concat!("A counter under `", stringify!($mutex), "`.")]
        #[derive(Debug)]
        pub struct $counter($mutex);

        impl Counter for $counter {
            const NAME: &'static str = $name;
            const KIND: Kind = Kind::Lock;
            type Local = ();

            fn zero() -> Self {
                Self(<$mutex>::new(0))
            }

            #[inline(always)]
            fn fetch_add<const PAUSE: bool>(&self, (): &mut ()) -> u64 {
                increment::<PAUSE>(&mut self.0.lock()$($($checked)+)?)
            }

            fn value(&mut self) -> u64 {
                *self.0.get_mut()$($($checked)+)?
            }
        }
    };
}

mutex_counter!(MutexCounter, "std-mutex", std::sync::Mutex<u64>, .expect("an increment does not panic"));
mutex_counter!(ParkingLotCounter, "parking_lot", parking_lot::Mutex<u64>);
mutex_counter!(SpinCounter, "spin", spin::Mutex<u64>);

/// A counter under an MCS queue lock.
pub struct McsCounter(MCSLock<u64>);

impl Counter for McsCounter {
    const NAME: &'static str = "mcs";
    const KIND: Kind = Kind::Lock;
    type Local = MCSNode<u64>;

    fn zero() -> Self {
        Self(MCSLock::new(0))
    }

    #[inline(always)]
    fn fetch_add<const PAUSE: bool>(&self, node: &mut MCSNode<u64>) -> u64 {
        increment::<PAUSE>(&mut self.0.lock(node))
    }

    fn value(&mut self) -> u64 {
        *self.0.lock(&mut MCSNode::new())
    }
}

/// A counter that is an atomic: one relaxed `fetch_add`, the best that hardware offers where the critical section is a
/// single addition.
#[derive(Debug)]
pub struct AtomicCounter(AtomicU64);

impl Counter for AtomicCounter {
    const NAME: &'static str = "atomic";
    const KIND: Kind = Kind::Other;
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
