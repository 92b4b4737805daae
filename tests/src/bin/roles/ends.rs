//! Ends of programs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use gossamer::sync::Barrier;
use gossamer_array::{Add, Array};
use gossamer_region::{Region, SharedSpan};

use crate::remote;

/// Prints the process of each machine.
pub(super) fn tell_machines() {
    for (index, machine) in gossamer::rack().machines().iter().enumerate() {
        println!("machine {index} is process {}", machine.process);
        println!("machine {index} has {} bytes of slots", machine.slots_bytes);
    }
}

/// Prints the process of each machine, then works until it is ended.
pub fn wait() {
    tell_machines();
    println!("works");
    let counter = gossamer::entrust_on(remote(), 0u64);
    loop {
        counter.apply(|c| *c += 1);
    }
}

/// The same, with arguments and results that fill packets.
pub fn wait_large() {
    tell_machines();
    println!("works");
    let there = gossamer::entrust_on(remote(), 0);
    loop {
        let text = there.apply_with(
            |bytes, text: Vec<u8>| {
                *bytes += text.len();
                text
            },
            vec![1; 100_000],
        );
        assert_eq!(text.len(), 100_000);
    }
}

/// The same, with misses of an array at all places, so that rights, recalls and evictions are always on their way.
pub fn array_misses() {
    tell_machines();
    let n = 100_000;
    let array = Array::<u64>::builder().cache_bytes(0).build(n, 0).unwrap();
    let own = array.clone();
    array.on_owners(move |owned| {
        println!("works");
        for k in owned.len().. {
            let i = k.wrapping_mul(0x9e37_79b9) % n;
            match k % 4 {
                0 => own.set(i, k as u64),
                1 => own.apply(i, Add, 1),
                2 => own.update(i, |value| *value += 1),
                _ => assert!(own.get(i) < u64::MAX),
            }
        }
    });
}

