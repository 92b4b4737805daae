//! Programs by their content: found at their path, in the cache, or received from the launcher.
//!
//! Invariants: a file that [`Cache::find`] or [`Incoming::finish`] returns for a hash had that hash a moment ago, and
//! only this process's user (and root) can replace it before it is executed. Kept and incoming programs together stay
//! within the limit: room is reserved before the first byte of a program is taken.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, getxattr, statvfs};

use crate::wire::Binary;

mod trial;

use trial::explain;

/// Prefix of an incoming program's file name.
const INCOMING: &str = ".incoming-";
/// Age since the last write after which an incoming file counts as left behind by a killed daemon.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// Attempts to rename a program into place: its folder may be tidied away in between.
const NAMINGS: usize = 10;

/// Received programs of a host: `FOLDER/HASH/NAME`.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    limit_bytes: u64,
    arrivals: Arc<Arrivals>,
}

/// Incoming programs.
#[derive(Debug, Default)]
struct Arrivals {
    list: Mutex<Vec<(PathBuf, u64)>>, // the place of each, and its length in bytes
    changed: Condvar,
}

impl Arrivals {
    fn list(&self) -> MutexGuard<'_, Vec<(PathBuf, u64)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a program may start to come in: nobody sends the same, and it fits beside the incoming ones.
fn is_room_for(list: &[(PathBuf, u64)], place: &Path, bytes: u64, most: u64) -> bool {
    let coming: u64 = list.iter().map(|(_, bytes)| bytes).sum();
    coming.saturating_add(bytes) <= most && list.iter().all(|(other, _)| other != place)
}

/// Room reserved for a program; released on drop, whether the program was kept or not.
struct Room {
    arrivals: Arc<Arrivals>,
    place: PathBuf,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.arrivals.list().retain(|(place, _)| *place != self.place);
        self.arrivals.changed.notify_all();
    }
}

/// Result of [`Cache::take`].
pub enum Arrival {
    /// The launcher is to send it.
    Incoming(Box<Incoming>),
    /// Another launcher has sent it meanwhile.
    Kept(PathBuf),
}

/// Returns the BLAKE3 hash of a file, and its length.
///
/// # Errors
/// When it cannot be read.
pub fn hash_file(path: &Path) -> io::Result<Binary> {
    let mut hasher = blake3::Hasher::new();
    let bytes = io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(Binary { hash: *hasher.finalize().as_bytes(), bytes })
}

fn is(path: &Path, binary: &Binary) -> bool {
    // The length first: reading the file is expensive.
    let same_length = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == binary.bytes);
    same_length && hash_file(path).is_ok_and(|found| found == *binary)
}

/// Returns whether only this user (or, for a file of root's, root) can change it; in a sticky folder other users cannot
/// touch our files.
fn is_safe(found: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_open = found.mode() & 0o022 != 0 && !(found.is_dir() && found.mode() & 0o1000 != 0);
    (found.uid() == own || found.uid() == 0) && !is_open && !found.is_symlink()
}

/// Returns whether nobody else can replace the file between a check and its execution.
pub(super) fn is_out_of_reach(path: &Path) -> bool {
    path.is_absolute() && path.ancestors().all(|part| fs::symlink_metadata(part).is_ok_and(|found| is_safe(&found)))
}

/// Returns why the file at a program's own path is not the one to run.
fn why_not_own(path: &Path, binary: &Binary, for_all: bool) -> Option<&'static str> {
    match () {
        () if !is_out_of_reach(path) => Some("another user could replace it, or its path has a link in it"),
        () if !is(path, binary) => Some("its content differs from the launcher's"),
        () if for_all && !may_all_execute(path) => Some("not every user may read and execute it"),
        () => None,
    }
}

/// Returns whether each user may execute a file: no class of users lacks the permission, and no access list or mount
/// takes it away.
fn may_all_execute(path: &Path) -> bool {
    let has_list = |part: &Path| getxattr(part, "system.posix_acl_access", &mut [0_u8; 0]).is_ok();
    let is_open = |part: &Path| {
        let wanted = if part == path { 0o555 } else { 0o111 };
        fs::metadata(part).is_ok_and(|found| found.mode() & wanted == wanted) && !has_list(part)
    };
    let is_noexec = statvfs(path).map_or(true, |system| system.f_flag.contains(StatVfsMountFlags::NOEXEC));
    !is_noexec && path.ancestors().all(is_open)
}

