//! Cost of making a structure durable (table 3 of the paper): a list, a tree and a hash map on the heap, and the same
//! in a pool. Counts the added lines, and checks that both versions do the same.
//!
//! A changed line does not count as added: it has a lifetime, a `PBox`, a `tx`.

#[path = "ported/durable/mod.rs"]
mod durable;
#[path = "ported/volatile/mod.rs"]
mod volatile;

use trust::Threadpool;

/// Returns the lines that are neither empty nor a comment.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect()
}

/// Returns the lines of `after` that are neither in `before` nor replace one of its lines; and the number of
/// replacements.
fn added(before: &str, after: &str) -> (usize, usize) {
    let (before, after) = (lines(before), lines(after));
    // The longest common subsequence.
    let mut common = vec![vec![0; after.len() + 1]; before.len() + 1];
    for (i, old) in before.iter().enumerate() {
        for (j, new) in after.iter().enumerate() {
            common[i + 1][j + 1] = if old == new { common[i][j] + 1 } else { common[i][j + 1].max(common[i + 1][j]) };
        }
    }
    let kept = common[before.len()][after.len()];
    (after.len() - before.len(), before.len() - kept)
}

macro_rules! ported {
    ($test:ident, $name:ident, $most:literal, $pmdk:literal) => {
        #[test]
        fn $test() {
            let file = concat!(stringify!($name), ".rs");
            let (before, after) = (
                include_str!(concat!("ported/volatile/", stringify!($name), ".rs")),
                include_str!(concat!("ported/durable/", stringify!($name), ".rs")),
            );
            let (added, changed) = added(before, after);
            println!("{file}: {added} lines added, {changed} changed; PMDK {}", $pmdk);
            assert!(added <= $most, "{added} lines");
            let folder = tempfile::tempdir().unwrap();
            let pool = Threadpool::new(1);
            assert_eq!(durable::$name::run(&pool, folder.path()), volatile::$name::run());
        }
    };
}

ported!(a_list, list, 19, 45);
ported!(a_tree, tree, 12, 41);
ported!(a_hash_map, map, 10, 42);

#[test]
fn lines_are_counted() {
    assert_eq!(added("a\nb\nc\n", "a\n// x\n\nb2\nc\nd\n"), (1, 1));
}
