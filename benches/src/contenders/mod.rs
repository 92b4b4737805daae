//! The contenders, one file for each way to share a counter, and the list of them all.

mod atomic;
mod bare_slots;
mod channel;
pub mod counter;
mod locks;
mod ping_pong;
pub mod threads;

#[cfg(feature = "trust")]
mod apply;
#[cfg(feature = "trust")]
mod apply_then;
#[cfg(feature = "trust")]
pub mod pool;

use anyhow::Result;

use crate::{contender::Contender, rounds::chosen};

#[cfg(feature = "trust")]
pub use self::pool::Mode;
#[cfg(feature = "trust")]
pub use self::{apply::Apply, apply_then::ApplyThen};
pub use self::{
    atomic::AtomicCounter,
    bare_slots::BareSlots,
    channel::Channel,
    counter::SharedCounters,
    locks::{McsCounter, MutexCounter, ParkingLotCounter, SpinCounter},
    ping_pong::PingPong,
};

/// All contenders of `fetch-add`, in the order of its tables.
pub fn all() -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = vec![
        Box::new(SharedCounters::<MutexCounter>::new()),
        Box::new(SharedCounters::<ParkingLotCounter>::new()),
        Box::new(SharedCounters::<SpinCounter>::new()),
        Box::new(SharedCounters::<McsCounter>::new()),
        Box::new(SharedCounters::<AtomicCounter>::new()),
        Box::new(Channel::one_at_a_time()),
        Box::new(Channel::pipelined()),
    ];
    #[cfg(feature = "trust")]
    all.extend([
        Box::new(Apply::new(Mode::Shared)) as Box<dyn Contender>,
        Box::new(Apply::new(Mode::Dedicated)),
        Box::new(ApplyThen::new(Mode::Shared)),
        Box::new(ApplyThen::new(Mode::Dedicated)),
    ]);
    all.push(Box::new(BareSlots::shared()));
    all.push(Box::new(BareSlots::dedicated()));
    all
}

/// The contenders with these names, all where there are none.
///
/// # Errors
/// A name that no contender has, with the names there are.
pub fn named(only: &[String]) -> Result<Vec<Box<dyn Contender>>> {
    chosen("contender", all(), |contender| contender.name(), only)
}
