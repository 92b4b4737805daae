//! What is asked of a folder of files.

use std::io;
use std::path::PathBuf;

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
    /// Does the name still stand for the file that is read and written by it? Another program may have removed, moved
    /// or replaced it.
    fn is_there(&mut self, _name: &str) -> io::Result<bool> {
        Ok(true)
    }
    /// Where the folder was and where it is, if it was moved since this was asked before.
    fn moved(&mut self) -> Option<(PathBuf, PathBuf)> {
        None
    }
    /// Where the folder is now. For messages.
    fn path(&self) -> PathBuf;
}
