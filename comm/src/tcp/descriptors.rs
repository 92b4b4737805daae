//! Limit of open files, which a machine with many workers and peers reaches: it needs two connections for
//! each worker and remote machine.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Calls `open`. If this process may have no more open files, raises its own limit to the system's maximum
/// and tries once more.
///
/// # Errors
/// The errors of `open`.
pub(super) fn with_room<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
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
}
