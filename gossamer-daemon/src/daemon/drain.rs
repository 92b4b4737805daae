//! A drained host takes no new programs, neither those that wait for room, and lets those that run go on: for the
//! administrator who is to work on it (`gossamer-launch drain`, `resume`).

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether this host is drained.
#[derive(Default)]
pub(super) struct Drain(Mutex<Option<String>>);

impl Drain {
    fn state(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the user and host that drained it; `None`: it takes programs.
    pub(super) fn by(&self) -> Option<String> {
        self.state().clone()
    }

    /// Goes on as a former daemon.
    pub(super) fn resume(&self, by: Option<String>) {
        *self.state() = by;
    }

    /// Has it take no programs, by order of this user, or take them again. The first one stays named.
    pub(super) fn set(&self, by: Option<String>) {
        let mut state = self.state();
        *state = by.map(|by| state.take().unwrap_or(by));
    }

    /// Checks that the host, of this name, takes programs.
    ///
    /// # Errors
    /// A text with the cure.
    pub(super) fn check(&self, host: &str) -> Result<(), String> {
        self.by().map_or(Ok(()), |by| Err(in_words(host, &by)))
    }
}

/// Returns the message of a host that is drained.
pub(crate) fn in_words(host: &str, by: &str) -> String {
    format!(
        "it was drained by {by} and takes no new programs: `run --any` leaves it out, and `gossamer-launch resume \
         {host}` has it take them again"
    )
}
