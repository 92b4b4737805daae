//! Arrays over the rack: `gossamer-array`, over any transport.

mod calls;
mod checkpoints;
mod coherence;
mod faults;
mod locks;
mod oracle;
mod snapshots;

pub use calls::*;
pub use checkpoints::*;
pub use coherence::*;
pub use faults::*;
pub use locks::*;
pub use oracle::*;
pub use snapshots::*;
