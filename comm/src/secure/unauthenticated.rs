//! Limit on unauthenticated connections: the rule of a listener, be it a daemon or a machine of a program.
//! Not here: the connections themselves, and authenticated ones.
//!
//! A new connection is always accepted; beyond the limit, the oldest connection of the address with the most
//! connections is closed. So waiting keeps no place, a flood from one address displaces its own connections,
//! and a peer with the key, whose handshake takes a moment, gets in. A peer at the address of the flood may
//! be closed too: it connects again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Unauthenticated connections of a listener. The caller numbers connections, in ascending order.
#[derive(Debug, Default)]
pub struct Unauthenticated {
    addresses: BTreeMap<u64, IpAddr>,
    /// The same numbers by address.
    numbers: BTreeMap<IpAddr, BTreeSet<u64>>,
}

/// A connection that has to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    /// Its number.
    pub number: u64,
    /// Its address; for IPv6 the network.
    pub address: IpAddr,
}

impl Unauthenticated {
    /// Adds a connection.
    pub fn insert(&mut self, number: u64, address: IpAddr) {
        self.remove(number);
        let address = network(address);
        self.addresses.insert(number, address);
        self.numbers.entry(address).or_default().insert(number);
    }

    /// Removes a connection that has authenticated or ended. False when it was evicted before.
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

    /// Evicts one connection if there are more than `most`: the oldest of the address with the most connections.
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

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// Returns the part of an address that one stranger cannot vary at will: for IPv6 the first half.
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
            // One stranger, with another address of the same network each time.
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
