//! Which connections may stay whose other side has not shown the key yet: the rule of whoever listens, be it a daemon
//! or a machine of a program. Not here: the connections themselves, and those that have shown it.
//!
//! A new one is always let in; where that makes too many, the oldest of the address that has the most has to go. So
//! nobody holds a place by waiting, whoever floods a port shuts out himself, and a peer with the key, whose handshake
//! takes a moment, gets in. A peer at the address of the flood may have to go too: it connects again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// See the file. Numbers of connections are the caller's; they rise with each.
#[derive(Debug, Default)]
pub struct Unauthenticated {
    addresses: BTreeMap<u64, IpAddr>,
    /// The same by address.
    numbers: BTreeMap<IpAddr, BTreeSet<u64>>,
}

/// A connection that has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    /// Its number.
    pub number: u64,
    /// Where it came from; of IPv6 the network.
    pub address: IpAddr,
}

impl Unauthenticated {
    /// Lets one in.
    pub fn insert(&mut self, number: u64, address: IpAddr) {
        self.remove(number);
        let address = network(address);
        self.addresses.insert(number, address);
        self.numbers.entry(address).or_default().insert(number);
    }

    /// It has shown the key, or is gone. False when it is not here: it had to go before.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some(address) = self.addresses.remove(&number) else { return false };
        if let Some(numbers) = self.numbers.get_mut(&address) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.numbers.remove(&address);
            }
        }
        true
    }

    /// Takes one out if there are more than `most`: of whoever has the most, the oldest.
    pub fn evict_beyond(&mut self, most: usize) -> Option<Evicted> {
        if self.addresses.len() <= most {
            return None;
        }
        let by_number =
            self.numbers.iter().filter_map(|(address, numbers)| Some((numbers, *numbers.first()?, *address)));
        let (_, number, address) =
            by_number.max_by_key(|(numbers, oldest, _)| (numbers.len(), std::cmp::Reverse(*oldest)))?;
        self.remove(number);
        Some(Evicted { number, address })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// What one stranger may have as many addresses of as he likes: of IPv6 the first half.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_flood_shuts_out_itself() {
        let mut all = Unauthenticated::default();
        all.insert(0, address("192.0.2.1"));
        for number in 1..50 {
            // One stranger, with another address of his network each time.
            all.insert(number, (0x2001_0db8_u128 << 96 | u128::from(number)).to_be_bytes().into());
            let expected = Evicted { number: number.saturating_sub(2), address: address("2001:db8::") };
            assert_eq!(all.evict_beyond(3), (number >= 3).then_some(expected), "{number}");
        }
        assert!(all.remove(0), "the peer is in");
        assert!(!all.remove(1), "the oldest had to go");
        assert_eq!((all.len(), all.is_empty()), (2, false));
    }

    #[test]
    fn among_equals_the_oldest_goes() {
        let mut all = Unauthenticated::default();
        let addresses = ["192.0.2.7", "192.0.2.1", "::ffff:192.0.2.9"].map(address);
        (0..).zip(addresses).for_each(|(number, address)| all.insert(number, address));
        let gone: Vec<Evicted> = std::iter::from_fn(|| all.evict_beyond(0)).collect();
        let expected = [(0, "192.0.2.7"), (1, "192.0.2.1"), (2, "192.0.2.9")];
        assert_eq!(gone, expected.map(|(number, text)| Evicted { number, address: address(text) }));
        assert!(all.is_empty() && all.numbers.is_empty());
    }
}
