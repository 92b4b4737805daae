//! Delegation to trustees on other machines: the slots that requests and responses travel in, and the two halves of
//! each way, which `trust` calls (`trust::link`).
//!
//! Reading order, which is the way of one request and back:
//!
//! 1. `link`: a client's pending requests become a frame
//! 2. `frame`: requests into bytes and back; `answer`: responses likewise
//! 3. `slot`: bytes into a slot and out of it, its trailer, its flag
//! 4. `pair`: whose turn it is; frames that need more than one slot
//! 5. `source`: the frame becomes a batch that the trustee runs; the answer goes back the same way
//!
//! Beside them: `layout` (where each slot lies), `image` (closures as positions in the program's image), `hello` (is the
//! other machine the same program?), `wiring` (all links and sources of a worker).
//!
//! The protocol, for each pair of a client (worker of one machine) and a trustee (worker of another): one request slot
//! in the trustee's region, which only the client writes, and one answer slot in the client's region, which only the
//! trustee writes. Each write fills a slot from some offset to its end and is one one-sided write; its last word, the
//! flag, is the number of the write. The two sides strictly alternate: request write 1, answer write 1, request write 2
//! and so on, so neither overwrites what the other has not read.
//!
//! Invariants: nothing that comes out of a region is trusted: it is copied once, and the copy is checked before it is
//! used; what is wrong ends the program with a text that names the machine, the worker and the fault.

mod answer;
mod frame;
mod hello;
mod image;
mod layout;
mod link;
mod pair;
mod slot;
mod source;
#[cfg(test)]
mod tests;
mod wiring;

pub(crate) use hello::{Hello, exchange};
pub(crate) use image::Image;
pub(crate) use layout::Layout;
pub use slot::SLOT_BYTES;
pub(crate) use wiring::Wiring;
