//! Bad disks and bad folders: errors that name file, offset and remedy. Acknowledged changes are there, nothing is
//! overwritten.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trust::Threadpool;
use trust_durable::{Durable, Error, PVec};

use super::open as open_bank;

/// Environment variable with the folder of a test that runs again in a process of its own.
const CHILD: &str = "DURABLE_TEST_FOLDER";

type Numbers = Durable<PVec<'static, u64>>;

fn open(pool: &Threadpool, folder: &Path) -> Result<Numbers, Error> {
    Durable::<PVec<u64>>::open(pool.trustees()[0], folder, |_| PVec::new())
}

pub(super) fn child_folder() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Runs a test of this file again in a process of its own, which finds its folder in the environment. `sh` runs
/// `before` first.
pub(super) fn child(test: &str, before: &str, folder: &Path) -> Option<String> {
    let line = format!("{before} exec \"$0\" \"$@\"");
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).arg(program).args(["--exact", test, "--nocapture"]);
    let output = command.env(CHILD, folder).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if said.contains("CANNOT") {
        println!("SKIPPED: {test}: {said}");
        return None;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    Some(said)
}

pub(super) fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
}

fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).expect("a lower limit may be set");
}

/// Adds numbers until the pool is lost; returns the number acknowledged, and the cause.
fn fill(numbers: &Numbers) -> (usize, String) {
    let mut acknowledged = 0;
    loop {
        let added = numbers
            .call()
            .apply(|numbers, tx| {
                let len = numbers.len() as u64;
                numbers.extend(len..len + 5000, tx);
                numbers.len()
            })
            .wait();
        match added {
            Ok(len) => acknowledged = len,
            Err(Error::Lost { cause }) => return (acknowledged, cause),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Returns the cause that each later call reports.
fn causes(numbers: &Numbers) -> Vec<String> {
    let cause = |outcome: Result<(), Error>| match outcome {
        Err(Error::Lost { cause }) => cause,
        other => panic!("{other:?}"),
    };
    let told = Rc::new(RefCell::new(None));
    let tell = Rc::clone(&told);
    numbers.call().apply(|_, _| ()).then(move |outcome| *tell.borrow_mut() = Some(outcome));
    let mut causes = vec![cause(numbers.call().apply(|_, _| ()).wait()), cause(numbers.sync())];
    causes.push(cause(told.borrow_mut().take().expect("in order before `sync`")));
    let mut future = std::pin::pin!(numbers.call().apply(|_, _| ()).into_future());
    let outcome = loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => break outcome,
            Poll::Pending => trust::yield_now(),
        }
    };
    causes.push(cause(outcome));
    causes.push(cause(numbers.clone().close()));
    causes
}

#[test]
fn files_that_may_not_grow() {
    const TEST: &str = "faults::files_that_may_not_grow";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        child(TEST, "trap '' XFSZ;", folder.path());
        return;
    };
    let pool = Threadpool::new(1);
    let numbers = open(&pool, &folder).unwrap();
    limit_files(Some(6 << 20));
    let (acknowledged, cause) = fill(&numbers);
    assert!(acknowledged > 0);
    let names_it = cause.starts_with(folder.canonicalize().unwrap().to_str().unwrap());
    assert!(names_it && cause.contains(", offset ") && cause.contains("`ulimit -f`"), "{cause}");
    for told in causes(&numbers) {
        assert_eq!(told, cause, "each lost call has the cause");
    }
    drop(numbers);
    limit_files(None);
    let numbers = open(&pool, &folder).unwrap();
    let found = numbers.apply_with(|numbers, _, ()| numbers.to_vec(), ());
    assert!(found.len() >= acknowledged && found.iter().copied().eq(0..found.len() as u64));
}

#[test]
fn address_space_that_is_not_given() {
    const TEST: &str = "faults::address_space_that_is_not_given";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        child(TEST, "ulimit -v 8388608 || { echo CANNOT limit; exit 1; };", folder.path());
        return;
    };
    let pool = Threadpool::new(1);
    let open =
        |limit| Durable::<PVec<u64>>::builder().limit(limit).open(pool.trustees()[0], &folder, |tx| PVec::of([7], tx));
    let refused = open(64 << 30).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Reservation { bytes, .. } if bytes == 64 << 30), "{text}");
    assert!(text.contains("smaller `limit`") && text.contains("`ulimit -v`"), "{text}");
    assert_eq!(open(1 << 20).unwrap().apply(|numbers, _| numbers[0]), 7);
}

