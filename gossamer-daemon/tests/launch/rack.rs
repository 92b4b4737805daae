//! Programs on the hosts of a rack that succeed, and requests that fail.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;

use limits::wait_until;
use processes::{is_gone, send_signal};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, run, start};

crate::tests![
    a_program_runs_on_all_hosts,
    output_of_all_hosts_arrives_whole,
    input_goes_to_machine_0_wherever_it_is,
    two_programs_do_not_see_each_other,
    a_signal_can_be_sent_to_a_program,
    a_program_that_a_host_lacks_is_sent_once,
    who_has_no_key_gets_nothing,
    garbage_does_not_harm_a_daemon,
    nonsense_of_those_with_a_key_does_not_harm_a_daemon,
    each_refusal_names_its_cause,
    a_daemon_that_comes_back_is_seen,
    logs_tell_of_a_program,
    names_of_others_are_no_orders_to_a_terminal,
    who_was_evicted_comes_again,
];

fn a_program_runs_on_all_hosts() {
    let rack = Rack::start(3, LENIENT_MS, "");
    let ended = rack.run(&["--machines-per-host", "2"], &["end", "7"]);
    ended.assert(7, None);
    let mut names: Vec<_> = ended.stdout.lines().filter_map(|line| line.split_once(" | ")).map(|(n, _)| n).collect();
    names.sort_unstable();
    assert_eq!(names, ["m0@a", "m1@a", "m2@b", "m3@b", "m4@c", "m5@c"], "{ended}");
    rack.until_idle();

    let ended = rack.run(&["--hosts", "c,a", "--threads", "5"], &["threads"]);
    ended.assert(0, None);
    assert!(ended.stdout.lines().any(|line| line == "m0@c | threads Some(5), machine 0 of 2"), "{ended}");
    let alone = rack.run(&["--hosts", "b"], &["end", "3"]);
    alone.assert(3, None);
    assert!(alone.stdout.starts_with("pid "), "a single machine's lines are its own: {alone}");
}

fn output_of_all_hosts_arrives_whole() {
    const EACH: usize = 30_000;
    let rack = Rack::start(3, LENIENT_MS, "");
    let ended = rack.run(&[], &["lines", &EACH.to_string()]);
    assert_eq!(ended.code(), Some(0), "{:?}", ended.complaints());
    for (stream, lines, count) in [("out", &ended.stdout, EACH), ("err", &ended.stderr, EACH / 10)] {
        let mut next = [0; 3];
        for (name, text) in lines.lines().filter_map(|line| line.split_once(" | ")) {
            let (machine, _) = name[1..].split_once('@').unwrap_or_else(|| panic!("{name}"));
            let machine: u16 = machine.parse().unwrap();
            if !text.starts_with("pid ") {
                let place = &mut next[usize::from(machine)];
                assert_eq!(text, crate::streams::line_of(stream, machine, *place));
                *place += 1;
            }
        }
        assert_eq!(next, [count; 3], "{stream}");
    }
}

fn input_goes_to_machine_0_wherever_it_is() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let text: Vec<u8> = (0..2_000_000u32).map(|i| i.wrapping_mul(i).to_le_bytes()[1]).collect();
    let sum = text.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = rack.command(&["--no-prefix", "--hosts", "b,a"], &["cat"]);
    command.stdin(reader);
    let launch = start(command);
    std::thread::spawn(move || writer.write_all(&text).unwrap()).join().unwrap();
    let ended = launch.end();
    ended.assert(0, None);
    let has = |line: &str| ended.stdout.lines().filter(|found| *found == line).count();
    let expected = (has("read 2000000 bytes"), has(&format!("sum {sum}")), has("read 0 bytes"));
    assert_eq!(expected, (1, 1, 1), "{ended}");
}

