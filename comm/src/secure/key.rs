//! The key that admits to a rack or to a program: 32 random bytes, in a file that only its owner may read.
//! Not here: its use (`handshake.rs`), and a key that is being replaced (`keys.rs`).
//!
//! Invariant: a key is never printed (`Debug` hides it), and dropping it overwrites its memory.

use crate::descriptors::cure;
use crate::error::Error;
use rustix::fs::{Mode, OFlags};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
use zeroize::{Zeroize, Zeroizing};

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;

pub(super) const FILE_HEAD: &str = "\
# A key of Gossamer. Keep it secret: who has it can run programs on every host that knows it.
# Put the same file on each host, readable by its owner only (chmod 600).
";
/// A key file is a few lines; anything longer is another kind of file.
const FILE_BYTES_MAX: u64 = 4096;

/// Secret shared by all sides of a connection.
///
/// # Example
/// ```
/// use comm::secure::Key;
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("rack.key");
/// let key = Key::generate()?;
/// key.write_new(&file)?;
/// assert!(Key::read(&file)? == key);
/// assert!(key.write_new(&file).is_err(), "a key is not replaced by accident");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Key([u8; KEY_BYTES]);

/// Returns as many random bytes as a key has.
pub(super) fn random() -> Result<[u8; KEY_BYTES], Error> {
    let mut bytes = [0; KEY_BYTES];
    let mut filled = 0;
    while filled < KEY_BYTES {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::system("making a random number")(error)),
        }
    }
    Ok(bytes)
}

impl Key {
    /// Returns a new random key, from the operating system's generator.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn generate() -> Result<Key, Error> {
        random().map(Key)
    }

    /// Makes a key of bytes that came over a channel that is already secret.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Key {
        Key(bytes)
    }

    /// Returns the bytes of the key, for a channel that is already secret.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Reads a key file: one line of 64 hexadecimal digits; empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// [`Error::KeyFile`], which names the cure: there is no such file, it is not a plain file, it belongs to
    /// another user, others may read it, or it holds no key.
    pub fn read(path: &Path) -> Result<Key, Error> {
        let own = rustix::process::geteuid().as_raw();
        Key::read_of(path, |owner| may_use(own, owner))
    }

    /// Like [`Key::read`], but `is_trusted` decides about the owner of the file. For a process that carries
    /// out requests of key holders with more rights than the file's owner has.
    ///
    /// # Errors
    /// As for [`Key::read`].
    pub fn read_of(path: &Path, is_trusted: impl FnOnce(u32) -> bool) -> Result<Key, Error> {
        Key::read_if(path, is_trusted, |_| false)
    }

    /// Like [`Key::read`], and also accepts a file of root that only one of this process' groups may read
    /// (mode 0440 or 0640), which is how Kubernetes mounts a Secret for a process that is not root
    /// (`fsGroup`).
    ///
    /// # Errors
    /// As for [`Key::read`].
    pub fn read_mounted(path: &Path) -> Result<Key, Error> {
        let own = rustix::process::geteuid().as_raw();
        let is_mounted = |file: &Metadata| {
            let groups = rustix::process::getgroups().unwrap_or_default();
            let is_own =
                |gid: u32| rustix::process::getegid().as_raw() == gid || groups.iter().any(|own| own.as_raw() == gid);
            file.uid() == 0 && file.mode() & 0o037 == 0 && is_own(file.gid())
        };
        Key::read_if(path, |owner| owner == 0 || may_use(own, owner), is_mounted)
    }

    fn read_if(
        path: &Path,
        is_trusted: impl FnOnce(u32) -> bool,
        may_be_shared: impl FnOnce(&Metadata) -> bool,
    ) -> Result<Key, Error> {
        let text = read_text(path, is_trusted, may_be_shared)?;
        if let Some(key) = Key::parse(&text) {
            return Ok(key);
        }
        let problem = match key_lines(&text).collect::<Vec<_>>()[..] {
            [a, b] if a != b && [a, b].iter().all(|line| Key::from_digits(line).is_some()) => {
                "it holds two keys, of a change that is under way, and one is needed here: `gossamer-launch key \
                 finish` removes the old one"
            }
            _ => "it holds no key: one line of 64 hexadecimal digits is what `gossamer-launch keygen` writes",
        };
        Err(Error::KeyFile { path: path.to_owned(), problem: problem.to_owned() })
    }

    /// Writes a new key file that only its owner may read. An existing file stays as it is.
    ///
    /// # Errors
    /// [`Error::KeyFile`].
    pub fn write_new(&self, path: &Path) -> Result<(), Error> {
        write_text(path, &self.to_text(), None)
    }

    /// Returns the content of its file: a head of comments, and 64 hexadecimal digits.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(FILE_HEAD.len() + 2 * KEY_BYTES + 1));
        text.push_str(FILE_HEAD);
        self.push_digits(&mut text);
        text
    }

    /// Appends the line with the key; `text` has room for it.
    pub(super) fn push_digits(&self, text: &mut String) {
        for byte in self.0 {
            text.push(char::from_digit(u32::from(byte >> 4), 16).expect("4 bits"));
            text.push(char::from_digit(u32::from(byte & 15), 16).expect("4 bits"));
        }
        text.push('\n');
    }

    /// Returns the key in the text of a key file, or `None`.
    pub fn parse(text: &str) -> Option<Key> {
        let mut lines = key_lines(text);
        let key = Key::from_digits(lines.next()?)?;
        lines.next().is_none().then_some(key)
    }

    /// Returns the key of a line of hexadecimal digits, or `None`.
    pub(super) fn from_digits(line: &str) -> Option<Key> {
        let line = line.as_bytes();
        if line.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut key = Key([0; KEY_BYTES]);
        let (pairs, _) = line.as_chunks::<2>();
        for (byte, pair) in key.0.iter_mut().zip(pairs) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(key)
    }
}

