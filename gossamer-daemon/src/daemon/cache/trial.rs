//! Trial of the cache: whether it could take a program now, and whether the programs' user could execute it; if not,
//! the problem and its cure.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, getxattr, statvfs};
use rustix::io::Errno;

use super::{Cache, INCOMING, make_folder};

/// Bytes written on trial.
const TRIAL_BYTES: usize = 64 << 10;

impl Cache {
    /// Makes the folder if it is missing, and writes and removes a file there. `ids`: user and group of the programs,
    /// where they differ from this process's.
    ///
    /// # Errors
    /// A text with the cure.
    pub fn try_out(&self, ids: Option<(u32, u32)>) -> Result<(), String> {
        let in_words = |error: io::Error| error.to_string();
        make_folder(&self.folder).map_err(|error| explain(error, &self.folder)).map_err(in_words)?;
        self.check_folder().map_err(in_words)?;
        let file = tempfile::Builder::new().prefix(INCOMING).tempfile_in(&self.folder);
        let written = file.and_then(|mut file| file.write_all(&[0; TRIAL_BYTES]));
        written.map_err(|error| explain(error, &self.folder)).map_err(in_words)?;
        let folder = self.folder.display();
        let system = statvfs(&self.folder).map_err(|error| format!("{folder}, where programs are kept: {error}"))?;
        if system.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(format!(
                "{folder}, where programs are kept, is on a file system from which none may be executed (noexec): \
                 start gossamer-daemon with another --cache"
            ));
        }
        match ids.and_then(|ids| closed_part(&self.folder, ids)) {
            Some((part, user)) => Err(format!(
                "{folder}, where programs are kept, cannot be reached by user {user}, whom programs run as: `chmod o+x \
                 {}`, or start gossamer-daemon with another --cache",
                part.display()
            )),
            None => Ok(()),
        }
    }
}

/// Returns the first parent folder that this user may not pass, and the user.
fn closed_part(folder: &Path, (user, group): (u32, u32)) -> Option<(&Path, u32)> {
    let may_pass = |found: &Metadata| match () {
        () if found.uid() == user => found.mode() & 0o100 != 0,
        () if found.gid() == group => found.mode() & 0o010 != 0,
        () => found.mode() & 0o001 != 0,
    };
    // With an access list the mode does not tell who may pass.
    let has_list = |part: &Path| getxattr(part, "system.posix_acl_access", &mut [0_u8; 0]).is_ok();
    let mut parts: Vec<&Path> = folder.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    parts.reverse();
    let is_closed = |part: &&Path| fs::metadata(part).is_ok_and(|found| !may_pass(&found)) && !has_list(part);
    parts.into_iter().find(is_closed).map(|part| (part, user))
}

/// Adds the folder's name and a cure to its error.
pub fn explain(error: io::Error, folder: &Path) -> io::Error {
    let user = rustix::process::geteuid().as_raw();
    let other = "start gossamer-daemon with another --cache";
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("give it to user {user} (chown), as whom gossamer-daemon runs, or {other}")
        }
        ErrorKind::ReadOnlyFilesystem => other.to_owned(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("make room there, lower limits.cache_bytes in rack.yaml, or {other}")
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => format!("a file is in its place: remove it, or {other}"),
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => format!("its links go in a circle: {other}"),
        _ => other.to_owned(),
    };
    io::Error::new(error.kind(), format!("{}, where programs are kept: {error}; {cure}", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[track_caller]
    fn fails(folder: PathBuf, ids: Option<(u32, u32)>, words: &[&str]) {
        let trouble = Cache::new(folder.clone(), 1000).try_out(ids).unwrap_err();
        for word in [words, &[folder.to_str().unwrap(), "--cache"]].concat() {
            assert!(trouble.contains(word), "no {word:?}: {trouble}");
        }
    }

    #[test]
    fn a_good_cache_is_made_and_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/cache");
        Cache::new(path.clone(), 1000).try_out(None).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        Cache::new(path, 1000).try_out(None).unwrap();
    }

    #[test]
    fn what_is_no_folder_of_ones_own_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("file"), "").unwrap();
        fails(place("file/cache"), None, &["a file is in its place"]);
        fails(place("file"), None, &["a file is in its place"]);
        std::os::unix::fs::symlink(folder.path(), place("link")).unwrap();
        fails(place("link"), None, &["no link"]);
        std::os::unix::fs::symlink("nowhere", place("lost")).unwrap();
        fails(place("lost"), None, &["a file is in its place"]);
        fs::create_dir(place("open")).unwrap();
        set_mode(&place("open"), 0o777);
        fails(place("open"), None, &["chmod go-w"]);
        fails("/proc/cache".into(), None, &["where programs are kept"]); // not even root can
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(place("open"), Some(65534), None).unwrap();
            set_mode(&place("open"), 0o755);
            fails(place("open"), None, &["belongs to user 0"]);
        } else {
            set_mode(&place("open"), 0o555);
            fails(place("open"), None, &["Permission denied", "chown"]);
            fails(place("open/cache"), None, &["Permission denied", "chown"]);
        }
    }

    #[test]
    fn a_full_file_system_is_told() {
        let error = explain(Errno::NOSPC.into(), Path::new("/a/cache"));
        let words = ["/a/cache", "No space left", "limits.cache_bytes", "--cache"];
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }

    /// Programs run as a user without access to the cache.
    #[test]
    fn a_folder_that_is_closed_to_the_programs_user_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("closed/cache");
        let (own, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        set_mode(folder.path(), 0o755);
        Cache::new(path.clone(), 1000).try_out(None).unwrap();
        let closed = folder.path().join("closed");
        for (mode, ids, may_pass) in [
            (0o755, (own + 1, group + 1), true),
            (0o700, (own + 1, group + 1), false),
            (0o710, (own + 1, group), true),
            (0o701, (own + 1, group), false),
            (0o701, (own + 1, group + 1), true),
            (0o700, (own, group), true),
        ] {
            set_mode(&closed, mode);
            if may_pass {
                Cache::new(path.clone(), 1000).try_out(Some(ids)).unwrap();
            } else {
                fails(path.clone(), Some(ids), &["whom programs run as", &format!("chmod o+x {}`", closed.display())]);
            }
        }
    }
}
