//! Folders and files of open pools that another program moves, replaces or removes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use trust::Threadpool;
use trust_durable::{Durable, Error, PVec};

type Numbers = Durable<PVec<'static, u64>>;

fn open(pool: &Threadpool, folder: &Path) -> Numbers {
    Durable::<PVec<u64>>::open(pool.trustees()[0], folder, |_| PVec::new()).unwrap()
}

/// Adds numbers from `first` on, enough for some new generations.
fn fill(numbers: &Numbers, first: u64) {
    let before = numbers.stats().unwrap().generations;
    let mut next = first;
    while numbers.stats().unwrap().generations < before + 3 {
        numbers.apply(move |numbers, tx| numbers.extend(next..next + 5000, tx));
        next += 5000;
    }
}

/// Checks that the numbers go up by one from `first` on; returns their count.
fn count(numbers: &Numbers, first: u64) -> usize {
    let found = numbers.apply_with(|numbers, _, ()| numbers.to_vec(), ());
    assert!(found.iter().copied().eq(first..first + found.len() as u64), "not what was put there");
    found.len()
}

#[test]
fn a_pool_whose_folder_was_moved_goes_on_there() {
    let there = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let (outer, moved) = (there.path().join("outer"), there.path().join("moved"));
    // Either the folder is renamed, or a folder above it.
    for (path, from, to) in [
        (outer.join("one"), outer.join("one"), moved.clone()),
        (outer.join("two"), outer.clone(), there.path().join("elsewhere")),
    ] {
        let first = open(&pool, &path);
        fill(&first, 0);
        fs::rename(&from, &to).unwrap();
        let now = to.join(path.strip_prefix(&from).unwrap());
        let second = open(&pool, &path);
        fill(&second, 1 << 40);
        let before = count(&first, 0);
        fill(&first, before as u64);
        let (in_first, in_second) = (count(&first, 0), count(&second, 1 << 40));
        second.close().unwrap();
        first.close().unwrap();
        assert_eq!(count(&open(&pool, &now), 0), in_first);
        assert_eq!(count(&open(&pool, &path), 1 << 40), in_second);
    }
}

/// Checks that the pool is lost, and that the cause names another program, not the disk.
fn is_removed<V: std::fmt::Debug>(outcome: Result<V, Error>) {
    let Err(Error::Lost { cause }) = &outcome else { panic!("{outcome:?}") };
    assert!(cause.contains("another program removed, moved or replaced it"), "{cause}");
    assert!(!cause.contains("is safe"), "{cause}");
}

#[test]
fn nothing_is_acknowledged_in_a_folder_that_is_gone() {
    let there = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let path = there.path().join("pool");
    let first = open(&pool, &path);
    fill(&first, 0);
    // The disk thread may create a file meanwhile.
    limits::wait_until("the folder is removed", || match fs::remove_dir_all(&path) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => false,
        removed => removed.map(|()| true).unwrap(),
    });
    let second = open(&pool, &path);
    is_removed(first.call().apply(|numbers, tx| numbers.push(1, tx)).wait());
    fill(&second, 7);
    is_removed(first.call().apply(|numbers, _| numbers.len()).wait());
    let in_second = count(&second, 7);
    second.close().unwrap();
    is_removed(first.close());
    assert_eq!(count(&open(&pool, &path), 7), in_second);
}

#[test]
fn files_that_are_taken_from_a_pool_are_told_by_name() {
    let pool = Threadpool::new(1);
    for (name, is_moved) in [("log-0", true), ("image-0", true), ("log-0", false), ("image-0", false)] {
        let there = tempfile::tempdir().unwrap();
        let path = there.path().join("pool");
        let numbers = open(&pool, &path);
        numbers.apply(|numbers, tx| numbers.extend(0..100, tx));
        let file = path.join(name);
        if is_moved {
            fs::rename(&file, there.path().join(name)).unwrap();
        } else {
            fs::copy(&file, path.join("copy")).unwrap();
            fs::rename(path.join("copy"), &file).unwrap();
        }
        let lost = numbers.call().apply(|numbers, tx| numbers.push(100, tx)).wait().unwrap_err().to_string();
        assert!(lost.contains(name), "{lost}");
        is_removed(numbers.close());
        if is_moved {
            fs::rename(there.path().join(name), &file).unwrap();
            assert!(count(&open(&pool, &path), 0) >= 100, "put back, it has what was acknowledged");
        }
    }
}

#[test]
fn closing_tells_what_is_gone_although_nothing_was_written_since() {
    let there = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let path = there.path().join("pool");
    let numbers = open(&pool, &path);
    numbers.apply(|numbers, tx| numbers.extend(0..100, tx));
    fs::remove_dir_all(&path).unwrap();
    is_removed(numbers.close());
    // Results delivered early do not become durable by that.
    let numbers = Durable::<PVec<u64>>::builder()
        .within(Duration::from_secs(600))
        .open(pool.trustees()[0], &path, |_| PVec::new())
        .unwrap();
    numbers.apply(|numbers, tx| numbers.extend(0..100, tx));
    // From then on no group is written until something hurries it.
    limits::wait_until("the first group is durable", || numbers.stats().unwrap().groups == 1);
    numbers.apply(|numbers, tx| numbers.extend(0..100, tx));
    fs::remove_dir_all(&path).unwrap();
    is_removed(numbers.sync());
}
