//! A folder of the operating system.
//!
//! Invariant: a path is resolved once, when the folder is opened. From there on every operation goes by the folder's
//! descriptor, because its name may become another folder's, of another pool, at any time.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::disk::Disk;
use super::format::PAGE;

/// Identity of a file or folder on this machine: device and inode.
pub(crate) type Id = (u64, u64);

pub(crate) fn id_of(file: &File) -> io::Result<Id> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

fn open_at(folder: impl AsFd, name: impl Arg, flags: OFlags) -> rustix::io::Result<File> {
    rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666)).map(File::from)
}

fn folder_at(folder: impl AsFd, name: impl Arg) -> rustix::io::Result<File> {
    open_at(folder, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// A folder that was created: the folder that contains its name, and the name.
pub(crate) struct CreatedFolder(File, OsString);

impl CreatedFolder {
    /// Removes the empty ones, the innermost first.
    pub(crate) fn remove(created: Vec<CreatedFolder>) {
        for CreatedFolder(holder, name) in created.iter().rev() {
            if rustix::fs::unlinkat(holder, &**name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }
}

/// Replaces "", which the parent of a relative path may be and the system does not know.
fn system_path(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Opens a folder, and creates it and its ancestors where they do not exist; the innermost is the last of `created`.
/// `sync` is called with the folder that contains a created name.
fn make(path: &Path, sync: &dyn Fn(&File) -> io::Result<()>, created: &mut Vec<CreatedFolder>) -> io::Result<File> {
    let path = system_path(path);
    match (folder_at(CWD, path), path.parent(), path.file_name()) {
        (Err(Errno::NOENT), Some(parent), Some(name)) => {
            let holder = make(parent, sync, created)?;
            let is_made = match rustix::fs::mkdirat(&holder, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let folder = folder_at(&holder, name)?;
            sync(&holder)?;
            if is_made {
                created.push(CreatedFolder(holder, name.into()));
            }
            Ok(folder)
        }
        // The path ends with "..".
        (Err(Errno::NOENT), Some(parent), None) => {
            make(parent, sync, created)?;
            Ok(folder_at(CWD, path)?)
        }
        (folder, ..) => Ok(folder?),
    }
}

/// Makes the name of an existing folder durable: its creator may not have done so.
fn sync_name(folder: &File, sync: &dyn Fn(&File) -> io::Result<()>) -> io::Result<()> {
    match folder_at(folder, "..") {
        Ok(holder) => sync(&holder),
        // A process that may traverse the folder above, but not read it, can still sync the file system.
        Err(Errno::ACCESS) => Ok(rustix::fs::syncfs(folder)?),
        Err(error) => Err(error.into()),
    }
}

/// A file, and a second descriptor that writes whole pages past the system's cache (`O_DIRECT`), if the file system
/// supports it: nothing written here is read again, and the sync has less to search.
struct Opened {
    file: File,
    id: Id,
    direct: Option<File>,
}

impl Opened {
    fn of(file: File) -> io::Result<Opened> {
        Ok(Opened { id: id_of(&file)?, file, direct: None })
    }

    fn write(&mut self, at: u64, bytes: &[u8], pages: &mut Pages) -> io::Result<()> {
        if let Some(direct) = self.direct.as_ref().filter(|_| at.is_multiple_of(PAGE) && Pages::are(bytes)) {
            let is_at_page = bytes.as_ptr().addr().is_multiple_of(PAGE as usize);
            match direct.write_all_at(if is_at_page { bytes } else { pages.of(bytes) }, at) {
                // The file system wants larger blocks, or wrote less than requested: from here on it is written as any
                // file.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
                outcome => return outcome,
            }
        }
        self.file.write_all_at(bytes, at)
    }
}

/// Bytes aligned to a page, as direct writes need them. Records are aligned when they are made; this is for other data.
#[derive(Default)]
struct Pages(Vec<u8>);

impl Pages {
    fn are(bytes: &[u8]) -> bool {
        !bytes.is_empty() && bytes.len().is_multiple_of(PAGE as usize)
    }

    fn of(&mut self, bytes: &[u8]) -> &[u8] {
        let wanted = bytes.len() + PAGE as usize;
        if self.0.len() < wanted {
            self.0.resize(wanted, 0);
        }
        let start = self.0.as_ptr().align_offset(PAGE as usize);
        let to = &mut self.0[start..start + bytes.len()];
        to.copy_from_slice(bytes);
        to
    }
}

/// See the file's documentation.
pub(crate) struct Folder {
    /// Shared with the lock, which is taken on it.
    folder: Arc<File>,
    id: Id,
    /// Its path when it was opened.
    path: PathBuf,
    created: Vec<CreatedFolder>,
    open: HashMap<String, Opened>,
    pages: Pages,
}

impl Folder {
    /// Opens the folder, creating it if it does not exist, and makes the names of created folders durable.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let mut created = Vec::new();
        let folder = make(path, &File::sync_all, &mut created)?;
        sync_name(&folder, &File::sync_all)?;
        Folder::of(folder, path, created)
    }

    /// Opens an existing folder.
    pub(crate) fn there(path: &Path) -> io::Result<Folder> {
        Folder::of(folder_at(CWD, system_path(path))?, path, Vec::new())
    }

    fn of(folder: File, path: &Path, created: Vec<CreatedFolder>) -> io::Result<Folder> {
        let id = id_of(&folder)?;
        // Absolute, because the program may change its working directory meanwhile.
        let path = place_of(&folder).or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.into());
        Ok(Folder { folder: Arc::new(folder), id, path, created, open: HashMap::new(), pages: Pages::default() })
    }

    /// Takes the list of folders that opening has created, the outermost first.
    pub(crate) fn take_created(&mut self) -> Vec<CreatedFolder> {
        std::mem::take(&mut self.created)
    }

    /// Returns the same folder, with no file open.
    pub(crate) fn again(&self) -> Folder {
        let (folder, path) = (Arc::clone(&self.folder), self.path.clone());
        Folder { folder, id: self.id, path, created: Vec::new(), open: HashMap::new(), pages: Pages::default() }
    }

    /// Returns the descriptor, for the lock.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.folder)
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// Is this the folder at `path`?
    pub(crate) fn is_at(&self, path: &Path) -> io::Result<bool> {
        match std::fs::metadata(system_path(path)) {
            Ok(metadata) => Ok((metadata.dev(), metadata.ino()) == self.id),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn opened(&mut self, name: &str) -> io::Result<&mut Opened> {
        if !self.open.contains_key(name) {
            // Also for a folder that is read-only: then a later write fails with the system's error.
            let file =
                open_at(&self.folder, name, OFlags::RDWR).or_else(|_| open_at(&self.folder, name, OFlags::RDONLY))?;
            self.open.insert(name.into(), Opened::of(file)?);
        }
        self.open.get_mut(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns the present path of a folder, from the system.
fn place_of(folder: &File) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).ok().filter(|path| path.is_absolute())
}

impl Disk for Folder {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !matches!(&*name, "." | "..") {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn len(&mut self, name: &str) -> io::Result<u64> {
        Ok(self.opened(name)?.file.metadata()?.len())
    }

    fn read(&mut self, name: &str, at: u64, to: &mut [u8]) -> io::Result<usize> {
        let file = &self.opened(name)?.file;
        let mut done = 0;
        while done < to.len() {
            match file.read_at(&mut to[done..], at + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let file = open_at(&self.folder, name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        let mut opened = Opened::of(file)?;
        let direct = open_at(&self.folder, name, OFlags::WRONLY | OFlags::DIRECT).ok();
        // Another program may have put another file there meanwhile.
        opened.direct = direct.filter(|direct| id_of(direct).is_ok_and(|id| id == opened.id));
        self.open.insert(name.into(), opened);
        Ok(())
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.opened(name)?;
        match self.open.get_mut(name) {
            Some(opened) => opened.write(at, bytes, &mut self.pages),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.opened(name)?.file.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.folder, from, &self.folder, to)?;
        self.open.remove(to);
        if let Some(file) = self.open.remove(from) {
            self.open.insert(to.into(), file);
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.remove(name);
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn is_there(&mut self, name: &str) -> io::Result<bool> {
        match (rustix::fs::statat(&self.folder, name, AtFlags::empty()), self.open.get(name)) {
            (Ok(found), Some(opened)) => Ok((found.st_dev, found.st_ino) == opened.id),
            (Ok(_), None) => Ok(true),
            (Err(Errno::NOENT), _) => Ok(false),
            (Err(error), _) => Err(error.into()),
        }
    }

    fn moved(&mut self) -> Option<(PathBuf, PathBuf)> {
        // If the name cannot be looked up, the folder counts as not moved.
        if self.is_at(&self.path).unwrap_or(true) {
            return None;
        }
        let now = self.path();
        Some((std::mem::replace(&mut self.path, now.clone()), now))
    }

    fn path(&self) -> PathBuf {
        place_of(&self.folder).unwrap_or_else(|| self.path.clone())
    }
}

#[cfg(test)]
mod tests;
