//! Children of this process: those with a waiter here, and *orphans*, processes that lost their parent and were moved
//! here. Orphans are collected as soon as they are dead, and killed when their program is over, so that a program
//! leaves nothing behind, whatever its machines have started.
//!
//! Daemon, part and launcher are *subreapers*: the orphans among their descendants become their children, not those of
//! process 1. (Or they are process 1, of a container.)
//!
//! Invariants: each process is started by [`spawn`] and collected by [`try_collect`], so it is in `CHILDREN` for as
//! long as its number is its own, and nobody else collects it. All of that, and each signal to an orphan, happens under
//! that lock: so an orphan's number is still its own when the signal is sent. Nobody waits under the lock.
#![allow(unsafe_code)] // waitid

mod chase;
mod urgent;

use std::collections::HashSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGCHLD;

use crate::signals::ignored_signals;

/// Pause for killed processes to go.
const DEATH_PAUSE: Duration = Duration::from_millis(2);
/// Pause between looks at orphans while a dead child waits for its owner to collect it.
const TURN_PAUSE: Duration = Duration::from_millis(50);
/// Process 1 gets orphans at any time, also from parents that it has not started.
const STRAY_LOOK: Duration = Duration::from_millis(500);
const STACK_BYTES: usize = 128 << 10;

static CHILDREN: Mutex<Children> =
    Mutex::new(Children { waited_for: Vec::new(), spared: Vec::new(), spares_session: false });
static CHANGED: Condvar = Condvar::new();
/// Whether [`adopt`] was called: otherwise all children are other code's to collect.
static ADOPTS: AtomicBool = AtomicBool::new(false);

struct Children {
    /// Children with a waiter here.
    waited_for: Vec<Pid>,
    /// Children from before this program: started by the process that became it by exec. Collected, but not killed.
    spared: Vec<Pid>,
    /// Spares all children in this process's own session, too.
    spares_session: bool,
}

impl Children {
    fn lock() -> MutexGuard<'static, Children> {
        CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the children without a waiter here.
    fn orphans(&self) -> Vec<Pid> {
        chase::children().into_iter().filter(|child| !self.waited_for.contains(child)).collect()
    }

    /// Returns whether a child is a leftover of a program.
    fn is_left(&self, child: Pid) -> bool {
        let is_near = || chase::session(child.as_raw_nonzero().get()) == chase::session(0);
        let is_spared = self.spared.contains(&child) || (self.spares_session && is_near());
        !is_spared && !self.waited_for.contains(&child)
    }

    /// Collects the dead orphans; returns the number of leftovers of programs.
    fn collect_all(&mut self) -> usize {
        self.orphans().into_iter().for_each(|orphan| self.collect(orphan));
        self.orphans().into_iter().filter(|orphan| self.is_left(*orphan)).count()
    }

    /// Collects an orphan, if it is dead.
    fn collect(&mut self, orphan: Pid) {
        if matches!(waitpid(Some(orphan), WaitOptions::NOHANG), Ok(Some(_))) {
            self.spared.retain(|spared| *spared != orphan);
        }
    }
}

/// Orphans that are never killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// Those from before the call.
    Earlier,
    /// Those in this process's session, too: the processes that it starts are in others.
    Session,
}

/// Makes orphans come to this process from now on, and starts a thread that collects them. To be called before anything
/// is started, and not where something else in the process starts children of its own.
///
/// # Errors
/// When the system refuses.
pub fn adopt(spare: Spare) -> io::Result<()> {
    adopt_after(spare, None)
}

/// Children of a process that executes its successor in its place: those with a waiter, and those that are never
/// killed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Former {
    waited_for: Vec<i32>,
    spared: Vec<i32>,
}

/// Returns the children for [`adopt_after`].
pub fn former() -> Former {
    let numbers = |pids: &[Pid]| pids.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    let children = Children::lock();
    Former { waited_for: numbers(&children.waited_for), spared: numbers(&children.spared) }
}

