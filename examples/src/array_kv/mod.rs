//! A key-value store on two arrays over a rack, and a load on it (DArray 5.2, fig. 11).
//!
//! Any fiber at any place gets and puts: it reads the arrays itself, and frequent reads come from its own place's
//! cache. A get takes no lock and, where nothing was put meanwhile, sends no message.
//!
//! 1. [`store`]: entries, blocks, `get` and `put`
//! 2. [`slabs`]: which blocks are free
//! 3. [`load`]: gets and puts of keys as YCSB has them, checked as they come
//! 4. [`options`]: the command line; [`start`]: how it runs

pub mod load;
pub mod options;
pub mod slabs;
pub mod start;
pub mod store;
