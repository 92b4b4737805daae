//! Who watches a program on a rack: questions go by the daemons to its machines, and their answers come back, in parts; the program's
//! launcher sees none of it.

use std::process::Command;

use gossamer::control::{Control, Look, Message};
use gossamer::view::{MachineSample, WorkerSample};

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Launch, command, run, start, until};

crate::tests![
    o14_a_program_on_a_rack_is_watched_by_its_daemons,
    machines_that_do_not_answer_are_named,
    what_cannot_be_watched_is_told,
    o20_a_view_is_for_who_has_its_address,
];

/// A machine that answers who watches it, but not if it is told to be `silent`. It prints what it was asked.
pub fn play(me: u16, words: &[&str], control: &Control) -> ! {
    control.send(&Message::Ready { pid: std::process::id(), slots_bytes: 0 }).unwrap();
    println!("pid {}", std::process::id());
    loop {
        match control.receive() {
            Ok(Some(Message::Look { ask, look })) => {
                println!("asked for {look:?}");
                if words[1..].contains(&me.to_string().as_str()) {
                    continue;
                }
                let bytes = answer(me, look);
                let (first, rest) = bytes.split_at(bytes.len() / 2);
                // Of another question, then in two parts.
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

fn answer(machine: u16, look: Look) -> Vec<u8> {
    match look {
        Look::Sample => {
            let worker = |silent_ms| WorkerSample { silent_ms, state: "R".into(), ..WorkerSample::default() };
            let workers = vec![worker(0), worker(if machine == 1 { 1700 } else { 0 })];
            let host = format!("host {machine}");
            MachineSample { program: "watched".into(), machine, host, up_ms: 5000, workers, ..MachineSample::default() }
                .to_bytes()
        }
        Look::Dump => format!("fibers of machine {machine}\nand more").into_bytes(),
        Look::Trace(time) => {
            let worker =
                gossamer::view::chrome::WorkerTrace { events: vec![(0, 1000, time.as_nanos() as u64, 0)], lost: 2 };
            let trace = gossamer::view::chrome::MachineTrace { machine, workers: vec![worker], ..Default::default() };
            trace.to_bytes()
        }
    }
}

fn program(rack: &Rack, silent: &[&str]) -> (Launch, String) {
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

fn o14_a_program_on_a_rack_is_watched_by_its_daemons() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let (launch, id) = program(&rack, &[]);
    // Named, and as the only one that runs.
    for args in [&["--once", "--json", &id][..], &["--once", "--json"]] {
        let ended = run(ask(&rack, "top", args));
        ended.assert(0, None);
        let told: serde_json::Value = serde_json::from_str(&ended.stdout.join("\n")).unwrap();
        assert_eq!(told["workers"].as_array().map(Vec::len), Some(4), "{told}");
        let alerts = told["alerts"].as_array().unwrap();
        assert!(alerts.len() == 1 && alerts[0].as_str().unwrap().starts_with("m1w1 on host 1 "), "{told}");
    }
    let dump = run(ask(&rack, "dump", &[&id]));
    dump.assert(0, None);
    assert_eq!(dump.stdout, ["m0 | fibers of machine 0", "m0 | and more", "m1 | fibers of machine 1", "m1 | and more"]);
    let trace = run(ask(&rack, "trace", &["--seconds", "0.05", &id]));
    trace.complains(70, "4 events were lost");
    let json: serde_json::Value = serde_json::from_str(&trace.stdout.join("\n")).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["ph"] == "X" && event["dur"] == 50_000.0).count(), 2, "{json}");
    // Asked twice by each `top`, once by the others, and the program goes on.
    until("all questions to be told", || launch.has_printed("asked for") >= 2 * (4 + 2));
    assert_eq!(launch.has_printed("asked for"), 2 * (4 + 2), "nothing else was asked");
}

fn machines_that_do_not_answer_are_named() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let (_launch, id) = program(&rack, &["1"]);
    let dump = run(ask(&rack, "dump", &[&id]));
    dump.complains(70, "machine 1 on b has not answered in time");
    assert_eq!(dump.stdout, ["m0 | fibers of machine 0", "m0 | and more"]);
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

fn o20_a_view_is_for_who_has_its_address() {
    let launch = start(command(2, &["--view"], &["watched"]));
    launch.ready(2);
    until("the address", || launch.has_complained("view at http://127.0.0.1:"));
    let url = launch.complaint("view at ");
    let top = run({
        let mut top = crate::rig::launcher();
        top.args(["top", "--once", "--json", &url]);
        top
    });
    top.assert(0, None);
    assert!(top.stdout[0].contains("\"program\":\"watched\""), "{:?}", top.stdout);
    let (rest, token) = url.trim_end_matches('/').rsplit_once('/').unwrap();
    let wrong = format!("{rest}/{}/", "0".repeat(token.len()));
    let mut top = crate::rig::launcher();
    top.args(["top", "--once", &wrong]);
    run(top).complains(70, "refuses");
}
