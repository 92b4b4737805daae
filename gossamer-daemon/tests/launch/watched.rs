//! Watchers of a program on a rack: questions go by the daemons to its machines, and their answers come back, in parts;
//! the program's launcher sees none of it.

use std::io::Write;
use std::process::Command;

use gossamer::control::{Control, Look, MAX_SEEN_BYTES, Message};
use gossamer::view::{MachineSample, Stack, WorkerSample};
use limits::wait_until;
use processes::ChildProcess;
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, command, run, start};

crate::tests![
    a_program_on_a_rack_is_watched_by_its_daemons,
    machines_that_do_not_answer_are_named,
    a_machine_that_waits_for_others_says_so,
    what_cannot_be_watched_is_told,
    a_view_is_for_who_has_its_address,
    a_token_does_not_stay_in_the_arguments,
    a_watcher_that_is_stopped_fills_no_memory,
    answers_without_end_are_dropped_by_who_asks,
];

/// A machine that answers watchers, unless it is told to be `silent`. It prints the questions.
pub fn play(me: u16, words: &[&str], control: &Control) -> ! {
    control.send(&Message::Ready { pid: std::process::id(), slots_bytes: 0, survives: 0 }).unwrap();
    println!("pid {}", std::process::id());
    loop {
        match control.receive() {
            Ok(Some(Message::Look { ask, look })) => {
                println!("asked for {look:?}");
                if let Some(mebibytes) = words.get(1).and_then(|word| word.strip_prefix("flood=")) {
                    flood(control, ask, mebibytes.parse().unwrap());
                    continue;
                }
                if words[1..].contains(&me.to_string().as_str()) {
                    continue;
                }
                let bytes = match (words.get(1), look) {
                    (Some(&"evil"), Look::Dump) => "fiber \x1b]0;title\x07\u{202e}\u{9b}2J\r\n".into(),
                    _ => answer(me, look),
                };
                let (first, rest) = bytes.split_at(bytes.len() / 2);
                // An answer to another question, then one in two parts.
                for (ask, is_last, bytes) in [(ask.wrapping_add(7), true, rest), (ask, false, first), (ask, true, rest)]
                {
                    control.send(&Message::Seen { ask, is_last, bytes: bytes.to_vec() }).unwrap();
                }
            }
            Ok(Some(Message::End { .. }) | None) | Err(_) => std::process::exit(0),
            Ok(Some(_)) => {}
        }
    }
}

/// Sends an answer of this many MiB, as fast as it is read.
fn flood(control: &Control, ask: u32, mebibytes: usize) {
    let parts = (mebibytes << 20) / MAX_SEEN_BYTES;
    for part in 0..parts {
        let bytes = vec![b'x'; MAX_SEEN_BYTES];
        control.send(&Message::Seen { ask, is_last: part + 1 == parts, bytes }).unwrap();
    }
    println!("all was said");
}

fn answer(machine: u16, look: Look) -> Vec<u8> {
    match look {
        Look::Sample => {
            let worker = |silent_ms| WorkerSample { silent_ms, state: "R".into(), ..WorkerSample::default() };
            let workers = vec![worker(0), worker(if machine == 1 { 1700 } else { 0 })];
            let host = format!("host {machine}");
            let stacks = vec![(1, Stack { frames: vec!["find".into(), "look_up".into()], missing: String::new() })];
            let program = "watched".into();
            MachineSample { program, machine, host, up_ms: 5000, workers, stacks, ..MachineSample::default() }
                .to_bytes()
        }
        Look::Move { thread, machine: to } => match (machine, thread) {
            (0, 7) => "done".into(),
            (0, 8) => format!("thread 0x8 stays, and not on machine {to}: it is tied").into_bytes(),
            _ => Vec::new(),
        },
        Look::Dump => format!("fibers of machine {machine}\nand more").into_bytes(),
        Look::Trace(time) => {
            let worker = gossamer::view::chrome::WorkerTrace {
                events: vec![(0, 1000, time.as_nanos() as u64, 0)],
                lost: 2,
                ..Default::default()
            };
            let trace = gossamer::view::chrome::MachineTrace { machine, workers: vec![worker], ..Default::default() };
            trace.to_bytes()
        }
    }
}

fn program(rack: &Rack, silent: &[&str]) -> (ChildProcess, String) {
    let mut command = rack.launcher("run");
    command.arg(crate::rig::this_program()).args(["machine", "watched"]).args(silent);
    let launch = start(command);
    launch.ready(2);
    (launch, rack.json("ps")["programs"][0]["id"].as_str().unwrap().to_owned())
}

