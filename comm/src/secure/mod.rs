//! Connections that only holders of a key can make: `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s` over TCP, by the
//! crate `snow`.
//!
//! Here: [`Key`], [`Keys`] and their file, [`SecureStream`] and its halves. Beside it, all without sockets: `handshake`
//! (authentication), `proof` (authentication of further connections, without encryption), `frame` (the bytes
//! after that), `unauthenticated` (limit on connections before that). Not here: listeners, and the content of
//! messages.
//!
//! Guarantees: each side knows that the other has the same key and is live (not a recording), that both mean
//! the same *purpose* (so that a connection for one purpose serves no other), and that nothing was read,
//! changed, left out or inserted. Past traffic stays secret if the key leaks later, since each connection has
//! its own ephemeral keys. Not hidden: the existence of a connection, the purpose and the claim, and the
//! amount and time of traffic. The end of a stream is not authentic: a protocol over it has its own message
//! for that.
//!
//! All key holders are equal: any user that can read the file can do everything that the others can.

mod cipher;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
pub(crate) mod handshake;
mod key;
mod keys;
pub(crate) mod proof;
mod stream;
mod unauthenticated;

pub use handshake::{ANSWER_BYTES_MAX, CLAIM_BYTES_MAX};
pub use key::{KEY_BYTES, Key};
pub use keys::Keys;
pub(crate) use stream::Initiating;
pub use stream::{Accepting, SecureReader, SecureStream, SecureWriter};
pub use unauthenticated::{Evicted, Unauthenticated};
