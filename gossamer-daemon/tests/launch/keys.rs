//! Another key for a rack whose daemons and programs run: each host, and each user, has files of its own.

use std::collections::BTreeMap;

use limits::wait_until;
use processes::Ended;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, run, start};

crate::tests![
    a_key_is_replaced_while_a_program_runs,
    a_key_file_that_cannot_be_used_changes_nothing,
    a_key_cannot_be_replaced_halfway,
];

/// Prints numbers from 0 on until a file is there, and then how many; each machine by itself.
const COUNTS: &str = "i=0; while [ ! -e \"$1\" ]; do echo $i; i=$((i+1)); sleep 0.05; done; echo counted $i; exit 3";

/// Runs a program with the files in a folder.
fn end(rack: &Rack, folder: &str, options: &[&str]) -> Ended {
    let mut command = rack.launcher_by(folder, "run");
    command.args(options).args(["sh", "-c", "exit 5"]);
    run(command)
}

#[track_caller]
fn assert_refused(rack: &Rack, folder: &str, hosts: &[&str]) {
    let ended = end(rack, folder, &[]);
    assert_eq!(ended.code(), Some(70), "{ended}");
    for host in ["a", "b"] {
        let is_refused = ended.stderr.lines().any(|line| line.contains(&format!("host {host}: ")));
        assert_eq!(is_refused, hosts.contains(&host), "{host}: {ended}");
    }
    assert_eq!(ended.stderr.matches("has another key").count(), hosts.len(), "{ended}");
}

/// Copies a key file to a folder, as `scp -p` does.
fn copy(rack: &Rack, from: &str, to: &str) {
    let file = |folder: &str| rack.folder.path().join(folder).join("rack.key");
    std::fs::copy(file(from), file(to)).unwrap();
}

#[track_caller]
fn checks(rack: &Rack, code: i32, lines: &[(&str, usize)]) {
    let ended = run(rack.launcher("check"));
    assert_eq!(ended.code(), Some(code), "{ended}");
    for (words, times) in lines {
        assert_eq!(ended.stdout.matches(words).count(), *times, "{words}: {ended}");
    }
}

const LACKS: &str = "it lacks the new key: copy the key file to it";
const STILL: &str = "it takes the old key as well, still: copy the key file to it";
const HAS_BOTH: &str = "the old key is valid as well as the new one";

