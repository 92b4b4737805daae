//! The table *Where* of docs/UNSAFE.md against the sources: each file that holds `unsafe` and is no test has its row,
//! and each path in the table is one that holds some.
//!
//! Here: reading the table, and the comparison. Not here: the comment on each block (clippy sees to that).
//!
//! Invariant: a path counts from the repository's root, or from the `src` folder of the last path of its row that does.

use std::path::Path;

const DOCUMENT: &str = "docs/UNSAFE.md";

/// A path in the table.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    line: usize,
    path: String,
}

/// Disagreements, each as one line. `files` are those that hold `unsafe`, from the root, and
/// whether they are tests, which may be in the table.
pub fn disagreements(document: &str, root: &Path, files: &[(String, bool)]) -> Vec<String> {
    let entries = entries(document, |path| root.join(path).exists());
    let mut out = Vec::new();
    let is_missing = |file: &str| !entries.iter().any(|entry| covers(&entry.path, file));
    for (file, _) in files.iter().filter(|(file, is_test)| !is_test && is_missing(file)) {
        out.push(format!("{file}:1: holds unsafe code, and {DOCUMENT} does not say why (table *Where*)"));
    }
    for Entry { line, path } in entries.iter().filter(|entry| !files.iter().any(|(file, _)| covers(&entry.path, file)))
    {
        out.push(format!("{DOCUMENT}:{line}: `{path}` holds no unsafe code"));
    }
    out
}

/// Whether a path of the table stands for a file: itself, a folder above it, or the module of its folder.
fn covers(path: &str, file: &str) -> bool {
    let folder = path.strip_suffix(".rs").unwrap_or(path).trim_end_matches('/');
    path == file || file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The paths in the first column of the table.
fn entries(document: &str, exists: impl Fn(&str) -> bool) -> Vec<Entry> {
    let table = document.lines().enumerate().skip_while(|(_, line)| *line != "## Where").skip(1);
    let rows = table.take_while(|(_, line)| !line.starts_with("## ")).filter(|(_, line)| line.starts_with("| `"));
    let mut found = Vec::new();
    for (number, row) in rows {
        let mut sources = String::new();
        let cell = row.split('|').nth(1).unwrap_or_default();
        for path in cell.split('`').skip(1).step_by(2) {
            let path = if exists(path) { path.to_owned() } else { format!("{sources}{path}") };
            if let Some(end) = path.find("/src/") {
                sources = path[..end + "/src/".len()].to_owned();
            }
            found.push(Entry { line: number + 1, path });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
# Unsafe code
## Where
| module | why |
|---|---|
| `a/src/slot/`, `park.rs` | bytes |
| `b/src/x.rs` | more `c/` |

## Traps
| `d/src/` | not of the table |
";

    fn files(names: &[&str]) -> Vec<(String, bool)> {
        names.iter().map(|name| ((*name).to_owned(), name.contains("/tests/"))).collect()
    }

    #[test]
    fn paths_are_told_from_the_root_or_from_the_row_s_sources() {
        let found = entries(DOCUMENT, |path| path.contains("/src/"));
        let found: Vec<_> = found.iter().map(|entry| (entry.line, entry.path.as_str())).collect();
        assert_eq!(found, [(5, "a/src/slot/"), (5, "a/src/park.rs"), (6, "b/src/x.rs")]);
    }

    #[test]
    fn each_file_needs_a_row_and_each_path_a_file() {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["a/src/slot", "b/src"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        std::fs::write(root.path().join("b/src/x.rs"), "").expect("a file");
        let all = files(&["a/src/slot/ring.rs", "a/src/park/futex.rs", "b/src/x.rs", "b/tests/y.rs"]);
        assert_eq!(disagreements(DOCUMENT, root.path(), &all), Vec::<String>::new());
        let told = disagreements(DOCUMENT, root.path(), &files(&["a/src/slot/ring.rs", "a/src/parker.rs"]));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("a/src/parker.rs:1: "), "{told:?}");
        assert!(told[1].contains("`a/src/park.rs` holds no"), "{told:?}");
        assert!(told[2].contains(":6: `b/src/x.rs`"), "{told:?}");
    }
}
