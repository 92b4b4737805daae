//! Checkpoints from process to process: other numbers of workers, kills in the middle, files that are wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gossamer_array::{Array, Element, Error};
use processes::{ChildProcess, in_role, role};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

/// Variable with the folder, for processes of these tests.
const FOLDER: &str = "GOSSAMER_ARRAY_CHECKPOINTS";

fn command(test: &str, role: &str, folder: &Path) -> Command {
    let mut command = in_role(test, role);
    command.env(FOLDER, folder);
    command
}

fn folder() -> PathBuf {
    std::env::var_os(FOLDER).unwrap().into()
}

/// Length of an array with several blocks at each place.
const LONG: usize = 500_003;

fn element<const N: usize>(i: usize) -> [u8; N] {
    std::array::from_fn(|k| (i * 31 + k * 7) as u8)
}

fn write<T: Element>(name: &str, n: usize, is_cyclic: bool, make: fn(usize) -> T) {
    let builder = Array::<T>::builder().cache_bytes(0);
    let builder = if is_cyclic { builder.cyclic() } else { builder };
    let array = builder.build(n, T::new_zeroed()).unwrap();
    array.modify(0..n, |first, elements| (first..).zip(elements).for_each(|(i, element)| *element = make(i)));
    array.checkpoint(folder().join(name)).unwrap();
}

fn read<T: Element + PartialEq + std::fmt::Debug>(name: &str, n: usize, make: fn(usize) -> T) {
    for is_cyclic in [false, true] {
        let builder = Array::<T>::builder().cache_bytes(0);
        let builder = if is_cyclic { builder.cyclic() } else { builder };
        let array = builder.restore(folder().join(name)).unwrap();
        assert_eq!(array.len(), n);
        let all = array.views(0..n).flat_map(|view| view.indexed().collect::<Vec<_>>());
        all.for_each(|(i, element)| assert_eq!(element, make(i), "{name} {i}, cyclic: {is_cyclic}"));
    }
}

fn write_all() {
    for is_cyclic in [false, true] {
        let name = |name: &str| format!("{name} {is_cyclic}");
        write(&name("long"), LONG, is_cyclic, |i| i as u64 * 3);
        write(&name("bytes"), 7001, is_cyclic, |i| i as u8);
        write(&name("blocks"), 999, is_cyclic, element::<4096>);
        write(&name("odd"), 50_000, is_cyclic, element::<11>);
        write(&name("few"), 3, is_cyclic, |i| i as f64);
        write(&name("none"), 0, is_cyclic, |i| i as f64);
    }
}

fn read_all() {
    for is_cyclic in [false, true] {
        let name = |name: &str| format!("{name} {is_cyclic}");
        read(&name("long"), LONG, |i| i as u64 * 3);
        read(&name("bytes"), 7001, |i| i as u8);
        read(&name("blocks"), 999, element::<4096>);
        read(&name("odd"), 50_000, element::<11>);
        read(&name("few"), 3, |i| i as f64);
        read(&name("none"), 0, |i| i as f64);
    }
}

