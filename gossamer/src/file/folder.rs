//! Listing a folder of another machine.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trust::link::{entrust_remote, promise_at};

use super::error::{Doing, FileError, Trouble};
use super::{bytes_of, helpers};
use crate::rack::Place;

/// Entry of a folder. See [`read_dir`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its path: that of the folder, and the name. Serde refuses a `PathBuf` that is not UTF-8; as an argument, or in a
    /// channel, send it as an `OsString` (`path.into_os_string()`), which serialises with any name.
    pub path: PathBuf,
    /// Its kind.
    pub kind: EntryKind,
    /// Its length in bytes, if it is a file.
    pub len: u64,
    /// Whether it is a symbolic link; kind and length are those of its target. A walk that enters linked folders may
    /// go in a circle.
    pub is_link: bool,
}

/// Kind of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file, or a symbolic link to one.
    File,
    /// A folder, or a symbolic link to one.
    Folder,
    /// A pipe, a socket, a device, or a symbolic link to nothing.
    Other,
}

/// Lists a folder at a place, sorted by name.
///
/// # Errors
/// If it cannot be read there, or is no folder.
///
/// # Panics
/// Same as [`read`](super::read).
///
/// ```
/// use gossamer::file::{EntryKind, read_dir};
/// gossamer::main(
///     || {
///         let place = gossamer::rack().places().last().unwrap();
///         let entries = read_dir(place, "/proc/self").unwrap();
///         let tasks = entries.iter().find(|entry| entry.path.ends_with("task")).unwrap();
///         assert_eq!(tasks.kind, EntryKind::Folder);
///         let error = read_dir(place, "/proc/self/stat").unwrap_err();
///         assert!(error.to_string().contains("cannot be listed: Not a directory"), "{error}");
///     },
///     2,
/// );
/// ```
pub fn read_dir(place: Place, path: impl AsRef<Path>) -> Result<Vec<Entry>, FileError> {
    let folder = path.as_ref();
    let there = FileError::of_place(place, folder, Doing::List, entrust_remote(place.trustee(), || ()))?;
    let (promise, listed) = promise_at(place.trustee().id());
    let list = move |(): &mut (), path: ByteBuf| {
        let path = PathBuf::from(OsString::from_vec(path.into_vec()));
        helpers::run(move || {
            promise.keep_with(list_here(&path).map_err(|error| Trouble::new(Doing::List, &error, &path)));
        });
    };
    FileError::of_place(place, folder, Doing::List, there.call().with(bytes_of(folder)).apply(list).wait())?;
    let listed: Vec<Listed> = FileError::from_outcome(place, Doing::List, listed.wait())?;
    let entry = |(name, kind, len, is_link): Listed| {
        let path = folder.join(OsString::from_vec(name.into_vec()));
        Entry { path, kind, len, is_link }
    };
    Ok(listed.into_iter().map(entry).collect())
}

/// Name, kind, length, and whether it is a link, as they travel.
type Listed = (ByteBuf, EntryKind, u64, bool);

fn list_here(path: &Path) -> io::Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        // Follows links; an entry that went meanwhile is none.
        let (kind, len) = match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => (EntryKind::File, metadata.len()),
            Ok(metadata) if metadata.is_dir() => (EntryKind::Folder, 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link => continue,
            _ => (EntryKind::Other, 0),
        };
        listed.push((ByteBuf::from(entry.file_name().as_bytes().to_vec()), kind, len, is_link));
    }
    listed.sort_by(|one: &Listed, other| one.0.cmp(&other.0));
    Ok(listed)
}
