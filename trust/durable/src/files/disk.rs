//! `Disk`: the operations on a folder of files.

use std::io;
use std::path::PathBuf;

/// A folder of files by name.
pub(crate) trait Disk: Send {
    fn list(&mut self) -> io::Result<Vec<String>>;
    fn len(&mut self, name: &str) -> io::Result<u64>;
    /// Reads at most as many bytes as fit into `to`.
    fn read(&mut self, name: &str, at: u64, to: &mut [u8]) -> io::Result<usize>;
    /// Creates an empty file, replacing any file of that name.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Writes all of `bytes` to an existing file.
    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the writes to the file durable before it returns.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Makes changes of names durable before it returns.
    fn sync_folder(&mut self) -> io::Result<()>;
    /// Does the name still refer to the file that is read and written under it? Another program may have removed, moved
    /// or replaced it.
    fn is_there(&mut self, _name: &str) -> io::Result<bool> {
        Ok(true)
    }
    /// Returns the old and new path of the folder, if it was moved since the last call.
    fn moved(&mut self) -> Option<(PathBuf, PathBuf)> {
        None
    }
    /// Returns the present path of the folder, for messages.
    fn path(&self) -> PathBuf;
}
