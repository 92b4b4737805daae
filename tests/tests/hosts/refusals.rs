//! Programs that cannot start: the launcher reports the host, the cause and the cure, and nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use processes::Ended;

use crate::rack::{ROLES, Rack, STRANGER};

#[track_caller]
fn assert_refused(rack: &Rack, ended: &Ended, words: &[&str]) {
    assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:#?}");
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?}: {ended:#?}");
    }
    println!("{}", ended.stderr.trim_end());
    rack.assert_nothing_is_left();
}

#[test]
fn a_daemon_with_another_key() {
    let mut rack = Rack::without_daemons(2);
    rack.make_key("other.key");
    rack.write_yaml("other.yaml", "other.key");
    rack.start_daemon(0);
    rack.start_daemon_by(1, "other.yaml");
    assert_refused(&rack, &rack.run(&["calls"]).end(), &["h1", "key"]);
    // The same from the other side: a launcher without the right.
    assert_refused(&rack, &rack.launcher_by("other.yaml", &["run", ROLES, "calls"]).end(), &["h0", "key"]);
}

#[test]
fn a_host_without_a_daemon() {
    let mut rack = Rack::without_daemons(3);
    rack.start_daemon(0);
    rack.start_daemon(1);
    assert_refused(&rack, &rack.run(&["calls"]).end(), &["h2", "gossamer-daemon"]);
}

#[test]
fn a_host_that_is_down() {
    let rack = Rack::start(2);
    rack.network.cut(1);
    assert_refused(&rack, &rack.run(&["calls"]).end(), &["h1", "10.77.0.2"]);
}

/// The others wait for it meanwhile, as long as a connection may take, and then run the program.
#[test]
fn a_host_that_is_cut_off_is_left_out_where_any_will_do() {
    let rack = Rack::start(3);
    rack.network.cut(0); // the launcher's own, which still reaches itself
    let alone = rack.launcher(&["run", "--any", "true"]).end();
    assert!(alone.status.success() && alone.stderr.matches(" is left out: ").count() == 2, "{alone:#?}");
    rack.network.restore(0);
    rack.network.cut(2);
    let ended = rack.launcher(&["run", "--any", ROLES, "calls"]).end();
    assert!(ended.status.success() && ended.stderr.contains("host h2 is left out: 10.77.0.3:7117 "), "{ended:#?}");
    rack.assert_nothing_is_left();
}

#[test]
fn a_port_that_is_taken() {
    let rack = Rack::without_daemons(1);
    let taken = rack.listen(0);
    let ended = rack.daemon_of(0, "rack.yaml").end();
    assert!(!ended.status.success(), "{ended:#?}");
    for word in ["10.77.0.1:7117", "port"] {
        assert!(ended.stderr.contains(word), "no {word:?}: {ended:#?}");
    }
    drop(taken);
}

#[test]
fn another_program_on_one_host() {
    let rack = Rack::start(2);
    let script = rack.path("mixed");
    let text = format!("#!/bin/sh\n[ \"$GOSSAMER_MACHINE\" = 1 ] && exec '{STRANGER}'\nexec '{ROLES}' calls\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = rack.launcher(&["run", script.to_str().unwrap()]).end();
    assert_refused(&rack, &ended, &["runs another program than machine", "put the same file on every machine"]);
}

#[test]
fn a_program_that_is_not_there() {
    let rack = Rack::start(2);
    let ended = rack.launcher(&["run", "/no/such/program"]).end();
    assert_refused(&rack, &ended, &["/no/such/program"]);
    assert_eq!(ended.status.code(), Some(127), "{ended:#?}");
}
