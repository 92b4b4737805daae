//! From nothing to a program on two hosts, by docs/running-a-rack.md: its commands are taken from it and typed, each
//! host with files of its own; and the messages that a newcomer meets, with the cures that it gives.
//!
//! Substitutes: copies of this test's binaries for `cargo build`, copies between two folders for `scp` and `ssh`, and
//! the addresses of this network for those of the documentation's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use processes::{ChildProcess, Ended};
use rustix::process::Signal;

use crate::network::Network;
use crate::rack::{DAEMON, LAUNCH, start};

const WORDCOUNT: &str = env!("CARGO_BIN_EXE_test-wordcount");
const NAMES: [&str; 2] = ["alpha", "beta"];
const ALPHA: usize = 0;
const BETA: usize = 1;

/// Commands that run first in a mount namespace of a host: its `/etc`, `/home`, `/usr/local/bin` and working folders
/// are its own.
const ENTER: &str = "set -e; mount --bind \"$HOST_FILES/etc\" /etc; mount --bind \"$HOST_FILES/usr/local/bin\" \
                     /usr/local/bin\nmount --bind \"$HOST_FILES/home\" /home\n\
                     mount --bind \"$HOST_FILES/work\" \"$ALL_FILES/work\"; cd \"$ALL_FILES/work/$PLACE\"; exec \"$@\"";

/// Replaces `scp`: the files before the last argument go to the folder, or file, of the host that it names.
const SCP: &str = "#!/bin/sh\nset -e\n[ \"$1\" = -p ] && shift\nfor to; do :; done\nhost=${to%%:*}; to=${to#*:}\n\
                   while [ $# -gt 1 ]; do cp -p \"$1\" \"$ALL_FILES/$host$to\"; shift; done\n";
/// Replaces `ssh HOST mkdir -p FOLDER` and `ssh HOST useradd --system USER`.
const SSH: &str = "#!/bin/sh\nset -e\nhost=$1; shift\ncase \"$1 $2\" in\n\
                   'mkdir -p') mkdir -p \"$ALL_FILES/$host$3\" ;;\n\
                   'useradd --system') useradd --prefix \"$ALL_FILES/$host\" --system \"$3\" ;;\n\
                   *) exit 1 ;;\nesac\n";
/// Replaces `cargo build --release …`.
const CARGO: &str = "#!/bin/sh\nset -e\n[ \"$1 $2\" = 'build --release' ]\nmkdir -p target/release\n\
                     cp \"$BUILT_LAUNCH\" target/release/gossamer-launch\ncp \"$BUILT_DAEMON\" \
                     target/release/gossamer-daemon\ncp \"$BUILT_WORDCOUNT\" target/release/wordcount\n";

/// Two hosts with nothing on them, and the document.
struct Newcomer {
    network: Network,
    folder: tempfile::TempDir,
    document: String,
}

impl Newcomer {
    fn new() -> Newcomer {
        let folder = tempfile::tempdir().unwrap();
        // Programs run as a user who needs access to them.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for part in ["bin", "work", "alpha/work/project"] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        for (name, script) in [("scp", SCP), ("ssh", SSH), ("cargo", CARGO)] {
            let path = folder.path().join("bin").join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in NAMES {
            for part in ["usr/local/bin", "work", "home"] {
                fs::create_dir_all(folder.path().join(name).join(part)).unwrap();
            }
            let copied = Command::new("cp").args(["-a", "/etc"]).arg(folder.path().join(name)).output().unwrap();
            assert!(copied.status.success(), "{copied:?}");
            let _ = fs::remove_dir_all(folder.path().join(name).join("etc/gossamer")); // this host may have one
        }
        let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/running-a-rack.md")).unwrap();
        Newcomer { network: Network::new(2), folder, document }
    }

    fn file(&self, host: usize, path: &str) -> PathBuf {
        self.folder.path().join(NAMES[host]).join(path)
    }

    /// Types a command on a host.
    fn types(&self, host: usize, line: &str) -> ChildProcess {
        println!("{}$ {line}", NAMES[host]);
        let mut command = Command::new("unshare");
        let files = self.folder.path().join(NAMES[host]);
        command.args(["--mount", "sh", "-c", ENTER, "sh", "sh", "-c", &format!("exec {line}")]);
        command
            .env("PLACE", if host == ALPHA { "project" } else { "" })
            .env("HOST_FILES", &files)
            .env("ALL_FILES", self.folder.path())
            .env("HOME", files.join("home"));
        command.env("CACHE_DIRECTORY", files.join("cache")); // root's would be the one of this test's host
        command.env("BUILT_LAUNCH", LAUNCH).env("BUILT_DAEMON", DAEMON).env("BUILT_WORDCOUNT", WORDCOUNT);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", self.folder.path().join("bin").display());
        command
            .env("PATH", path)
            .env_remove("GOSSAMER_RACK")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME");
        start(&self.network.hosts[host], command)
    }

