//! Starts processes that meet by themselves, each with its variables, on the loopback network.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use comm::secure::Key;
use processes::{ChildProcess, Ended};

pub const ROLES: &str = env!("CARGO_BIN_EXE_test-roles");
pub const LAUNCH: &str = env!("CARGO_BIN_EXE_test-launch");
pub const SUITE: &str = env!("CARGO_BIN_EXE_test-suite");

/// A place to meet, and the key to it.
pub struct Meeting {
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Meeting {
    pub fn new() -> Meeting {
        // Free now; nobody else asks for this very port before machine 0 does.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        Key::generate().unwrap().write_new(&folder.path().join("key")).unwrap();
        Meeting { port, folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Process number `index` of `count`.
    pub fn command(&self, index: u16, count: u16, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("GOSSAMER_MEET", format!("127.0.0.1:{}", self.port));
        command.env("GOSSAMER_COUNT", count.to_string()).env("GOSSAMER_INDEX", index.to_string());
        command.env("GOSSAMER_KEY_FILE", self.key());
        command
    }

    /// Starts all of them, in this role.
    pub fn start(&self, count: u16, role: &[&str]) -> Vec<ChildProcess> {
        self.start_with(count, role, &[])
    }

    pub fn start_with(&self, count: u16, role: &[&str], variables: &[(&str, &str)]) -> Vec<ChildProcess> {
        let start = |index| {
            let mut command = self.command(index, count, ROLES, role);
            command.envs(variables.iter().copied());
            ChildProcess::start(command)
        };
        (0..count).map(start).collect()
    }
}

/// Waits for all of them.
pub fn end(all: Vec<ChildProcess>) -> Vec<Ended> {
    all.into_iter().map(ChildProcess::end).collect()
}
