//! A folder: what is asked of it, and the system's.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::format::PAGE;

/// A folder of files by name.
pub(crate) trait Disk: Send {
    fn list(&mut self) -> io::Result<Vec<String>>;
    fn len(&mut self, name: &str) -> io::Result<u64>;
    /// Reads up to as many bytes as `to` takes.
    fn read(&mut self, name: &str, at: u64, to: &mut [u8]) -> io::Result<usize>;
    /// An empty file, in place of what has that name.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Writes all of `bytes` to a file that was created or is there.
    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// When it returns what was written is durable.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// When it returns names are durable.
    fn sync_folder(&mut self) -> io::Result<()>;
    /// For messages.
    fn path(&self) -> PathBuf;
}

/// The parent of a relative path may be "", which the system does not know.
fn named(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// The folders that hold the name of `path`, or of one that is to be made for it. That of `path` in any case: who made it may not have
/// synced it.
fn holders(path: &Path) -> Vec<&Path> {
    let is_new = path.ancestors().skip(1).take_while(|folder| !named(folder).exists());
    std::iter::once(path).chain(is_new).filter_map(Path::parent).map(named).collect()
}

/// A file, and a way to write whole pages of it past the system's cache, if its file system has one: nobody reads here what was written,
/// and the sync has less to look for.
struct Opened {
    file: File,
    direct: Option<File>,
}

impl Opened {
    fn write(&mut self, at: u64, bytes: &[u8], pages: &mut Pages) -> io::Result<()> {
        if let Some(direct) = self.direct.as_ref().filter(|_| at.is_multiple_of(PAGE) && Pages::are(bytes)) {
            let is_at_page = bytes.as_ptr().addr().is_multiple_of(PAGE as usize);
            match direct.write_all_at(if is_at_page { bytes } else { pages.of(bytes) }, at) {
                // Larger blocks than ours, or less than was asked for: from here on as any file.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
                outcome => return outcome,
            }
        }
        self.file.write_all_at(bytes, at)
    }
}

/// Bytes where writing past the cache wants them: at a page's start. Records are made there; this is for others.
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

/// A folder of the operating system.
pub(crate) struct Folder {
    path: PathBuf,
    open: HashMap<String, Opened>,
    pages: Pages,
}

impl Folder {
    /// Makes the folder if it is not there, and durable those that it makes.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let holders = holders(path);
        fs::create_dir_all(path)?;
        for folder in holders {
            File::open(folder)?.sync_all()?;
        }
        Folder::there(path)
    }

    /// A folder that is there.
    pub(crate) fn there(path: &Path) -> io::Result<Folder> {
        // The program may go to another folder meanwhile.
        Ok(Folder { path: fs::canonicalize(path)?, open: HashMap::new(), pages: Pages::default() })
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if !self.open.contains_key(name) {
            let path = self.path.join(name);
            // For a folder that may only be read, too: then writing fails, with the system's word for it.
            let file = OpenOptions::new().read(true).write(true).open(&path).or_else(|_| File::open(&path))?;
            self.open.insert(name.into(), Opened { file, direct: None });
        }
        Ok(&self.open[name].file)
    }
}

impl Disk for Folder {
    fn list(&mut self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn len(&mut self, name: &str) -> io::Result<u64> {
        Ok(self.file(name)?.metadata()?.len())
    }

    fn read(&mut self, name: &str, at: u64, to: &mut [u8]) -> io::Result<usize> {
        let file = self.file(name)?;
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
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        let direct = OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path).ok();
        self.open.insert(name.into(), Opened { file, direct });
        Ok(())
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?;
        match self.open.get_mut(name) {
            Some(opened) => opened.write(at, bytes, &mut self.pages),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))?;
        self.open.remove(to);
        if let Some(file) = self.open.remove(from) {
            self.open.insert(to.into(), file);
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.remove(name);
        fs::remove_file(self.path.join(name))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c9_each_folder_that_is_made_has_a_durable_name() {
        let there = tempfile::tempdir().expect("a folder");
        let path = there.path().join("one/two/three");
        assert_eq!(holders(&path), [&*there.path().join("one/two"), &there.path().join("one"), there.path()]);
        Folder::open(&path).expect("it is made");
        assert_eq!(holders(&path), [there.path().join("one/two")]);
        assert_eq!(holders(Path::new("no-such-folder/one")), [Path::new("no-such-folder"), Path::new(".")]);
    }
}