/// Returns the lines of a key file that hold a key.
pub(super) fn key_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Reads a key file, if it is one that `is_trusted` and `may_be_shared` allow.
pub(super) fn read_text(
    path: &Path,
    is_trusted: impl FnOnce(u32) -> bool,
    may_be_shared: impl FnOnce(&Metadata) -> bool,
) -> Result<Zeroizing<String>, Error> {
    let refuse = |problem: String| Error::KeyFile { path: path.to_owned(), problem };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let own = rustix::process::geteuid().as_raw();
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT) => {
            return Err(refuse(
                "there is no such file: make one with `gossamer-launch keygen`, \
                 and put the same on each host"
                    .to_owned(),
            ));
        }
        Err(rustix::io::Errno::ACCESS) => {
            let owner = std::fs::metadata(path).map(|found| found.uid());
            let whose = owner.map_or_else(
                |_| "it lies in a folder that is closed to".to_owned(),
                |owner| format!("it belongs to {}, and may not be read by", name_of(owner)),
            );
            return Err(refuse(format!("{whose} {}, who runs this: {}", name_of(own), own_copy(own))));
        }
        Err(error) => {
            let error = std::io::Error::from(error);
            return Err(refuse(format!("it cannot be opened: {error}{}", cure(&error))));
        }
    };
    // Checks the opened file, since the name may refer to another file by now.
    let metadata = file.metadata().map_err(|error| refuse(format!("it cannot be looked at: {error}")))?;
    if !metadata.is_file() {
        return Err(refuse("it is not a plain file".to_owned()));
    }
    if !is_trusted(metadata.uid()) {
        let (owner, runner) = (name_of(metadata.uid()), name_of(own));
        let cure = if own == 0 { "`chown root` it".to_owned() } else { own_copy(own) };
        return Err(refuse(format!("it belongs to {owner}, not to {runner}, who runs this: {cure}")));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 && !may_be_shared(&metadata) {
        return Err(refuse(format!(
            "others may read or write it (mode {mode:03o}): `chmod 600 {}`, and make a new key if others have had \
             access. Who else is to use it gets a copy of his own",
            path.display()
        )));
    }
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize + 1));
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| refuse(format!("it cannot be read: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(refuse(format!("it is longer than {FILE_BYTES_MAX} bytes, so it is not a key file")));
    }
    Ok(text)
}

