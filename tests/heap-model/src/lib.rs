//! The parts of `gossamer-heap` that need nothing of a rack, built by themselves, for loom (the map of copies, the
//! record and the queue of a mutex, and the head of an object, `model.rs`, `mutex.rs` and in `head.rs`) and for miri
//! (these, and the block of a bunch).
//! `gossamer` does not build with `--cfg loom`, and miri knows neither its stacks nor its shared memory.
//!
//! Not here: the code, which is that of `gossamer/heap/src`, file by file.

#![allow(dead_code)]

#[path = "../../../gossamer/heap/src/bunch/element_id.rs"]
mod element_id;
#[path = "../../../gossamer/heap/src/replicas/head.rs"]
mod head;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, loom))]
mod mutex;
#[path = "../../../gossamer/heap/src/name.rs"]
mod name;
#[path = "../../../gossamer/heap/src/bunch/page.rs"]
mod page;
#[path = "../../../gossamer/heap/src/mutex/queue.rs"]
mod queue;
#[path = "../../../gossamer/heap/src/mutex/record.rs"]
mod record;
#[path = "../../../gossamer/heap/src/copies/shelf.rs"]
mod shelf;
