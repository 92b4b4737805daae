//! Connections that only those who have a key can make: `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`
//! over TCP, by the crate `snow`.
//!
//! Here: [`Key`] and its file, [`SecureStream`] and its halves. Beside it: `handshake` (who is there), `proof` (the
//! same for further connections, without encryption), `frame` (bytes after that), `unauthenticated` (who may stay until
//! then), all without sockets. Not here: who listens where, and what is said.
//!
//! What it gives: each side knows that the other has the same key and lives now (not a recording),
//! that both mean the same *purpose* (so that a connection for one thing is none for another), and
//! that nothing was read, changed, left out or put in between. Past traffic stays secret when the
//! key is lost later, for each connection has ephemeral keys of its own. What it does not hide: that
//! there is a connection, the purpose and the claim, and how much is sent when. The end of a stream is not
//! proven: a protocol over it has a message of its own for that.
//!
//! All who have the key are equal: whoever can read its file can do what any of them can.

mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
pub(crate) mod handshake;
mod key;
pub(crate) mod proof;
mod stream;
mod unauthenticated;

pub use handshake::{ANSWER_BYTES_MAX, CLAIM_BYTES_MAX};
pub use key::{KEY_BYTES, Key};
pub(crate) use stream::Initiating;
pub use stream::{Accepting, SecureReader, SecureStream, SecureWriter};
pub use unauthenticated::{Evicted, Unauthenticated};
