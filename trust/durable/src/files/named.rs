//! `Files`: a `Disk` with errors that name file, offset and remedy.

use std::io;
use std::path::PathBuf;

use super::disk::Disk;
use crate::error::{Error, Result};

/// Wrapper with the methods of [`Disk`].
pub(crate) struct Files(pub(crate) Box<dyn Disk>);

impl Files {
    pub(crate) fn of(disk: impl Disk + 'static) -> Files {
        Files(Box::new(disk))
    }

    /// Returns the path of a file for messages; for "" that of the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.0.path() } else { self.0.path().join(name) }
    }

    fn explain<T>(&self, name: &str, offset: Option<u64>, what: &'static str, outcome: io::Result<T>) -> Result<T> {
        outcome.map_err(|error| Error::Io { file: self.path(name), offset, what, error })
    }

    pub(crate) fn list(&mut self) -> Result<Vec<String>> {
        let names = self.0.list();
        self.explain("", None, "list it", names)
    }

    pub(crate) fn len(&mut self, name: &str) -> Result<u64> {
        let len = self.0.len(name);
        self.explain(name, None, "ask for its length", len)
    }

    /// Reads up to `len` bytes.
    pub(crate) fn read(&mut self, name: &str, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.0.read(name, at, &mut bytes);
        let read = self.explain(name, Some(at), "read it", read)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    pub(crate) fn create(&mut self, name: &str) -> Result<()> {
        let created = self.0.create(name);
        self.explain(name, None, "create it", created)
    }

    pub(crate) fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<()> {
        let written = self.0.write(name, at, bytes);
        self.explain(name, Some(at), "write to it", written)
    }

    pub(crate) fn sync(&mut self, name: &str) -> Result<()> {
        let synced = self.0.sync(name);
        self.explain(name, None, "make it durable", synced)
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let renamed = self.0.rename(from, to);
        self.explain(from, None, "give it its name", renamed)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Result<()> {
        let removed = self.0.remove(name);
        self.explain(name, None, "remove it", removed)
    }

    /// Fails if another program has removed, moved or replaced the file.
    pub(crate) fn expect_there(&mut self, name: &str) -> Result<()> {
        let is_there = self.0.is_there(name);
        if self.explain(name, None, "look for it", is_there)? {
            return Ok(());
        }
        Err(Error::Removed { file: self.path(name) })
    }

    pub(crate) fn sync_folder(&mut self) -> Result<()> {
        let synced = self.0.sync_folder();
        self.explain("", None, "make the names in it durable", synced)
    }
}
