//! `parking_lot::Mutex`.

use parking_lot::Mutex;

use super::counter::{Counter, increment};
use crate::contender::Kind;

/// A counter under `parking_lot::Mutex`.
#[derive(Debug)]
pub struct ParkingLotCounter(Mutex<u64>);

impl Counter for ParkingLotCounter {
    const NAME: &'static str = "parking_lot";
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