/// Writes a new file that only its owner may read: this user, or `owner`. An existing file stays as it is.
pub(super) fn write_text(path: &Path, text: &str, owner: Option<u32>) -> Result<(), Error> {
    let refuse = |problem: String| Error::KeyFile { path: path.to_owned(), problem };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::EXIST) => {
            return Err(refuse("it exists: remove it first if its key is to be replaced on every host".to_owned()));
        }
        Err(error) => return Err(refuse(format!("it cannot be made: {}", std::io::Error::from(error)))),
    };
    let own = || if owner.is_some() { fchown(&file, owner, None) } else { Ok(()) };
    let written = own().and_then(|()| file.write_all(text.as_bytes())).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a key file is worse than none; the first error is the one to report.
        let _ = std::fs::remove_file(path);
        refuse(format!("it cannot be written: {error}"))
    })
}

/// Returns whether `user` may launch with a key of `owner`. Root may use any key: that gives the owner of the
/// key nothing.
pub(super) fn may_use(user: u32, owner: u32) -> bool {
    user == 0 || owner == user || owner == 0
}

/// Returns the name of a user, for messages.
fn name_of(user: u32) -> String {
    if user == 0 { "root".to_owned() } else { format!("user {user}") }
}

/// Returns the cure for a key file of another user. It does not change the owner of the file, which would
/// lock that user out.
fn own_copy(own: u32) -> String {
    format!(
        "run it as the owner, or have root make a copy for you (install -m 600 -o {own}) and name that in a rack.yaml \
         of your own (key_file:)"
    )
}