fn ask(rack: &Rack, what: &str, args: &[&str]) -> Command {
    let mut command = rack.launcher(what);
    command.args(args);
    command
}

fn a_program_on_a_rack_is_watched_by_its_daemons() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let (launch, id) = program(&rack, &[]);
    // Named, and as the only running one.
    for args in [&["--once", "--json", &id][..], &["--once", "--json"]] {
        let ended = run(ask(&rack, "top", args));
        ended.assert(0, None);
        let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(told["workers"].as_array().map(Vec::len), Some(4), "{told}");
        let alerts = told["alerts"].as_array().unwrap();
        assert!(alerts.len() == 1 && alerts[0].as_str().unwrap().starts_with("m1w1 on host 1 "), "{told}");
        assert_eq!(
            told["stacks"],
            serde_json::json!([{"worker": "m1w1", "frames": ["find", "look_up"], "missing": ""}])
        );
    }
    let dump = run(ask(&rack, "dump", &[&id]));
    dump.assert(0, None);
    assert_eq!(dump.stdout, "m0 | fibers of machine 0\nm0 | and more\nm1 | fibers of machine 1\nm1 | and more\n");
    let trace = run(ask(&rack, "trace", &["--seconds", "0.05", &id]));
    trace.complains(70, "4 events were lost");
    let json: serde_json::Value = serde_json::from_str(&trace.stdout).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["ph"] == "X" && event["dur"] == 50_000.0).count(), 2, "{json}");
    // Asked twice by each `top`, once by the others; the program continues.
    launch.printed("asked for", 2 * (4 + 2)); // and nothing else was asked
}

fn machines_that_do_not_answer_are_named() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let (_launch, id) = program(&rack, &["1"]);
    let dump = run(ask(&rack, "dump", &[&id]));
    dump.complains(70, "machine 1 on b has not answered in time");
    assert_eq!(dump.stdout, "m0 | fibers of machine 0\nm0 | and more\n");
}

fn a_machine_that_waits_for_others_says_so() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let script = r#"[ "$GOSSAMER_MACHINE" = 1 ] && exec sleep 1000; exec "$@""#;
    let mut command = rack.launcher("run");
    command.args(["--detach", "sh", "-c", script, "sh"]).arg(crate::rig::this_program()).args(["machine", "gossamer"]);
    let detached = run(command);
    detached.assert(0, None);
    let id = detached.stdout.trim_end();
    wait_until("machine 0 to say that it waits", || {
        let dump = run(ask(&rack, "dump", &[id]));
        dump.complains(70, "machine 1 on b has not answered in time");
        dump.stdout == "m0 | no worker has started yet: this machine waits for the others\n"
    });
    run(ask(&rack, "kill", &[id])).assert(0, None);
    // A program that is gone.
    run(ask(&rack, "dump", &[id])).complains(70, &format!("no host that answers runs program {id}"));
}

fn what_cannot_be_watched_is_told() {
    let rack = Rack::start(1, LENIENT_MS, "");
    run(ask(&rack, "top", &["--once"])).complains(70, "no program runs");
    run(ask(&rack, "dump", &["0000abcd"])).complains(70, "no host that answers runs program 0000abcd");
    run(ask(&rack, "dump", &["abc"])).complains(2, "gossamer-launch ps");
    run(ask(&rack, "top", &["--once", "http://127.0.0.1:1/token/"])).complains(70, "127.0.0.1:1: ");
    run(ask(&rack, "trace", &["--seconds", "0"])).complains(2, "--seconds 0");
    run(command(2, &["--view=0.0.0.0:0"], &["park"])).complains(2, "a file with a token is needed");
    run(command(2, &["--view=nowhere"], &["park"])).complains(2, "is no address");
}

