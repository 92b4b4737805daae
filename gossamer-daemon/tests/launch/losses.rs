//! Programs that outlive machines: the launcher's part, with machines that play theirs, and the whole.

use std::time::{Duration, Instant, SystemTime};

use gossamer::{Error, Place, Trust};
use limits::HANG;
use processes::send_signal;
use rustix::process::Signal;

use crate::rig::{Complaints, Machines, command, launch, launcher, run, start};

crate::tests![
    the_others_go_on_without_a_machine_that_is_killed,
    the_loss_of_machine_0_ends_the_program,
    a_loss_is_outlived_from_the_begin_of_the_program,
    a_lost_machine_is_seen_with_the_cause,
    requests_and_fibers_are_accounted_for_when_machines_are_killed,
];

fn the_others_go_on_without_a_machine_that_is_killed() {
    let launch = launch(4, &["survives", "1"]);
    let pids = launch.ready(4);
    send_signal(pids[&2], Signal::KILL);
    let ended = launch.end();
    assert_eq!(ended.code(), Some(3), "{ended}");
    let loss =
        format!("machine 2 (pid {}) was killed by signal 9 (SIGKILL); the others go on without machine 2", pids[&2]);
    assert_eq!(ended.complaints(), [loss], "{ended}");
    for machine in [0, 1, 3] {
        for words in ["answered", "lost 2", "fence 1: [2]", "settled 1"] {
            let line = format!("m{machine} | {words}");
            assert!(ended.stdout.lines().any(|told| told == line), "{line}: {ended}");
        }
    }
}

fn the_loss_of_machine_0_ends_the_program() {
    let launch = launch(3, &["survives", "2"]);
    let pids = launch.ready(3);
    send_signal(pids[&0], Signal::KILL);
    let words = format!("machine 0 (pid {}) was killed by signal 9 (SIGKILL); the program was ended", pids[&0]);
    launch.end().assert(137, Some(&words));
}

fn a_loss_is_outlived_from_the_begin_of_the_program() {
    for round in 0..10 {
        let fabric = ["shm", "tcp"][round % 2];
        let ended = run(command(4, &["--fabric", fabric], &["loses-at-once"]));
        assert_eq!(ended.code(), Some(0), "{fabric}: {ended}");
        assert!(ended.stdout.contains("went on"), "{fabric}: {ended}");
    }
}

/// The program of that test.
pub fn lose_at_once() {
    let main = || {
        let rack = gossamer::rack();
        send_signal(rack.machines()[3].process, Signal::KILL);
        limits::wait_until("the loss", || rack.is_lost(3));
        let places = rack.living().map(|place| gossamer::spawn_on(place, || 1).join().unwrap()).sum::<usize>();
        println!("went on at {places} places");
    };
    gossamer::builder().survives(1).main(main, 4);
}

fn a_lost_machine_is_seen_with_the_cause() {
    let launch = start(command(3, &["--view"], &["is-viewed"]));
    let url = launch.stderr.line("view at ");
    let pid: u32 = launch.stdout.line("ready ").parse().unwrap();
    let look = || {
        let mut top = launcher();
        top.args(["top", "--once", "--json", &url]);
        let ended = run(top);
        assert_eq!(ended.code(), Some(0), "{ended}");
        serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap()
    };
    let before = look();
    let workers = |seen: &serde_json::Value| seen["workers"].as_array().unwrap().len();
    assert!(before["machines"][2]["lost"].is_null() && workers(&before).is_multiple_of(3), "{before}");
    send_signal(pid, Signal::KILL);
    launch.stdout.wait_for("went on");
    // The view may show what it has asked just before.
    limits::wait_until("the view has asked again", || !look()["machines"][2]["lost"].is_null());
    let after = look();
    let cause = format!("machine 2 (pid {pid}) was killed by signal 9 (SIGKILL)");
    assert_eq!(after["alerts"][0], format!("m2 is lost: {cause}"), "{after}");
    assert_eq!(after["machines"][2]["lost"], cause, "{after}");
    assert_eq!(workers(&after), workers(&before) / 3 * 2, "{after}");
    launch.signal(Signal::TERM);
    assert_eq!(launch.end().code(), Some(143));
}

/// The program of that test.
pub fn be_viewed() {
    let main = || {
        let rack = gossamer::rack();
        println!("ready {}", rack.machines()[2].process);
        while !rack.is_lost(2) {
            gossamer::sleep(Duration::from_millis(1));
        }
        println!("went on");
        gossamer::sleep(Duration::MAX);
    };
    gossamer::builder().survives(1).main(main, 2);
}

/// Kills so many machines and more, one on each rack, if `GOSSAMER_KILLS` does not say how many.
const KILLS: u64 = 4;

