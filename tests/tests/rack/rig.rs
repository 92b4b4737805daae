//! Commands for `test-roles` alone or as machines of a program, and roles that must succeed.

use std::process::Command;

use processes::{Ended, run};

pub const LAUNCH: &str = env!("CARGO_BIN_EXE_test-launch");
pub const ROLES: &str = env!("CARGO_BIN_EXE_test-roles");
/// The behavioural suite.
pub const SUITE: &str = env!("CARGO_BIN_EXE_test-suite");
pub const STRANGER: &str = env!("CARGO_BIN_EXE_test-stranger");

/// Returns the launcher with this many machines of a program.
pub fn launcher(machines: u16, options: &[&str], program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(LAUNCH);
    command.args(["run", "--local", &machines.to_string()]).args(options).arg(program).args(args);
    command
}

/// Returns the command for `test-roles` in a role: as this many machines, or (0) by itself.
pub fn role(machines: u16, role: &str) -> Command {
    if machines == 0 {
        let mut command = Command::new(ROLES);
        command.arg(role);
        return command;
    }
    launcher(machines, &[], ROLES, &[role])
}

/// Tested transports between machines: number of machines, and the launcher's options. `auto` is shared memory within,
/// and TCP between, two hosts that the launcher pretends to have.
pub const WAYS: [(u16, &[&str]); 5] = [
    (1, &[]),
    (2, &["--fabric", "shm"]),
    (4, &["--fabric", "shm"]),
    (3, &["--fabric", "tcp"]),
    (4, &["--fabric", "auto", "--pretend-hosts", "2"]),
];

/// Plays a role, which must succeed, alone and with all transports.
#[track_caller]
pub fn play(name: &str) -> Vec<Ended> {
    let mut all = vec![play_on(0, name)];
    for (machines, options) in WAYS {
        let ended = run(launcher(machines, options, ROLES, &[name]));
        assert!(ended.status.success(), "{name} on {machines} machines, {options:?}: {ended:#?}");
        all.push(ended);
    }
    all
}

#[track_caller]
pub fn play_on(machines: u16, name: &str) -> Ended {
    let ended = run(role(machines, name));
    assert!(ended.status.success(), "{name} on {machines} machines: {ended:#?}");
    ended
}

/// A kind of rack whose program outlives machines.
#[derive(Clone, Copy)]
pub struct Outliving {
    pub machines: u16,
    /// Workers of all machines together.
    pub threads: u16,
    /// Machines that may be lost.
    pub losses: u16,
    /// Hosts that the launcher pretends to have, where it does.
    pub hosts: u16,
}

impl Outliving {
    /// Three machines of two workers, of which one may be lost.
    pub const THREE: Outliving = Outliving { machines: 3, threads: 6, losses: 1, hosts: 2 };

    /// Plays a role, which must succeed and say these words, over each transport.
    #[track_caller]
    pub fn plays(self, name: &str, words: &str) {
        let [threads, losses, hosts] = [self.threads, self.losses, self.hosts].map(|count| count.to_string());
        for way in [["--fabric", "shm"], ["--fabric", "tcp"], ["--pretend-hosts", &hosts]] {
            let options = [&["--threads", &threads, "--survives", &losses], &way[..]].concat();
            let ended = run(launcher(self.machines, &options, ROLES, &[name]));
            assert!(ended.status.success() && ended.stdout.contains(words), "{name}, {options:?}: {ended:#?}");
        }
    }
}
