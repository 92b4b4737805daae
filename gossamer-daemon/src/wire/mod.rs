//! Messages between daemons, launchers and parts: [`message`] defines them, [`stream`] carries them, [`link`] makes the
//! connections between hosts.

pub mod link;
pub mod message;
pub mod status;
pub mod stream;

pub use message::*;
pub use status::*;
pub use stream::{Receiver, Sender, WireError};