/// Like [`adopt`], in a process that was executed in the place of another with these children.
///
/// # Errors
/// When the system refuses.
pub fn adopt_after(spare: Spare, former: Option<&Former>) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    if ignored_signals() & (1 << (SIGCHLD - 1)) != 0 {
        // The parent of this process may have set SIGCHLD to be ignored. Then there would be no exit statuses.
        signal_hook::flag::register(SIGCHLD, Arc::default())?;
    }
    let mut children = Children::lock();
    let pids = |numbers: &[i32]| numbers.iter().copied().filter_map(Pid::from_raw).collect();
    match former {
        Some(Former { waited_for, spared }) => {
            (children.waited_for, children.spared) = (pids(waited_for), pids(spared));
        }
        None => children.spared = children.orphans(),
    }
    children.spares_session = spare == Spare::Session;
    drop(children);
    std::thread::Builder::new().name("reap".into()).stack_size(STACK_BYTES).spawn(reap_all)?;
    ADOPTS.store(true, Ordering::Relaxed); // a fact on its own
    Ok(())
}

/// Starts a process that the caller will collect with [`try_collect`].
///
/// # Errors
/// When it cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    // Under the lock: the standard library collects a child that fails to exec.
    let mut children = Children::lock();
    let child = command.spawn()?;
    children.waited_for.push(Pid::from_child(&child));
    CHANGED.notify_all();
    Ok(child)
}

/// Returns the exit status of a process that [`spawn`] started, if it has ended. Its number may be another's
/// afterwards.
///
/// # Errors
/// When the system gives no status.
pub fn try_collect(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let mut children = Children::lock();
    let status = child.try_wait();
    if !matches!(status, Ok(None)) {
        children.waited_for.retain(|pid| *pid != Pid::from_child(child));
        CHANGED.notify_all();
    }
    status
}

/// Like [`try_collect`], for a process whose number alone is known.
///
/// # Errors
/// When the system gives no status.
pub fn try_collect_by_number(child: Pid) -> io::Result<Option<ExitStatus>> {
    let mut children = Children::lock();
    let found = waitpid(Some(child), WaitOptions::NOHANG);
    if !matches!(found, Ok(None)) {
        children.waited_for.retain(|pid| *pid != child);
        CHANGED.notify_all();
    }
    Ok(found?.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
}

/// Makes this process an orphan: nobody waits for it any more.
pub fn abandon(child: Pid) {
    Children::lock().waited_for.retain(|pid| *pid != child);
    CHANGED.notify_all();
}

/// Kills and collects all orphans, also those that appear meanwhile, however fast they fork. Gives up after `limit`,
/// and returns the number that is left.
pub fn end(limit: Duration) -> usize {
    let start = Instant::now();
    let mut killed = HashSet::new();
    while ADOPTS.load(Ordering::Relaxed) {
        let _ahead = urgent::Urgent::start();
        let mut children = Children::lock();
        let killed_before = std::mem::replace(&mut killed, chase::kill_all(|child| children.is_left(child)));
        let left = children.collect_all();
        drop(children);
        if left == 0 || start.elapsed() >= limit {
            return left;
        }
        if killed.is_subset(&killed_before) {
            std::thread::sleep(DEATH_PAUSE);
        }
    }
    0
}

/// Collects orphans for as long as the process lives.
fn reap_all() {
    loop {
        let dead = dead_child();
        let mut children = Children::lock();
        match dead {
            Some(dead) if !children.waited_for.contains(&dead) => children.collect(dead),
            // Its owner will collect it. Until then the system reports it again and again, before others.
            Some(_) => {
                children.collect_all();
                drop(CHANGED.wait_timeout(children, TURN_PAUSE));
            }
            // There is no child; so, except for process 1, orphans can only come from processes started here.
            None if getpid().is_init() || !children.waited_for.is_empty() => {
                drop(CHANGED.wait_timeout(children, STRAY_LOOK));
            }
            None => drop(CHANGED.wait(children)),
        }
    }
}

/// Waits until a child is dead, without collecting it; `None` where there is no child.
fn dead_child() -> Option<Pid> {
    loop {
        let mut found = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: waitid writes a siginfo_t through the pointer that it is given, which points to `found`.
        let done = unsafe { libc::waitid(libc::P_ALL, 0, found.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
        if done == 0 {
            // SAFETY: all bytes of it are zero or were written by waitid, and any bytes are valid; after waitid it is
            // of the kind that has the number of a process.
            return Pid::from_raw(unsafe { found.assume_init().si_pid() });
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}
