//! `kv` as a client meets it: the replies are those of memcached, byte for byte, on one machine and on two; whatever
//! clients do, the server goes on; and it ends in order.
//!
//! Where memcached is not installed what would be compared with it is SKIPPED, and says so.

mod durable;
mod ends;
mod load;
mod memory;
mod meta;
mod protocol;
mod replies;
mod servers;
mod sessions;