#[test]
fn where_no_fiber_can_be_started() {
    const TEST: &str = "faults::where_no_fiber_can_be_started";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        if let Some(said) = child(TEST, "", folder.path()) {
            assert!(said.contains("a fiber was not started"), "{said}");
        }
        return;
    };
    // A watchdog: a child that hangs exits with a failure.
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        std::process::exit(3);
    });
    let path = folder.join("pool");
    for within in [None, Some(std::time::Duration::MAX)] {
        let pool = Threadpool::new(1);
        open(&pool, &path).unwrap().close().unwrap();
        drop(pool);
        let pool = Threadpool::builder().workers(1).stack_bytes(1 << 30).build();
        let builder = Durable::<PVec<u64>>::builder().limit(1 << 20);
        let builder = within.map_or(builder, |within| Durable::<PVec<u64>>::builder().limit(1 << 20).within(within));
        let numbers = builder.open(pool.trustees()[0], &path, |_| PVec::new()).unwrap();
        // Space for half of a stack.
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let used = pages.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 4096;
        let maximum = getrlimit(Resource::As).maximum;
        setrlimit(Resource::As, Rlimit { current: Some(used + (1 << 29)), maximum }).unwrap();
        let before = numbers.apply(|numbers, _| numbers.len());
        numbers.apply(|numbers, tx| numbers.push(1, tx));
        numbers.apply_then(|numbers, tx| numbers.push(2, tx), |()| ());
        numbers.sync().unwrap();
        assert_eq!(
            numbers.call().attempt(|numbers, _| Err::<(), usize>(numbers.len())).wait().unwrap(),
            Err(before + 2)
        );
        numbers.snapshot(folder.join(format!("copy-{before}"))).unwrap();
        numbers.apply_then(|numbers, tx| numbers.push(3, tx), |()| ());
        numbers.close().unwrap();
        setrlimit(Resource::As, Rlimit { current: maximum, maximum }).unwrap();
        drop(pool);
        let pool = Threadpool::new(1);
        let numbers = open(&pool, &path).unwrap();
        assert_eq!(numbers.apply(|numbers, _| numbers.len()), before + 3);
        numbers.close().unwrap();
    }
}

#[test]
fn a_full_disk() {
    const TEST: &str = "faults::a_full_disk";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        let mount = "mount -t tmpfs -o size=14m none \"$DURABLE_TEST_FOLDER\" || { echo CANNOT mount; exit 1; };";
        let whole = format!("command -v unshare >/dev/null || {{ echo CANNOT unshare; exit 1; }}; {mount}");
        in_namespace(TEST, &whole, folder.path());
        return;
    };
    let (ballast, folder) = (folder.join("ballast"), folder.join("pool"));
    let pool = Threadpool::new(1);
    fs::write(&ballast, vec![1; 4 << 20]).unwrap();
    let numbers = open(&pool, &folder).unwrap();
    let (acknowledged, cause) = fill(&numbers);
    assert!(cause.contains("No space left") && cause.contains("make room on its file system"), "{cause}");
    assert!(cause.contains("/log-") || cause.contains("/image-"), "{cause}");
    numbers.close().unwrap_err();
    // On a full disk, files stay as they are, whether the pool opens or not.
    let before = contents(&folder);
    match open(&pool, &folder) {
        Ok(numbers) => numbers.close().unwrap(),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("make room on its file system"), "{text}");
            let after = contents(&folder);
            assert!(before.iter().all(|(path, bytes)| path.extension().is_some() || after.get(path) == Some(bytes)));
        }
    }
    fs::remove_file(ballast).unwrap();
    let numbers = open(&pool, &folder).unwrap();
    let found = numbers.apply_with(|numbers, _, ()| numbers.to_vec(), ());
    assert!(found.len() >= acknowledged && found.iter().copied().eq(0..found.len() as u64));
    numbers.close().unwrap();
}

#[test]
fn a_folder_that_may_only_be_read() {
    const TEST: &str = "faults::a_folder_that_may_only_be_read";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        let pool = Threadpool::new(1);
        let numbers = open(&pool, &folder.path().join("pool")).unwrap();
        fill_some(&numbers);
        numbers.close().unwrap();
        let mount = "mount --bind \"$DURABLE_TEST_FOLDER\" \"$DURABLE_TEST_FOLDER\" && \
                     mount -o remount,bind,ro \"$DURABLE_TEST_FOLDER\" || { echo CANNOT mount; exit 1; };";
        in_namespace(TEST, mount, folder.path());
        assert_eq!(open(&pool, &folder.path().join("pool")).unwrap().apply(|numbers, _| numbers.len()), 1000);
        return;
    };
    let pool = Threadpool::new(1);
    let before = contents(&folder.join("pool"));
    let text = open(&pool, &folder.join("pool")).unwrap_err().to_string();
    assert!(
        text.contains("pool/log-0.tmp: cannot create it") && text.contains("let this program write there"),
        "{text}"
    );
    assert_eq!(contents(&folder.join("pool")), before);
    let text = open(&pool, &folder.join("new")).unwrap_err().to_string();
    assert!(text.contains("new: cannot open the folder") && text.contains("let this program write there"), "{text}");
}

/// Same as [`child`], with mounts of its own.
pub(super) fn in_namespace(test: &str, before: &str, folder: &Path) {
    let inner = before.replace('\'', "'\\''");
    let line = format!(
        "exec unshare --user --map-root-user --mount sh -c '{inner} exec \"$0\" \"$@\"' \"$0\" \"$@\" || echo CANNOT \
         unshare; #"
    );
    if !Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "true"])
        .status()
        .is_ok_and(|it| it.success())
    {
        return println!("SKIPPED: {test}: no namespaces of users and mounts here");
    }
    child(test, &line, folder);
}

