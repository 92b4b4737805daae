//! Processes that lost their parent and came to this one: killed and collected, so that nothing stays behind of a
//! program, whatever its machines have started.
//!
//! Daemon and part are *subreapers*: the orphans among their descendants become their children, not those of process 1.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

const PAUSE: Duration = Duration::from_millis(2);

/// From here on orphans come to this process.
///
/// # Errors
/// When the system refuses.
pub fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Kills and collects all children of this process but the `known` ones; those that come meanwhile too. Gives up after
/// `limit`, and says how many were left then. The caller starts no process meanwhile that is not known.
pub fn end(known: &[Pid], limit: Duration) -> usize {
    let start = Instant::now();
    loop {
        let orphans: Vec<Pid> = children().into_iter().filter(|child| !known.contains(child)).collect();
        for orphan in &orphans {
            let _ = kill_process(*orphan, Signal::KILL); // it is our child: its number is not another's
            let _ = waitpid(Some(*orphan), WaitOptions::NOHANG); // if not now, then in the next round
        }
        if orphans.is_empty() || start.elapsed() >= limit {
            return orphans.len();
        }
        std::thread::sleep(PAUSE);
    }
}

/// The children of this process, the dead ones included.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent(*pid) == Some(own)).filter_map(Pid::from_raw).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_this_process_is_found() {
        let own = getpid().as_raw_nonzero().get();
        assert_eq!(parent(own), rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()));
        assert_eq!(parent(-1), None);
    }
}
