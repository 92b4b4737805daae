//! State that survives: a trust whose closures are transactions on disk.
//!
//! [`Durable`] is the handle. Its value, the root, and what that reaches lie in a *pool*: memory of this process, and a
//! folder with an image of it and a log of what changed since. Each closure is all there or not at all when the folder
//! is opened again, whatever ended the program in between; its result is told when it is on disk, and all that runs
//! while the disk is busy shares the next write.
//!
//! - What a pool may hold is [`Persist`], by derive: plain values, and [`PBox`], [`PVec`], [`PString`], [`PMap`],
//!   [`Prc`] with [`PCell`] and [`PRefCell`]. None of these can leave its transaction; [`VWeak`] names a shared value
//!   from outside.
//! - [`Durable::builder`] has options: results before they are on disk ([`Builder::within`]), how large a pool may get
//!   ([`Builder::limit`]).
//! - [`Durable::snapshot`] makes a backup, [`inspect`] checks and shows a folder, [`Error`] says what keeps one from
//!   being opened.
//!
//! `docs/durable.md` of the repository explains what is durable when, and what this does not protect from. The design
//! is after Corundum (M. Hoseinzadeh, S. Swanson, ASPLOS 2021).

mod builder;
mod error;
mod files;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod group;
mod handle;
mod hash;
mod inspect;
#[doc(hidden)]
pub mod layout;
mod memory;
mod persist;
mod property;
mod service;
mod stats;
mod sync;
#[cfg(test)]
mod tests;
mod tx;
mod types;
mod unwind;
#[doc(hidden)]
pub mod walk;

pub use builder::Builder;
pub use error::Error;
pub use handle::Durable;
pub use inspect::{Inspection, inspect};
pub use persist::{Niche, Persist};
pub use service::future::DurableFuture;
pub use stats::DurableStats;
pub use trust_durable_derive::Persist;
pub use tx::Tx;
pub use types::maybe::Maybe;
pub use types::pbox::PBox;
pub use types::pcell::PCell;
pub use types::pmap::PMap;
pub use types::prc::{PWeak, Prc};
pub use types::prefcell::{PRef, PRefCell, PRefMut};
pub use types::pstring::PString;
pub use types::pvec::PVec;
pub use types::vweak::VWeak;
