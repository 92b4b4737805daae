//! Snapshots: permitted folders, files left behind, waiting.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use trust::Threadpool;
use trust_durable::{Durable, Error, PVec};

use super::faults::{child_folder, contents, in_namespace};
use super::locks::open;

/// Runs `run` on a thread; it has to end.
fn ends<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    let (tells, told) = channel();
    thread::spawn(move || tells.send(run()));
    told.recv_timeout(Duration::from_secs(120)).expect("it ends: who waits for whom?")
}

/// Snapshots a pool into its own folder by the name `alias`, while another thread closes it.
fn snapshots_into_its_own(folder: PathBuf, alias: PathBuf) {
    ends(move || {
        let pool = Threadpool::new(1);
        for round in 0..12 {
            let number = open(&pool, &folder).unwrap();
            number.apply(|number, _| *number += 1);
            let (other, alias) = (number.clone(), alias.clone());
            let snapshot = thread::spawn(move || other.snapshot(alias));
            // At a different moment in each round.
            (0..round * round * 20).for_each(|_| thread::yield_now());
            number.close().unwrap();
            snapshot.join().unwrap().expect_err("its folder is not empty");
        }
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "nothing was left: {names:?}");
    });
}

#[test]
fn a_snapshot_into_the_pools_own_folder_waits_for_nobody() {
    let there = tempfile::tempdir().unwrap();
    let (folder, link) = (there.path().join("pool"), there.path().join("link"));
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    for alias in [folder.clone(), link, there.path().join("pool/../pool/.")] {
        snapshots_into_its_own(folder.clone(), alias);
    }
}

#[test]
fn a_snapshot_into_a_mount_of_the_pools_own_folder_waits_for_nobody() {
    const TEST: &str = "snapshots::a_snapshot_into_a_mount_of_the_pools_own_folder_waits_for_nobody";
    match child_folder() {
        Some(folder) => snapshots_into_its_own(folder.join("pool"), folder.join("mount")),
        None => {
            let folder = tempfile::tempdir().unwrap();
            let mount = "cd \"$DURABLE_TEST_FOLDER\" && mkdir pool mount && mount --bind pool mount || \
                         { echo CANNOT mount; exit 1; };";
            in_namespace(TEST, mount, folder.path());
        }
    }
}

#[test]
fn pools_that_snapshot_into_each_others_folders_wait_for_nobody() {
    let there = tempfile::tempdir().unwrap();
    let folders = ["one", "two"].map(|name| there.path().join(name));
    ends(move || {
        let pool = Threadpool::new(2);
        for round in 0..12 {
            let numbers = [0, 1].map(|n| Durable::<u64>::open(pool.trustees()[n], &folders[n], |_| 0).unwrap());
            let snapshots = [0, 1].map(|n| {
                let (number, folder) = (numbers[n].clone(), folders[1 - n].clone());
                thread::spawn(move || number.snapshot(folder))
            });
            (0..round * round * 20).for_each(|_| thread::yield_now());
            let closes = numbers.map(|number| thread::spawn(move || number.close()));
            closes.into_iter().for_each(|close| close.join().unwrap().unwrap());
            for snapshot in snapshots {
                snapshot.join().unwrap().expect_err("that folder is not empty");
            }
        }
    });
}

#[test]
fn a_snapshot_may_go_into_a_folder_within_the_pools() {
    let there = tempfile::tempdir().unwrap();
    let (folder, copy) = (there.path().join("pool"), there.path().join("pool/copies/1"));
    let pool = Threadpool::new(1);
    let number = open(&pool, &folder).unwrap();
    number.apply(|number, _| *number = 5);
    number.snapshot(&copy).unwrap();
    number.apply(|number, _| *number = 6);
    number.close().unwrap();
    let [number, copy] = [folder, copy].map(|folder| open(&pool, &folder).unwrap());
    assert_eq!((number.apply(|number, _| *number), copy.apply(|number, _| *number)), (6, 5));
}

#[test]
fn a_snapshot_that_finds_no_room_leaves_nothing() {
    const TEST: &str = "snapshots::a_snapshot_that_finds_no_room_leaves_nothing";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        let mount = "mkdir \"$DURABLE_TEST_FOLDER\"/small && mount -t tmpfs -o size=4m none \
                     \"$DURABLE_TEST_FOLDER\"/small || { echo CANNOT mount; exit 1; };";
        return in_namespace(TEST, mount, folder.path());
    };
    let (ballast, small) = (folder.join("small/ballast"), folder.join("small"));
    let pool = Threadpool::new(1);
    let numbers = Durable::<PVec<u64>>::open(pool.trustees()[0], folder.join("pool"), |_| PVec::new()).unwrap();
    numbers.apply(|numbers, tx| numbers.extend(0..100_000, tx));
    fs::create_dir(small.join("there")).unwrap();
    fs::write(&ballast, vec![1; (7 << 20) / 2]).unwrap();
    for copy in [small.join("new"), small.join("outer/new"), small.join("there")] {
        let text = numbers.snapshot(&copy).unwrap_err().to_string();
        assert!(text.contains("make room on its file system"), "{text}");
        let mut names: Vec<_> = fs::read_dir(&small).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["ballast", "there"], "what it made is gone");
        assert!(contents(&small.join("there")).is_empty());
    }
    fs::remove_file(ballast).unwrap();
    numbers.snapshot(small.join("there")).unwrap();
    let copy = Durable::<PVec<u64>>::open(pool.trustees()[0], small.join("there"), |_| PVec::new()).unwrap();
    assert_eq!(copy.apply(|numbers, _| numbers.len()), 100_000);
}

#[test]
fn a_snapshot_takes_the_place_of_one_that_was_killed_and_of_nothing_else() {
    let there = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let number = open(&pool, &there.path().join("pool")).unwrap();
    number.apply(|number, _| *number = 5);
    let log = fs::read(there.path().join("pool/log-0")).unwrap();
    let page = &log[..4096];
    for (n, (files, is_begun)) in [
        (vec![("log-0.tmp", page)], true),
        (vec![("log-0", page)], true),
        (vec![("log-0", page), ("image-0.tmp", b"half")], true),
        (vec![("log-0", &log[..])], false),
        (vec![("log-3", page)], false),
        (vec![("log-0", page), ("image-0", b"a pool")], false),
        (vec![("log-0.tmp", page), ("letter", b"dear")], false),
    ]
    .into_iter()
    .enumerate()
    {
        let copy = there.path().join(n.to_string());
        fs::create_dir(&copy).unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(copy.join(name), bytes).unwrap());
        let before = contents(&copy);
        let outcome = number.snapshot(&copy);
        if is_begun {
            outcome.unwrap();
            assert_eq!(open(&pool, &copy).unwrap().apply(|number, _| *number), 5);
        } else {
            assert!(matches!(outcome, Err(Error::Foreign { .. })), "{files:?}: {outcome:?}");
            assert_eq!(contents(&copy), before, "as it was");
        }
    }
}