#[test]
fn any_number_of_workers_restores() {
    const TEST: &str = "any_number_of_workers_restores";
    if let Some(role) = role() {
        let (call, workers) = role.split_once(' ').unwrap();
        return gossamer::main(if call == "write" { write_all } else { read_all }, workers.parse().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    for role in ["write 3", "read 3", "read 1", "read 2", "write 1", "read 4"] {
        ChildProcess::start(command(TEST, role, folder.path())).passes();
    }
}

/// Fills an array with the number of a round and writes it, again and again, from the round that the folder has.
fn write_rounds() {
    const ELEMENTS: usize = 300_000;
    let array = match Array::<u64>::restore(folder()) {
        Err(Error::NoCheckpoint { .. }) => Array::new(ELEMENTS, 0).unwrap(),
        restored => restored.unwrap(),
    };
    let last = array.get(0);
    assert!(array.views(0..ELEMENTS).all(|view| view.iter().all(|round| *round == last)), "of one round");
    println!("restored {last}");
    // An end, in case nobody kills it.
    for round in last + 1..last + 100_000 {
        array.fill(round);
        array.checkpoint(folder()).unwrap();
        println!("complete {round}");
    }
}

/// A process that is killed while it writes leaves the checkpoint before, or the one that it wrote.
#[test]
fn a_kill_in_the_middle_leaves_a_whole_checkpoint() {
    const TEST: &str = "a_kill_in_the_middle_leaves_a_whole_checkpoint";
    if role().is_some() {
        return gossamer::main(write_rounds, 2);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut complete: u64 = 0;
    for kill in 0..10 {
        let process = ChildProcess::start(command(TEST, "rounds", folder.path()));
        let restored: u64 = process.stdout.line("restored ").parse().unwrap();
        // One more round may have been completed than it could say.
        assert!((complete..=complete + 1).contains(&restored), "{restored} is not {complete}, or the next");
        process.stdout.wait_for("complete ");
        // To hit other moments of the call; any is right.
        std::thread::sleep(Duration::from_micros(700 * kill));
        process.signal(Signal::KILL);
        let ended = process.end();
        let last = ended.stdout.lines().rev().find_map(|line| line.strip_prefix("complete ")?.parse().ok());
        complete = last.unwrap_or_else(|| panic!("{ended}"));
    }
    // Those that were cut off do not pile up: each complete one removes them.
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert!(names <= 7, "{names} files: at most two checkpoints of two parts, and an unfinished one");
}

/// Restores, which must fail; returns the path in the error, relative to the folder, and its text.
fn refused<T: Element>() -> (PathBuf, String) {
    let error = Array::<T>::restore(folder()).unwrap_err();
    let (Error::NoCheckpoint { path, .. }
    | Error::ElementType { path, .. }
    | Error::Checkpoint { path, .. }
    | Error::File { path, .. }) = &error
    else {
        panic!("{error}")
    };
    assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    (path.strip_prefix(folder()).unwrap().to_owned(), error.to_string())
}

fn check_refusals() {
    let says = |(path, text): (PathBuf, String), name: &str, words: &str| {
        assert!(path == Path::new(name) && text.contains(words), "{text}: not of {name}: {words}");
    };
    says(refused::<u64>(), "", "at m0w0 has no checkpoint");
    let array = Array::new(4000, 7u64).unwrap();
    array.checkpoint(folder()).unwrap();
    says(refused::<i64>(), "manifest.json", "of type u64 (8 bytes), not i64 (8 bytes)");
    says(refused::<[u8; 3]>(), "manifest.json", "not [u8; 3] (3 bytes)");
    let names = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert!(names.len() == 3 && names[1].ends_with("-1.part") && names[2] == "manifest.json", "{names:?}");
    let path = folder().join(&names[1]);
    let good = fs::read(&path).unwrap();
    // Each fault is found by the worker that reads the part.
    fs::remove_file(&path).unwrap();
    says(refused::<u64>(), &names[1], "at m0w1 is missing");
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    says(refused::<u64>(), &names[1], "bytes instead of 15624, so it is torn");
    let mut bad = good.clone();
    bad[1000] ^= 1;
    fs::write(&path, &bad).unwrap();
    says(refused::<u64>(), &names[1], "is damaged between bytes 0 and 15616 (checksum)");
    // Bytes of the other part, under this name.
    fs::write(&path, &fs::read(folder().join(&names[0])).unwrap()[..good.len()]).unwrap();
    says(refused::<u64>(), &names[1], "(checksum)");
    fs::write(&path, &good).unwrap();
    assert_eq!(Array::<u64>::restore(folder()).unwrap().get(3999), 7);
    let manifest = folder().join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"format\": 1", "\"format\": 9")).unwrap();
    says(refused::<u64>(), "manifest.json", "has format 9");
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    says(refused::<u64>(), "manifest.json", "is not the manifest of a checkpoint");
    // The next one needs nothing of it.
    array.set(3, 8);
    array.checkpoint(folder()).unwrap();
    assert_eq!(Array::<u64>::restore(folder()).unwrap().get(3), 8);
    assert_eq!(fs::read_dir(folder()).unwrap().count(), 3);
}

#[test]
fn wrong_files_are_named() {
    const TEST: &str = "wrong_files_are_named";
    if role().is_some() {
        return gossamer::main(check_refusals, 2);
    }
    let folder = tempfile::tempdir().unwrap();
    ChildProcess::start(command(TEST, "refusals", folder.path())).passes();
}

/// Writes more than files may hold; the checkpoint before stays, and nothing of the new one.
fn fill_the_disk() {
    let array = Array::new(1000, 5u64).unwrap();
    array.checkpoint(folder()).unwrap();
    let long = Array::new(LONG, 6u64).unwrap();
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), maximum }).unwrap();
    let error = long.checkpoint(folder()).unwrap_err();
    assert!(matches!(&error, Error::File { .. }) && error.to_string().contains("File too large"), "{error}");
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
    assert_eq!(fs::read_dir(folder()).unwrap().count(), 3);
    let restored = Array::<u64>::restore(folder()).unwrap();
    assert_eq!((restored.len(), restored.get(999)), (1000, 5));
    // Threads that are no places call as well.
    let (thread, folder) = (long.clone(), folder());
    let thread = std::thread::spawn(move || {
        thread.checkpoint(&folder).unwrap();
        Array::<u64>::restore(folder).unwrap().get(LONG - 1)
    });
    while !thread.is_finished() {
        gossamer::sleep(Duration::from_millis(1));
    }
    assert_eq!(thread.join().unwrap(), 6);
}

#[test]
fn a_full_disk_leaves_the_checkpoint_before() {
    const TEST: &str = "a_full_disk_leaves_the_checkpoint_before";
    if role().is_some() {
        return gossamer::main(fill_the_disk, 2);
    }
    let folder = tempfile::tempdir().unwrap();
    let own = command(TEST, "fills", folder.path());
    // With the signal ignored a write beyond the limit is an error.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(own.get_program()).args(own.get_args());
    shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ChildProcess::start(shell).passes();
}
