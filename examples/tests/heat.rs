//! `heat` as a user runs it: over one process and several it has the temperatures of one thread, also from a checkpoint
//! that another number of processes has written, and when a process is killed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use limits::HANG;
use processes::{ChildProcess, send_signal};
use programs::{RACKS, report, run};
use rustix::process::Signal;
use serde_json::Value;

mod programs;

const HEAT: &str = env!("CARGO_BIN_EXE_heat");

#[test]
fn temperatures_are_those_of_one_thread() {
    let mut expected: Option<Value> = None;
    for rack in RACKS {
        let found = report(HEAT, &[&["--size", "70", "--steps", "40"], rack].concat());
        assert_eq!((&found["size"], &found["steps"], &found["count"]), (&70.into(), &40.into(), &(4900 * 40).into()));
        assert!(found["mean"].as_f64().unwrap() > 0.0, "{found}");
        let checksum = &found["checksum"];
        assert_eq!(expected.get_or_insert_with(|| checksum.clone()), checksum, "{rack:?}");
    }
    // Several bands of rows at each place.
    report(HEAT, &["--size", "200", "--steps", "9", "--threads", "1"]);
    report(HEAT, &["--size", "210", "--steps", "9", "--threads", "2"]);
    // Less than a row for each place, and places without cells.
    for size in ["3", "5"] {
        report(HEAT, &["--size", size, "--steps", "9", "--threads", "12"]);
    }
    assert_eq!(report(HEAT, &["--size", "10", "--steps", "0", "--threads", "2"])["mean"], 10.0);
}

#[test]
fn any_number_of_processes_goes_on_from_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("heat");
    let plate = ["--size", "80", "--checkpoint", folder.to_str().unwrap(), "--every", "7"];
    let expected = report(HEAT, &["--size", "80", "--steps", "40", "--threads", "1"]);
    let written = report(HEAT, &[&plate[..], &["--steps", "20", "--local", "2", "--threads", "4"]].concat());
    assert_eq!((&written["checkpoints"], &written["restored"]), (&2.into(), &0.into()));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 5, "a manifest, and a part of each worker");
    // Each begins where the one before has written its last checkpoint.
    let racks = [&["--threads", "3"][..], &["--local", "3", "--threads", "5"], &["--local", "2", "--threads", "2"]];
    for (rack, (first, steps)) in racks.into_iter().zip([("14", "25"), ("21", "33"), ("28", "40")]) {
        let found = report(HEAT, &[&plate[..], &["--restore", "--steps", steps], rack].concat());
        assert_eq!(found["restored"].to_string(), first, "{found}");
        assert_eq!(found["checksum"] == expected["checksum"], steps == "40", "{found}");
    }
    // Cut off in the middle of writing: the files of that attempt do not matter.
    fs::write(folder.join("99-0123456789abcdef-0.part"), "torn").unwrap();
    let last = run(HEAT, &[&plate[..], &["--restore", "--steps", "36", "--threads", "2", "--verify"]].concat());
    assert_eq!((last.status, last.stderr.as_str()), (0, ""), "{}", last.stdout);
    assert!(last.stdout.starts_with("80 x 80 cells, ") && last.stdout.contains("\nrestored from step 35\n"));
    assert!(last.stdout.contains("\ntwin, one process with 2 threads: "), "{}", last.stdout);
}

#[test]
fn wrong_checkpoints_are_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let restore = ["--checkpoint", path, "--restore"];
    let told = |args: &[&str], words: &str| {
        for rack in [&["--threads", "2"][..], &["--local", "2"]] {
            let ran = run(HEAT, &[&restore[..], args, rack].concat());
            let is_told = ran.stderr.starts_with("heat: ") && ran.stderr.contains(words) && ran.stdout.is_empty();
            assert!(is_told && ran.stderr.lines().count() == 1, "{args:?} {} {}", ran.stdout, ran.stderr);
            assert_eq!(ran.status, 1, "{args:?}");
        }
    };
    told(&[], " at m0w0 has no checkpoint");
    let ran = run(HEAT, &["--size", "40", "--steps", "10", "--checkpoint", path, "--every", "5", "--threads", "2"]);
    assert!(ran.status == 0 && ran.stdout.contains("\n2 checkpoints, "), "{} {}", ran.stdout, ran.stderr);
    told(&["--size", "41"], "of another --size");
    told(&["--size", "40", "--steps", "9"], "is of step 10, behind the last of --steps 9");
    let parts = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let part = parts.filter(|path| path.extension().is_some_and(|kind| kind == "part")).min().unwrap();
    let mut bytes = fs::read(&part).unwrap();
    bytes[77] ^= 4;
    fs::write(&part, bytes).unwrap();
    told(&["--size", "40"], "(checksum): restore another checkpoint");
}

/// A process is killed at a random moment, between checkpoints or in one.
#[test]
fn the_others_go_on_from_the_last_checkpoint() {
    let plate = ["--size", "120", "--steps", "1000"];
    let expected = report(HEAT, &[&plate[..], &["--threads", "1"]].concat());
    for fabric in ["shm", "tcp", "shm", "tcp", "shm"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("heat");
        let (victim, checkpoint, wait) = (fastrand::u16(1..3), fastrand::u64(1..20), fastrand::u64(..10));
        let moment = format!("{fabric}: machine {victim}, {wait} ms after checkpoint {checkpoint}");
        println!("{moment}");

        let mut heat = Command::new(HEAT);
        heat.args(plate).args(["--local", "3", "--threads", "3", "--fabric", fabric, "--json", "--verify"]);
        heat.args(["--survives", "1", "--every", "10", "--checkpoint"]).arg(&folder);
        let heat = ChildProcess::start(heat);
        until_checkpoint(&folder, checkpoint);
        thread::sleep(Duration::from_millis(wait));
        let is_victim = |process: &u32| {
            let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            let own = format!("GOSSAMER_MACHINE={victim}");
            variables.split(|byte| *byte == 0).any(|variable| variable == own.as_bytes())
        };
        send_signal(heat.children().into_iter().find(is_victim).expect(&moment), Signal::KILL);

        let ended = heat.end();
        assert_eq!(ended.code(), Some(0), "{moment}: {ended:#?}");
        assert!(ended.stderr.contains(&format!("the others go on without machine {victim}")), "{moment}: {ended:#?}");
        let found: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((&found["verified"], &found["lost"]), (&true.into(), &1.into()), "{moment}: {found}");
        assert_eq!((&found["checksum"], &found["mean"]), (&expected["checksum"], &expected["mean"]), "{moment}");
        let restored = found["restored"].as_u64().unwrap();
        assert!(restored.is_multiple_of(10) && restored + 10 >= 10 * checkpoint, "{moment}: {found}");
    }
}

/// Waits until the folder has a checkpoint of this number, or a later one.
fn until_checkpoint(folder: &Path, number: u64) {
    let start = Instant::now();
    let last = || {
        let manifest = fs::read_to_string(folder.join("manifest.json")).ok()?;
        let manifest: Value = serde_json::from_str(&manifest).ok()?;
        manifest["files"].as_str()?.split_once('-')?.0.parse::<u64>().ok()
    };
    while last() < Some(number) {
        assert!(start.elapsed() < HANG, "no checkpoint {number}");
        thread::sleep(Duration::from_millis(1));
    }
}