fn two_programs_do_not_see_each_other() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let (first, second) = (rack.launch(&["wait"]), rack.launch(&["wait"]));
    let (first_pids, second_pids) = (first.ready(2), second.ready(2));
    let listed = rack.json("ps");
    let programs = listed["programs"].as_array().unwrap();
    assert_eq!(programs.len(), 2, "{listed}");
    let is_first = |program: &&serde_json::Value| {
        program["machines"].as_array().unwrap().iter().any(|machine| machine["pid"] == first_pids[&0])
    };
    let program = programs.iter().find(is_first).unwrap_or_else(|| panic!("{listed}"));
    let mut command = rack.launcher("kill");
    command.arg(program["id"].as_str().unwrap());
    let killed = run(command);
    killed.assert(0, None);
    // Ended on both hosts, or on one, where the launcher was faster on the other; and gone from both.
    assert!(killed.stdout.contains(" is ended on "), "{killed}");
    assert_eq!(rack.json("ps")["programs"].as_array().map(Vec::len), Some(1));
    assert!(first_pids.values().all(|pid| is_gone(*pid)), "{first_pids:?}");
    let ended = first.end();
    assert_eq!(ended.code(), Some(70), "{ended}");
    assert!(ended.complaints()[0].contains("with gossamer-launch kill"), "{ended}");

    assert!(second_pids.values().all(|pid| !is_gone(*pid)), "the second was to live");
    second.signal(Signal::INT);
    assert_eq!(second.end().code(), Some(130));
    rack.until_idle();
}

fn a_signal_can_be_sent_to_a_program() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let kill = |options: &[&str], id: &str| {
        let mut command = rack.launcher("kill");
        command.args(options).arg(id);
        run(command)
    };
    let id = || rack.json("ps")["programs"][0]["id"].as_str().unwrap().to_owned();
    let mut command = rack.launcher("run");
    let script =
        "trap 'echo got USR1' USR1; trap 'echo got TERM; exit 4' TERM; echo pid $$; while :; do sleep 0.01; done";
    command.args(["sh", "-c", script]);
    let launch = start(command);
    launch.ready(2);
    let program = id();
    let sent = kill(&["--signal", "usr1"], &program);
    sent.assert(0, None);
    assert_eq!(sent.stdout, format!("signal 10 (SIGUSR1) was sent to program {program} on a, b\n"));
    launch.printed("| got USR1", 2);
    let one = kill(&["-s", "SIGTERM", "--hosts", "b", "--json"], &program);
    one.assert(0, None);
    let told: serde_json::Value = serde_json::from_str(&one.stdout).unwrap();
    let expected = serde_json::json!({"program": program, "signal": 15, "signalled_on": ["b"], "unreachable": []});
    assert_eq!(told, expected);
    launch.printed("m1@b | got TERM", 1);
    assert!(!launch.stdout.text().contains("m0@a | got TERM"));
    kill(&["--signal", "15", "--hosts", "a"], &program).assert(0, None);
    let ended = launch.end();
    assert_eq!(ended.code(), Some(4), "{ended}");
    rack.until_idle();

    assert_eq!(kill(&["--signal", "TERM"], &program).code(), Some(1), "it is gone");
    for bad in ["NOSUCH", "0", "-1", "200"] {
        let refused = kill(&[&format!("--signal={bad}")], &program);
        assert_eq!(refused.code(), Some(2), "{refused}");
    }
    // A gossamer program decides for its machines how to react to the signal.
    let launch = rack.launch(&["wait"]);
    launch.ready(2);
    kill(&["--signal", "TERM", "--hosts", "b"], &id()).assert(0, None);
    let ended = launch.end();
    assert_eq!(ended.code(), Some(143), "{ended}");
    assert!(ended.complaints()[0].contains(" on b) was killed by signal 15 (SIGTERM)"), "{ended}");
}