fn a_key_is_replaced_while_a_program_runs() {
    let mut rack = Rack::prepare(2, LENIENT_MS, "");
    rack.copy_files(&["a", "b", "user", "new"]);
    rack.start_daemon("a");
    rack.start_daemon("b");
    let daemons = ["a", "b"].map(|name| rack.pid(name));
    let go = rack.folder.path().join("go");
    let mut command = rack.launcher("run");
    command.args(["sh", "-c", COUNTS, "sh"]).arg(&go);
    let program = start(command);
    program.stdout.wait_for("m1@b | 1\n");

    let rotated = run(rack.launcher("key rotate"));
    rotated.assert(0, None);
    for words in ["rack.key holds a new key, and the old one", "1. copy", "2. gossamer-launch check", "key finish"] {
        assert!(rotated.stdout.contains(words), "{words}: {rotated}");
    }
    let again = run(rack.launcher("key rotate"));
    again.complains(70, "holds a new key and an old one already");
    let keys = comm::secure::Keys::read(&rack.folder.path().join("rack.key")).unwrap();
    keys.without_old().replace(&rack.folder.path().join("new/rack.key")).unwrap();

    // No host has the file yet: the new launcher gets in by the old key.
    checks(&rack, 1, &[(LACKS, 2), (HAS_BOTH, 0)]);
    assert_eq!([end(&rack, "", &[]).code(), end(&rack, "user", &[]).code()], [Some(5); 2]);
    assert_refused(&rack, "new", &["a", "b"]);

    // One host has it: all launchers get in there.
    copy(&rack, "", "a");
    checks(&rack, 1, &[(LACKS, 1), (HAS_BOTH, 1)]);
    assert_eq!([end(&rack, "", &[]).code(), end(&rack, "user", &[]).code()], [Some(5); 2]);
    assert_refused(&rack, "new", &["b"]);
    assert_eq!(end(&rack, "new", &["--hosts", "a"]).code(), Some(5));
    let early = run(rack.launcher("key finish"));
    early.complains(1, "the old key stays in");
    assert!(early.stderr.contains(&format!("host b: {LACKS}")) && !early.stderr.contains("host a: "), "{early}");

    // Both have it.
    copy(&rack, "", "b");
    checks(&rack, 1, &[(LACKS, 0), (HAS_BOTH, 2)]);
    for folder in ["", "user", "new"] {
        assert_eq!(end(&rack, folder, &[]).code(), Some(5), "{folder}");
    }
    rack.daemons["a"].stderr.wait_for("it came with the old key");
    run(rack.launcher("key finish")).assert(0, None);
    run(rack.launcher("key finish")).complains(70, "holds one key");
    checks(&rack, 1, &[(LACKS, 0), (HAS_BOTH, 0), (STILL, 2)]);
    assert_eq!(end(&rack, "user", &[]).code(), Some(5), "the hosts still have both");

    // The old key is gone from the hosts.
    copy(&rack, "", "a");
    copy(&rack, "", "b");
    assert_refused(&rack, "user", &["a", "b"]);
    for folder in ["", "new"] {
        assert_eq!(end(&rack, folder, &[]).code(), Some(5), "{folder}");
    }
    wait_until("the daemons to find each other", || run(rack.launcher("check")).status.success());
    checks(&rack, 0, &[(LACKS, 0), (HAS_BOTH, 0)]);
    copy(&rack, "", "user");
    assert_eq!(end(&rack, "user", &[]).code(), Some(5));

    // The program and the daemons are those of the beginning, and no line is lost.
    std::fs::write(&go, "").unwrap();
    let ended = program.end();
    assert_eq!(ended.code(), Some(3), "{ended}");
    let mut counted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    ended.stdout.lines().filter_map(|line| line.split_once(" | ")).for_each(|(machine, text)| {
        counted.entry(machine).or_default().push(text);
    });
    assert_eq!(counted.keys().copied().collect::<Vec<_>>(), ["m0@a", "m1@b"]);
    for (machine, lines) in counted {
        let (last, numbers) = lines.split_last().unwrap();
        assert_eq!(*last, format!("counted {}", numbers.len()), "{machine}");
        assert!(
            numbers.iter().enumerate().all(|(number, line)| line.parse::<usize>() == Ok(number)),
            "{machine}: {numbers:?}"
        );
    }
    assert_eq!(["a", "b"].map(|name| rack.pid(name)), daemons);
    rack.until_idle();
}

fn a_key_file_that_cannot_be_used_changes_nothing() {
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    rack.copy_files(&["a"]);
    rack.start_daemon("a");
    let file = rack.folder.path().join("a/rack.key");
    std::fs::write(&file, "no key").unwrap();
    assert_eq!(end(&rack, "", &[]).code(), Some(5));
    checks(&rack, 1, &[("rack.key: it holds no key", 1), ("until then the keys read before stay valid", 1)]);
    rack.daemons["a"].stderr.wait_for("the key file cannot be used");
    copy(&rack, "", "a");
    checks(&rack, 0, &[]);
}

/// The old key stays where a host cannot be asked, and no other file is left.
fn a_key_cannot_be_replaced_halfway() {
    let rack = Rack::prepare(1, LENIENT_MS, "");
    run(rack.launcher("key finish")).complains(70, "holds one key");
    run(rack.launcher("key rotate")).assert(0, None);
    // No daemon runs there.
    let refused = run(rack.launcher("key finish"));
    refused.complains(1, "--force");
    assert!(refused.stderr.contains("host a: "), "{refused}");
    let mut forced = rack.launcher("key finish");
    forced.arg("--force");
    assert_eq!(run(forced).code(), Some(0));
    run(rack.launcher("key rotate")).assert(0, None);
    std::fs::remove_file(rack.folder.path().join("rack.key")).unwrap();
    for command in ["key rotate", "key finish"] {
        run(rack.launcher(command)).complains(70, "there is no such file");
    }
    let listed = std::fs::read_dir(rack.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(listed.collect::<Vec<_>>(), ["rack.yaml"], "nothing is left beside it");
}
