//! Which files there are under a folder. Nothing is opened here, and no words are counted.
//!
//! Invariants: each regular file is found once, in the order of the names; symbolic links under the folder are not
//! followed (so there are no loops); pipes, sockets and devices are never returned, for reading one might wait for
//! ever; an entry that cannot be listed is reported.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: PathBuf,
    /// Its length when it was found.
    pub bytes: u64,
}

/// Something that was not counted, or not to its end, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Path of the problem.
    pub path: String,
    /// The problem, to be read after the path.
    pub what: String,
}

impl Problem {
    /// A problem with `path`.
    pub fn new(path: &Path, what: impl ToString) -> Problem {
        Problem { path: path.display().to_string(), what: what.to_string() }
    }
}

/// Which of the files under a folder are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All.
    All,
    /// Files with one of these endings (`md`), in large or small letters.
    Endings(Vec<String>),
}

impl Wanted {
    fn has(&self, path: &Path) -> bool {
        let Wanted::Endings(endings) = self else { return true };
        path.extension().is_some_and(|found| endings.iter().any(|ending| found.eq_ignore_ascii_case(ending)))
    }
}

/// The files under a folder.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The regular files that are wanted.
    pub files: Vec<File>,
    /// Number of others.
    pub others: u64,
    /// Entries that cannot be listed, and those that are neither a file nor a folder nor a link.
    pub problems: Vec<Problem>,
    /// Number of symbolic links that were not followed.
    pub links: u64,
}

/// Why there is nothing to count.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}: give a folder or a file that exists and may be read", path.display())]
pub struct MissingError {
    /// The path that was asked for.
    pub path: PathBuf,
    cause: io::Error, // not a source: it is in the text
}

/// Whether the folder (or file) is there and may be read.
///
/// # Errors
/// [`MissingError`], which names it and the cure.
pub fn check(folder: &Path) -> Result<(), MissingError> {
    let listed = fs::metadata(folder)
        .and_then(|metadata| if metadata.is_dir() { fs::read_dir(folder).map(drop) } else { Ok(()) });
    listed.map_err(|cause| MissingError { path: folder.to_owned(), cause })
}

/// The wanted files under a folder, or the file itself.
///
/// # Errors
/// Same as [`check`]. Errors further below are among the problems.
pub fn find(folder: &Path, wanted: &Wanted) -> Result<Found, MissingError> {
    check(folder)?;
    let mut found = Found::default();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.problems.push(unlisted(folder, &error));
                continue;
            }
        };
        let kind = entry.file_type();
        if kind.is_file() && entry.depth() > 0 && !wanted.has(entry.path()) {
            found.others += 1;
        } else if kind.is_file() {
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len()); // for the progress bar only
            found.files.push(File { path: entry.into_path(), bytes });
        } else if kind.is_symlink() {
            found.links += 1;
        } else if !kind.is_dir() {
            found.problems.push(Problem::new(entry.path(), "is a pipe, a socket or a device"));
        }
    }
    Ok(found)
}

fn unlisted(folder: &Path, error: &walkdir::Error) -> Problem {
    let path = error.path().unwrap_or(folder);
    match error.io_error() {
        Some(error) => Problem::new(path, format_args!("cannot be listed: {error}")),
        None => Problem::new(path, format_args!("cannot be listed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn files_are_found_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("b/deep/er")).unwrap();
        for (name, text) in [("c", "ccc"), ("a", "a"), ("b/deep/er/x", ""), ("b/y", "yy")] {
            fs::write(root.join(name), text).unwrap();
        }
        let found = find(root, &Wanted::All).unwrap();
        let files: Vec<_> =
            found.files.iter().map(|file| (file.path.strip_prefix(root).unwrap(), file.bytes)).collect();
        let expected = [("a", 1), ("b/deep/er/x", 0), ("b/y", 2), ("c", 3)];
        assert_eq!(files, expected.map(|(name, bytes)| (Path::new(name), bytes)));
        assert!(found.problems.is_empty() && found.links == 0);
    }

    #[test]
    fn what_is_not_wanted_is_only_counted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.md", "B.MD", "c.txt", "d.svg", "md", ".md", "e.md.gz"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let found = find(folder.path(), &Wanted::Endings(vec!["md".into(), "txt".into()])).unwrap();
        let names: Vec<_> = found.files.iter().map(|file| file.path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!((names, found.others), (vec!["B.MD", "a.md", "c.txt"], 4));
        assert_eq!(find(folder.path(), &Wanted::All).unwrap().files.len(), 7);
    }

    #[test]
    fn links_are_counted_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("in")).unwrap();
        fs::write(root.join("in/file"), "x").unwrap();
        symlink(root, root.join("in/loop")).unwrap();
        symlink("file", root.join("in/again")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let found = find(root, &Wanted::All).unwrap();
        assert_eq!((found.files.len(), found.links, found.problems.len()), (1, 3, 0));
    }

    #[test]
    fn a_link_that_was_asked_for_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        fs::write(folder.path().join("real/file"), "x").unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        assert_eq!(find(&folder.path().join("link"), &Wanted::All).unwrap().files.len(), 1);
    }

    #[test]
    fn what_cannot_be_read_like_a_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let found = find(folder.path(), &Wanted::All).unwrap();
        assert!(found.files.is_empty());
        assert!(found.problems[0].path.ends_with("socket"), "{:?}", found.problems);
    }

    #[test]
    fn one_file_may_be_asked_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let md = Wanted::Endings(vec!["md".into()]);
        assert_eq!(find(file.path(), &md).unwrap().files[0].path, file.path());
    }

    #[test]
    fn a_missing_folder_is_named_with_the_cure() {
        let error = find(Path::new("/no/such/folder"), &Wanted::All).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/folder: No such file"), "{error}");
        assert!(error.contains("give a folder"), "{error}");
    }
}
