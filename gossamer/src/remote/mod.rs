//! Delegation to trustees on other machines: what takes batches there and back (`trust::link`), over the one-sided
//! writes of a fabric.
//!
//! Reading order, which is the way of one batch and back:
//!
//! 1. `carrier`: what `trust` calls: all streams of one worker
//! 2. `stream`: which slot is next, whether there is room, frames that need more than one slot
//! 3. `slot`: bytes into a slot and out of it, its trailer, its flag
//! 4. `connections`: the fabric's connections, flushed once a turn
//!
//! What the bytes of a batch are is `trust`'s affair (`trust/src/remote/`). Beside them: `layout` (where each slot
//! lies), `image` (closures as positions in the program's image), `hello` (is the other machine the same program?),
//! `wiring` (makes all of it for a worker).
//!
//! The protocol, for each pair of a client (worker of one machine) and a trustee (worker of another): a ring of
//! request slots in the trustee's region, which only the client writes, and a ring of answer slots in the client's
//! region, which only the trustee writes. Each write fills a slot from some offset to its end and is one one-sided
//! write; its last word, the flag, is the number of the write. A slot is written again when its reader has
//! acknowledged what was there.
//!
//! Invariants: nothing that comes out of a region is trusted: it is copied once, and the copy is checked before it is
//! used; what is wrong ends the program with a text that names the machine, the worker and the fault.

mod carrier;
pub(crate) mod connections;
mod hello;
mod image;
mod layout;
#[cfg(test)]
mod scaling;
mod slot;
mod stream;
#[cfg(test)]
mod tests;
mod wiring;

pub(crate) use hello::{Hello, exchange};
pub(crate) use image::Image;
pub(crate) use layout::{Layout, Slots};
pub(crate) use wiring::Wiring;