fn fill_some(numbers: &Numbers) {
    for _ in 0..10 {
        numbers.apply(|numbers, tx| {
            let len = numbers.len() as u64;
            numbers.extend(len..len + 100, tx);
        });
    }
}

#[test]
fn files_that_were_cut_or_changed_are_refused_as_they_are() {
    let original = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let numbers = open(&pool, original.path()).unwrap();
    fill_some(&numbers);
    numbers.close().unwrap();
    let original = contents(original.path());
    assert_eq!(original.len(), 2, "an image and a log, and no other file");
    let (mut refused, mut opened) = (0, 0);
    for (path, bytes) in &original {
        let used = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        let changes = (0..24).flat_map(|step| {
            let at = step * used / 24 + step;
            let cut = bytes[..at.min(used)].to_vec();
            let mut flipped = bytes.clone();
            flipped[at.min(used - 1)] ^= 1 << (step % 8);
            [cut, flipped]
        });
        for changed in changes {
            let folder = tempfile::tempdir().unwrap();
            for (other, bytes) in &original {
                let bytes = if other == path { &changed } else { bytes };
                fs::write(folder.path().join(other.file_name().unwrap()), bytes).unwrap();
            }
            let before = contents(folder.path());
            match open(&pool, folder.path()) {
                Ok(numbers) => {
                    let found = numbers.apply_with(|numbers, _, ()| numbers.to_vec(), ());
                    assert!(found.len() % 100 == 0 && found.iter().copied().eq(0..found.len() as u64));
                    opened += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    let name = path.file_name().unwrap().to_str().unwrap();
                    assert!(text.contains(name) && text.contains("offset"), "{text}");
                    assert!(text.contains("restore the folder") || text.contains("open it with"), "{text}");
                    let after = contents(folder.path());
                    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)), "{text}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 40 && opened > 2, "{refused} refused, {opened} opened");
}

#[test]
fn a_folder_in_use_is_in_use_whatever_is_removed_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open_bank(&pool, folder.path()).unwrap();
    let link = folder.path().with_extension("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    let refused = open_bank(&pool, &link);
    fs::remove_file(&link).unwrap();
    assert!(matches!(refused, Err(Error::InUse { .. })), "by another name");
    let refused = bank.snapshot(folder.path());
    assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    bank.close().unwrap();
}

/// Returns a figure of this process in kibibytes, by its name in `/proc/self/status`.
fn kibibytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_process_whose_memory_is_locked_has_what_the_pool_uses() {
    const TEST: &str = "faults::a_process_whose_memory_is_locked_has_what_the_pool_uses";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        child(TEST, "ulimit -l unlimited 2>/dev/null;", folder.path());
        return;
    };
    if let Err(error) = rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        return println!("CANNOT lock memory: {error}");
    }
    let open = |pool: &Threadpool| {
        let builder = Durable::<PVec<u64>>::builder().limit(1 << 30);
        builder.open(pool.trustees()[0], &folder, |_| PVec::new()).unwrap()
    };
    let pool = Threadpool::new(1);
    for round in 1..=2 {
        let before = kibibytes("VmRSS");
        let numbers = open(&pool);
        let opened = kibibytes("VmRSS");
        assert!(opened < before + (64 << 10), "{before} and {opened} KiB, opened for the {round}. time");
        numbers.apply(|numbers, tx| numbers.extend(0..1 << 20, tx));
        let filled = kibibytes("VmRSS");
        assert!(filled < opened + (200 << 10), "{opened} and {filled} KiB, with 8 MiB more in it");
        numbers.close().unwrap();
    }
}

#[test]
fn memory_that_is_not_given_leaves_the_pool_as_it_was() {
    const TEST: &str = "faults::memory_that_is_not_given_leaves_the_pool_as_it_was";
    let Some(folder) = child_folder() else {
        let folder = tempfile::tempdir().unwrap();
        child(TEST, "", folder.path());
        return;
    };
    let pool = Threadpool::new(1);
    let numbers = Durable::<PVec<u64>>::builder()
        .limit(1 << 30)
        .open(pool.trustees()[0], &folder, |tx| PVec::of(0..1000, tx))
        .unwrap();
    // Private writable memory: 64 MiB more than in use, and less than the call requests.
    let (limit, maximum) = ((kibibytes("VmData") + (64 << 10)) << 10, getrlimit(Resource::Data).maximum);
    setrlimit(Resource::Data, Rlimit { current: Some(limit), maximum }).expect("a lower limit may be set");
    let full = numbers.call().apply(|numbers, tx| numbers.reserve(1 << 24, tx)).wait();
    assert!(matches!(full, Err(Error::Panicked { panic, .. }) if panic.contains("the pool is full")));
    numbers.apply(|numbers, tx| numbers.push(1000, tx));
    setrlimit(Resource::Data, Rlimit { current: maximum, maximum }).expect("it was allowed before");
    numbers.apply(|numbers, tx| numbers.reserve(1 << 24, tx));
    let found = numbers.apply_with(|numbers, _, ()| numbers.to_vec(), ());
    assert!(found.iter().copied().eq(0..=1000));
}
