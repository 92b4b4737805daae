//! The launched program: speaks the control protocol directly, in the role that its arguments name.

use std::io::{BufWriter, Read, Write};
use std::process::{Command, Stdio, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gossamer::bootstrap::Bootstrap;
use gossamer::control::{Control, Message};
use limits::wait_until;
use processes::is_gone;

/// Plays a role and ends the process. Each machine that a test waits for prints `pid N` when it is ready.
pub fn play(args: &[String]) {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["gossamer"] => return gossamer::main(|| (), 2),
        ["regions"] => return gossamer::link::with_page_servers(gossamer::builder()).main(|| (), 2),
        ["waits", victim] => return crate::lost_waits::wait(victim.parse().unwrap()),
        ["loses-at-once"] => return crate::losses::lose_at_once(),
        ["goes-on"] => return crate::rack_losses::go_on(),
        ["is-viewed"] => return crate::losses::be_viewed(),
        ["outlives", ref victims @ ..] => return crate::losses::outlive(victims),
        ["values", ref victims @ ..] => return crate::lost_values::drop_all(victims),
        ["clones", victim] => return crate::lost_values::lose_a_count(victim.parse().unwrap()),
        _ => {}
    }
    let inherited = crate::rig::inheritable(); // before the bootstrap takes them
    let bootstrap = match Bootstrap::from_env() {
        Ok(bootstrap) => bootstrap,
        Err(error) => {
            eprintln!("no bootstrap: {error}");
            exit(64)
        }
    };
    let Some(bootstrap) = bootstrap else {
        println!("no launcher, role {}", words.join(" "));
        match words[..] {
            ["park"] => park(),
            ["link", kind, name, marker] => crate::links::play(kind, name, marker),
            _ => exit(0),
        }
    };
    let me = bootstrap.machine;
    let is = |machine: &str| machine.parse() == Ok(me);
    let control = bootstrap.control;
    match words[..] {
        ["descriptors"] => {
            inherited.iter().for_each(|what| println!("inherited {what}"));
            println!("inheritable now: {}", crate::rig::inheritable().iter().filter(|what| ours(what)).count());
        }
        ["intrudes"] => intrudes(),
        ["fills", most] => println!("user {}, filled {}", rustix::process::getuid().as_raw(), fill(most)),
        ["threads"] => {
            println!("threads {:?}, machine {me} of {}", bootstrap.plan.threads, bootstrap.plan.machines.len())
        }
        ["core"] => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
            println!(
                "core {:?} of {:?}, {:?}",
                limit.current,
                limit.maximum,
                rustix::process::dumpable_behavior().unwrap()
            );
        }
        ["unready", machine] if is(machine) => exit(0),
        ["watched", ..] => crate::watched::play(me, &words, &control),
        ["endpoints", bytes] => endpoints(me, bootstrap.plan.machines.len(), bytes.parse().unwrap(), &control),
        _ => {}
    }
    let sigints = match words[..] {
        ["stubborn" | "polite"] => count_sigints(),
        _ => Arc::default(),
    };
    let survives = match words[..] {
        ["survives", machines] => machines.parse().unwrap(),
        _ => 0,
    };
    control.send(&Message::Ready { pid: std::process::id(), slots_bytes: 0, survives }).unwrap();
    println!("pid {}", std::process::id());
    match words[..] {
        ["end" | "descriptors" | "threads" | "intrudes"] | ["fills", _] => finish(me, &control, 0, 0),
        ["end", status] => finish(me, &control, status.parse().unwrap(), status.parse().unwrap()),
        ["end", status, exit] => finish(me, &control, status.parse().unwrap(), exit.parse().unwrap()),
        ["exit", status, machine] if is(machine) => exit(status.parse().unwrap()),
        ["panic", machine] if is(machine) => panic!("machine {me} is meant to panic"),
        ["fail", machine] if is(machine) => {
            control.send(&Message::Failed { reason: "the fabric broke".into() }).unwrap();
            wait_for_end(&control)
        }
        ["ready-twice", machine] if is(machine) => {
            control.send(&Message::Ready { pid: 4711, slots_bytes: 0, survives: 0 }).unwrap()
        }
        ["finish-as", machine] if is(machine) => control.send(&Message::Finished { status: 0 }).unwrap(),
        ["endpoint-twice", machine] if is(machine) => {
            control.send(&Message::Endpoint { bytes: vec![1] }).unwrap();
            control.send(&Message::Endpoint { bytes: vec![1] }).unwrap();
        }
        ["lost" | "dead", machine, peer] if is(machine) => {
            if words[0] == "dead" {
                until_dead(&control, peer.parse().unwrap());
            }
            let reason = "the wire is cut".to_owned();
            control.send(&Message::Lost { machine: peer.parse().unwrap(), reason }).unwrap();
        }
        ["dead", _, peer] => {
            control.send(&Message::Endpoint { bytes: std::process::id().to_le_bytes().into() }).unwrap();
            if is(peer) {
                std::process::abort();
            }
        }
        ["survives", _] => survive(me, &control),
        ["lost-late"] if me == 0 => finish(me, &control, 0, 0),
        ["lost-late"] => {
            let end = control.receive().unwrap();
            assert!(matches!(end, Some(Message::End { .. })), "{end:?}");
            control.send(&Message::Lost { machine: 0, reason: "it left".into() }).unwrap();
            exit(0)
        }
        ["stubborn"] => park(),
        ["polite"] if me == 0 => {
            until_sigints(&sigints, 1);
            println!("handled");
            finish(me, &control, 5, 5)
        }
        ["linger"] if me == 0 => finish(me, &control, 0, 0),
        ["linger"] => park(),
        ["family"] => family(me, &control),
        ["leave", kind, name, marker] if me == 0 => {
            crate::links::start(kind, name, marker);
            finish(me, &control, 0, 0)
        }
        ["keep", kind, name, marker] if me == 0 => crate::links::start(kind, name, marker),
        ["lines", count] => lines(me, count.parse().unwrap(), &control),
        ["flood"] if me == 0 => flood(),
        ["cat"] => cat(me, &control),
        ["mute"] => {
            let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
            rustix::stdio::dup2_stdout(&null).unwrap();
            rustix::stdio::dup2_stderr(&null).unwrap();
        }
        _ => {}
    }
    wait_for_end(&control)
}

