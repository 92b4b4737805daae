//! The key file of a daemon. It is read anew for each connection, so that a changed file counts at once: no daemon is
//! restarted for a new key, and no program ends. Connections that were made stay.
//!
//! Invariant: a file that cannot be used, or that is being written, changes nothing: the keys read last stay valid, and
//! the trouble is logged and told to `gossamer-launch check`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use comm::secure::Keys;

/// Trouble of a host in the middle of a change of keys.
pub const BOTH_KEYS: &str = "the old key is valid as well as the new one: once all hosts and users have the new one, \
                             `gossamer-launch key finish`, and copy the key file again";

/// The key file, and the keys read last.
pub struct KeyFile {
    path: PathBuf,
    /// Users who may own it.
    owners: [u32; 3],
    state: Mutex<State>,
}

struct State {
    keys: Keys,
    /// Reason why the file could not be used the last time.
    trouble: Option<String>,
}

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// Same as [`Keys::read_of`].
    pub fn open(path: &Path, owners: [u32; 3]) -> Result<KeyFile, comm::Error> {
        let keys = Keys::read_of(path, |owner| owners.contains(&owner))?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(KeyFile { path, owners, state: Mutex::new(State { keys, trouble: None }) })
    }

    /// Goes on with the keys of a former daemon, which stay valid where the file cannot be used just now.
    pub fn resume(path: &Path, owners: [u32; 3], keys: Keys) -> KeyFile {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        KeyFile { path, owners, state: Mutex::new(State { keys, trouble: None }) }
    }

    /// Returns the keys read last.
    pub fn last(&self) -> Keys {
        self.state().keys.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys in the file, or those read last where it cannot be used.
    pub fn keys(&self) -> Keys {
        // Without the lock: it may take long.
        let read = Keys::read_of(&self.path, |owner| self.owners.contains(&owner));
        let mut state = self.state();
        match read {
            Ok(keys) => {
                if keys != state.keys || state.trouble.is_some() {
                    let count = 1 + usize::from(keys.old().is_some());
                    tracing::info!(keys = count, "the key file was read anew");
                }
                *state = State { keys: keys.clone(), trouble: None };
                keys
            }
            Err(error) => {
                let trouble = error.to_string();
                if state.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(trouble, "the key file cannot be used: the keys read before stay valid");
                    state.trouble = Some(trouble);
                }
                state.keys.clone()
            }
        }
    }

    /// Returns the reason why the keys in use are not the wanted ones, with the cure.
    pub fn trouble(&self) -> Option<String> {
        let state = self.state();
        match (&state.trouble, state.keys.old()) {
            (Some(trouble), _) => Some(format!("{trouble}; until then the keys read before stay valid")),
            (None, Some(_)) => Some(BOTH_KEYS.to_owned()),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comm::secure::Key;

    #[test]
    fn a_changed_file_counts_at_once_and_a_broken_one_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rack.key");
        let own = rustix::process::geteuid().as_raw();
        assert!(KeyFile::open(&path, [own; 3]).is_err(), "there is none");
        let first = Keys::from(Key::generate().unwrap());
        first.current().write_new(&path).unwrap();
        assert!(KeyFile::open(&path, [own.wrapping_add(1); 3]).is_err(), "another user's");
        let file = KeyFile::open(&path, [own; 3]).unwrap();
        assert!(file.keys() == first && file.trouble().is_none());

        let both = first.rotated().unwrap();
        both.replace(&path).unwrap();
        assert!(file.keys() == both && file.trouble().unwrap().contains("key finish"));
        // As a copy is written: cut to nothing, then in pieces.
        let text = both.without_old().to_text();
        for written in [0, 10, text.len() - 2] {
            std::fs::write(&path, &text[..written]).unwrap();
            assert!(file.keys() == both, "{written}");
            assert!(file.trouble().unwrap().contains("it holds no key"), "{written}");
        }
        std::fs::write(&path, text.as_bytes()).unwrap();
        assert!(file.keys() == both.without_old() && file.trouble().is_none());
        std::fs::remove_file(&path).unwrap();
        assert!(file.keys() == both.without_old() && file.trouble().unwrap().contains("there is no such file"));
    }
}
