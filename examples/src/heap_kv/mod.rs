//! A key-value store on the heap: a [`Mutex`](gossamer_heap::Mutex) for each bucket, spread over all places, values as
//! objects of their own (DRust 7.1).
//!
//! The holder of a bucket's lock has the bucket: in place where it is mapped, else it moves there, some hundred bytes.
//! Values do not move: a get reads the value in place or, elsewhere, in a copy that its machine keeps until another
//! value is put, so frequent values are fetched once.
//!
//! 1. [`bucket`]: keys and values of a bucket, on the heap or not
//! 2. [`store`]: the buckets over the places; [`twin`]: the same with `Mutex`, `Box` and `Vec`
//! 3. [`load`]: gets and puts of keys, checked as they come; [`table`]: a store as the load sees it
//! 4. [`options`]: the command line; [`start`]: how it runs

pub mod bucket;
pub mod load;
pub mod options;
pub mod start;
pub mod store;
pub mod table;
pub mod twin;
