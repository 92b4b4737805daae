//! Requests under way at their clients and trustees, each checked.
//!
//! Invariant: an error of these functions is a fault of the scheme that is simulated.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use gossamer_ways::Peer;

use crate::costs::{FRAME_HEAD_BYTES, REQUEST_BYTES};

/// Hash table that is the same in every run.
pub type Table<K, V> = HashMap<K, V, FixedState>;

/// Some requests of a pair one behind the other, or their answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub is_answer: bool,
    /// Number of the first, from 0.
    pub first: u32,
    pub count: u32,
}

impl Batch {
    /// Bytes of its frame.
    pub fn bytes(self) -> usize {
        FRAME_HEAD_BYTES + self.count as usize * REQUEST_BYTES
    }
}

/// A trustee at its client.
#[derive(Debug, Default)]
struct Trustee {
    /// Requests answered, and those of them in the batch under way.
    answered: u32,
    under_way: u32,
    /// Times of those that are not answered.
    issued_ns: VecDeque<u64>,
    is_ready: bool,
}

/// All that a worker has asked of others, and has done for them.
#[derive(Debug, Default)]
pub struct Ledger {
    trustees: Table<Peer, Trustee>,
    /// Requests served, by client.
    served: Table<Peer, u32>,
    /// Trustees for which a batch can leave.
    ready: Vec<Peer>,
    pub answered: u64,
    pub outstanding: u32,
}

impl Ledger {
    /// Adds a request. It leaves with the next batch.
    pub fn issue(&mut self, to: Peer, now_ns: u64) {
        let trustee = self.trustees.entry(to).or_default();
        trustee.issued_ns.push_back(now_ns);
        self.outstanding += 1;
        if trustee.under_way == 0 && !trustee.is_ready {
            trustee.is_ready = true;
            self.ready.push(to);
        }
    }

    /// Takes the trustees for which a batch can leave: there are requests, and none under way.
    pub fn take_ready(&mut self) -> Vec<Peer> {
        std::mem::take(&mut self.ready)
    }

    /// Takes the next batch for a trustee that is ready: all there is.
    pub fn next_batch(&mut self, to: Peer) -> Batch {
        let trustee = self.trustees.entry(to).or_default();
        (trustee.under_way, trustee.is_ready) = (trustee.issued_ns.len() as u32, false);
        Batch { is_answer: false, first: trustee.answered, count: trustee.under_way }
    }

    /// Serves a batch of a client and returns the answer.
    pub fn serve(&mut self, from: Peer, batch: Batch) -> Result<Batch, String> {
        let served = self.served.entry(from).or_default();
        if batch.first != *served {
            return Err(format!("request {} of {from:?} where {served} was to come", batch.first));
        }
        *served += batch.count;
        Ok(Batch { is_answer: true, ..batch })
    }

    /// Takes the answers to a batch, and appends their latencies.
    pub fn collect(&mut self, from: Peer, batch: Batch, now_ns: u64, latencies: &mut Vec<u32>) -> Result<(), String> {
        let trustee =
            self.trustees.get_mut(&from).ok_or_else(|| format!("an answer of {from:?}, who was not asked"))?;
        if (batch.first, batch.count) != (trustee.answered, trustee.under_way) {
            return Err(format!("{batch:?} of {from:?} where {} from {} are due", trustee.under_way, trustee.answered));
        }
        let issued = trustee.issued_ns.drain(..batch.count as usize);
        latencies.extend(issued.map(|issued_ns| u32::try_from(now_ns.saturating_sub(issued_ns)).unwrap_or(u32::MAX)));
        trustee.answered += batch.count;
        trustee.under_way = 0;
        self.answered += u64::from(batch.count);
        self.outstanding -= batch.count;
        if !trustee.issued_ns.is_empty() && !trustee.is_ready {
            trustee.is_ready = true;
            self.ready.push(from);
        }
        Ok(())
    }

    /// Number of workers with which there was any traffic.
    pub fn known(&self) -> usize {
        self.trustees.keys().chain(self.served.keys().filter(|peer| !self.trustees.contains_key(peer))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { machine: 1, worker: 0 };

    fn asked(count: u32) -> (Ledger, Batch) {
        let mut ledger = Ledger::default();
        (0..count).for_each(|_| ledger.issue(PEER, 100));
        assert_eq!(ledger.take_ready(), [PEER]);
        let batch = ledger.next_batch(PEER);
        (ledger, batch)
    }

    #[test]
    fn answers_come_once_and_as_asked() {
        let (mut client, batch) = asked(3);
        let mut trustee = Ledger::default();
        let answer = trustee.serve(PEER, batch).unwrap();
        assert!(trustee.serve(PEER, batch).is_err(), "the same requests again");
        let mut latencies = Vec::new();
        assert!(client.collect(PEER, Batch { first: 1, ..answer }, 150, &mut latencies).is_err());
        assert!(client.collect(PEER, Batch { count: 2, ..answer }, 150, &mut latencies).is_err());
        client.collect(PEER, answer, 150, &mut latencies).unwrap();
        assert_eq!((latencies.as_slice(), client.answered, client.outstanding), (&[50; 3][..], 3, 0));
        assert!(client.collect(PEER, answer, 150, &mut latencies).is_err(), "an answer again");
    }

    #[test]
    fn a_batch_waits_for_the_one_under_way() {
        let (mut client, batch) = asked(2);
        client.issue(PEER, 120);
        assert_eq!(client.take_ready(), []);
        client.collect(PEER, Batch { is_answer: true, ..batch }, 130, &mut Vec::new()).unwrap();
        assert_eq!(client.take_ready(), [PEER]);
        assert_eq!(client.next_batch(PEER), Batch { is_answer: false, first: 2, count: 1 });
    }
}
