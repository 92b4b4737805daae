//! Shared by the programs on the heap: `heap-kv`, `gemm`, `dataframe` and `social`.
//!
//! Each has a twin: the same work in one process of plain Rust (`Box`, `Arc`, `Mutex`, `Vec`). With `--verify` it runs
//! after the program, its answer is compared, and its speed stands beside. The work on bytes at hand is the same code
//! in both, so that they differ in the heap only.
//!
//! - [`own`]: the common part of a `Global` and a `Box`
//! - [`spread`]: lists over all places
//! - [`options`]: the part of the command lines that is the same
//! - [`twin`]: threads for the twin
//! - [`report`]: the output

pub mod options;
pub mod own;
pub mod report;
pub mod spread;
pub mod twin;
