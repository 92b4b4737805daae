//! Arrays over the rack: `gossamer-array`, over any transport.

mod calls;
mod coherence;
mod faults;
mod locks;
mod oracle;

pub use calls::*;
pub use coherence::*;
pub use faults::*;
pub use locks::*;
pub use oracle::*;