/// Returns the number of further processes that can start, up to `most`.
fn fill(most: &str) -> u32 {
    crate::links::fill(most.parse().unwrap())
}

/// Tries to reach the open descriptors of this process's parent, and of that one's parent.
fn intrudes() {
    let part = rustix::process::getppid().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", part.as_raw_nonzero())).unwrap();
    let daemon: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    let groups = rustix::process::getgroups().unwrap().len();
    println!("user {}, {groups} groups", rustix::process::getuid().as_raw());
    for pid in [part, rustix::process::Pid::from_raw(daemon).unwrap()] {
        let found = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let flags = rustix::process::PidfdGetfdFlags::empty();
        let taken = (0..20).filter(|fd| rustix::process::pidfd_getfd(&found, *fd, flags).is_ok()).count();
        let listed = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).map_or(0, Iterator::count);
        println!("taken {taken}, listed {listed}");
    }
    println!("terminal: {}", std::fs::File::open("/dev/tty").is_ok());
}

/// Returns whether a descriptor is of the kinds that a launcher hands out.
fn ours(what: &str) -> bool {
    what.starts_with("/memfd:gossamer") || what.starts_with("socket:")
}

fn finish(me: u16, control: &Control, status: u8, exit_status: i32) -> ! {
    if me == 0 {
        control.send(&Message::Finished { status }).unwrap();
        exit(exit_status)
    }
    wait_for_end(control)
}

/// Gives an endpoint, and prints the ones that come back.
fn endpoints(me: u16, machines: usize, bytes: usize, control: &Control) {
    control.send(&Message::Endpoint { bytes: vec![me as u8; bytes] }).unwrap();
    let (mut keys, mut endpoints) = (Vec::new(), std::collections::BTreeSet::new());
    while keys.is_empty() || endpoints.len() < machines - 1 {
        match control.receive().unwrap().unwrap() {
            Message::Secret { key } => keys.push(format!("{:?}", key.as_bytes())),
            Message::Peer { machine, endpoint } => {
                assert!(endpoint == vec![machine as u8; bytes] && machine != me && endpoints.insert(machine));
            }
            other => panic!("{other:?}"),
        }
    }
    println!("key {}", keys.join(" and "));
    println!("{} endpoints of {bytes} bytes", endpoints.len());
    finish(me, control, 0, 0)
}