    #[track_caller]
    fn does(&self, host: usize, line: &str) -> Ended {
        let ended = self.types(host, line).end();
        print!("{}{}", ended.stdout, ended.stderr);
        assert!(ended.status.success(), "{line}: {ended:#?}");
        ended
    }

    /// Types a command that fails with this message, which the document explains.
    #[track_caller]
    fn meets(&self, line: &str, status: i32, said: &str, explained: &str) {
        let ended = self.types(ALPHA, line).end();
        print!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{line}: {ended:#?}");
        assert!(ended.stdout.contains(said) || ended.stderr.contains(said), "no {said:?}: {ended:#?}");
        self.explains(explained);
    }

    /// Checks that the table of messages has this one.
    #[track_caller]
    fn explains(&self, message: &str) {
        let table = self.document.split("## Messages").nth(1).unwrap().split("\n## ").next().unwrap();
        let first_column = |line: &str| line.split('|').nth(1).unwrap_or_default().contains(message);
        assert!(table.lines().any(first_column), "docs/running-a-rack.md explains no {message:?}");
    }

    /// Returns the blocks of the steps in order, each with its kind, without indentation.
    fn blocks(&self) -> Vec<(String, String)> {
        let steps = self.document.split("## Steps").nth(1).unwrap().split("\n## ").next().unwrap();
        let mut blocks: Vec<(String, String)> = Vec::new();
        let mut is_inside = false;
        for line in steps.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)) {
            match line.strip_prefix("```") {
                Some(kind) if !is_inside => blocks.push((kind.to_owned(), String::new())),
                Some(_) => {}
                None if is_inside => blocks.last_mut().unwrap().1.push_str(&format!("{line}\n")),
                None => {}
            }
            is_inside ^= line.starts_with("```");
        }
        blocks
    }

    /// Returns the section of the document with this head.
    fn section(&self, head: &str) -> &str {
        self.document.split(head).nth(1).unwrap().split("\n##").next().unwrap()
    }

    /// Returns the command of a `console` block.
    fn command(&self, starts: &str) -> String {
        let blocks = self.blocks();
        let commands =
            blocks.iter().filter(|(kind, _)| kind == "console").filter_map(|(_, text)| text.strip_prefix("$ "));
        let mut fitting = commands.filter_map(|text| text.lines().next()).filter(|line| line.starts_with(starts));
        fitting.next().unwrap_or_else(|| panic!("the steps have no {starts:?}")).to_owned()
    }
}