/// Makes a folder that others may execute from, whatever the umask is; an existing one stays as it is. The folder gets
/// its mode before its name, for the daemon may be killed in between.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_folder(parent)?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_dir(&new); // left by a daemon that was killed
    DirBuilder::new().mode(0o700).create(&new)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(&new, flags, Mode::empty())
        // By its descriptor: the name could mean something else by now.
        .and_then(|folder| rustix::fs::fchmod(folder, Mode::from_raw_mode(0o755)))
        .map_err(io::Error::from)
        .and_then(|()| fs::rename(&new, path));
    if made.is_err() {
        let _ = fs::remove_dir(&new);
    }
    // Another program comes in too.
    if path.is_dir() { Ok(()) } else { made }
}

impl Cache {
    /// Makes a cache in this folder, which is created on first use.
    #[must_use]
    pub fn new(folder: PathBuf, limit_bytes: u64) -> Cache {
        Cache { folder, limit_bytes, arrivals: Arc::default() }
    }

    /// Finds a file with this content: the program's own path, where no other user can change it, or a received one.
    /// `for_all`: the program runs as another user, so the file at its own path has to be one that all may execute.
    #[must_use]
    pub fn find(&self, path: &Path, binary: &Binary, for_all: bool) -> Option<PathBuf> {
        match why_not_own(path, binary, for_all) {
            None => Some(path.to_owned()),
            Some(why) => {
                if path.exists() {
                    tracing::info!(path = %path.display(), why, "this host's own file is not used");
                }
                self.find_kept(path, binary)
            }
        }
    }

    /// Finds a received file with this content.
    #[must_use]
    pub fn find_kept(&self, path: &Path, binary: &Binary) -> Option<PathBuf> {
        let kept = self.place(path, binary);
        let found = self.check_folder().is_ok() && is(&kept, binary);
        if found && let Ok(file) = File::open(&kept) {
            let _ = file.set_modified(SystemTime::now()); // in use: the last to be evicted
        }
        found.then_some(kept)
    }

    fn place(&self, path: &Path, binary: &Binary) -> PathBuf {
        let name = path.file_name().map_or_else(|| "program".into(), ToOwned::to_owned);
        self.folder.join(blake3::Hash::from_bytes(binary.hash).to_hex().as_str()).join(name)
    }

    /// Starts to take a program. Waits while another launcher sends the same, and while the incoming ones leave no room
    /// for it.
    ///
    /// # Errors
    /// When the folder cannot be written, or the program is longer than the whole limit.
    pub fn take(&self, path: &Path, binary: Binary) -> io::Result<Arrival> {
        make_folder(&self.folder).map_err(|error| explain(error, &self.folder))?;
        self.check_folder()?;
        let (place, most) = (self.place(path, &binary), self.limit_bytes);
        if binary.bytes > most {
            return Err(io::Error::other(format!("it has {} bytes, limits.cache_bytes is {most}", binary.bytes)));
        }
        let (mut list, mut is_looked_for) = (self.arrivals.list(), true);
        loop {
            if is_looked_for && place.exists() && list.iter().all(|(other, _)| *other != place) {
                drop(list); // reading a program takes long
                if let Some(kept) = self.find_kept(path, &binary) {
                    return Ok(Arrival::Kept(kept));
                }
                (list, is_looked_for) = (self.arrivals.list(), false);
            } else if is_room_for(&list, &place, binary.bytes, most) {
                break;
            } else {
                list = self.arrivals.changed.wait(list).unwrap_or_else(PoisonError::into_inner);
                is_looked_for = true;
            }
        }
        self.make_room(list.iter().map(|(_, bytes)| bytes).sum::<u64>() + binary.bytes)?;
        list.push((place.clone(), binary.bytes));
        let room = Room { arrivals: Arc::clone(&self.arrivals), place };
        drop(list);
        let file = tempfile::Builder::new().prefix(INCOMING).tempfile_in(&self.folder);
        let file = file.map_err(|error| explain(error, &self.folder))?;
        let hasher = blake3::Hasher::new();
        Ok(Arrival::Incoming(Box::new(Incoming { file, room, binary, received_bytes: 0, hasher })))
    }