/// Waits until the process that gave this machine's endpoint is gone.
fn until_dead(control: &Control, machine: u16) {
    control.send(&Message::Endpoint { bytes: std::process::id().to_le_bytes().into() }).unwrap();
    loop {
        match control.receive().unwrap().unwrap() {
            Message::Peer { machine: peer, endpoint } if peer == machine => {
                let pid = u32::from_le_bytes(endpoint.try_into().unwrap());
                return wait_until("a machine to die", || is_gone(pid));
            }
            _ => {}
        }
    }
}

/// Does its part in the agreement on lost machines. Machine 0 finishes with status 3 after the first.
fn survive(me: u16, control: &Control) -> ! {
    control.send(&Message::Beat { number: 1 }).unwrap();
    loop {
        match control.receive() {
            Ok(Some(Message::Answer { beat: 1, .. })) => println!("answered"),
            Ok(Some(Message::Lost { machine, .. })) => println!("lost {machine}"),
            Ok(Some(Message::Fence { epoch, dead })) => {
                println!("fence {epoch}: {dead:?}");
                control.send(&Message::Fenced { epoch }).unwrap();
            }
            Ok(Some(Message::Settled { epoch })) => {
                println!("settled {epoch}");
                if me == 0 {
                    finish(me, control, 3, 3)
                }
            }
            Ok(Some(Message::End { .. })) => exit(0),
            other => panic!("{other:?}"),
        }
    }
}

/// Waits for End and exits with status 0, as the protocol asks; with 65 when the launcher has gone.
fn wait_for_end(control: &Control) -> ! {
    loop {
        match control.receive() {
            Ok(Some(Message::End { reason })) => {
                eprintln!("told to end: {reason}");
                exit(0)
            }
            Ok(Some(Message::Secret { .. } | Message::Peer { .. })) => {}
            _ => exit(65),
        }
    }
}

fn park() -> ! {
    loop {
        std::thread::park();
    }
}

fn count_sigints() -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let in_handler = Arc::clone(&count);
    let count_one = move || {
        in_handler.fetch_add(1, Ordering::Relaxed);
    };
    // SAFETY: the handler makes one atomic addition.
    #[allow(unsafe_code)]
    unsafe { signal_hook::low_level::register(signal_hook::consts::SIGINT, count_one) }.unwrap();
    count
}

fn until_sigints(sigints: &AtomicUsize, count: usize) {
    wait_until("a SIGINT", || sigints.load(Ordering::Relaxed) >= count);
}

/// Machine 0 starts a process that would live for ever and holds the output open, then finishes.
fn family(me: u16, control: &Control) -> ! {
    if me == 0 {
        let this = std::env::current_exe().unwrap();
        let probe = Command::new(&this).args(["machine", "probe"]).output().unwrap();
        println!("grandchild: {}", String::from_utf8_lossy(&probe.stdout).trim());
        #[expect(clippy::zombie_processes, reason = "left behind on purpose")]
        let child = Command::new(&this).args(["machine", "park"]).stdin(Stdio::null()).spawn().unwrap();
        println!("left behind {}", child.id());
    }
    finish(me, control, 0, 0)
}

/// `count` lines on stdout and a tenth as many on stderr, of changing length.
fn lines(me: u16, count: usize, control: &Control) -> ! {
    let (mut out, mut err) = (BufWriter::new(std::io::stdout()), BufWriter::with_capacity(999, std::io::stderr()));
    for line in 0..count {
        writeln!(out, "{}", crate::streams::line_of("out", me, line)).unwrap();
        if line % 10 == 0 {
            writeln!(err, "{}", crate::streams::line_of("err", me, line / 10)).unwrap();
        }
    }
    out.flush().unwrap();
    err.flush().unwrap();
    if me == 0 {
        finish(me, control, 0, 0)
    }
    match control.receive() {
        Ok(Some(Message::End { .. })) => exit(0), // silent: the test counts the lines
        _ => exit(65),
    }
}

fn flood() -> ! {
    loop {
        println!("{}", "y".repeat(80)); // panics on a closed pipe
    }
}

fn cat(me: u16, control: &Control) -> ! {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).unwrap();
    println!("read {} bytes", bytes.len());
    if bytes.len() < 100 {
        print!("{}", String::from_utf8_lossy(&bytes));
    }
    let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    println!("sum {sum}");
    finish(me, control, 0, 0)
}