/// The launcher names the program by a descriptor of its own, which no daemon has.
fn a_program_that_a_host_lacks_is_sent_once() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let script = rack.folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\necho \"at $0\"\nexit 5\n").unwrap();
    let mut chmod = std::process::Command::new("chmod");
    assert!(chmod.arg("+x").arg(&script).status().unwrap().success());
    let run_it = || {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec 9<\"$1\"; shift; exec \"$@\" /proc/self/fd/9", "sh"]).arg(&script);
        let launcher = rack.launcher("run");
        command.arg(launcher.get_program()).args(launcher.get_args());
        run(command)
    };
    let kept = |host: &str| {
        let folder = rack.folder.path().join(format!("cache-{host}"));
        let hashes = std::fs::read_dir(folder).into_iter().flatten().flatten();
        hashes.filter_map(|hash| hash.path().join("9").metadata().ok()?.modified().ok()).collect::<Vec<_>>()
    };
    assert!(kept("a").is_empty());
    let first = run_it();
    assert_eq!(first.code(), Some(5), "its own status, for it is no gossamer program: {first}");
    assert!(first.stdout.lines().any(|line| line.contains("/cache-") && line.ends_with("/9")), "{first}");
    assert_eq!((kept("a").len(), kept("b").len()), (1, 1));
    assert_eq!(run_it().code(), Some(5));
    assert_eq!((kept("a").len(), kept("b").len()), (1, 1));
}

fn who_has_no_key_gets_nothing() {
    let rack = Rack::start(2, LENIENT_MS, "");
    rack.name_key("other.key"); // the daemons have read the file, and have another key
    let mut keygen = crate::rig::launcher();
    keygen.arg("keygen").arg(rack.folder.path().join("other.key"));
    run(keygen).assert(0, None);
    let ended = rack.run(&[], &["end"]);
    assert_eq!(ended.code(), Some(70), "{ended}");
    let complaint = &ended.stderr;
    assert!(complaint.contains("host a: ") && complaint.contains("has another key"), "{complaint}");
    let checked = rack.json("check");
    assert_eq!((&checked["ok"], &checked["hosts"][1]["trouble"]), (&false.into(), &"wrong-key".into()), "{checked}");
    rack.daemons["a"].stderr.wait_for("it does not have this rack's key");
}

fn garbage_does_not_harm_a_daemon() {
    let rack = Rack::start(2, LENIENT_MS, "limits: {connections: 8}");
    let mut random = fastrand::Rng::with_seed(1);
    let mut idle = Vec::new();
    for round in 0..60 {
        let mut connection = TcpStream::connect(rack.addresses[0]).unwrap();
        let mut bytes = vec![0; round * 40];
        random.fill(&mut bytes);
        let _ = connection.write_all(&bytes); // it may have hung up
        if round % 20 == 0 {
            idle.push(connection); // and sends nothing more
        }
    }
    rack.run(&[], &["end", "4"]).assert(4, None);
    drop(idle);
}

