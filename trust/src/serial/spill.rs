//! Buffer for the bytes of a value while it is serialised, once: few bytes in place, more in an allocation.
//!
//! A value may be serialisable only once (one that drains an iterator has nothing left the second time), so its length
//! is known after serialising, not before.

use bincode::enc::write::Writer;
use bincode::error::EncodeError;

/// Up to `N` bytes in place, or any number in an allocation.
pub(super) struct Spill<const N: usize> {
    short: [u8; N],
    /// Bytes in `short`; `N` once there are more.
    len: usize,
    long: Vec<u8>,
}

/// All bytes of a value.
pub(super) enum Written<'a> {
    Short(&'a [u8]),
    Long(&'a mut Vec<u8>),
}

impl<const N: usize> Spill<N> {
    pub(super) fn new() -> Self {
        Spill { short: [0; N], len: 0, long: Vec::new() }
    }

    pub(super) fn written(&mut self) -> Written<'_> {
        if self.long.is_empty() { Written::Short(&self.short[..self.len]) } else { Written::Long(&mut self.long) }
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.len]);
            self.len = N;
        }
        self.long.extend_from_slice(bytes);
    }
}

impl<const N: usize> Writer for Spill<N> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        match self.short[self.len..].get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.spill(bytes),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_in_order_wherever_they_go() {
        for pieces in [&[3, 5][..], &[8], &[8, 0], &[9], &[7, 2], &[8, 1, 0, 1], &[0, 20, 1], &[3, 6, 2, 1]] {
            let all: Vec<u8> = (0..pieces.iter().sum::<usize>()).map(|n| n as u8).collect();
            let (mut spill, mut rest) = (Spill::<8>::new(), &all[..]);
            for &piece in pieces {
                let (first, behind) = rest.split_at(piece);
                spill.write(first).expect("it takes any number");
                rest = behind;
            }
            match spill.written() {
                Written::Short(bytes) => assert!(bytes == all && all.len() <= 8),
                Written::Long(bytes) => assert!(*bytes == all && all.len() > 8),
            }
        }
    }
}
