//! The trees against the standard library's map: random changes, some of them undone, and crashes in between.
//!
//! A crash here is a log that was cut anywhere: the rest has to be the state after some transaction. That it is not
//! before the last one that was acknowledged is shown by the tests that kill programs.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;

use gossamer_examples::trees::{bplus::BPlus, bst::Bst};
use proptest::prelude::*;
use trust::Threadpool;
use trust_durable::{Durable, Error};

/// The operation on a key.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    /// Inserts it, removes smaller keys, and is undone.
    Undone(u64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    // Few keys, so that there are nodes with two children to remove, and enough for three levels.
    let key = || 0..400u64;
    prop_oneof![
        12 => key().prop_map(Step::Insert),
        6 => key().prop_map(Step::Remove),
        1 => key().prop_map(Step::Undone),
        1 => Just(Step::Reopen),
    ]
}

macro_rules! follows_the_standard_map {
    ($name:ident, $Tree:ident) => {
        mod $name {
            use super::*;

            type Handle = Durable<$Tree<'static>>;

            fn try_open(pool: &Threadpool, folder: &Path) -> Result<Handle, Error> {
                let builder = Durable::<$Tree>::builder().limit(16 << 20);
                builder.open(pool.trustees()[0], folder, |_| $Tree::default())
            }

            fn open(pool: &Threadpool, folder: &Path) -> Handle {
                try_open(pool, folder).unwrap()
            }

            fn entries(tree: &Handle) -> Vec<(u64, u64)> {
                tree.apply_with(
                    |tree, _, ()| {
                        assert_eq!(tree.len(), tree.entries().len());
                        assert_eq!(tree.is_empty(), tree.len() == 0);
                        assert!(tree.entries().iter().all(|&(key, value)| tree.get(key) == Some(value)));
                        tree.entries()
                    },
                    (),
                )
            }

            proptest! {
                #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

                #[test]
                fn through_crashes(
                    steps in prop::collection::vec(step(), 100..600),
                    cuts in prop::collection::vec(0.0..1.0, 8),
                ) {
                    let folder = tempfile::tempdir().unwrap();
                    let pool = Threadpool::new(1);
                    let mut tree = open(&pool, folder.path());
                    let mut model = BTreeMap::new();
                    let mut history = vec![model.clone()];
                    for (value, step) in (0..).zip(steps) {
                        match step {
                            Step::Insert(key) => {
                                let old = tree.apply(move |tree, tx| tree.insert(key, value, tx));
                                prop_assert_eq!(old, model.insert(key, value));
                            }
                            Step::Remove(key) => {
                                prop_assert_eq!(tree.apply(move |tree, _| tree.remove(key)), model.remove(&key));
                            }
                            Step::Undone(key) => {
                                let undone = tree.attempt(move |tree, tx| -> Result<(), u64> {
                                    tree.insert(key, value, tx);
                                    (0..key).for_each(|less| _ = tree.remove(less));
                                    Err(tree.len() as u64)
                                });
                                prop_assert!(undone.is_err());
                            }
                            Step::Reopen => {
                                tree.close().unwrap();
                                tree = open(&pool, folder.path());
                                prop_assert!(entries(&tree).into_iter().eq(model.clone()));
                            }
                        }
                        history.push(model.clone());
                    }
                    tree.close().unwrap();
                    // Each cut a crash.
                    let mut longest = history.len();
                    let log = folder.path().join(newest_log(folder.path()));
                    let end = used(&fs::read(&log).unwrap()).max(4096);
                    let mut ends: Vec<u64> =
                        cuts.into_iter().map(|part| 4096 + ((end - 4096) as f64 * part) as u64).collect();
                    ends.sort_unstable_by(|a, b| b.cmp(a));
                    for end in ends {
                        OpenOptions::new().write(true).open(&log).unwrap().set_len(end).unwrap();
                        let tree = match try_open(&pool, folder.path()) {
                            Ok(tree) => tree,
                            // An image needs the part that was cut: it was on the disk before, so no crash leaves this.
                            Err(Error::Truncated { .. }) => break,
                            Err(error) => panic!("{error}"),
                        };
                        let left: BTreeMap<u64, u64> = entries(&tree).into_iter().collect();
                        let found = history[..longest].iter().rposition(|model| *model == left);
                        prop_assert!(found.is_some(), "a state that never was, or a later one than before");
                        longest = found.unwrap() + 1;
                        tree.close().unwrap();
                        // Of which nothing was left: the one before it is written on.
                        if newest_log(folder.path()) != log.file_name().unwrap().to_string_lossy() {
                            break;
                        }
                    }
                }
            }
        }
    };
}

/// The name of the log of the last generation: an older one may lie there to be used again.
fn newest_log(folder: &Path) -> String {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let generation = |name: &String| name.strip_prefix("log-").and_then(|generation| generation.parse::<u64>().ok());
    names.filter(|name| generation(name).is_some()).max_by_key(generation).unwrap()
}

/// Bytes up to the last that is not zero.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1
}

follows_the_standard_map!(bst, Bst);
follows_the_standard_map!(bplus, BPlus);
