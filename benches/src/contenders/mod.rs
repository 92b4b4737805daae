//! The contenders, one file for each way to share a counter, and the list of them all.

mod apply;
mod apply_then;
mod atomic;
mod bare_slots;
mod channel;
pub mod counter;
mod locks;
mod ping_pong;
pub mod pool;
pub mod threads;

use anyhow::Result;

use crate::{contender::Contender, rounds::chosen};

pub use self::{
    apply::Apply,
    apply_then::ApplyThen,
    atomic::AtomicCounter,
    bare_slots::BareSlots,
    channel::Channel,
    counter::SharedCounters,
    locks::{McsCounter, MutexCounter, ParkingLotCounter, SpinCounter},
    ping_pong::PingPong,
    pool::Mode,
};

/// All contenders of `fetch-add`, in the order of its tables.
pub fn all() -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(SharedCounters::<MutexCounter>::new()),
        Box::new(SharedCounters::<ParkingLotCounter>::new()),
        Box::new(SharedCounters::<SpinCounter>::new()),
        Box::new(SharedCounters::<McsCounter>::new()),
        Box::new(SharedCounters::<AtomicCounter>::new()),
        Box::new(Channel::one_at_a_time()),
        Box::new(Channel::pipelined()),
        Box::new(Apply::new(Mode::Shared)),
        Box::new(Apply::new(Mode::Dedicated)),
        Box::new(ApplyThen::new(Mode::Shared)),
        Box::new(ApplyThen::new(Mode::Dedicated)),
        Box::new(BareSlots::shared()),
        Box::new(BareSlots::dedicated()),
    ]
}

/// The contenders with these names, all where there are none.
///
/// # Errors
/// A name that no contender has, with the names there are.
pub fn named(only: &[String]) -> Result<Vec<Box<dyn Contender>>> {
    chosen("contender", all(), |contender| contender.name(), only)
}
