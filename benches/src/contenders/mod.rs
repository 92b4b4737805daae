//! The contenders, one file for each way to share a counter, and the list of them all.

mod apply;
mod bare_slots;
mod channel;
pub mod counter;
mod locks;
mod ping_pong;
pub mod pool;
pub mod threads;

use crate::prelude::*;

pub use self::apply::{apply, apply_then, apply_then_slice};
pub use self::bare_slots::bare_slots;
pub use self::channel::channel;
pub use self::counter::shared;
pub use self::locks::{AtomicCounter, McsCounter, MutexCounter, ParkingLotCounter, SpinCounter};
pub use self::ping_pong::ping_pong;
pub use self::pool::Mode;

/// Requests of a batch (`bare-slots`) or in flight (`channel-pipelined`).
const BATCH: usize = 64;

/// The contenders of `fetch-add` with these names, all where there are none, in the order of its tables.
pub fn named(only: &[String]) -> Result<Vec<Contender>> {
    let all = vec![
        shared::<MutexCounter>(),
        shared::<ParkingLotCounter>(),
        shared::<SpinCounter>(),
        shared::<McsCounter>(),
        shared::<AtomicCounter>(),
        channel("channel", 1),
        channel("channel-pipelined", BATCH),
        apply(Mode::Shared),
        apply(Mode::Dedicated),
        apply_then(Mode::Shared),
        apply_then(Mode::Dedicated),
        apply_then_slice(),
        bare_slots(false),
        bare_slots(true),
    ];
    chosen("contender", all, |contender| contender.name, only)
}