/// A peer with the key sends nonsense.
fn nonsense_of_those_with_a_key_does_not_harm_a_daemon() {
    use gossamer_daemon::config::RackConfig;
    use gossamer_daemon::wire::{Receiver, Reply, Request, Sender, Wire, link};
    let rack = Rack::start(1, LENIENT_MS, "");
    let config = RackConfig::read(&rack.file()).unwrap();
    let keys = comm::secure::Keys::read(&config.key_path()).unwrap();
    let connect = || link::connect(&config, &config.hosts[0], &keys).unwrap();
    let plan = r#"{"fabric":"tcp","threads":null,"start_timeout_ms":1,"silence_ms":1,"hosts":[],"machines":[]}"#;
    let start_with = |plan: &str, host: u16, options: &str| {
        Request::Run(Box::new(gossamer_daemon::wire::Start {
            program: gossamer_daemon::wire::ProgramId(7),
            owner: "nobody".into(),
            plan: plan.into(),
            host,
            executable: gossamer_daemon::wire::Carried { path: b"/bin/true".to_vec(), binary: None },
            library: None,
            args: vec![],
            env: vec![],
            folder: b"/".to_vec(),
            options: options.into(),
        }))
    };
    let start = |plan: &str, host: u16| start_with(plan, host, "{}");
    for (plan, host) in [("", 0), ("{}", 0), (plan, 0), (plan, 9)] {
        let mut link = connect();
        link.sender.send_message(&start(plan, host)).unwrap();
        let reply: Reply = link.receiver.receive_message().unwrap();
        assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    }
    for (options, words) in
        [(r#"{"teleport":3}"#, "unknown field `teleport`"), (r#"{"silence":{"secs":0,"nanos":1}}"#, "0 ms")]
    {
        let mut link = connect();
        link.sender.send_message(&start_with(plan, 0, options)).unwrap();
        match link.receiver.receive_message().unwrap() {
            Reply::Refused(reason) => assert!(reason.contains(words), "{reason}"),
            reply => panic!("{reply:?}"),
        }
    }
    let mut link = connect();
    link.sender.send_message(&Request::Beat).unwrap();
    assert!(matches!(link.receiver.receive_message().unwrap(), Reply::Refused(_)));
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..100_usize {
        let mut link = connect();
        let mut bytes = start(plan, 0).to_bytes();
        let place = random.usize(..bytes.len());
        bytes[place] = bytes[place].wrapping_add(random.u8(1..));
        bytes.truncate(bytes.len() - round % 7);
        link.sender.send_bytes(&bytes).unwrap();
        // Refused, misunderstood, or hung up on: but there is an end.
        let _ = link.receiver.receive_bytes();
    }
    rack.run(&[], &["end", "4"]).assert(4, None);
}

fn each_refusal_names_its_cause() {
    let rack = Rack::start(2, LENIENT_MS, "limits: {programs: 1, machines_per_host: 2}");
    let refused = |options: &[&str], status: i32, words: &[&str]| {
        let mut command = rack.launcher("run");
        command.args(options);
        let ended = run(command);
        assert_eq!(ended.code(), Some(status), "{ended}");
        let complaint = ended.complaints().join("\n");
        words.iter().for_each(|word| assert!(ended.stderr.contains(word), "{word}: {complaint}"));
    };
    refused(&["/no/such/program"], 127, &["cannot start /no/such/program", "is the path right"]);
    refused(&["--hosts", "a,x", "true"], 70, &["no host x", "a, b"]);
    refused(&["--machines-per-host", "3", "true"], 70, &["host a: ", "limits.machines_per_host is 2", "host b: "]);
    refused(
        &["--folder", "/no/such/folder", "true"],
        70,
        &["host ", "cannot enter /no/such/folder (--folder): no such folder on this host"],
    );
    refused(&["--fabric", "shm", "true"], 70, &["--fabric auto or tcp"]);
    let running = rack.launch(&["wait"]);
    running.ready(2);
    refused(&["true"], 70, &["1 programs run here", "limits.programs"]);
    running.signal(Signal::TERM);
    assert_eq!(running.end().code(), Some(143));

    let mut second = std::process::Command::new(env!("CARGO_BIN_EXE_gossamer-daemon"));
    second.args(["--host", "a", "--rack"]).arg(rack.file()).stdin(Stdio::null());
    let ended = run(second);
    assert_eq!(ended.code(), Some(70));
    assert!(ended.stderr.contains("another gossamer-daemon, or another program, has this port"), "{ended}");
}

fn a_daemon_that_comes_back_is_seen() {
    let mut rack = Rack::start(2, LENIENT_MS, "");
    let sees_b = |rack: &Rack| {
        let status = rack.json("status");
        let neighbours = &status["hosts"][0]["status"]["neighbours"];
        neighbours[0]["name"] == "b" && neighbours[0]["trouble"] == ""
    };
    wait_until("the daemons to find each other", || sees_b(&rack));
    send_signal(rack.pid("b"), Signal::KILL);
    rack.daemons.remove("b").unwrap().end();
    wait_until("the loss to be seen", || !sees_b(&rack));
    let status = rack.json("status");
    assert_eq!((&status["hosts"][1]["up"], &status["hosts"][1]["trouble"]), (&false.into(), &"refused".into()));
    let ended = rack.run(&[], &["end"]);
    assert_eq!(ended.code(), Some(70));
    assert!(ended.stderr.contains("is gossamer-daemon running there"), "{ended}");
    rack.start_daemon("b");
    wait_until("its return to be seen", || sees_b(&rack));
    rack.run(&[], &["end"]).assert(0, None);
}

fn logs_tell_of_a_program() {
    let rack = Rack::start(2, LENIENT_MS, "");
    rack.run(&[], &["end"]).assert(0, None);
    let logs = run(rack.launcher("logs"));
    assert_eq!(logs.code(), Some(0), "{logs}");
    for words in ["a: ", "b: ", "a program starts", "listening"] {
        assert!(logs.stdout.lines().any(|line| line.contains(words)), "{words}: {logs}");
    }
}

/// A path, a machine's answer to a watcher, and a cause, each with control sequences and with a line break.
fn names_of_others_are_no_orders_to_a_terminal() {
    const EVIL: &str = "\x1b]0;title\x07\x1b[31m\ngossamer-launch: forged\u{9b}2J\u{202e}";
    let rack = Rack::start(2, LENIENT_MS, "");
    let folder = rack.folder.path().join(EVIL);
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("program");
    processes::copy_program(crate::rig::this_program(), &program);
    let mut command = rack.launcher("run");
    command.arg(&program).args(["machine", "watched", "evil"]);
    let launch = start(command);
    launch.ready(2);
    let missing = folder.join("missing");
    for (words, status) in [
        (&["ps"][..], 0),
        (&["status"], 0),
        (&["logs"], 0),
        (&["dump"], 0),
        (&["top", "--once"], 0),
        (&["run", missing.to_str().unwrap()], 127),
        (&["run", "--in-place", missing.to_str().unwrap()], 70),
    ] {
        let mut asked = rack.launcher(words[0]);
        asked.args(&words[1..]);
        let ended = run(asked);
        assert!(ended.code() == Some(status) || words[0] == "run", "{words:?}: {ended}");
        let said: Vec<&str> = ended.stdout.lines().chain(ended.stderr.lines()).collect();
        assert!(!said.is_empty(), "{words:?}");
        for line in said {
            let is_order = |letter: char| letter.is_control() || letter == '\u{202e}';
            assert!(!line.contains(is_order) && !line.starts_with("gossamer-launch: forged"), "{words:?}: {line:?}");
        }
    }
    // Scripts get it unchanged.
    let listed = rack.json("ps");
    assert_eq!(listed["programs"][0]["path"], program.to_str().unwrap(), "{listed}");
}

/// A daemon under a flood on its port evicts unauthenticated connections, among them some of peers that have the key.
fn who_was_evicted_comes_again() {
    use gossamer_daemon::config::RackConfig;
    use gossamer_daemon::wire::link;

    let rack = Rack::prepare(1, LENIENT_MS, "");
    let config = RackConfig::read(&rack.file()).unwrap();
    let keys = comm::secure::Keys::read(&config.key_path()).unwrap();
    let limit = std::time::Duration::from_secs(60);
    // Bound once: a process that a test beside this one starts holds a copy of the socket until it calls exec.
    let listener = std::net::TcpListener::bind(rack.addresses[0]).unwrap();
    for evictions in [0, 1, 4, 1000] {
        let (listener, config, keys) = (&listener, &config, &keys);
        let is_linked = std::thread::scope(|scope| {
            let daemon = scope.spawn(move || {
                for number in 0.. {
                    let (mut tcp, _) = listener.accept().unwrap();
                    match number < evictions {
                        // Before the handshake, or within it.
                        true if number % 2 == 0 => drop(tcp),
                        true => drop(std::io::Read::read(&mut tcp, &mut [0; 8])),
                        false => return link::accept(tcp, keys, || link::greeting(config, "a", 1), limit).is_ok(),
                    }
                    if number == 6 {
                        return false; // the first attempt, and six more
                    }
                }
                false
            });
            let link = link::connect(config, &config.hosts[0], keys);
            let accepted = daemon.join().unwrap();
            assert_eq!(link.is_ok(), accepted, "{evictions}: {:?}", link.err());
            accepted
        });
        assert_eq!(is_linked, evictions < 7, "{evictions}");
    }
}
