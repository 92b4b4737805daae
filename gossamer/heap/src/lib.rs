//! A global heap over a rack: objects that any machine reads and writes, kept coherent by ownership.
//!
//! A [`Global`] is a `Box` in some machine's memory that may travel in closures. Readers have the object in place where
//! its memory is mapped, else a copy that their machine keeps; a writer on another host takes it over. Copies are never
//! called back: each write renames the object, so old ones are not found any more.
//!
//! ```
//! use gossamer_heap::{self as heap, Global, Shared};
//!
//! fn gsm_main() {
//!     let table = Shared::new([7u64; 1024]); // freed after its last owner
//!     let (sender, parts) = gossamer::sync::Channel::new().open_plain::<Global<[u64]>>();
//!     for place in gossamer::rack().places() {
//!         let (table, sender) = (table.clone(), sender.clone());
//!         gossamer::spawn_on(place, move || {
//!             let table = table.read(); // fetched once a machine
//!             let part = heap::slice(1 << 10, |i| table[i % 1024]);
//!             sender.send(part).unwrap(); // 24 bytes travel
//!         });
//!     }
//!     drop(sender);
//!     for mut part in parts {
//!         part.write()[0] = 1; // in place on this host, else it moves here
//!         let sum = heap::spawn_to(part, |part| part.read().iter().sum::<u64>()).join();
//!         assert_eq!(sum.unwrap(), 1 + 1023 * 7);
//!     }
//! }
//!
//! gossamer::main(gsm_main, 2);
//! ```
//!
//! `docs/heap.md` of the repository says when to take a `Trust`, an array or a `Global`.
//!
//! How it works inside, in the order to read it:
//!
//! 1. `name.rs`: the name of an object; `object.rs`, `portable.rs`: the types of objects
//! 2. `places.rs`: the places, and the part of memory of each; `bases.rs`: where it is mapped; `partition/`: how a
//!    worker makes objects in its part; `limit.rs`: how much there may be
//! 3. `global.rs`, `global/`, `guard.rs`: the owner, its calls, and their guards; `freeing.rs`: the end of an object
//! 4. `copies/`: this machine's copies of other machines' objects
//! 5. `replicas/`: what has left a machine is at another one, too
//! 6. `slice.rs`, `bunch/`, `shared.rs`, `mutex/`, `atomic.rs`, `raw.rs`, `spawn.rs`, `scope/`, `tasks/`: built on it
//!
//! The design is that of DRust (H. Ma et al., OSDI 2024), cited as "DRust".

// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code that is no test.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod atomic;
mod bases;
mod bunch;
mod copies;
mod error;
mod far;
mod freeing;
mod global;
mod guard;
mod here;
mod limit;
mod load;
mod mutex;
mod name;
mod object;
mod partition;
mod places;
mod portable;
pub mod raw;
mod replicas;
mod scope;
mod shared;
mod slice;
mod spawn;
mod stats;
mod tasks;

pub use atomic::Atomic;
pub use bunch::{Bunch, ElementId, View, ViewMut};
pub use error::{Error, Lost, NoRoom};
pub use global::Global;
pub use guard::{Ref, RefMut};
pub use mutex::{Mutex, MutexGuard, Poisoned, settle};
pub use object::Object;
pub use portable::Portable;
pub use replicas::with_copies;
pub use scope::{Lent, LentMut, Scope, ScopedHandle, scope};
pub use shared::Shared;
pub use slice::{slice, try_slice};
pub use spawn::{spawn, spawn_to};
pub use stats::{Stats, stats};
#[doc(hidden)]
pub use tasks::link;
pub use tasks::{Step, Task, TaskId, TaskInfo, tasks};
