//! `kv` as a client meets it: the replies are those of memcached, byte for byte, on one machine and on two; no client
//! can stop the server; and it ends in order.
//!
//! Where memcached is not installed the comparisons with it are SKIPPED, and say so.

mod durable;
mod ends;
mod load;
mod memory;
mod meta;
mod protocol;
mod replies;
mod servers;
mod sessions;
