//! Troubles of a rack without any machine's fault: hosts that do not answer, unusable caches, limits that are reached.
//! Each is reported, with its cure.

use std::io::Write;
use std::net::TcpStream;

use limits::wait_until;
use processes::{ChildProcess, send_signal, wait_until_gone};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, run};

crate::tests![
    kill_fails_where_a_host_does_not_answer,
    as_many_programs_run_as_fit,
    check_tells_of_a_cache_that_cannot_be_used,
    a_cache_may_be_named_by_a_relative_path,
    strangers_are_told_as_who_came,
    a_daemon_does_not_listen_where_nobody_reaches_it,
];

/// A host that gives no answer may still run the program.
fn kill_fails_where_a_host_does_not_answer() {
    let mut rack = Rack::start(3, LENIENT_MS, "");
    send_signal(rack.pid("c"), Signal::KILL);
    rack.daemons.remove("c").unwrap().end();
    // Run on two hosts; the kill asks three hosts, those two, or the third.
    for (hosts, status) in [("a,b,c", 1), ("a,b", 0), ("c", 1)] {
        let launch = crate::rig::start(rack.command(&["--hosts", "a,b"], &["wait"]));
        let pids = launch.ready(2);
        let id = rack.json("ps")["programs"][0]["id"].as_str().unwrap().to_owned();
        let mut command = rack.launcher("kill");
        command.args(["--hosts", hosts, "--json", &id]);
        let killed = run(command);
        assert_eq!(killed.code(), Some(status), "{hosts}: {killed}");
        let told: serde_json::Value = serde_json::from_str(&killed.stdout).unwrap();
        let unreachable: Vec<&str> = hosts.split(',').filter(|host| *host == "c").collect();
        assert_eq!(told["unreachable"], serde_json::json!(unreachable), "{killed}");
        assert_eq!(killed.complaints().iter().any(|line| line.starts_with("host c: ")), status == 1, "{killed}");
        if hosts == "c" {
            launch.signal(Signal::TERM);
        }
        wait_until_gone(pids.values().copied());
        launch.end();
        rack.until_idle();
    }
}

/// Started at the same time, on hosts that are named in different orders.
fn as_many_programs_run_as_fit() {
    const FIT: usize = 4;
    let rack = Rack::start(3, LENIENT_MS, &format!("limits: {{programs: {FIT}}}"));
    for _ in 0..4 {
        let orders = ["a,b,c", "b,c,a", "c,a,b", "c,b,a"].into_iter().cycle().take(FIT + 3);
        let launched: Vec<_> =
            orders.map(|hosts| crate::rig::start(rack.command(&["--hosts", hosts], &["wait"]))).collect();
        let refused = |launch: &&ChildProcess| launch.stderr.text().contains("limits.programs");
        let (mut ready, mut not_ready) = (0, 0);
        wait_until("each to run or to be refused", || {
            ready = launched.iter().filter(|launch| launch.pids().len() == 3).count();
            not_ready = launched.iter().filter(refused).count();
            ready + not_ready == launched.len()
        });
        assert_eq!((ready, not_ready), (FIT, 3));
        launched.iter().filter(|launch| !refused(launch)).for_each(|launch| launch.signal(Signal::TERM));
        launched.into_iter().for_each(|launch| drop(launch.end()));
        rack.until_idle();
    }
}

