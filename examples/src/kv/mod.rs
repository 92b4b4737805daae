//! A key-value store that speaks memcached's text protocol. The way of a command through the files:
//!
//! 1. [`options`]: the command line; [`start`]: on one machine, or on all of a rack
//! 2. [`server`]: accepts connections, one fiber each, spread over the workers
//! 3. [`connection`]: reads bursts of requests, sends bursts of replies
//! 4. [`request`]: from bytes to commands; [`meta`]: meta commands and their replies; [`words`]: words and numbers of a
//!    line; [`size`]: the largest keys and items
//! 5. [`table`]: the interface of a table to the server, [`answer`]: its answers; [`delegated`]: each command to the
//!    worker that has its key: this is where trusts are used; [`packed`]: commands and answers as they travel
//! 6. [`shard`]: one worker's part of the table, and its memory; [`cells`]: the places of items; [`item`]: the effect
//!    of a command on one; [`clock`]: when items expire
//! 7. [`replies`]: answers in the order of the requests, and as bytes; [`budget`]: the memory that connections may have
//!
//! Another table behind the same server is another implementation of [`table::Table`]: with `--durable` it is that of
//! [`durable`]: its items survive the program.
//!
//! It speaks the text protocol of memcached 1.6 and no binary protocol: a client that begins with that is hung up on.
//! Meta commands ([`meta`]) are errors with `--durable`. `version` and `quit` stand alone, as in older memcacheds.
//! docs/testing.md has the clients with tests that it passes.
//!
//! After the server of thesis 2.6.3; its clients take replies in any order, memcached's clients do not.

pub mod answer;
pub mod budget;
pub mod cells;
pub mod clock;
pub mod connection;
pub mod delegated;
pub mod durable;
pub mod item;
pub mod meta;
pub mod options;
pub mod packed;
pub mod replies;
pub mod request;
pub mod server;
pub mod shard;
pub mod size;
pub mod start;
pub mod table;
pub mod words;
