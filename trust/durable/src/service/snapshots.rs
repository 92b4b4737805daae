//! Snapshots with a waiter. Folder names and errors cannot travel in a closure, so they are in a table of the process,
//! by promise id.
//!
//! A snapshot is written by a thread of its own: it may wait for a folder that another pool, or its own, is closing,
//! and no disk thread may wait for that.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

use trust::{Promise, PromiseId};

use super::lock::open_folder;
use crate::error::{Error, Result};
use crate::files::folder::{CreatedFolder, Folder};
use crate::files::named::Files;
use crate::files::recover;
use crate::files::store::{Identity, Store};

enum Snapshot {
    Wanted(PathBuf),
    /// A thread is writing it.
    Begun,
    Done(Result<()>),
}

static SNAPSHOTS: Mutex<Option<HashMap<PromiseId, Snapshot>>> = Mutex::new(None);

fn with_table<R>(f: impl FnOnce(&mut HashMap<PromiseId, Snapshot>) -> R) -> R {
    f(SNAPSHOTS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Waiter for a snapshot. If it is dropped, a snapshot that was not begun is not made.
pub(crate) struct Awaited(PromiseId);

/// Registers the target folder of the snapshot with this promise id.
pub(crate) fn leave(name: PromiseId, folder: PathBuf) -> Awaited {
    with_table(|table| table.insert(name, Snapshot::Wanted(folder)));
    Awaited(name)
}

impl Awaited {
    /// Returns the outcome of the snapshot, if it was made.
    pub(crate) fn outcome(self) -> Option<Result<()>> {
        match with_table(|table| table.remove(&self.0))? {
            Snapshot::Done(outcome) => Some(outcome),
            Snapshot::Wanted(_) | Snapshot::Begun => None,
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        drop(with_table(|table| table.remove(&self.0)));
    }
}

/// Returns the target folder, if there is a waiter in this process.
fn begin(name: PromiseId) -> Option<PathBuf> {
    with_table(|table| match table.get_mut(&name) {
        Some(snapshot @ Snapshot::Wanted(_)) => match std::mem::replace(snapshot, Snapshot::Begun) {
            Snapshot::Wanted(folder) => Some(folder),
            Snapshot::Begun | Snapshot::Done(_) => None,
        },
        _ => None,
    })
}

/// Stores the outcome.
fn done(name: PromiseId, outcome: Result<()>) {
    with_table(|table| {
        if let Some(snapshot) = table.get_mut(&name) {
            *snapshot = Snapshot::Done(outcome);
        }
    });
}

/// Creates a pool, and checks that its folder was not moved meanwhile.
fn create(files: Files, identity: Identity, bytes: &[u8]) -> Result<()> {
    let mut store = Store::create(files, identity, bytes)?;
    match store.files.0.moved() {
        None => Ok(()),
        Some((file, _)) => Err(Error::Removed { file }),
    }
}

/// Starts writing a pool with this identity and memory to the folder registered under the promise's id.
pub(super) fn start(promise: Promise<bool>, identity: Result<Identity>, bytes: Vec<u8>) {
    let Some(folder) = begin(promise.id()) else { return };
    let (gives, takes) = channel::<(Promise<bool>, Result<Identity>)>();
    let path = folder.clone();
    let started = thread::Builder::new().name("durable-snapshot".into()).spawn(move || {
        if let Ok((promise, identity)) = takes.recv() {
            finish(promise, identity.and_then(|identity| write(&path, identity, &bytes)));
        }
    });
    match started {
        // A thread that has ended drops the promise, which notifies the waiter.
        Ok(_) => drop(gives.send((promise, identity))),
        Err(error) => finish(promise, Err(Error::Io { file: folder, offset: None, what: "start its thread", error })),
    }
}

fn finish(promise: Promise<bool>, written: Result<()>) {
    let is_written = written.is_ok();
    done(promise.id(), written);
    promise.keep(is_written);
}

/// Writes a pool into a folder. If that fails, the files made there are removed.
fn write(path: &Path, identity: Identity, bytes: &[u8]) -> Result<()> {
    let (mut folder, _lock) = open_folder(path, Folder::open)?;
    let (created, again) = (folder.take_created(), folder.again());
    let mut files = Files::of(folder);
    let expected = recover::expect_empty(&mut files);
    let is_empty = expected.is_ok();
    let written = expected.and_then(|()| create(files, identity, bytes));
    if written.is_err() {
        if is_empty {
            recover::remove_ours(&mut Files::of(again));
        }
        CreatedFolder::remove(created);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_no_more_leaves_nothing_behind() {
        let (one, two) = (trust::promise::<bool>().0, trust::promise::<bool>().0);
        drop(leave(one.id(), "a".into()));
        assert_eq!(begin(one.id()), None, "it is not made");
        let awaited = leave(two.id(), "b".into());
        assert_eq!((begin(two.id()), begin(two.id())), (Some("b".into()), None));
        drop(awaited);
        done(two.id(), Ok(()));
        assert!(with_table(|table| [&one, &two].iter().all(|promise| !table.contains_key(&promise.id()))));
        let awaited = leave(one.id(), "a".into());
        assert!(begin(one.id()).is_some());
        done(one.id(), Ok(()));
        assert!(matches!(awaited.outcome(), Some(Ok(()))));
    }

    #[test]
    fn a_snapshot_whose_folder_was_moved_is_none() {
        let there = tempfile::tempdir().expect("a folder");
        let (path, moved) = (there.path().join("copy"), there.path().join("moved"));
        let identity = || Identity { pool: 1, seed: 1, layout: "null".into() };
        let files = Files::of(Folder::open(&path).expect("it is made"));
        std::fs::rename(&path, &moved).expect("it works");
        std::fs::create_dir(&path).expect("it works");
        assert!(matches!(create(files, identity(), b"memory"), Err(Error::Removed { .. })));
        assert_eq!(std::fs::read_dir(&path).expect("there").count(), 0, "nothing goes to another folder");
        write(&path, identity(), b"memory").expect("it works");
    }
}
