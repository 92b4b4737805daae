//! Simulated disk: after a crash, data that was not synced is there in part, by 512-byte sectors.

// The fuzzer uses less of it than the tests.
#![cfg_attr(not(test), allow(dead_code))]

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::disk::Disk;

const SECTOR: usize = 512;

#[derive(Clone, Default)]
struct Content {
    /// Contents as the system shows them.
    now: Vec<u8>,
    /// Contents guaranteed to be on the disk.
    safe: Vec<u8>,
    /// Sectors that differ.
    dirty: std::collections::BTreeSet<usize>,
}

#[derive(Clone, Default)]
struct State {
    files: Vec<Content>,
    now: BTreeMap<String, usize>,
    safe: BTreeMap<String, usize>,
    /// Operations so far, and the first one that fails, with all after it.
    done: u64,
    fails_at: Option<u64>,
    /// Reads before the one that fails.
    read_fails_in: Option<u64>,
    /// The operation fails with an error and the disk goes on, instead of crashing.
    is_error: bool,
    /// The error is a full disk.
    is_full: bool,
}

/// The disk; a clone shares its state.
#[derive(Clone, Default)]
pub(crate) struct Sim(Arc<Mutex<State>>);

impl Sim {
    /// Makes the operation with this number, and each after it, not happen.
    pub(crate) fn crash_at(&self, operation: u64) {
        let mut state = self.0.lock().unwrap();
        state.fails_at = Some(state.done + operation);
        state.is_error = false;
    }

    /// Makes the operation with this number fail; those after it succeed.
    pub(crate) fn error_at(&self, operation: u64) {
        let mut state = self.0.lock().unwrap();
        state.fails_at = Some(state.done + operation);
        state.is_error = true;
    }

    /// Makes the operation with this number, and each after it, find the disk full.
    pub(crate) fn full_at(&self, operation: u64) {
        self.crash_at(operation);
        self.0.lock().unwrap().is_full = true;
    }

    /// Makes the read with this number fail.
    pub(crate) fn read_error_at(&self, reading: u64) {
        self.0.lock().unwrap().read_fails_in = Some(reading);
    }

    pub(crate) fn done(&self) -> u64 {
        self.0.lock().unwrap().done
    }

    /// Returns the disk after a power cut: for each sector and name that was not synced, `choose` selects the old or
    /// the new state.
    pub(crate) fn after_power_cut(&self, mut choose: impl FnMut() -> bool) -> Sim {
        let state = self.0.lock().unwrap();
        let mut after = State::default();
        let mut names = state.safe.clone();
        for (name, &file) in &state.now {
            if state.safe.get(name) != Some(&file) && choose() {
                // A rename moves: the old name of the file goes with it.
                names.retain(|_, &mut other| other != file);
                names.insert(name.clone(), file);
            }
        }
        for name in state.safe.keys().filter(|&name| !state.now.contains_key(name)) {
            if choose() {
                names.remove(name);
            }
        }
        for (name, file) in names {
            let content = &state.files[file];
            let mut bytes = content.safe.clone();
            let is_longer = content.now.len() > bytes.len() && choose();
            if is_longer {
                bytes.resize(content.now.len(), 0);
            }
            for &sector in &content.dirty {
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(bytes.len()).min(content.now.len());
                if !range.is_empty() && choose() {
                    bytes[range.clone()].copy_from_slice(&content.now[range]);
                }
            }
            after.now.insert(name.clone(), after.files.len());
            after.safe.insert(name, after.files.len());
            after.files.push(Content { now: bytes.clone(), safe: bytes, dirty: Default::default() });
        }
        Sim(Arc::new(Mutex::new(after)))
    }

    /// Returns the disk as a new process sees it after this one was killed: with all writes, though not all are
    /// durable.
    pub(crate) fn after_kill(&self) -> Sim {
        let mut state = self.0.lock().unwrap().clone();
        state.fails_at = None;
        Sim(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().now.keys().cloned().collect()
    }

    /// Changes the bytes of a file.
    pub(crate) fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock().unwrap();
        let file = state.now[name];
        let content = &mut state.files[file];
        edit(&mut content.now);
        content.safe = content.now.clone();
        content.dirty.clear();
    }

    pub(crate) fn copy(&self) -> Sim {
        Sim(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    fn step<R>(&self, f: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        let mut state = self.0.lock().unwrap();
        state.done += 1;
        match state.fails_at {
            Some(at) if state.done == at || state.done > at && !state.is_error => {
                Err(if state.is_full { io::ErrorKind::StorageFull.into() } else { io::Error::other("simulated") })
            }
            _ => f(&mut state),
        }
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl State {
    fn file(&mut self, name: &str) -> io::Result<&mut Content> {
        let file = *self.now.get(name).ok_or_else(missing)?;
        Ok(&mut self.files[file])
    }
}

impl Disk for Sim {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn len(&mut self, name: &str) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().file(name)?.now.len() as u64)
    }

    fn read(&mut self, name: &str, at: u64, to: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        if let Some(left) = &mut state.read_fails_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.read_fails_in = None;
                return Err(io::Error::other("simulated"));
            }
        }
        let bytes = &state.file(name)?.now;
        let from = bytes.get(at as usize..).unwrap_or(&[]);
        let len = from.len().min(to.len());
        to[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        self.step(|state| {
            state.now.insert(name.into(), state.files.len());
            state.files.push(Content::default());
            Ok(())
        })
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.step(|state| {
            let content = state.file(name)?;
            let end = at as usize + bytes.len();
            if content.now.len() < end {
                content.now.resize(end, 0);
            }
            content.now[at as usize..end].copy_from_slice(bytes);
            content.dirty.extend(at as usize / SECTOR..end.div_ceil(SECTOR));
            Ok(())
        })
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.step(|state| {
            let content = state.file(name)?;
            content.safe = content.now.clone();
            content.dirty.clear();
            Ok(())
        })
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.step(|state| {
            let file = state.now.remove(from).ok_or_else(missing)?;
            state.now.insert(to.into(), file);
            Ok(())
        })
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.step(|state| state.now.remove(name).map(|_| ()).ok_or_else(missing))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.step(|state| {
            state.safe = state.now.clone();
            Ok(())
        })
    }

    fn path(&self) -> PathBuf {
        "sim".into()
    }
}
