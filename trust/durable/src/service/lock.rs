//! One pool a folder, among all processes of this machine; and waiting for one that this process is closing.
//!
//! The lock is on the folder itself, by the descriptor that its files are opened by: no file to be removed under it. It
//! is of this machine alone, so folders on file systems that several machines share are refused.
//!
//! It is a `flock`: locks of `fcntl` are not for folders, and those of a process end when any descriptor of the folder
//! is closed. A child that was forked has the descriptor until it executes a program, and with it the lock. So the lock
//! is let go of outright; closing the descriptor here would leave the lock with the child.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::files::folder::{Folder, Id, Made};

/// So often a folder is looked for again that another program moved while it was being opened.
const TRIES: u32 = 100;

/// The folders that this process has open; is it closing them?
static OPEN: Mutex<Option<HashMap<Id, bool>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// A handle that was dropped is noticed by its trustee after a while: so long an open pool of this process is waited
/// for.
const NOTICED: Duration = Duration::from_secs(1);

fn pools() -> MutexGuard<'static, Option<HashMap<Id, bool>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder at `path` by way of `open`, with its lock.
pub(crate) fn open_folder(path: &Path, open: fn(&Path) -> io::Result<Folder>) -> Result<(Folder, Lock)> {
    let io = |what| move |source| Error::Io { file: path.into(), offset: None, what, source };
    for _ in 0..TRIES {
        let mut folder = open(path).map_err(io("open the folder"))?;
        let lock = Lock::take(&folder).map_err(io("lock it"))?.ok_or_else(|| Error::InUse { folder: path.into() })?;
        if let Some(kind) = lock.shared().map_err(io("ask for its file system"))? {
            Made::remove(folder.take_made());
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
    /// `None` if another one has it. Waits for one that is being closed.
    fn take(folder: &Folder) -> io::Result<Option<Lock>> {
        let (file, id) = (folder.file(), folder.id());
        let end = Instant::now() + NOTICED;
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

    /// The file system that several machines share, if the folder is on one.
    fn shared(&self) -> io::Result<Option<&'static str>> {
        // Its type is of another width on other machines.
        Ok(shared(rustix::fs::fstatfs(&self.folder)?.f_type as u64 & 0xffff_ffff))
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }
}

/// The name of a file system whose locks and syncs are another machine's affair, by its magic number (`linux/magic.h`).
fn shared(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x6b41_4653 | 0x5346_414f => "AFS",
        0x00c3_6400 => "Ceph",
        0x7375_7245 => "Coda",
        _ => return None,
    })
}

/// From here on who opens the folder waits.
pub(crate) fn is_closing(id: Id) {
    if let Some(closing) = pools().as_mut().and_then(|open| open.get_mut(&id)) {
        *closing = true;
    }
    CHANGED.notify_all();
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut open = pools();
        // Closing does it otherwise, as soon as no child has the descriptor.
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
        assert_eq!((shared(0x6969), shared(0xfe53_4d42)), (Some("NFS"), Some("SMB")));
        // ext4, tmpfs, xfs, btrfs.
        assert!([0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e].iter().all(|&magic| shared(magic).is_none()));
    }
}
