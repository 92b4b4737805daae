//! One-sided, ordered writes between the machines of a rack program.
//!
//! A *machine* is one process of the program. Each owns a [`Region`] of memory that the others
//! write, at offsets all of them agree on, without any code of the owner taking part (RDMA's memory
//! semantics, thesis 3.1.1). The owner learns of a write by its last word, the flag, which becomes
//! visible after the rest (thesis 3.2.7). This is all that delegation to another machine needs: a
//! client writes a batch of requests, the trustee polls its flag.
//!
//! Beside its region a machine may have *shares*, for large data: memory that is committed in pieces, and
//! that the others read as well as write ([`Fabric::open_share`], [`Connection::read_share`]).
//!
//! The contract is [`Fabric`] and [`Connection`]; read `fabric.rs` first. [`shm`] implements it between
//! processes of one host, [`tcp`] between hosts; [`mixed`] makes one fabric of several, each for some of the
//! peers; `sim` (behind the feature of that name) is a network in one process that misbehaves on demand.
//! [`secure`] decides about access: keys, and connections that are authenticated and encrypted. Every
//! implementation passes the same suite, `conformance` (behind the feature of that name).
//!
//! This crate knows bytes only: no closures, no fibers, no slots.
//!
//! # Example
//! Two machines, here in one process. Machine 0 writes 24 bytes into machine 1's region, which
//! sleeps until they come.
//!
//! ```
//! use comm::{Fabric, MachineId, Wake, WorkerId, shm};
//! use std::sync::atomic::Ordering;
//! use std::time::Duration;
//!
//! // The layout both agree on: a park word on its own cache line, and a slot; its last word is its
//! // flag.
//! const PARK: usize = 0;
//! const SLOT: usize = 64;
//! const SLOT_BYTES: usize = 24;
//! const FLAG: usize = SLOT + SLOT_BYTES - 8;
//! const TIMEOUT: Duration = Duration::from_secs(60);
//!
//! let segments = shm::create(2)?; // the launcher does this, and hands them to each machine
//! let open = |machine| {
//!     shm::ShmFabric::open(segments.bootstrap(MachineId(machine))?, 4096, TIMEOUT)
//! };
//!
//! std::thread::scope(|scope| -> Result<(), comm::Error> {
//!     let writer = scope.spawn(move || -> Result<(), comm::Error> {
//!         let fabric = open(0)?;
//!         let mut connection = fabric.connect(MachineId(1), WorkerId(0))?;
//!         let mut batch = *b"sixteen bytes..\n\0\0\0\0\0\0\0\0";
//!         batch[16..].copy_from_slice(&1u64.to_ne_bytes()); // the flag: not the 0 that is there
//!         connection.write(&batch, SLOT)?;
//!         connection.wake(PARK)?;
//!         connection.flush()
//!     });
//!     let fabric = open(1)?;
//!     let flag = fabric.region().word(FLAG)?;
//!     let woke = fabric.park(WorkerId(0), PARK, TIMEOUT, &mut || flag.load(Ordering::Acquire) == 0)?;
//!     assert_ne!(woke, Wake::TimedOut);
//!     assert_eq!(flag.load(Ordering::Acquire), 1);
//!     let mut text = [0; 16];
//!     fabric.region().read(SLOT, &mut text)?;
//!     assert_eq!(&text, b"sixteen bytes..\n");
//!     writer.join().expect("the writer does not panic")
//! })?;
//! # Ok::<(), comm::Error>(())
//! ```

#![cfg_attr(loom, allow(dead_code))]
// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code but tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

#[cfg(all(not(loom), any(test, feature = "conformance")))]
pub mod conformance;
#[cfg(all(target_os = "linux", not(loom)))]
mod connected_pairs;
#[doc(hidden)]
pub mod deadline;
#[doc(hidden)]
pub mod descriptors;
mod error;
mod fabric;
#[cfg(all(not(loom), any(test, feature = "fuzz")))]
pub mod fuzz;
mod ids;
#[cfg(all(target_os = "linux", not(loom)))]
mod liveness;
mod memory;
#[cfg(all(target_os = "linux", not(loom)))]
pub mod mixed;
#[cfg(all(target_os = "linux", not(loom)))]
mod panics;
#[cfg(target_os = "linux")]
mod park;
#[doc(hidden)]
pub mod process_stat;
#[cfg(not(loom))]
pub mod secure;
mod share;
#[cfg(all(target_os = "linux", not(loom)))]
pub mod shm;
#[cfg(all(target_os = "linux", not(loom), any(test, feature = "sim")))]
pub mod sim;
#[cfg(all(target_os = "linux", not(loom)))]
mod sparse;
#[cfg(all(target_os = "linux", not(loom)))]
pub mod tcp;
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(loom)))]
pub mod verbs;
#[cfg(all(target_os = "linux", not(loom)))]
mod waker;

pub use error::Error;
pub use fabric::{Connection, Fabric};
pub use ids::{Loss, MachineId, ReadId, ShareId, Wake, WorkerId};
pub use memory::{Region, WORD_BYTES};
#[cfg(all(target_os = "linux", not(loom)))]
pub use share::Share;
pub use share::{SHARE_BYTES_MAX, SHARE_UNIT_BYTES, SHARES_MAX};