/// A program that needs the cache gets the same message.
fn check_tells_of_a_cache_that_cannot_be_used() {
    let mut rack = Rack::prepare(2, LENIENT_MS, "");
    let cache = rack.folder.path().join("cache-b");
    std::fs::write(&cache, "").unwrap();
    rack.start_daemon("a");
    rack.start_daemon("b");
    rack.daemons["b"].stderr.wait_for("programs that this host lacks cannot be taken");
    let trouble = format!("{}, where programs are kept: ", cache.display());
    let checked = || run(rack.launcher("check"));
    // The daemons see one another a moment after their start; this trouble stays.
    wait_until("the hosts to be well but for that", || checked().stdout.lines().count() == 4);
    let ended = checked();
    assert_eq!(ended.code(), Some(1), "{ended}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[1].starts_with("a           ok ") && lines[2].starts_with("b           WARNING "), "{ended}");
    assert!(lines[3].contains(&trouble) && lines[3].contains("a file is in its place"), "{ended}");
    let json = rack.json("check");
    assert_eq!((&json["ok"], &json["hosts"][0]["remarks"]), (&false.into(), &serde_json::json!([])), "{json}");
    assert!(json["hosts"][1]["status"]["troubles"][0].as_str().unwrap().contains(&trouble), "{json}");

    // A program that both have runs nevertheless; one that is to be sent is refused.
    rack.run(&["--in-place"], &["end", "4"]).assert(4, None);
    // A program that others may write is not run from its place.
    let copy = rack.folder.path().join("open/program");
    std::fs::create_dir(copy.parent().unwrap()).unwrap();
    processes::copy_program("/bin/sh", &copy);
    std::fs::set_permissions(copy.parent().unwrap(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = rack.launcher("run");
    command.arg(copy).args(["-c", "exit 0"]);
    let refused = run(command);
    assert_eq!(refused.code(), Some(70), "{refused}");
    assert!(refused.stderr.lines().any(|line| line.contains("host b: ") && line.contains(&trouble)), "{refused}");
    std::fs::remove_file(&cache).unwrap();
    assert_eq!(checked().code(), Some(0));
}

/// Relative to the folder that the daemon was started in. (Programs start in others.)
fn a_cache_may_be_named_by_a_relative_path() {
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    let mut daemon = std::process::Command::new(crate::hosts::DAEMON);
    daemon.args(["--host", "a", "--cache", "programs/kept", "--rack", "rack.yaml"]).current_dir(rack.folder.path());
    rack.daemons.insert("a", crate::rig::start(daemon));
    rack.daemons["a"].stderr.wait_for("listening");
    // A program that others may write is sent, not run from its place.
    let folder = rack.folder.path().join("open");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    processes::copy_program("/bin/sh", folder.join("program"));
    let mut command = rack.launcher("run");
    command.arg(folder.join("program")).args(["-c", "exit 5"]);
    run(command).complains(5, "exited with status 5");
    assert!(rack.folder.path().join("programs/kept").is_dir());
}

fn strangers_are_told_as_who_came() {
    let rack = Rack::start(1, LENIENT_MS, "");
    let has_logged = |peer: &str, words: &str| {
        let logs = run(rack.launcher("logs"));
        logs.stdout.lines().any(|line| {
            let is_it = line.contains(&format!("peer=\"{peer}\"")) && line.contains(words);
            assert!(!is_it || !line.contains("see whether"), "{line}");
            is_it
        })
    };
    for (bytes, words) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "it does not speak Gossamer's protocol"),
        (b"", "it closed the connection before both sides knew each other"),
    ] {
        let mut stranger = TcpStream::connect(rack.addresses[0]).unwrap();
        let peer = stranger.local_addr().unwrap().to_string();
        stranger.write_all(bytes).unwrap();
        drop(stranger);
        wait_until("the log to tell of it", || has_logged(&peer, words));
    }
}

/// Nor does a launcher look for it there.
fn a_daemon_does_not_listen_where_nobody_reaches_it() {
    let rack = Rack::prepare(1, LENIENT_MS, "");
    let text = std::fs::read_to_string(rack.file()).unwrap();
    let own = text.lines().find(|line| line.contains("name: a,")).unwrap();
    for address in ["localhost", "127.0.0.1"] {
        let hosts = format!("  - {{name: a, address: {address}}}\n  - {{name: z, address: 192.0.2.9}}");
        std::fs::write(rack.file(), text.replace(own, &hosts)).unwrap();
        let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_gossamer-daemon"));
        daemon.args(["--host", "a", "--rack"]).arg(rack.file()).stdin(std::process::Stdio::null());
        let mut check = rack.launcher("check");
        check.args(["--hosts", "a"]);
        for (command, status) in [(daemon, 70), (check, 1)] {
            let ended = run(command);
            assert_eq!(ended.code(), Some(status), "{ended}");
            let said = [&ended.stdout[..], &ended.stderr].concat();
            let words = format!("{address} is an address that each host has for itself, and no other host reaches it");
            assert!(said.contains(&words) && said.contains("give a the address in its network"), "{ended}");
        }
    }
}
