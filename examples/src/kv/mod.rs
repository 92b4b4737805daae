//! A key-value store that speaks memcached's text protocol. The way of a command through the files:
//!
//! 1. [`options`]: what the user asked for; [`start`]: on one machine, or on all of a rack
//! 2. [`server`]: accepts connections, one fiber each, spread over the workers
//! 3. [`connection`]: reads bursts of requests, sends bursts of replies
//! 4. [`request`]: from bytes to commands; [`meta`]: meta commands and their replies
//! 5. [`table`]: what a table is to the server; [`delegated`]: each command to the worker that has its key: this is
//!    where trusts are used
//! 6. [`shard`]: one worker's part of the table, and its memory; [`cells`]: where items lie; [`item`]: what a command
//!    does to one;
//!    [`clock`]: when items expire
//! 7. [`replies`]: answers in the order of the requests, and as bytes; [`budget`]: what connections may have of memory
//!
//! Another table behind the same server is another implementation of [`table::Table`]: with `--durable` it is that of
//! [`durable`], whose items survive the program.
//!
//! It speaks the text protocol of memcached 1.6 and no binary protocol: who begins with that is hung up on. Meta
//! commands ([`meta`]) it has but with `--durable`, where they are errors. `version` and `quit` stand alone, as in
//! older memcacheds. The clients whose own tests it passes are in docs/testing.md.
//!
//! After the server of thesis 2.6.3; its clients take replies in any order, memcached's clients do not.

pub mod budget;
pub mod cells;
pub mod clock;
pub mod connection;
pub mod delegated;
pub mod durable;
pub mod item;
pub mod meta;
pub mod options;
pub mod replies;
pub mod request;
pub mod server;
pub mod shard;
pub mod start;
pub mod table;