impl PartialEq for Key {
    /// Compares in the same time for every pair of keys.
    fn eq(&self, other: &Key) -> bool {
        let mut difference = 0;
        for (a, b) in self.0.iter().zip(&other.0) {
            difference |= a ^ b;
        }
        std::hint::black_box(difference) == 0
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Makes a file of mode 600 that holds `text`.
    fn file_with(folder: &tempfile::TempDir, text: &str) -> PathBuf {
        let path = folder.path().join("key");
        std::fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
        path
    }

    fn problem_of(result: Result<Key, Error>) -> String {
        match result {
            Err(Error::KeyFile { problem, .. }) => problem,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn keys_differ_and_survive_their_file() {
        let (folder, key) = (folder(), Key::generate().unwrap());
        assert!(key != Key::generate().unwrap());
        let path = folder.path().join("rack.key");
        key.write_new(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Key::read(&path).unwrap() == key);
        assert!(Key::from_bytes(*key.as_bytes()) == key);
    }

    #[test]
    fn an_existing_file_stays() {
        let folder = folder();
        let path = file_with(&folder, "something else");
        let refused = Key::generate().unwrap().write_new(&path);
        assert!(refused.unwrap_err().to_string().contains("remove it first"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something else");
    }

    /// A Secret as mounted for a process of another user: owned by root, readable by one of its groups. Here
    /// root itself reads it.
    #[test]
    fn a_mounted_file_may_be_read_by_an_own_group_and_nobody_else() {
        let folder = folder();
        let path = folder.path().join("rack.key");
        Key::generate().unwrap().write_new(&path).unwrap();
        let is_root = std::fs::metadata(&path).unwrap().uid() == 0;
        for mode in [0o440, 0o640] {
            set_mode(&path, mode);
            assert_eq!(Key::read_mounted(&path).is_ok(), is_root, "{mode:o}");
            assert!(Key::read(&path).is_err(), "{mode:o}");
        }
        for mode in [0o444, 0o460, 0o450, 0o644] {
            set_mode(&path, mode);
            assert!(Key::read_mounted(&path).is_err(), "{mode:o}");
        }
        set_mode(&path, 0o440);
        if is_root && std::os::unix::fs::chown(&path, None, Some(12_345)).is_ok() {
            assert!(Key::read_mounted(&path).is_err(), "a group that is not its own");
        }
    }

    #[test]
    fn what_others_may_read_is_refused_with_the_cure() {
        let folder = folder();
        let path = folder.path().join("rack.key");
        Key::generate().unwrap().write_new(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601, 0o777] {
            set_mode(&path, mode);
            let problem = problem_of(Key::read(&path));
            assert!(problem.contains(&format!("{mode:03o}")) && problem.contains("chmod 600"), "{problem}");
        }
        set_mode(&path, 0o400);
        assert!(Key::read(&path).is_ok());
    }

    #[test]
    fn what_is_no_key_file_is_refused() {
        let folder = folder();
        assert!(problem_of(Key::read(&folder.path().join("none"))).contains("keygen"));
        assert!(problem_of(Key::read(folder.path())).contains("plain file"));
        let key = Key::generate().unwrap().to_text();
        let digits = key.lines().last().unwrap();
        for text in
            ["", "# only a comment\n", "abc", &digits[1..], &format!("{digits}0"), &format!("{digits}\n{digits}")]
        {
            assert!(problem_of(Key::read(&file_with(&folder, text))).contains("64 hexadecimal digits"), "{text}");
        }
        let other_digit = format!("g{}", &digits[1..]);
        problem_of(Key::read(&file_with(&folder, &other_digit)));
        assert!(problem_of(Key::read(&file_with(&folder, &"#".repeat(5000)))).contains("longer"));
        let longest = format!("{}\n{digits}", "#".repeat(FILE_BYTES_MAX as usize - 1 - digits.len()));
        assert!(longest.len() as u64 == FILE_BYTES_MAX && Key::read(&file_with(&folder, &longest)).is_ok());
        let path = file_with(&folder, "");
        std::fs::write(&path, [0xff; 64]).unwrap();
        assert!(problem_of(Key::read(&path)).contains("cannot be read"));
    }

    /// A FIFO without a writer: opening it as a plain file would wait for ever.
    #[test]
    fn a_pipe_is_refused_at_once() {
        let folder = folder();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(problem_of(Key::read(&path)).contains("plain file"));
    }

    #[test]
    fn root_s_key_is_everybody_s_and_root_uses_every_key() {
        assert!(may_use(0, 0) && may_use(0, 7) && may_use(7, 0) && may_use(7, 7));
        assert!(!may_use(7, 8) && !may_use(8, 7));
    }

    /// The message about a key of another user never advises to take it away from its owner.
    #[test]
    fn keys_of_others_are_refused_with_what_helps() {
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root has files of two users");
            return;
        }
        let folder = folder();
        set_mode(folder.path(), 0o755);
        let path = folder.path().join("rack.key");
        Key::generate().unwrap().write_new(&path).unwrap();
        let own = |owner| std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        // Reads as the other user: a thread of its own changes its effective user.
        let by_nobody = || {
            let read = || {
                rustix::thread::set_thread_res_uid(
                    rustix::process::Uid::from_raw(0),
                    rustix::process::Uid::from_raw(NOBODY),
                    rustix::process::Uid::from_raw(0),
                )
                .unwrap(); // of this thread alone, which ends
                problem_of(Key::read(&path))
            };
            std::thread::scope(|scope| scope.spawn(read).join().unwrap())
        };
        let check = |said: &str, words: &[&str]| {
            for word in [words, &["install -m 600 -o 65534", "key_file:"]].concat() {
                assert!(said.contains(word), "no {word:?}: {said}");
            }
            assert!(!said.contains("chown") && !said.contains("chmod"), "{said}");
        };
        check(&by_nobody(), &["it belongs to root, and may not be read by user 65534, who runs this"]);
        own(4711);
        check(&by_nobody(), &["it belongs to user 4711, and may not be read by user 65534"]);
        set_mode(&path, 0o644);
        check(&by_nobody(), &["it belongs to user 4711, not to user 65534, who runs this"]);
        set_mode(&path, 0o600);
        set_mode(folder.path(), 0o700);
        check(&by_nobody(), &["a folder that is closed to user 65534"]);
        // Root may use it, unless root would do things for its owner that the owner may not do.
        assert!(Key::read(&path).is_ok());
        assert!(Key::read_of(&path, |owner| owner == 4711).is_ok());
        let problem = problem_of(Key::read_of(&path, |owner| owner == 0));
        assert!(problem.contains("it belongs to user 4711, not to root, who runs this: `chown root` it"), "{problem}");
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = Key::from_bytes([0xab; KEY_BYTES]);
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}
