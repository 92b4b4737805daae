//! Leftovers of a program: processes that fork, and outlive it if they can. All of it is bounded in number and time,
//! for a failing test must not take its machine along. Their name is the test's, so that their dead are found too.
#![allow(unsafe_code)] // fork

use std::ffi::CString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limits::wait_until;

/// Far longer than they should live.
const LIFE: Duration = Duration::from_secs(100);
/// Most processes, one after the other.
const LINKS: u32 = 10_000;
/// Number of processes from which on the chain counts as at work.
const AT_WORK: u32 = 20;
/// Chains that run at the same time.
const CHAINS: u32 = 16;
/// Length of a chain that ends by itself.
const SHORT: u32 = 300;
const BOMB_DEPTH: u32 = 7;
/// Kinds of leftovers.
pub const KINDS: [&str; 6] = ["chain", "sessions", "deaf", "chains", "bomb", "pair"];

/// Starts processes of this kind, and returns when they are at work.
pub fn start(kind: &str, name: &str, marker: &str) {
    let this = std::env::current_exe().unwrap();
    let mut first =
        Command::new(this).args(["machine", "link", kind, name, marker]).stdin(Stdio::null()).spawn().unwrap();
    wait_until("links to be at work", || Path::new(marker).exists());
    let _ = first.try_wait(); // the first of a chain has gone: nobody else may collect it
}

/// Runs as the first of them.
pub fn play(kind: &str, name: &str, marker: &str) -> ! {
    rustix::thread::set_name(&CString::new(name).unwrap()).unwrap();
    let at_work = || std::fs::write(marker, "").unwrap();
    match kind {
        "chain" => chain(LINKS, false, at_work),
        "short" => chain(SHORT, true, at_work),
        "sessions" => chain(LINKS, true, at_work),
        "deaf" => {
            // SAFETY: a set of signals, filled by the call before it is used.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
            }
            chain(LINKS, true, at_work)
        }
        "chains" => {
            let _ = (1..CHAINS).any(|_| fork() == 0);
            chain(LINKS / CHAINS, true, at_work)
        }
        "bomb" => bomb(at_work),
        "pair" => pair(at_work),
        _ => panic!("no such kind: {kind}"),
    }
    std::fs::write(over(marker), "").unwrap();
    exit()
}

/// Each process forks the next, and exits.
fn chain(links: u32, has_sessions: bool, at_work: impl Fn()) {
    let end = Instant::now() + LIFE;
    let mut link = 0;
    while link < links && Instant::now() < end {
        match fork() {
            0 => {
                link += 1;
                if has_sessions {
                    new_session();
                }
                if link == AT_WORK {
                    at_work();
                }
            }
            pid if pid > 0 => exit(),
            _ => std::thread::sleep(Duration::from_micros(200)), // a limit is reached: once more
        }
    }
}

/// All processes fork, and stay.
fn bomb(at_work: impl Fn()) {
    let end = Instant::now() + LIFE;
    for _ in 0..BOMB_DEPTH {
        if fork() == 0 {
            new_session();
        }
    }
    at_work();
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A pair: each starts a new one when the other is killed.
fn pair(at_work: impl Fn()) {
    let end = Instant::now() + LIFE;
    let mut forks = 0;
    let mut parent = None;
    let mut child = None;
    while Instant::now() < end && forks < LINKS {
        let has_lost_parent = parent.is_some() && rustix::process::getppid() != parent;
        // SAFETY: the call takes a number, and a null pointer for the old value, so it writes nowhere.
        let has_lost_child =
            child.is_some_and(|pid| unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) } != 0);
        if (parent.is_none() && child.is_none()) || has_lost_parent || has_lost_child {
            forks += 1;
            let this = rustix::process::getpid();
            match fork() {
                0 => {
                    new_session();
                    (parent, child) = (Some(this), None);
                    at_work();
                }
                pid => (parent, child) = (None, (pid > 0).then_some(pid)),
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn fork() -> libc::pid_t {
    // SAFETY: this process has one thread, so its child may do everything that it could do itself.
    unsafe { libc::fork() }
}

fn new_session() {
    let _ = rustix::process::setsid(); // it leads one already
}

fn exit() -> ! {
    // SAFETY: it ends the process, and runs none of its code.
    unsafe { libc::_exit(0) }
}

/// Returns the path of the file that they make when they reach their bound before they were ended.
pub fn over(marker: &str) -> String {
    format!("{marker}.over")
}

/// Starts waiting processes, until a limit is reached or there are `most`; returns their number.
pub fn fill(most: u32) -> u32 {
    (0..most)
        .find(|_| match fork() {
            0 => {
                std::thread::sleep(LIFE);
                exit()
            }
            pid => pid < 0,
        })
        .unwrap_or(most)
}

/// Returns all processes with this name, the dead ones included: number, state and parent.
pub fn left(name: &str) -> Vec<String> {
    let name = format!("({name}) ");
    let found = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        stat.contains(&name).then(|| stat.split(' ').take(4).collect::<Vec<_>>().join(" "))
    });
    found.collect()
}
