//! Counts words across the processes of a rack. The way of a word through the files:
//!
//! 1. [`options`]: the command line; [`start`]: as one process, or as a rack of them
//! 2. [`files`]: which files there are
//! 3. [`work`]: the distribution of files: a queue, entrusted to machine 0
//! 4. [`text`]: from bytes to words
//! 5. [`delegated`]: each word to the worker that has its table: this is where `gossamer` is used
//! 6. [`table`]: the counts
//! 7. [`report`]: the output; [`progress`](crate::progress): the bar meanwhile
//!
//! Beside it [`single`], the same count on one thread, to compare with; and [`durable`], the count that goes on where a
//! killed one was.

pub mod delegated;
pub mod durable;
pub mod files;
pub mod options;
pub mod report;
pub mod single;
pub mod start;
pub mod table;
pub mod text;
pub mod work;
