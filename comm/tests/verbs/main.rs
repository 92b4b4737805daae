//! The verbs fabric on real queue pairs: soft-RoCE devices in the virtual machine that `cargo dev rdma`
//! starts. `pair`: two devices at the ends of a pair of network interfaces of one machine. `hosts`: one
//! device in each of two machines.
//!
//! A host without such devices cannot run these tests, and `cargo test` does not try: they need the feature
//! `conformance`. Effort is small, since the machine is emulated; the counts are exact.

mod hosts;
mod pair;
mod rig;
