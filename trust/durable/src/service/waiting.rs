//! Clients of a pool that wait for groups, at its trustee: by number, each with a way to notify it. Nothing here sends
//! anything.
//!
//! Invariant: a client that was noted for a group is notified once that is durable, or the pool lost. It is noted
//! with each answer that depends on a later group than before, so one message covers all of them. Checked by loom:
//! `model.rs`.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::hash::ByNumber;

/// A client, notified through `subscriber`.
struct Client<E> {
    subscriber: E,
    /// The last group that it was noted for.
    noted: u64,
}

/// Queue of waiting clients.
pub(super) struct Waiting<E> {
    clients: HashMap<u64, Client<E>, ByNumber>,
    /// Groups and clients, in the order of groups.
    queue: VecDeque<(u64, u64)>,
    /// The last one of the queue, as long as its client is noted for this group: most answers are like the one before.
    last: (u64, u64),
    /// Number of clients at which clients with ended threads are searched for.
    sweep_at: usize,
}

/// Least number of clients for a search.
const SWEEP_MIN: usize = 64;

impl<E: Clone> Waiting<E> {
    pub(super) fn new() -> Self {
        Waiting { clients: HashMap::default(), queue: VecDeque::new(), last: (0, 0), sweep_at: SWEEP_MIN }
    }

    pub(super) fn register(&mut self, client: u64, subscriber: E) {
        self.last = (0, 0);
        self.clients.insert(client, Client { subscriber, noted: 0 });
    }

    /// Notes that the client waits for the group; group 0 is always durable.
    #[inline]
    pub(super) fn note(&mut self, mark: u64, client: u64) {
        if self.last == (mark, client) {
            return;
        }
        if let Some(found) = self.clients.get_mut(&client).filter(|found| found.noted < mark) {
            found.noted = mark;
            self.last = (mark, client);
            self.queue.push_back((mark, client));
        }
    }

    /// Returns the clients to notify, each once, as all groups up to `limit` are decided.
    pub(super) fn take(&mut self, limit: u64) -> Vec<(u64, E)> {
        self.last = (0, 0);
        let mut due: Vec<(u64, E)> = Vec::new();
        let mut seen = HashSet::<u64, ByNumber>::default();
        while let Some(&(mark, client)) = self.queue.front().filter(|(mark, _)| *mark <= limit) {
            self.queue.pop_front();
            if let Some(found) = self.clients.get_mut(&client) {
                // It may be noted for the same group again, with another answer.
                if found.noted == mark {
                    found.noted = 0;
                }
                if seen.insert(client) {
                    due.push((client, found.subscriber.clone()));
                }
            }
        }
        due
    }

    /// Removes a client with an ended thread.
    pub(super) fn remove(&mut self, client: u64) {
        self.last = (0, 0);
        self.clients.remove(&client);
        self.sweep_at = SWEEP_MIN.max(2 * self.clients.len());
    }

    /// Returns all clients, if they are twice as many as after the last time: each gets a message, and is removed if it
    /// is gone.
    pub(super) fn take_to_sweep(&mut self) -> Vec<(u64, E)> {
        if self.clients.len() < self.sweep_at {
            return Vec::new();
        }
        self.sweep_at = 2 * self.clients.len();
        self.clients.iter().map(|(&client, found)| (client, found.subscriber.clone())).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Removes and returns all clients, also those that wait for nothing, at the end of the pool.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = E> {
        self.clients.drain().map(|(_, client)| client.subscriber)
    }
}
