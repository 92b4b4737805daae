//! Who has started the processes, as far as it is to be told of their end.

use std::sync::{Mutex, PoisonError};

use super::pmi::Pmi;
use super::pmix::Pmix;
use super::{Limit, MeetError};

/// The starter.
pub(super) enum Starter {
    /// Nobody who wants to be told.
    None,
    /// A process manager with PMI.
    Pmi(Mutex<Pmi>),
    /// A process manager with PMIx.
    Pmix(Box<Pmix>),
}

impl Starter {
    /// Machine 0 says where it is (`Some`), and everybody waits for all others; the others get what it said.
    pub(super) fn publish(&self, value: Option<&[u8]>, limit: &Limit) -> Result<Option<Vec<u8>>, MeetError> {
        match self {
            Starter::None => Ok(None),
            Starter::Pmi(pmi) => pmi.lock().unwrap_or_else(PoisonError::into_inner).exchange(value, limit),
            Starter::Pmix(pmix) => pmix.exchange(value, limit),
        }
    }

    /// This process is about to end in order.
    pub(super) fn finalize(&self) {
        match self {
            Starter::None => {}
            Starter::Pmi(pmi) => pmi.lock().unwrap_or_else(PoisonError::into_inner).finalize(),
            Starter::Pmix(pmix) => pmix.finalize(),
        }
    }

    /// All processes are to be ended, those that stand still too; this one may be among them.
    pub(super) fn abort(&self, status: u8, why: &str) {
        match self {
            Starter::None => {}
            Starter::Pmi(pmi) => pmi.lock().unwrap_or_else(PoisonError::into_inner).abort(status),
            Starter::Pmix(pmix) => pmix.abort(status, why),
        }
    }
}
