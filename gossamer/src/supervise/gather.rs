//! Exchange of endpoints: each machine of a program sends its launcher an endpoint, and gets the endpoints of all
//! others and the program's key. The launcher gathers; it looks inside no endpoint.

use comm::secure::Key;

use crate::control::Message;

/// Endpoints that have come so far.
#[derive(Debug)]
pub struct Gather {
    key: Key,
    endpoints: Vec<Option<Vec<u8>>>,
}

impl Gather {
    /// Makes the exchange for a program of so many machines that will share this key.
    #[must_use]
    pub fn new(machines: u16, key: Key) -> Gather {
        Gather { key, endpoints: vec![None; usize::from(machines)] }
    }

    /// Adds a machine's endpoint; true if it was the last.
    ///
    /// # Errors
    /// If there is no such machine, or it has sent its endpoint before; in words.
    pub fn add(&mut self, machine: u16, endpoint: Vec<u8>) -> Result<bool, String> {
        match self.endpoints.get_mut(usize::from(machine)) {
            Some(place @ None) => *place = Some(endpoint),
            Some(Some(_)) => return Err("it gave a second endpoint".to_owned()),
            None => return Err(format!("there is no machine {machine}")),
        }
        Ok(self.endpoints.iter().all(Option::is_some))
    }

    /// Iterates over the machines without an endpoint so far.
    pub fn missing(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.endpoints).filter(|(_, endpoint)| endpoint.is_none()).map(|(machine, _)| machine)
    }

    /// Iterates over the endpoints that have come, each with its machine.
    pub fn endpoints(&self) -> impl Iterator<Item = (u16, &[u8])> {
        (0u16..).zip(&self.endpoints).filter_map(|(machine, endpoint)| Some((machine, endpoint.as_deref()?)))
    }

    /// Returns the key, for every machine.
    #[must_use]
    pub fn secret(&self) -> Message {
        Message::Secret { key: self.key.clone() }
    }

    /// Returns the endpoint of a machine, for all others, if it has come. Passing each on at once lets every machine
    /// report which others are missing.
    #[must_use]
    pub fn peer(&self, machine: u16) -> Option<Message> {
        let endpoint = self.endpoints.get(usize::from(machine))?.clone()?;
        Some(Message::Peer { machine, endpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_gets_the_key_and_the_endpoints_of_the_others() {
        let key = Key::from_bytes([3; 32]);
        let mut gather = Gather::new(3, key.clone());
        assert_eq!(gather.add(2, vec![2]), Ok(false));
        assert_eq!(gather.add(0, vec![]), Ok(false));
        assert_eq!(gather.missing().collect::<Vec<_>>(), [1]);
        assert!(gather.add(2, vec![9]).unwrap_err().contains("second endpoint"));
        assert!(gather.add(3, vec![9]).unwrap_err().contains("no machine 3"));
        assert_eq!(gather.add(1, vec![1]), Ok(true));
        assert_eq!(gather.secret(), Message::Secret { key });
        assert_eq!(gather.peer(2), Some(Message::Peer { machine: 2, endpoint: vec![2] }));
        assert_eq!(gather.peer(3), None);
        assert_eq!(
            gather.endpoints().map(|(machine, endpoint)| (machine, endpoint.len())).collect::<Vec<_>>(),
            [(0, 0), (1, 1), (2, 1)]
        );
    }
}
