//! An array over a rack: plain values over all places of a program, which reads, writes and combines them almost like a
//! slice.
//!
//! ```
//! use gossamer_array::{Add, Array};
//!
//! fn gsm_main() {
//!     let n = 1 << 16;
//!     let rank = Array::new(n, 1.0).unwrap(); // over all places
//!     let next = Array::new(n, 0.0).unwrap();
//!     let (from, to) = (rank.clone(), next.clone());
//!     rank.on_owners(move |own| { // a fiber at each place
//!         for chunk in from.views(own) { // each a `&[f64]`, fetched ahead
//!             for (page, rank) in chunk.indexed() {
//!                 to.apply(page * 3 % n, Add, rank / 2.0); // combined here, merged when it is read
//!             }
//!         }
//!     }); // all are done
//!     assert_eq!(next.get(42), 0.5);
//!     next.update(42, |value| *value *= 0.85); // atomic, at its home
//! }
//!
//! gossamer::main(gsm_main, 2);
//! ```
//!
//! [`Array`] has all calls. `docs/array.md` of the repository says when to use it, when trusts, and when neither.
//!
//! How it works inside, in reading order:
//!
//! 1. `directory.rs`: the directory entry of a chunk, with the rights of places to it; pure, and searched exhaustively
//!    by its tests
//! 2. `part/`: the part of an array at one place, which belongs to that place's worker; `frame.rs`: the memory of a
//!    chunk; `room.rs`: chunk memory that other machines of the host map; `word.rs`: elements that several workers use
//!    in place
//! 3. `post.rs`: the messages between parts, by `trust::link::post`
//! 4. `local.rs`: hits, and how a call waits; `array.rs`, `view.rs`, `update.rs`, `bulk/`, `whole.rs`, `lock.rs`: the
//!    calls
//! 5. `snapshot.rs`, `copies.rs`: all elements as one slice at each machine
//! 6. `checkpoint/`: elements in files, and how they are read back; `aside.rs`: threads for calls that block
//! 7. `make.rs`: how an array is made and dropped; `slots.rs`, `members.rs` and `lost.rs`: the same where machines are
//!    lost; `shape.rs`: the owners of elements; `memory.rs`: the check for enough memory; `held.rs`: waiting for memory
//!    that is being freed
//!
//! Threads share no part of it, so calls on elements have no locks, fences and atomic read-modify-writes: a worker's
//! frames are its own, and a chunk that another worker of the same machine wants is sent as to one of another machine.
//! The exception are single elements of 1, 2, 4 or 8 bytes that workers of one machine set: they use these in place, at
//! their home, by relaxed loads and stores (`part/near.rs`). Between machines of one host a granted chunk is copied
//! once, by the place that it was granted to (`room.rs`). Workers of a machine share snapshots, which do not change.
//!
//! The design is that of DArray (B. Ding, M. Han, R. Chen, ICPP 2023), with delegation instead of its runtime threads
//! and reference counts.

// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code except tests.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod array;
mod aside;
mod builder;
mod bulk;
mod checkpoint;
mod copies;
mod directory;
mod element;
mod error;
mod frame;
mod held;
mod local;
mod lock;
mod lost;
mod make;
mod mapping;
mod members;
mod memory;
mod name;
mod operator;
mod part;
mod post;
mod promised;
mod replies;
mod room;
mod settings;
mod shape;
mod slots;
mod snapshot;
mod stats;
mod update;
mod view;
mod waits;
mod whole;
mod word;

pub use array::Array;
pub use builder::Builder;
pub use element::Element;
pub use error::Error;
pub use lock::{ReadGuard, WriteGuard};
pub use operator::{Add, And, Max, Min, Operator, Or, Plain, Xor};
pub use shape::Owned;
pub use snapshot::{Snapshot, SnapshotSlice};
pub use stats::Stats;
pub use view::{Combiner, View, Views};