    /// Checks that the folder is this user's alone: its name may be known, and lie where others may write.
    fn check_folder(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.folder)?;
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        if found.is_dir() && is_own && found.mode() & 0o022 == 0 {
            return Ok(());
        }
        let (folder, user) = (self.folder.display(), rustix::process::geteuid().as_raw());
        Err(io::Error::other(format!(
            "{folder}, where programs are kept, has to be a folder (no link) that belongs to user {user} and that \
             nobody else may write (chmod go-w), or start gossamer-daemon with another --cache"
        )))
    }

    /// Returns the bytes of kept programs.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.kept().iter().map(|kept| kept.1).sum()
    }

    /// Returns the kept programs: the time of last use, length and path of each.
    fn kept(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries(&self.folder).flat_map(|folder| entries(&folder.path()));
        let known = files.filter_map(|file| {
            let data = file.metadata().ok()?;
            Some((data.modified().ok()?, data.len(), file.path()))
        });
        known.collect()
    }

    /// Removes half-written files of killed daemons, and folders without a program.
    fn tidy(&self) {
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if file.file_type().is_ok_and(|kind| kind.is_dir()) && is_hash(&file.file_name()) {
                let _ = fs::remove_dir(file.path()); // stays if a program is in it
            }
            let modified = file.metadata().and_then(|found| found.modified());
            let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LEFT_BEHIND));
            if is_old && file.file_name().as_bytes().starts_with(INCOMING.as_bytes()) {
                let _ = fs::remove_file(file.path()); // another daemon was faster
            }
        }
    }

    fn make_room(&self, bytes: u64) -> io::Result<()> {
        self.tidy();
        let mut kept = self.kept();
        kept.sort_unstable();
        let mut used: u64 = kept.iter().map(|kept| kept.1).sum();
        for (_, length, path) in kept {
            if used.saturating_add(bytes) <= self.limit_bytes {
                break;
            }
            // A program that runs from there keeps its content until it ends.
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {} // gone: another incoming program made room too
            }
            let _ = path.parent().map(fs::remove_dir); // stays if another name is in it
            used -= length;
        }
        Ok(())
    }
}

/// An incoming program.
pub struct Incoming {
    file: tempfile::NamedTempFile,
    room: Room,
    binary: Binary,
    received_bytes: u64,
    hasher: blake3::Hasher,
}

impl Incoming {
    /// Takes the next piece; true when the program is complete.
    ///
    /// # Errors
    /// When there are more bytes than announced, or they cannot be written.
    pub fn push(&mut self, piece: &[u8]) -> io::Result<bool> {
        self.received_bytes += piece.len() as u64;
        if self.received_bytes > self.binary.bytes {
            return Err(io::Error::other("the launcher sent more than it said"));
        }
        self.hasher.update(piece);
        let written = self.file.write_all(piece);
        written.map_err(|error| explain(error, self.room.place.ancestors().nth(2).unwrap_or(&self.room.place)))?;
        Ok(self.received_bytes == self.binary.bytes)
    }

    /// Checks the content and keeps the program. The caller lets no other process start meanwhile: one that inherits
    /// the open file, even for a moment, would make it impossible to execute.
    ///
    /// # Errors
    /// When the content is not the announced one, or cannot be kept.
    pub fn finish(self) -> io::Result<PathBuf> {
        if *self.hasher.finalize().as_bytes() != self.binary.hash {
            return Err(io::Error::other("what the launcher sent is not what it said: its hash differs"));
        }
        self.file.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
        let mut path = self.file.into_temp_path(); // closes the file
        let place = &self.room.place;
        let folder = place.parent().unwrap_or(place);
        let mut list = self.room.arrivals.list(); // held: it counts as incoming or as kept, never as both
        for left in (0..NAMINGS).rev() {
            make_folder(folder)?;
            path = match path.persist(place) {
                Ok(()) => break,
                Err(error) if left > 0 && error.error.kind() == io::ErrorKind::NotFound => error.path,
                Err(error) => {
                    let _ = fs::remove_dir(folder); // stays if another name is in it
                    return Err(error.error);
                }
            }
        }
        list.retain(|(other, _)| other != place);
        drop(list);
        Ok(place.clone())
    }
}

/// Returns whether a name is that of a hash, and so of a folder of this cache.
fn is_hash(name: &std::ffi::OsStr) -> bool {
    name.len() == 2 * blake3::OUT_LEN && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

/// Checks that a file looks executable, for an error before anything is started.
///
/// # Errors
/// A text, when it does not.
pub fn check_executable(path: &Path) -> Result<(), String> {
    let data = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !data.is_file() || data.permissions().mode() & 0o111 == 0 {
        return Err(format!("{} is not an executable file", path.display()));
    }
    Ok(())
}

/// Makes a path from bytes.
#[must_use]
pub fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Reads the next piece of a program that is being sent.
///
/// # Errors
/// When it cannot be read.
pub fn read_piece(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;
