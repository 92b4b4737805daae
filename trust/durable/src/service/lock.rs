//! Allows one open pool for each folder on a host. An opener waits while this process closes the folder.
//!
//! The lock is on the folder itself, through the descriptor that opens its files, so there is no lock file that could
//! be removed. It covers this host only, so folders on network file systems are refused.
//!
//! It is a `flock`: `fcntl` locks do not work on folders, and those of a process end when any descriptor of the file is
//! closed. A forked child has the descriptor, and with it the lock, until it executes a program. So the lock is
//! released explicitly; closing the descriptor here would leave the lock with the child.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trust::link::deadline_after;

use crate::error::{Error, Result};
use crate::files::folder::{CreatedFolder, Folder, Id};

/// Retries for a folder that another program moves while it is being opened.
const TRIES: u32 = 100;

/// The folders that this process has open, each with whether it is being closed.
static OPEN: Mutex<Option<HashMap<Id, bool>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// Longest wait for an open pool of this process: the trustee notices a dropped handle after a while.
const NOTICED: Duration = Duration::from_secs(1);

fn pools() -> MutexGuard<'static, Option<HashMap<Id, bool>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the folder at `path` with `open`, and locks it.
pub(crate) fn open_folder(path: &Path, open: fn(&Path) -> io::Result<Folder>) -> Result<(Folder, Lock)> {
    let io = |what| move |error| Error::Io { file: path.into(), offset: None, what, error };
    for _ in 0..TRIES {
        let mut folder = open(path).map_err(io("open the folder"))?;
        let lock = Lock::take(&folder).map_err(io("lock it"))?.ok_or_else(|| Error::InUse { folder: path.into() })?;
        if let Some(kind) = lock.network_file_system().map_err(io("ask for its file system"))? {
            CreatedFolder::remove(folder.take_created());
            return Err(Error::Network { folder: path.into(), kind });
        }
        // Before it was locked another program may have moved or removed it.
        if folder.is_at(path).map_err(io("look for it"))? {
            return Ok((folder, lock));
        }
    }
    Err(io("open the folder")(io::Error::other("other programs move or remove it again and again")))
}

/// The lock of a folder, until it is dropped.
pub(crate) struct Lock {
    folder: Arc<File>,
    id: Id,
}

impl Lock {
    /// Takes the lock; `None` if it is held elsewhere. Waits for a pool that is being closed.
    fn take(folder: &Folder) -> io::Result<Option<Lock>> {
        let (file, id) = (folder.file(), folder.id());
        let end = deadline_after(NOTICED);
        let mut open = pools();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            open = match open.as_ref().and_then(|open| open.get(&id)) {
                None => return Ok(None),
                Some(true) => CHANGED.wait(open).unwrap_or_else(PoisonError::into_inner),
                Some(false) => match end.checked_duration_since(Instant::now()) {
                    None => return Ok(None),
                    Some(left) => CHANGED.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0,
                },
            };
        }
        open.get_or_insert_default().insert(id, false);
        Ok(Some(Lock { folder: file, id }))
    }

    /// Returns the name of the file system if it is a network file system.
    fn network_file_system(&self) -> io::Result<Option<&'static str>> {
        // The width of `f_type` differs between architectures.
        Ok(network_file_system(rustix::fs::fstatfs(&self.folder)?.f_type as u64 & 0xffff_ffff))
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }
}

/// Names the network file system with this magic number (`linux/magic.h`), if it is one: its locks and syncs are those
/// of another host.
fn network_file_system(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x6b41_4653 | 0x5346_414f => "AFS",
        0x00c3_6400 => "Ceph",
        0x7375_7245 => "Coda",
        _ => return None,
    })
}

/// Marks the pool as closing: from here on an opener of the folder waits.
pub(crate) fn mark_closing(id: Id) {
    if let Some(closing) = pools().as_mut().and_then(|open| open.get_mut(&id)) {
        *closing = true;
    }
    CHANGED.notify_all();
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut open = pools();
        // Closing the descriptor would release it too, but only once no child has the descriptor.
        let _ = self.folder.unlock();
        if let Some(open) = open.as_mut() {
            open.remove(&self.id);
        }
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_the_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let take = || open_folder(folder.path(), Folder::there);
        let lock = take().expect("free");
        assert!(matches!(take(), Err(Error::InUse { .. })));
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "there is nothing to be removed");
        drop(lock);
        take().expect("free");
    }

    #[test]
    fn folders_that_machines_share_are_told_apart() {
        assert_eq!((network_file_system(0x6969), network_file_system(0xfe53_4d42)), (Some("NFS"), Some("SMB")));
        // ext4, tmpfs, xfs, btrfs.
        assert!(
            [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e].iter().all(|&magic| network_file_system(magic).is_none())
        );
    }
}
