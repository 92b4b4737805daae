//! Limit of open files, which a machine with many workers and peers reaches: it needs two connections for
//! each worker and remote machine. Here too: the cure for messages, and the resolver, which takes the lack of
//! descriptors for a name that it does not know.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the rest of a message about this error: the limit of open files and how to raise it, if that is the cause.
#[must_use]
pub fn cure(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => {
            "; this process may have no more open files: raise `ulimit -n`, or LimitNOFILE= of its unit"
        }
        Some(Errno::NFILE) => "; this host may have no more open files: raise fs.file-max",
        _ => "",
    }
}

/// Returns the addresses of a host, which is a name or an address.
///
/// # Errors
/// When it has none, or when the resolver could not open what it needs: that error is reported, not the resolver's,
/// which knows no such name then.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match (host, port).to_socket_addrs() {
        Ok(all) => Ok(all.collect()),
        Err(error) => Err(File::open("/dev/null").err().filter(|lack| !cure(lack).is_empty()).unwrap_or(error)),
    }
}

/// Calls `open`. If this process may have no more open files, raises its own limit to the system's maximum
/// and tries once more.
///
/// # Errors
/// The errors of `open`.
pub(crate) fn with_room<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let before = getrlimit(Resource::Nofile).current;
    match open() {
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) && is_raised_above(before) => open(),
        opened => opened,
    }
}

/// Raises the limit to its maximum, and returns whether it is now higher than `before`: another thread may
/// have raised it. `None` is no limit.
fn is_raised_above(before: Option<u64>) -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If the system refuses, the limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    match (before, getrlimit(Resource::Nofile).current) {
        (Some(before), Some(now)) => now > before,
        (before, now) => before.is_some() && now.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_limit_that_another_thread_has_raised_is_room_too() {
        let limit = getrlimit(Resource::Nofile);
        let lower = limit.maximum.map_or(4096, |maximum| maximum - 1);
        let raise = || setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("is allowed");
        let full = || Err(io::Error::from(Errno::MFILE));
        for raised_by_other in [false, true] {
            setrlimit(Resource::Nofile, Rlimit { current: Some(lower), ..limit }).expect("is allowed");
            let attempts = Cell::new(0);
            let opened = with_room(|| {
                attempts.set(attempts.get() + 1);
                if attempts.get() > 1 {
                    return Ok("open");
                }
                if raised_by_other {
                    raise();
                }
                full()
            });
            assert_eq!((opened.expect("there is room"), attempts.get()), ("open", 2));
        }
        let attempts = Cell::new(0);
        let refused = with_room(|| {
            attempts.set(attempts.get() + 1);
            full()
        });
        assert!(refused.is_err() && attempts.get() == 1, "at the highest limit it is not tried again");
        setrlimit(Resource::Nofile, limit).expect("is allowed");
    }

    /// Set in the child of a test, which uses up its descriptors.
    const CHILD: &str = "COMM_DESCRIPTORS_TEST_CHILD";

    #[test]
    fn names_that_cannot_be_looked_up_for_want_of_descriptors_are_not_called_unknown() {
        if std::env::var_os(CHILD).is_none() {
            let name = "names_that_cannot_be_looked_up_for_want_of_descriptors_are_not_called_unknown";
            let child = std::process::Command::new(std::env::current_exe().expect("this program's file"))
                .args(["--exact", &format!("descriptors::tests::{name}"), "--nocapture"])
                .env(CHILD, "1")
                .output()
                .expect("it starts");
            let said = String::from_utf8_lossy(&child.stdout);
            return assert!(child.status.success() && said.contains("1 passed"), "{said}{child:?}");
        }
        let unknown = resolve("no-such-name.invalid", 1).expect_err("there is no such name");
        assert_eq!(cure(&unknown), "", "{unknown}");
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).expect("is allowed");
        let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        for name in ["localhost", "no-such-name.invalid"] {
            let error = resolve(name, 1).expect_err("nothing can be opened");
            assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{error}");
            let text = crate::Error::system(format!("looking up {name}"))(error).to_string();
            assert!(text.starts_with(&format!("looking up {name}: Too many open files")), "{text}");
            assert!(text.contains("`ulimit -n`") && text.contains("LimitNOFILE="), "{text}");
        }
        // An address needs no look-up.
        assert_eq!(resolve("127.0.0.1", 7).expect("an address"), [([127, 0, 0, 1], 7).into()]);
        drop(files);
        setrlimit(Resource::Nofile, limit).expect("is allowed");
        assert!(!resolve("localhost", 1).expect("it is known").is_empty());
    }
}