/// The same, with faults on few pages of a region at all places, so that asks, drops and bytes are always on their way.
pub fn region_faults() {
    tell_machines();
    let region = Region::new(16 << 12).unwrap();
    let words = region.span::<AtomicU64>(16 << 9).share();
    let fibers: Vec<_> = gossamer::rack()
        .places()
        .map(|place| {
            let words = words.clone();
            gossamer::spawn_on(place, move || {
                println!("works");
                for k in 0usize.. {
                    let word = &words[k.wrapping_mul(0x9e37_79b9) % words.len()];
                    if k % 3 == 0 {
                        word.fetch_add(1, Relaxed)
                    } else {
                        word.load(Relaxed)
                    };
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// Keeps a span beyond the program, with its page on machine 1.
pub fn region_after() {
    let region = Region::new(1 << 16).unwrap();
    let span = region.span::<AtomicU64>(1).share();
    let far = span.clone();
    gossamer::spawn_on(remote(), move || far[0].store(7, Relaxed)).join().unwrap();
    assert!(KEPT.set(span).is_ok());
}

static KEPT: OnceLock<SharedSpan<AtomicU64>> = OnceLock::new();

/// After the program: touches the kept span, on the main thread or on another one.
pub fn touch_after(thread: &str) {
    let touch = || println!("{} was there", KEPT.get().map_or(0, |span| span[0].load(Relaxed)));
    println!("after");
    match thread {
        "main" => touch(),
        _ => std::thread::spawn(touch).join().unwrap(),
    }
}

/// Touches a page of a machine whose page server is busy until the file named by the second argument exists.
pub fn region_stuck() {
    let path = std::env::args().nth(2).unwrap();
    let region = Region::new(1 << 16).unwrap();
    let mut word = region.span::<u64>(1);
    let written = gossamer::spawn_on(remote(), move || {
        word[0] = 7;
        word
    });
    let word = written.join().unwrap();
    let until_there = |path: &[u8]| {
        let path = str::from_utf8(path).unwrap();
        std::fs::write(format!("{path}.stuck"), "").unwrap();
        while !std::path::Path::new(path).exists() {
            std::thread::yield_now();
        }
    };
    trust::link::post(gossamer::link::page_server(remote().machine), until_there, path.as_bytes());
    while !std::path::Path::new(&format!("{path}.stuck")).exists() {
        trust::yield_now();
    }
    println!("{} was there", word[0]);
}

/// Fibers of machine 1 make the files that the arguments name, one each; machine 0 has started them and waits without
/// releasing its worker.
pub fn starts_at_once() {
    fn wait_for(path: &str) {
        while !std::path::Path::new(path).exists() {
            std::thread::yield_now();
        }
    }
    let path = |at: usize| std::env::args().nth(2 + at).unwrap();
    let make = |at: usize| gossamer::spawn_on(remote(), move || std::fs::write(path(at), "").unwrap());
    let made = make(0);
    wait_for(&path(0));
    // A fiber of this worker that is ready first.
    let waits = gossamer::spawn_on(gossamer::here(), move || wait_for(&path(1)));
    let also_made = make(1);
    [waits, made, also_made].into_iter().for_each(|fiber| fiber.join().unwrap());
    println!("made");
}

pub fn returns_an_error() -> Result<(), std::num::ParseIntError> {
    let number: u64 = "4".parse()?;
    assert_eq!(gossamer::entrust_on(remote(), 0u64).apply(move |c| *c + number), 4);
    drop(gossamer::spawn(|| gossamer::promise::<()>().1.wait())); // nobody waits for this fiber
    "four".parse::<u64>().map(drop)
}

pub fn returns_a_status() -> u8 {
    gossamer::entrust_on(remote(), 3u8).apply(|c| *c + 4)
}

pub fn panic() {
    gossamer::entrust_on(remote(), 0u64).apply(|c| *c += 1);
    panic!("gsm_main is meant to panic");
}

/// Waits for a fiber of this machine that nobody joins.
pub fn leave_running() {
    let there = gossamer::entrust_on(remote(), 0u64);
    let fiber = move || {
        for _ in 0..100 {
            there.apply(|c| *c += 1);
        }
        println!("counted to {}", there.apply(|c| *c));
    };
    drop(gossamer::spawn(fiber));
}

/// A fiber of the last machine needs more stack than the default.
pub fn deep() {
    let sum = || std::hint::black_box([1u8; 2 << 20]).iter().map(|&one| u64::from(one)).sum::<u64>();
    let deep = gossamer::spawn_on(remote(), sum);
    assert_eq!(deep.join().unwrap(), 2u64 << 20);
}

/// The last machine ends as by a bug in unsafe code.
pub fn abort() {
    let aborted = gossamer::spawn_on(remote(), || std::process::abort()).join();
    unreachable!("the program ends with its machine: {:?}", aborted.is_ok());
}

/// The last machine is killed; before that, the role prints the time in seconds since this host started.
pub fn killed() {
    use rustix::process::{Signal, getpid, kill_process};
    gossamer::entrust_on(remote(), 0u64).apply(|c| *c += 1);
    println!("fault at {}", uptime());
    let killed = gossamer::spawn_on(remote(), || kill_process(getpid(), Signal::KILL).is_ok()).join();
    unreachable!("the program ends with its machine: {killed:?}");
}

/// Switches the host of the last machine off, at once and without a word to anybody (as root).
pub fn power_off() {
    gossamer::entrust_on(remote(), 0u64).apply(|c| *c += 1);
    println!("fault at {}", uptime());
    let off = gossamer::spawn_on(remote(), || std::fs::write("/proc/sysrq-trigger", "b").is_ok()).join();
    unreachable!("the program ends with its host: {off:?}");
}

fn uptime() -> String {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// A program without any work left at its start.
pub fn nothing() {}

/// All but one of the fibers that are to meet come; the second argument says where they meet, and how the missing one
/// has ended.
pub fn waits_in_vain() {
    fn missing() {
        panic!("bad cell")
    }
    let kind = std::env::args().nth(2).unwrap();
    match kind.as_str() {
        // The fibers of all places; the last place's does not come to the fourth round.
        "barrier" => {
            let barrier = Barrier::new(gossamer::rack().workers());
            let last = remote();
            let round = move |barrier: &Barrier, place| {
                (0..10).for_each(|step| {
                    assert!(step < 3 || place != last, "bad cell");
                    barrier.wait();
                });
            };
            let fibers: Vec<_> = gossamer::rack()
                .places()
                .map(|place| {
                    let barrier = barrier.clone();
                    gossamer::spawn_on(place, move || round(&barrier, place))
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        }
        // The remaining sender is with the fiber that waits.
        "channel" => {
            let (sender, receiver) = gossamer::sync::channel::<u32>();
            gossamer::spawn_on(remote(), missing);
            assert_eq!(receiver.recv(), Ok(1));
            drop(sender);
        }
        "condition" => {
            let (gate, opened) = (gossamer::entrust(gossamer::Latch::new(false)), gossamer::sync::Condvar::new());
            gossamer::spawn_on(remote(), missing);
            gate.call().launch_held(move |open| opened.wait_while(open, |open| !*open)).wait().unwrap();
        }
        // A fiber that was aborted while it waited.
        "abort" => {
            let barrier = Barrier::new(3);
            let [one, other] = [0, 1].map(|_| {
                let barrier = barrier.clone();
                gossamer::spawn(move || barrier.wait())
            });
            gossamer::sleep(Duration::from_millis(50));
            other.abort();
            assert!(other.join().is_err());
            one.join().unwrap();
        }
        // Fibers that have panicked, and others that continue, by time alone.
        "not" => {
            assert!(gossamer::spawn_on(remote(), missing).join().is_err());
            let (promise, number) = gossamer::promise();
            let later = gossamer::spawn_on(remote(), || gossamer::sleep(Duration::from_secs(6)));
            let kept = gossamer::spawn(move || {
                later.join().unwrap();
                promise.keep(7);
            });
            assert_eq!(number.wait(), Ok(7));
            kept.join().unwrap();
            println!("went on");
        }
        other => panic!("no such kind: {other:?}"),
    }
}