fn a_view_is_for_who_has_its_address() {
    let launch = start(command(2, &["--view"], &["watched"]));
    launch.ready(2);
    let url = launch.stderr.line("view at ");
    let (rest, token) = url.trim_end_matches('/').rsplit_once('/').unwrap();
    let wrong = format!("{rest}/{}/", "0".repeat(token.len()));
    let mut top = crate::rig::launcher();
    top.args(["top", "--once", &wrong]);
    run(top).complains(70, "refuses");

    let bare = format!("{rest}/");
    let file = tempfile::NamedTempFile::new().unwrap(); // of mode 0600
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let file = file.path().to_str().unwrap();
    let top = |args: &[&str], variable: &str, input: &str| {
        let mut top = crate::rig::launcher();
        top.args(["top", "--once", "--json"]).args(args).env("GOSSAMER_VIEW_TOKEN", variable);
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(input.as_bytes()).unwrap();
        drop(writer);
        top.stdin(reader);
        run(top)
    };
    for (args, variable, input) in [
        (&[&bare, "--token-file", file][..], "", ""),
        (&[&bare, "--token-file", file], "of another view, and of no use here", ""),
        (&[&bare, "--token-file", "-"], "", token),
        (&[&bare], token, ""),
        (&["-"], "", &format!("{url}\n")),
        (&["-"], token, &bare),
    ] {
        let ended = top(args, variable, input);
        ended.assert(0, None);
        assert!(ended.stdout.contains("\"program\":\"watched\""), "{ended}");
    }
    top(&[&bare], "", "").complains(2, "--token-file FILE");
    top(&[&bare], "short", "").complains(2, "GOSSAMER_VIEW_TOKEN holds no token");
    top(&["-"], "", "").complains(2, "is no address of a view");
    top(&[&url, "--token-file", file], "", "").complains(2, "one of them");
    top(&["0000abcd", "--token-file", file], "", "").complains(2, "--token-file is for the address");
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    top(&[&bare, "--token-file", file], "", "").complains(2, "chmod 600");
}

/// Others on the host see the arguments of a process: a token does not stay there.
fn a_token_does_not_stay_in_the_arguments() {
    let launch = start(command(2, &["--view"], &["watched"]));
    launch.ready(2);
    let url = launch.stderr.line("view at ");
    let (_, token) = url.trim_end_matches('/').rsplit_once('/').unwrap();
    for word in ["top", "dump", "trace"] {
        let mut watcher = crate::rig::launcher();
        watcher.args([word, &url]);
        if word == "trace" {
            watcher.args(["--seconds", "2"]);
        }
        let watcher = start(watcher);
        let arguments = || std::fs::read_to_string(format!("/proc/{}/cmdline", watcher.id())).unwrap();
        wait_until("the token to be gone", || !arguments().contains(token));
        if word == "top" {
            watcher.stdout.wait_for("watched: 2 machine(s)");
            assert!(arguments().contains("top\0http://127.0.0.1:"), "{:?}", arguments());
            watcher.signal(Signal::TERM);
            watcher.end();
        } else {
            watcher.end().complains(0, "can be read by others on this host");
        }
    }
}

/// Returns the peak memory of a process, in MiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Neither the daemon's nor the part's memory; and the watcher is notified once it continues.
fn a_watcher_that_is_stopped_fills_no_memory() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let (launch, id) = program(&rack, &["flood=250"]);
    let before = [rack.pid("a"), rack.part("a")].map(peak);
    // It waits for two minutes, longer than this test.
    let watcher = start(ask(&rack, "trace", &["--seconds", "60", &id]));
    launch.printed("asked for", 2);
    watcher.signal(Signal::STOP);
    launch.printed("all was said", 2);
    let after = [rack.pid("a"), rack.part("a")].map(peak);
    // 32 MiB may wait in the daemon, 16 in the part, and allocators keep some more.
    assert!(after.iter().zip(before).all(|(after, before)| *after < before + 100), "{before:?}, then {after:?} MiB");
    // Other requests are answered meanwhile.
    let status = run(rack.launcher("status"));
    status.assert(0, None);
    watcher.signal(Signal::CONT);
    let ended = watcher.end();
    for host in ["a", "b"] {
        ended.complains(70, &format!("host {host}: the answer of 1 machine was dropped"));
    }
    assert_eq!(run(ask(&rack, "ps", &[])).code(), Some(0));
}

/// Both on a rack and on this host.
fn answers_without_end_are_dropped_by_who_asks() {
    let rack = Rack::start(1, LENIENT_MS, "");
    let mut command = rack.launcher("run");
    command.arg(crate::rig::this_program()).args(["machine", "watched", "flood=150"]);
    let on_rack = start(command);
    on_rack.ready(1);
    let dump = run(ask(&rack, "dump", &[]));
    assert_eq!(dump.code(), Some(70), "{:?}", dump.stderr);
    assert!(dump.stdout.is_empty(), "{} lines", dump.stdout.lines().count());

    let here = start(crate::rig::command(1, &["--view"], &["watched", "flood=250"]));
    here.ready(1);
    let mut dump = crate::rig::launcher();
    dump.args(["dump", &here.stderr.line("view at ")]); // its token goes into a variable
    let ended = run(dump);
    assert!(ended.stdout.lines().all(str::is_empty), "{} lines", ended.stdout.lines().count());
    here.printed("all was said", 1);
    assert!(peak(here.id()) < 200, "{} MiB", peak(here.id()));
}
