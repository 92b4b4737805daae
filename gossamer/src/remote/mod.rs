//! Delegation to trustees on other machines: transport of batches there and back (`trust::link`), over the one-sided
//! writes of a fabric.
//!
//! Reading order, which is the way of one batch and back:
//!
//! 1. `carrier`: called by `trust`: all streams of one worker
//! 2. `stream`: the next slot, room for it, frames that need more than one slot
//! 3. `slot`: bytes into a slot and out of it, its trailer, its flag
//! 4. `connections`: the fabric's connections, flushed once a turn
//!
//! Before 2 a frame may be held back by the `gate` of a crate above. Large racks have `ways` in place of 1, and of the
//! rings of pairs.
//!
//! The bytes of a batch are defined by `trust` (`trust/src/remote/`). Beside these: `layout` (offset of each slot),
//! `image` (closures as positions in the program's image), `hello` (check that the other machine runs the same
//! program), `wiring` (makes all of it for a worker).
//!
//! The protocol, for each pair of a client (worker of one machine) and a trustee (worker of another): a ring of request
//! slots in the trustee's region, which only the client writes, and a ring of answer slots in the client's region,
//! which only the trustee writes. Each write fills a slot from some offset to its end and is one one-sided write; its
//! last word, the flag, is the number of the write. A slot is written again when its reader has acknowledged the last
//! write.
//!
//! Invariants: no bytes of a region are trusted: they are copied once, and the copy is checked before it is used. An
//! error ends the program with a text that names the machine, the worker and the fault.

mod carrier;
pub(crate) mod connections;
pub(crate) mod gate;
mod hello;
mod image;
mod layout;
#[cfg(test)]
mod scaling;
mod slot;
mod stream;
#[cfg(test)]
mod tests;
mod ways;
mod wiring;

pub(crate) use hello::{Hello, exchange};
pub(crate) use image::Image;
pub(crate) use layout::{Layout, Slots};
pub(crate) use ways::direct_ways;
pub(crate) use wiring::Wiring;
