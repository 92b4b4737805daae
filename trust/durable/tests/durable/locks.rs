//! The lock of a folder: released when a pool ends, whichever descriptors children of the process have.

#![allow(unsafe_code)]

use std::fs;
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use trust::Threadpool;
use trust_durable::{Durable, Error, inspect};

pub(super) fn open(pool: &Threadpool, folder: &Path) -> Result<Durable<u64>, Error> {
    Durable::<u64>::open(pool.trustees()[0], folder, |_| 0)
}

/// Lets the child continue, even if the test fails.
struct Goes(PipeWriter);

impl Drop for Goes {
    fn drop(&mut self) {
        self.0.write_all(b"g").unwrap();
    }
}

/// Runs `during` while a forked child of this process, which has not yet executed a program, has all of its
/// descriptors.
fn with_a_forked_child(during: impl FnOnce()) {
    let ((mut is_forked, mut forked), (mut go, goes)) = (pipe().unwrap(), pipe().unwrap());
    let mut command = Command::new("true");
    // SAFETY: the child writes to a pipe and reads from one, which a forked child of a process with threads may do.
    unsafe {
        command.pre_exec(move || {
            forked.write_all(b"f")?;
            go.read_exact(&mut [0])
        });
    }
    thread::scope(|scope| {
        let starter = scope.spawn(move || command.status().unwrap());
        is_forked.read_exact(&mut [0]).unwrap();
        let goes = Goes(goes);
        during();
        drop(goes);
        assert!(starter.join().unwrap().success());
    });
}

/// Its parts belong to the thread of its trustee, and so do those of a client.
#[test]
fn trustees_with_a_pool_or_a_client_of_one_do_not_move() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::builder().workers(2).trustees(2).build();
    let number = open(&pool, folder.path()).unwrap();
    number.apply(|number, _| *number += 1);
    let (client, asks) = (pool.trustees()[1].entrust(()), number.clone());
    let asked = client.call().in_process().apply(move |()| asks.apply_then(|number, _| *number += 1, |()| ()));
    asked.wait().unwrap();
    for trustee in [0, 1] {
        let asked = trust::link::ask_to_move(&pool, trustee, 1 - trustee);
        while asked.outcome().is_none() {
            thread::yield_now();
        }
        assert_eq!(asked.outcome(), Some(Err(Some(trust::Bound::Values))));
    }
    assert_eq!(number.apply(|number, _| *number), 2);
    number.close().unwrap();
}

#[test]
fn a_closed_pools_folder_is_free_whatever_children_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let number = open(&pool, folder.path()).unwrap();
    number.apply(|number, _| *number += 1);
    with_a_forked_child(|| {
        number.close().unwrap();
        assert_eq!(inspect(folder.path()).unwrap().groups, 1);
        let again = open(&pool, folder.path()).unwrap();
        assert_eq!(again.apply(|number, _| *number), 1);
        // The last handle.
        drop(again);
        open(&pool, folder.path()).unwrap().close().unwrap();
    });
}

#[test]
fn a_folder_that_was_refused_is_free_whatever_children_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let panics =
        || Durable::<u64>::open(pool.trustees()[0], folder.path(), |_| if true { panic!("no root") } else { 0 });
    assert!(matches!(panics(), Err(Error::Panicked { .. })));
    // The lock of that pool may still be held while it ends.
    with_a_forked_child(|| {
        assert!(matches!(panics(), Err(Error::Panicked { .. })));
        open(&pool, folder.path()).unwrap().close().unwrap();
        let other = Durable::<i8>::open(pool.trustees()[0], folder.path(), |_| 0);
        assert!(matches!(other, Err(Error::OtherType { .. })));
    });
    open(&pool, folder.path()).unwrap().close().unwrap();
}

#[test]
fn no_descriptor_of_a_pool_reaches_a_program_that_is_executed() {
    let there = tempfile::tempdir().unwrap();
    let there = fs::canonicalize(there.path()).unwrap();
    let pool = Threadpool::new(1);
    let numbers = ["one", "two"].map(|name| open(&pool, &there.join(name)).unwrap());
    numbers.iter().for_each(|number| number.apply(|number, _| *number += 1));
    numbers[0].snapshot(there.join("copy")).unwrap();
    let output = Command::new("sh").arg("-c").arg("ls -l /proc/self/fd").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains(there.to_str().unwrap()), "{text}");
    let own = fs::read_dir("/proc/self/fd").unwrap();
    let open =
        own.filter(|each| fs::read_link(each.as_ref().unwrap().path()).is_ok_and(|path| path.starts_with(&there)));
    assert!(open.count() >= 6, "folders, images and logs are open here");
}
