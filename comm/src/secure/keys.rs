//! The keys of a rack: one, and while it is being replaced the old one beside it, in the same file. Not here: one
//! key and the rules for its file (`key.rs`).
//!
//! Both keys give the same rights. A side that connects tries the key first, and then the old one; a side that accepts
//! tries each of them on the first message. So the file may reach the hosts in any order.
//!
//! Invariant: the two keys differ.

use super::key::{FILE_HEAD, KEY_BYTES, Key, key_lines, may_use, read_text, write_text};
use crate::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

const OLD_HEAD: &str = "\
# The old key, which is valid as well until `gossamer-launch key finish` removes it:
";

/// A key, and the old one that is valid beside it while it is being replaced.
///
/// # Example
/// ```
/// use comm::secure::{Key, Keys};
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("rack.key");
/// let key = Key::generate()?;
/// key.write_new(&file)?;
/// Keys::read(&file)?.rotated()?.replace(&file)?;
/// let both = Keys::read(&file)?;
/// assert!(*both.current() != key && *both.old().unwrap() == key);
/// both.without_old().replace(&file)?;
/// assert!(Key::read(&file)? == *both.current());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    current: Key,
    old: Option<Key>,
}

impl From<Key> for Keys {
    fn from(current: Key) -> Keys {
        Keys { current, old: None }
    }
}

impl Keys {
    /// Returns the key.
    pub fn current(&self) -> &Key {
        &self.current
    }

    /// Returns the old key, while it is valid.
    pub fn old(&self) -> Option<&Key> {
        self.old.as_ref()
    }

    /// Returns both, or the one that there is.
    pub(super) fn all(&self) -> Vec<&Key> {
        std::iter::once(&self.current).chain(&self.old).collect()
    }

    /// Returns a new key, with the current one as the old one.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn rotated(&self) -> Result<Keys, Error> {
        Ok(Keys { current: Key::generate()?, old: Some(self.current.clone()) })
    }

    /// Returns the key alone.
    #[must_use]
    pub fn without_old(&self) -> Keys {
        self.current.clone().into()
    }

    /// Reads a key file as [`Key::read`] does; it may hold a second line, with the old key.
    ///
    /// # Errors
    /// As for [`Key::read`].
    pub fn read(path: &Path) -> Result<Keys, Error> {
        let own = rustix::process::geteuid().as_raw();
        Keys::read_of(path, |owner| may_use(own, owner))
    }

    /// Reads a key file as [`Key::read_of`] does; it may hold a second line, with the old key.
    ///
    /// # Errors
    /// As for [`Key::read`].
    pub fn read_of(path: &Path, is_trusted: impl FnOnce(u32) -> bool) -> Result<Keys, Error> {
        let text = read_text(path, is_trusted, |_| false)?;
        Keys::parse(&text).ok_or_else(|| Error::KeyFile {
            path: path.to_owned(),
            problem: "it holds no key: one line of 64 hexadecimal digits is what `gossamer-launch keygen` writes, and \
                      `gossamer-launch key rotate` two different ones"
                .to_owned(),
        })
    }

    /// Returns the keys in the text of a key file, or `None`.
    pub fn parse(text: &str) -> Option<Keys> {
        let mut lines = key_lines(text);
        let current = Key::from_digits(lines.next()?)?;
        let old = match lines.next() {
            Some(line) => Some(Key::from_digits(line).filter(|old| *old != current)?),
            None => None,
        };
        lines.next().is_none().then_some(Keys { current, old })
    }

    /// Returns the content of their file.
    pub fn to_text(&self) -> Zeroizing<String> {
        let most = FILE_HEAD.len() + OLD_HEAD.len() + 2 * (2 * KEY_BYTES + 1);
        let mut text = Zeroizing::new(String::with_capacity(most));
        text.push_str(FILE_HEAD);
        self.current.push_digits(&mut text);
        if let Some(old) = &self.old {
            text.push_str(OLD_HEAD);
            old.push_digits(&mut text);
        }
        text
    }

    /// Replaces a key file in one step: a reader finds the file so far, or this one. It keeps its owner, and a link to
    /// it stays.
    ///
    /// # Errors
    /// [`Error::KeyFile`]; the file is as it was then.
    pub fn replace(&self, path: &Path) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::KeyFile {
            path: path.to_owned(),
            problem: format!("it cannot be replaced: {error}"),
        };
        let path = std::fs::canonicalize(path).map_err(failed)?;
        let (owner, own) = (path.metadata().map_err(failed)?.uid(), rustix::process::geteuid().as_raw());
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        // Of a call that was interrupted; another file of this name is in the way below.
        let _ = std::fs::remove_file(&new);
        write_text(&new, &self.to_text(), (owner != own).then_some(owner))?;
        std::fs::rename(&new, &path).map_err(|error| {
            let _ = std::fs::remove_file(&new); // the first error is the one to report
            failed(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn both() -> Keys {
        Keys::from(Key::generate().unwrap()).rotated().unwrap()
    }

    #[test]
    fn a_file_holds_one_key_or_two_that_differ() {
        let (keys, one) = (both(), Keys::from(Key::generate().unwrap()));
        assert!(Keys::parse(&keys.to_text()) == Some(keys.clone()) && Keys::parse(&one.to_text()) == Some(one.clone()));
        assert!(*one.to_text() == *one.current().to_text(), "the file of one key is as before");
        assert!(Key::parse(&keys.to_text()).is_none() && keys.without_old().old().is_none());
        let line = |key: &Key| key.to_text().lines().last().unwrap().to_owned();
        let (a, b) = (line(keys.current()), line(keys.old().unwrap()));
        let parsed = Keys::parse(&format!("# first\n\n  {a} \n# second\r\n{b}\r\n\n")).unwrap();
        assert!(parsed == keys && parsed.all() == [keys.current(), keys.old().unwrap()]);
        for wrong in
            ["", &format!("{a}\n{a}"), &format!("{a}\n{b}\n{b}"), &format!("{a}\n{}", &b[1..]), &format!("{a} {b}")]
        {
            assert!(Keys::parse(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{keys:?}"), "Keys { current: Key(..), old: Some(Key(..)) }");
    }

    #[test]
    fn a_file_is_replaced_in_one_step() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("rack.key"), folder.path().join("link"));
        let (keys, one) = (both(), Key::generate().unwrap());
        assert!(keys.replace(&file).unwrap_err().to_string().contains("cannot be replaced"), "there is none");
        one.write_new(&file).unwrap();
        symlink(&file, &link).unwrap();
        let reader = std::fs::File::open(&file).unwrap();
        std::fs::write(folder.path().join("rack.key.new"), "half of one").unwrap();
        keys.replace(&link).unwrap();
        assert!(Keys::read(&file).unwrap() == keys && link.is_symlink());
        assert!(std::io::read_to_string(reader).unwrap() == *one.to_text(), "a reader has the file that it opened");
        let problem = Key::read(&file).unwrap_err().to_string();
        assert!(problem.contains("it holds two keys") && problem.contains("key finish"), "{problem}");
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");

        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(Keys::read(&file).unwrap_err().to_string().contains("chmod 600"), "the rules are those of one key");
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(4711), None).unwrap();
            keys.without_old().replace(&file).unwrap();
            let found = std::fs::metadata(&file).unwrap();
            assert_eq!((found.uid(), found.mode() & 0o777), (4711, 0o600));
            assert!(Keys::read_of(&file, |owner| owner == 4711).unwrap() == keys.without_old());
        }
    }
}
