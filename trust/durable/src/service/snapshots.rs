//! Snapshots that somebody waits for: names of folders, and what went wrong, cannot travel in a closure. So they stand in a table of the
//! process, by promise.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use trust::PromiseId;

use crate::error::Result;

enum Snapshot {
    Wanted(PathBuf),
    Done(Result<()>),
}

static SNAPSHOTS: Mutex<Option<HashMap<PromiseId, Snapshot>>> = Mutex::new(None);

fn put(name: PromiseId, snapshot: Snapshot) {
    let mut snapshots = SNAPSHOTS.lock().unwrap_or_else(PoisonError::into_inner);
    snapshots.get_or_insert_default().insert(name, snapshot);
}

fn take(name: PromiseId) -> Option<Snapshot> {
    SNAPSHOTS.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&name)
}

/// Says where the snapshot with this name is to go.
pub(crate) fn leave(name: PromiseId, folder: PathBuf) {
    put(name, Snapshot::Wanted(folder));
}

/// Where it is to go, if anybody waits for it in this process.
pub(super) fn wanted(name: PromiseId) -> Option<PathBuf> {
    match take(name)? {
        Snapshot::Wanted(folder) => Some(folder),
        Snapshot::Done(_) => None,
    }
}

/// It was written, or could not be.
pub(super) fn done(name: PromiseId, outcome: Result<()>) {
    put(name, Snapshot::Done(outcome));
}

/// What came of it, if anything did.
pub(crate) fn outcome(name: PromiseId) -> Option<Result<()>> {
    match take(name)? {
        Snapshot::Done(outcome) => Some(outcome),
        Snapshot::Wanted(_) => None,
    }
}
