//! The launcher on a terminal: a pseudo terminal with the test as the user on its other side.
#![allow(unsafe_code)] // pre_exec

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use limits::wait_until;
use processes::{ChildProcess, is_gone, wait_until_gone};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::rig::{command, parse_pid};

crate::tests![ctrl_c_ends_all_machines, what_is_typed_goes_to_machine_0, a_launcher_in_the_background_is_not_stopped];

struct Terminal {
    user: File,
    screen: Arc<Mutex<String>>,
    process: ChildProcess,
}

/// Runs a command in a session of its own with a new terminal.
fn on_terminal(mut command: Command) -> Terminal {
    let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&user).unwrap();
    unlockpt(&user).unwrap();
    let path = ptsname(&user, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(path).unwrap();
    let clone = || terminal.try_clone().unwrap();
    command.stdin(clone()).stdout(clone()).stderr(clone());
    let make_session = || {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        Ok(())
    };
    // SAFETY: two system calls between fork and exec, nothing else.
    unsafe { command.pre_exec(make_session) };
    let process = command.spawn().unwrap().into();

    let user = File::from(user);
    let screen = Arc::new(Mutex::new(String::new()));
    let (mut reader, shown) = (user.try_clone().unwrap(), Arc::clone(&screen));
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // An error (EIO) says that the last process has left the terminal.
        while let Ok(count) = reader.read(&mut bytes) {
            shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    Terminal { user, screen, process }
}

impl Terminal {
    fn lines(&self) -> Vec<String> {
        self.screen.lock().unwrap().lines().map(str::to_owned).collect()
    }

    fn until_shown(&self, text: &str) {
        wait_until(text, || self.screen.lock().unwrap().contains(text));
    }

    fn ready(&self, machines: usize) -> Vec<u32> {
        let mut pids = Vec::new();
        wait_until("machines to be ready", || {
            pids = self.lines().iter().filter_map(|line| Some(parse_pid(line)?.1)).collect();
            pids.len() == machines
        });
        pids
    }

    fn code(&mut self) -> Option<i32> {
        self.process.wait().code()
    }
}

fn ctrl_c_ends_all_machines() {
    let mut terminal = on_terminal(command(2, &[], &["wait"]));
    let modes = rustix::termios::tcgetattr(&terminal.user).unwrap();
    let pids = terminal.ready(2);
    terminal.user.write_all(b"\x03").unwrap();
    wait_until_gone(pids);
    assert_eq!(terminal.code(), Some(130));
    terminal.until_shown("the program was ended by signal 2 (SIGINT)");
    let after = rustix::termios::tcgetattr(&terminal.user).unwrap();
    assert_eq!((after.local_modes, after.input_modes), (modes.local_modes, modes.input_modes));
}

fn what_is_typed_goes_to_machine_0() {
    let mut terminal = on_terminal(command(2, &[], &["cat"]));
    terminal.ready(2);
    terminal.user.write_all(b"typed\n\x04").unwrap(); // and the end of file
    assert_eq!(terminal.code(), Some(0));
    terminal.until_shown("m0 | read 6 bytes");
    terminal.until_shown("m0 | typed");
    terminal.until_shown("m1 | read 0 bytes");
}

/// A shell with job control starts the launcher with `&`: it must run to its end although the terminal has input.
fn a_launcher_in_the_background_is_not_stopped() {
    let launcher = command(2, &[], &["end", "8"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "set -m; \"$@\" & wait $!; exit $?", "sh"]).arg(launcher.get_program()).args(launcher.get_args());
    let mut terminal = on_terminal(shell);
    match terminal.user.write_all(b"input for the shell\n") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
        _ => {}
    }
    let pids = terminal.ready(2);
    assert_eq!(terminal.code(), Some(8), "{:?}", terminal.lines());
    assert!(pids.into_iter().all(is_gone));
}
