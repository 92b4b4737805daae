//! The calls of `gossamer-array` for single elements, down to the messages between its parts, over a rack that is only
//! a model, for loom (`model.rs`). `gossamer` does not build with `--cfg loom`, so `rack.rs` stands in for it, for
//! `trust` and for `comm`.
//!
//! Not here: the code, which is that of `gossamer/array/src`, file by file.

#![cfg(all(test, loom))]

// The code says where it has these from.
extern crate self as comm;
extern crate self as gossamer;
extern crate self as trust;

mod absent;
mod model;
mod rack;

pub(crate) use absent::{held, lock, make, members, memory, promised, room, word};
pub(crate) use code::{
    array, directory, element, frame, lost, name, operator, part, post, replies, settings, shape, slots, stats, waits,
};
pub(crate) use error::Error;
pub(crate) use rack::{
    NoRef, Place, Promise, Share, Trust, TrusteeReference, link, may_wait, rack, sleep, spawn_on, yield_now,
};

/// Gives each place of a model its own thread-locals.
macro_rules! thread_local {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = const $init:block;)*) => { $(
        $(#[$attribute])*
        static $name: $crate::rack::Local<$type> = $crate::rack::Local(|| $init);
    )* };
}

#[allow(dead_code, unused_imports, reason = "the calls on whole arrays are absent")]
#[path = "../../../gossamer/array/src"]
mod code {
    pub(crate) mod array;
    pub(crate) mod directory;
    pub(crate) mod element;
    pub(crate) mod error;
    pub(crate) mod frame;
    mod local;
    pub(crate) mod lost;
    pub(crate) mod name;
    pub(crate) mod operator;
    pub(crate) mod part;
    pub(crate) mod post;
    pub(crate) mod replies;
    pub(crate) mod settings;
    pub(crate) mod shape;
    pub(crate) mod slots;
    pub(crate) mod stats;
    pub(crate) mod waits;
}
use code::error;
