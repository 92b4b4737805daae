//! What the machines of a program must know of one another: each gives its launcher an endpoint, and gets the
//! endpoints of all others and the program's key. Whoever starts the program gathers; it looks inside no endpoint.

use comm::secure::Key;

use crate::control::Message;

/// The endpoints that have come so far.
#[derive(Debug)]
pub struct Gather {
    key: Key,
    endpoints: Vec<Option<Vec<u8>>>,
}

impl Gather {
    /// For a program of so many machines that will share this key.
    #[must_use]
    pub fn new(machines: u16, key: Key) -> Gather {
        Gather { key, endpoints: vec![None; usize::from(machines)] }
    }

    /// Takes a machine's endpoint; true when it was the last.
    ///
    /// # Errors
    /// When there is no such machine, or it has given its endpoint before; in words.
    pub fn add(&mut self, machine: u16, endpoint: Vec<u8>) -> Result<bool, String> {
        match self.endpoints.get_mut(usize::from(machine)) {
            Some(place @ None) => *place = Some(endpoint),
            Some(Some(_)) => return Err("it gave a second endpoint".to_owned()),
            None => return Err(format!("there is no machine {machine}")),
        }
        Ok(self.endpoints.iter().all(Option::is_some))
    }

    /// Machines whose endpoints have not come.
    pub fn missing(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.endpoints).filter(|(_, endpoint)| endpoint.is_none()).map(|(machine, _)| machine)
    }

    /// The endpoints that have come, each with its machine.
    pub fn endpoints(&self) -> impl Iterator<Item = (u16, &[u8])> {
        (0u16..).zip(&self.endpoints).filter_map(|(machine, endpoint)| Some((machine, endpoint.as_deref()?)))
    }

    /// The key, for every machine.
    #[must_use]
    pub fn secret(&self) -> Message {
        Message::Secret { key: self.key.clone() }
    }

    /// The endpoint of a machine, for all others, if it has come. To pass each on at once lets every machine say of
    /// which others it has heard nothing.
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