/// Kills one or two of three to five machines at a time amid requests and fibers: over each fabric, and on pretended
/// hosts.
fn requests_and_fibers_are_accounted_for_when_machines_are_killed() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    let (kills, seed) = (number("GOSSAMER_KILLS").unwrap_or(KILLS), number("GOSSAMER_SEED").unwrap_or(clock as u64));
    println!("GOSSAMER_KILLS={kills} GOSSAMER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let racks: [&[&str]; 4] =
        [&["--fabric", "shm"], &["--fabric", "tcp"], &["--pretend-hosts", "2"], &["--pretend-hosts", "3"]];
    let mut killed = 0;
    for (round, options) in racks.iter().cycle().enumerate() {
        if killed >= kills && round >= racks.len() {
            break;
        }
        let machines = random.u16(3..=5);
        let losses = random.usize(1..=2);
        let mut victims: Vec<u16> = (1..machines).collect();
        random.shuffle(&mut victims);
        victims.truncate(losses);
        let mut role = vec!["outlives".to_owned()];
        role.extend(victims.iter().map(u16::to_string));
        let role: Vec<&str> = role.iter().map(String::as_str).collect();
        let ended = run(command(machines, options, &role));
        assert_eq!(ended.code(), Some(0), "{role:?} of {machines} {options:?}: {ended}");
        assert_eq!(ended.complaints().len(), losses, "each loss is told: {ended}");
        for victim in &victims {
            let words = format!("the others go on without machine {victim}");
            assert!(ended.complaints().iter().any(|loss| loss.ends_with(&words)), "{options:?}: {ended}");
        }
        assert!(ended.stdout.contains("all are accounted for"), "{role:?} of {machines} {options:?}: {ended}");
        killed += losses as u64;
        let longest = ended.stdout.lines().find(|line| line.contains("longest round")).unwrap_or_default();
        println!("{killed} killed, {options:?}, {longest}");
    }
}

/// The lease of a machine, by default.
const LEASE: Duration = Duration::from_millis(3300);

/// The program of that test.
pub fn outlive(victims: &[&str]) {
    let victims: Vec<u16> = victims.iter().map(|victim| victim.parse().unwrap()).collect();
    gossamer::builder().survives(victims.len() as u16).main(move || load(&victims), 4);
}

/// Requests to one machine, with their outcomes.
struct Counted {
    place: Place,
    counter: Trust<u64>,
    done: u64,
    maybe: u64,
    not_run: u64,
}

/// Makes requests and fibers everywhere, up to some time after the loss of these machines.
fn load(victims: &[u16]) {
    let rack = gossamer::rack();
    let mut all: Vec<Counted> = rack
        .places()
        .map(|place| Counted { place, counter: gossamer::entrust_on(place, 0), done: 0, maybe: 0, not_run: 0 })
        .collect();
    let processes: Vec<u32> = victims.iter().map(|victim| rack.machines()[usize::from(*victim)].process).collect();
    let kill = move || {
        for process in processes {
            std::thread::sleep(Duration::from_millis(fastrand::u64(..100)));
            send_signal(process, Signal::KILL);
        }
    };
    let killer = std::thread::spawn(kill);
    let start = Instant::now();
    let (mut rounds_after, mut longest) = (0, Duration::ZERO);
    while rounds_after < 20 {
        assert!(start.elapsed() < HANG, "the loss is never told");
        let begin = Instant::now();
        let requests: Vec<_> = (0..all.len() * 50)
            .map(|number| {
                let counter = all[number % all.len()].counter.clone();
                gossamer::spawn(move || counter.call().apply(|count| *count += 1).wait())
            })
            .collect();
        let fibers: Vec<_> = all.iter().map(|of| gossamer::spawn_on(of.place, || 4)).collect();
        let count = all.len();
        for (number, request) in requests.into_iter().enumerate() {
            let of = &mut all[number % count];
            match request.join().unwrap() {
                Ok(()) => of.done += 1,
                Err(Error::Gone { .. }) => of.not_run += 1,
                Err(Error::Lost { machine }) if machine == of.place.machine => of.maybe += 1,
                Err(other) => panic!("{other}"),
            }
        }
        for (of, fiber) in all.iter().zip(fibers) {
            match fiber.join() {
                Ok(four) => assert_eq!(four, 4),
                Err(payload) => {
                    let is_lost = matches!(payload.downcast_ref(), Some(Error::Lost { .. } | Error::Gone { .. }));
                    assert!(is_lost && rack.is_lost(of.place.machine), "a fiber of {} is lost", of.place);
                }
            }
        }
        longest = longest.max(begin.elapsed());
        rounds_after += usize::from(all.iter().filter(|of| of.not_run > 0).count() >= victims.len());
    }
    killer.join().unwrap();
    for of in &all {
        let outcomes = (of.place.machine, of.done, of.maybe, of.not_run);
        if victims.contains(&of.place.machine) {
            assert!(matches!(of.counter.call().apply(|count| *count).wait(), Err(Error::Gone { .. })), "{outcomes:?}");
        } else {
            assert_eq!((of.counter.apply(|count| *count), of.maybe, of.not_run), (of.done, 0, 0), "{outcomes:?}");
        }
        println!("{outcomes:?}");
    }
    // A wait hangs if it lasts longer than the lease of the lost machine, and 5 s.
    assert!(longest < limits::bound(LEASE + Duration::from_secs(5)), "a round has taken {longest:?}");
    println!("longest round: {} ms", longest.as_millis());
    println!("all are accounted for");
}
