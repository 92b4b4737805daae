//! State, parent and start of a process, as `/proc/PID/stat` tells them.

use std::fs;

/// A process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// It has ended, and is not collected yet.
    pub is_dead: bool,
    /// Process id of its parent; 0 where that is outside of this namespace.
    pub parent: i32,
    /// Its start in the kernel's ticks since boot: no two processes with one pid start at the same moment.
    pub started: u64,
}

impl ProcessStat {
    /// Returns the process of this pid; `None` if there is none.
    #[must_use]
    pub fn of(pid: i32) -> Option<ProcessStat> {
        // `PID (NAME) STATE PARENT ..`; a name may be any bytes, even half a character. The start is the 22nd field.
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(ProcessStat { is_dead, parent, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found() {
        let found = ProcessStat::of(rustix::process::getpid().as_raw_nonzero().get()).unwrap();
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        assert!(!found.is_dead && found.parent == parent && found.started > 0, "{found:?}");
        assert_eq!(ProcessStat::of(-1), None);
    }

    #[test]
    fn a_name_may_be_any_bytes() {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_name(c"x) Z 1 (\xff").unwrap();
            ProcessStat::of(rustix::thread::gettid().as_raw_nonzero().get()) // the id of a thread works as a pid there
        });
        let found = thread.join().unwrap().expect("the thread was there");
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        assert!(!found.is_dead && found.parent == parent, "{found:?}");
    }
}
