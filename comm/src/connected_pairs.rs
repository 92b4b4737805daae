//! Record of the connections that a fabric has made: one for each peer and worker.

use crate::error::Error;
use crate::ids::{MachineId, WorkerId};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Connections that a fabric has given out.
#[derive(Debug, Default)]
pub(crate) struct ConnectedPairs(Mutex<HashSet<(MachineId, WorkerId)>>);

impl ConnectedPairs {
    /// Notes the connection of `worker` to `peer`.
    ///
    /// # Errors
    /// [`Error::AlreadyConnected`].
    pub(crate) fn insert(&self, peer: MachineId, worker: WorkerId) -> Result<(), Error> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((peer, worker)) {
            true => Ok(()),
            false => Err(Error::AlreadyConnected { machine: peer, worker }),
        }
    }
}