#[test]
fn a_newcomer_gets_from_nothing_to_a_running_program() {
    let newcomer = Newcomer::new();
    let mut yaml = String::new();
    for (kind, text) in newcomer.blocks() {
        match kind.as_str() {
            "sh" => text.lines().for_each(|line| drop(newcomer.does(ALPHA, line))),
            "yaml" => {
                yaml = text.replace("192.0.2.", "10.77.0.");
                assert!(yaml.contains("10.77.0.1") && yaml.contains("10.77.0.2"), "{text}");
                fs::write(newcomer.file(ALPHA, "etc/gossamer/rack.yaml"), &yaml).unwrap();
            }
            "console" => {} // once the daemons run
            other => panic!("a block of {other:?}"),
        }
    }
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gossamer-daemon.service");
    match Command::new("systemd-analyze").arg("--version").output() {
        Ok(_) => assert_eq!(newcomer.does(ALPHA, &format!("systemd-analyze verify {unit}")).stderr, ""),
        Err(error) => println!("SKIPPED: the unit is not verified: no systemd-analyze ({error})"),
    }
    let daemon = newcomer.command("gossamer-daemon");
    let says = |text: &str| fs::write(newcomer.file(ALPHA, "etc/gossamer/rack.yaml"), text).unwrap();
    assert!(yaml.contains("user: gossamer\n"), "{yaml}");
    says(&yaml.replace("user: gossamer\n", ""));
    newcomer.meets(&daemon, 70, "it is not said whom programs run as", "it is not said whom programs run as");
    // Names in place of addresses, and Debian's file, which has a host's own name on the loopback network.
    says(&yaml.replace("10.77.0.1", "alpha").replace("10.77.0.2", "beta"));
    let names = newcomer.file(ALPHA, "etc/hosts");
    fs::write(&names, "127.0.0.1 localhost\n127.0.1.1 alpha\n10.77.0.2 beta\n").unwrap();
    newcomer.meets(&daemon, 70, "host alpha: alpha is 127.0.1.1 here", "is 127.0.1.1 here");
    newcomer.meets("gossamer-launch check", 1, "alpha is 127.0.1.1 here", "is 127.0.1.1 here");
    says(&yaml);
    let start = |host: usize| {
        let running = newcomer.types(host, &daemon);
        running.stderr.wait_for("listening");
        running
    };
    let (check, run) = (newcomer.command("gossamer-launch check"), newcomer.command("gossamer-launch run"));
    let on_alpha = start(ALPHA);
    newcomer.meets(
        &check,
        1,
        "10.77.0.2:7117 cannot be reached: Connection refused",
        "cannot be reached: Connection refused",
    );
    newcomer.meets(
        &run,
        70,
        "host beta: 10.77.0.2:7117 cannot be reached: Connection refused",
        "cannot be reached: Connection refused",
    );

    // A key of its own, and then the rack's.
    let key = newcomer.file(BETA, "etc/gossamer/rack.key");
    fs::remove_file(&key).unwrap();
    newcomer.does(BETA, "gossamer-launch keygen /etc/gossamer/rack.key");
    let on_beta = start(BETA);
    newcomer.meets(&check, 1, "has another key", "has another key");
    newcomer.meets(&run, 70, "has another key", "has another key");
    on_beta.signal(Signal::TERM);
    assert!(on_beta.end().status.success());
    newcomer.does(ALPHA, "scp -p /etc/gossamer/rack.key beta:/etc/gossamer/rack.key");
    let on_beta = start(BETA);
    on_alpha.stderr.wait_for("a host of the rack is there"); // the daemons try again each second

    let checked = newcomer.does(ALPHA, &check).stdout;
    assert!(checked.starts_with("/etc/gossamer/rack.yaml: valid, 2 hosts\n"), "{checked}");
    for (host, name) in NAMES.into_iter().enumerate() {
        let line = format!("{name:<12}ok      10.77.0.{}:7117, ", host + 1);
        assert!(
            checked.contains(&line) && checked.contains("programs run as gossamer, shm, tcp, "),
            "{line}: {checked}"
        );
    }
    newcomer.meets("gossamer-launch run ./no-such-program", 127, "is the path right", "cannot start PROGRAM");
    let no_folder = run.replace(" --folder /tmp", "");
    newcomer.meets(
        &no_folder,
        70,
        "(--folder): no such folder on this host",
        "(--folder): no such folder on this host",
    );

    // `beta` lacks the program, and gets it.
    assert!(!newcomer.file(BETA, "work/project").exists());
    let counted = newcomer.does(ALPHA, &run).stdout;
    assert!(counted.lines().all(|line| line.starts_with("m0@alpha | ")), "{counted}");
    assert!(counted.contains("  the\n") && counted.contains("2 processes with "), "{counted}");
    let remote = counted.lines().find_map(|line| line.split("delegations: ").nth(1)?.split(" local, ").nth(1));
    assert!(remote.is_some_and(|count| !count.starts_with("0 ")), "{counted}");

    // Another user has no right, gets the cure in the message, and applies it.
    newcomer.does(ALPHA, "useradd --system ada");
    let as_ada = "setpriv --reuid ada --clear-groups env HOME=/home/ada gossamer-launch check";
    newcomer.meets(
        as_ada,
        70,
        "it belongs to root, and may not be read by user",
        "it belongs to root, and may not be read",
    );
    for line in newcomer.section("### Users who launch").lines().filter_map(|line| line.strip_prefix("# ")) {
        newcomer.does(ALPHA, line);
    }
    newcomer.does(ALPHA, as_ada);

    // Another key, while the daemons run.
    let lacks = "it lacks the new key";
    let steps = newcomer.section("### Another key").lines().filter_map(|line| line.strip_prefix("# "));
    for (step, line) in steps.enumerate() {
        match line.starts_with("gossamer-launch check") {
            true => newcomer.meets(line, 1, "the old key is valid", "the old key is valid as well"),
            false => drop(newcomer.does(ALPHA, line)),
        }
        if step == 0 {
            newcomer.meets(&check, 1, lacks, lacks);
        }
    }
    newcomer.does(ALPHA, &check);

    newcomer.network.cut(BETA);
    newcomer.meets(&check, 1, "10.77.0.2:7117 cannot be reached", "cannot be reached: timed out, no route");
    drop((on_alpha, on_beta));
}
