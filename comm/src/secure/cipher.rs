//! One direction of a session after its handshake: a key, and what it seals and opens. Messages are numbered by their
//! users.
//!
//! `snow`'s own session state keeps its keys; here they can be read, so that a connection can go on in another process
//! ([`SecureStream::resume`](super::SecureStream::resume)).

use super::key::{KEY_BYTES, Key};
use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Cipher;

/// Bytes by which a sealed message is longer.
pub(super) const SEAL_BYTES: usize = 16;

/// Key and cipher of a direction.
pub(super) struct Direction {
    key: Key,
    cipher: Box<dyn Cipher>,
}

impl Direction {
    pub(super) fn new(key: [u8; KEY_BYTES]) -> Option<Direction> {
        let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly)?;
        cipher.set(&key);
        Some(Direction { key: Key::from_bytes(key), cipher })
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Seals message `number` into `out`, which has to have room for it, and returns the length; `None` after 2^64 - 1
    /// messages, and where it does not fit.
    pub(super) fn seal(&self, number: u64, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let fits = out.len() >= plain.len() + SEAL_BYTES && number < u64::MAX;
        fits.then(|| self.cipher.encrypt(number, &[], plain, out))
    }

    /// Opens message `number` into `out`, and returns the length; `None` where it is not the one that was sealed, or
    /// does not fit.
    pub(super) fn open(&self, number: u64, sealed: &[u8], out: &mut [u8]) -> Option<usize> {
        let plain_bytes = sealed.len().checked_sub(SEAL_BYTES)?;
        if plain_bytes > out.len() || number == u64::MAX {
            return None;
        }
        self.cipher.decrypt(number, &[], sealed, out).ok()
    }
}
