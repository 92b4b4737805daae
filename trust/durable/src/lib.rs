//! State that survives: a trust whose closures are transactions on disk.
//!
//! [`Durable`] is the handle. Its value, the root, and everything the root reaches lie in a *pool*: memory of this
//! process, plus a folder with an image of that memory and a log of later changes. A closure is atomic: when the folder
//! is opened again, all of its changes are there or none, however the program ended. Its result is returned once it is
//! on disk. All closures that run while the disk is busy share the next write (group commit).
//!
//! - Types that a pool can hold implement [`Persist`], by derive: plain values, and [`PBox`], [`PVec`], [`PString`],
//!   [`PMap`], [`PBTreeMap`], [`Prc`] with [`PCell`] and [`PRefCell`]. None of these can leave its transaction;
//!   [`VWeak`] names a shared value from outside.
//! - [`Durable::builder`] sets options: results before they are on disk ([`Builder::within`]), the maximum size of a
//!   pool ([`Builder::limit`]).
//! - [`Durable::snapshot`] makes a backup, [`inspect`] checks and describes a folder, [`Error`] gives the reason why a
//!   pool cannot be opened. [`Durable::migrate`] opens a pool whose type has changed.
//!
//! `docs/durable.md` of the repository explains what is durable when, and which failures are not covered. The design
//! follows Corundum (M. Hoseinzadeh, S. Swanson, ASPLOS 2021).

// `Instant + Duration` panics where limits are large: sums saturate (`trust::link::later`), in all code except tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

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
pub use handle::call::{Call, ReadyCall, TimedCall};
pub use inspect::{Inspection, inspect};
pub use persist::{Niche, Persist};
pub use service::future::DurableFuture;
pub use stats::DurableStats;
pub use trust_durable_derive::Persist;
pub use tx::Tx;
pub use types::maybe::Maybe;
pub use types::pbox::PBox;
pub use types::pbtreemap::PBTreeMap;
pub use types::pbtreemap::range::PBTreeRange;
pub use types::pcell::PCell;
pub use types::pmap::PMap;
pub use types::pmap::pages::PMapCursor;
pub use types::prc::{PWeak, Prc};
pub use types::prefcell::{PRef, PRefCell, PRefMut};
pub use types::pstring::PString;
pub use types::pvec::PVec;
pub use types::vweak::VWeak;
