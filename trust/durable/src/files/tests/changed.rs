//! Files changed in any way, by a person or a fault. The pool opens in a state that it was in, or it is refused with
//! file, place and remedy, and nothing is overwritten.

use proptest::prelude::*;

use super::super::disk::Disk;
use super::super::format::PAGE;
use super::super::sim::Sim;
use super::{Pool, count, open};

/// Range of the changes: most of a file is zeros ahead of the log's end.
const REACH: usize = 80_000;

/// One change. Files and places are numbers, taken modulo their count.
#[derive(Clone, Debug)]
enum Change {
    Flip {
        file: usize,
        at: usize,
        bit: u8,
    },
    Cut {
        file: usize,
        at: usize,
    },
    Append {
        file: usize,
        bytes: Vec<u8>,
    },
    /// Two pages of one file, or of two.
    SwapPages {
        files: (usize, usize),
        pages: (usize, usize),
    },
    /// A lost page: zeros.
    Zero {
        file: usize,
        page: usize,
    },
    SwapFiles {
        files: (usize, usize),
    },
    Remove {
        file: usize,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let (file, at, page) = (0..8usize, 0..REACH, 0..REACH / PAGE as usize);
    prop_oneof![
        4 => (file.clone(), at.clone(), 0..8u8).prop_map(|(file, at, bit)| Change::Flip { file, at, bit }),
        2 => (file.clone(), at).prop_map(|(file, at)| Change::Cut { file, at }),
        1 => (file.clone(), proptest::collection::vec(any::<u8>(), 1..9000))
            .prop_map(|(file, bytes)| Change::Append { file, bytes }),
        2 => ((file.clone(), file.clone()), (page.clone(), page.clone()))
            .prop_map(|(files, pages)| Change::SwapPages { files, pages }),
        1 => (file.clone(), page).prop_map(|(file, page)| Change::Zero { file, page }),
        1 => (file.clone(), file.clone()).prop_map(|files| Change::SwapFiles { files }),
        1 => file.prop_map(|file| Change::Remove { file }),
    ]
}

fn bytes(disk: &mut Sim, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; disk.len(name).expect("it is there") as usize];
    disk.read(name, 0, &mut bytes).expect("it works");
    bytes
}

fn page(bytes: &[u8], page: usize) -> Vec<u8> {
    let start = (page * PAGE as usize).min(bytes.len());
    bytes[start..bytes.len().min(start + PAGE as usize)].to_vec()
}

fn put(disk: &Sim, name: &str, page: usize, what: &[u8]) {
    disk.edit(name, |bytes| {
        let start = (page * PAGE as usize).min(bytes.len());
        let end = bytes.len().min(start + what.len());
        bytes[start..end].copy_from_slice(&what[..end - start]);
    });
}

/// Makes the change. Was it to a log?
fn apply(disk: &mut Sim, change: Change) -> bool {
    let mut names = disk.names();
    names.sort();
    if names.is_empty() {
        return false;
    }
    let named = |file: usize| names[file % names.len()].clone();
    let is_log = |name: &str| name.starts_with("log");
    match change {
        Change::Flip { file, at, bit } => {
            disk.edit(&named(file), |bytes| {
                let len = bytes.len().min(REACH);
                if len > 0 {
                    bytes[at % len] ^= 1 << bit;
                }
            });
            is_log(&named(file))
        }
        Change::Cut { file, at } => {
            disk.edit(&named(file), |bytes| bytes.truncate(at));
            is_log(&named(file))
        }
        Change::Append { file, bytes: more } => {
            disk.edit(&named(file), |bytes| bytes.extend(more));
            is_log(&named(file))
        }
        Change::SwapPages { files: (a, b), pages: (p, q) } => {
            let (one, other) = (page(&bytes(disk, &named(a)), p), page(&bytes(disk, &named(b)), q));
            put(disk, &named(a), p, &other);
            put(disk, &named(b), q, &one);
            is_log(&named(a)) || is_log(&named(b))
        }
        Change::Zero { file, page } => {
            put(disk, &named(file), page, &[0; PAGE as usize]);
            is_log(&named(file))
        }
        Change::SwapFiles { files: (a, b) } => {
            let (one, other) = (bytes(disk, &named(a)), bytes(disk, &named(b)));
            disk.edit(&named(a), |bytes| *bytes = other);
            disk.edit(&named(b), |bytes| *bytes = one);
            is_log(&named(a)) || is_log(&named(b))
        }
        Change::Remove { file } => {
            disk.remove(&named(file)).expect("it works");
            is_log(&named(file))
        }
    }
}

/// Returns the files, except those that an opening left unfinished.
fn kept(disk: &mut Sim) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.names();
    names.retain(|name| !name.ends_with(".tmp"));
    names.sort();
    names.into_iter().map(|name| (name.clone(), bytes(disk, &name))).collect()
}

/// Makes a pool between two generations: two images, two logs.
fn between() -> (Sim, u64) {
    let disk = Sim::default();
    let mut pool = Pool::create(&disk).expect("it works");
    pool.work().expect("it works");
    let len = pool.memory.high_water() as u64;
    pool.step();
    pool.commit().expect("it works");
    pool.store.begin_generation(pool.group, len).expect("it works");
    pool.step();
    pool.commit().expect("it works");
    (disk, pool.count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 1500 }, ..ProptestConfig::default() })]

    #[test]
    fn changed_files_are_a_state_that_was_or_an_error_and_stay(
        is_between: bool,
        changes in proptest::collection::vec(change(), 1..4),
    ) {
        let (mut disk, most) = if is_between {
            between()
        } else {
            let disk = Sim::default();
            let mut pool = Pool::create(&disk).expect("it works");
            pool.work().expect("it works");
            (disk, pool.count)
        };
        let mut is_log_changed = false;
        for change in changes {
            is_log_changed |= apply(&mut disk, change);
        }
        let before = kept(&mut disk);
        match open(&disk) {
            // `count` fails on half a transaction.
            Ok(Some(pool)) => {
                let found = count(&pool.memory);
                prop_assert!(found <= most);
                // Only changes at the end of the log may look like a torn record.
                prop_assert!(is_log_changed || found == most, "{found} of {most}, with the log as it was");
            }
            Ok(None) => prop_assert!(before.iter().all(|(name, _)| !name.starts_with("image")), "an image is no new \
                folder"),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.contains("sim/") && (text.contains("offset") || text.contains("limit")), "{text}");
                let cures = ["restore the folder", "open it with", "cannot"];
                prop_assert!(cures.iter().any(|cure| text.contains(cure)), "{text}");
                prop_assert_eq!(kept(&mut disk), before, "what is refused stays as it is");
            }
        }
    }
}
