//! The document: text between a pair of markers is generated, the rest is written by hand.
//!
//! ```text
//! <!-- figures: NAME -->
//! generated from the JSON files of docs/benchmarks
//! <!-- end -->
//! ```
//!
//! Invariant: generating depends on the files alone, so that whether the document is up to date can be checked
//! anywhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::tables::{ALL, Table};

/// The document, under the workspace root.
pub const PATH: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- figures: ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- end -->";

/// The document with its tables as the files of the folder have them.
///
/// # Errors
/// Markers that name no table, are not closed or are missing; a file that is no file of results.
pub fn written(text: &str, folder: &Path) -> anyhow::Result<String> {
    with_tables(text, |table| table.markdown(folder))
}

/// A difference from the files, as one line.
pub fn stale(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join(PATH)).unwrap_or_default();
    match written(&text, &root.join("docs/benchmarks")) {
        Ok(written) if written == text => None,
        Ok(written) => {
            let line = text.lines().zip(written.lines()).position(|(is, should)| is != should).unwrap_or_default() + 1;
            Some(format!("{PATH}:{line}: not what docs/benchmarks/*.json say: `cargo dev bench-book --tables`"))
        }
        Err(error) => Some(format!("{PATH}:1: {error:#}")),
    }
}

fn with_tables(text: &str, mut markdown: impl FnMut(&Table) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let (mut written, mut seen) = (String::new(), BTreeSet::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        written += line;
        written.push('\n');
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(BEGIN_END)) else {
            ensure!(line != END, "an end marker without its begin");
            continue;
        };
        let Some(table) = ALL.iter().find(|table| table.name == name) else { bail!("there is no table {name:?}") };
        ensure!(seen.insert(name), "the table {name:?} is there twice");
        lines.find(|line| *line == END).with_context(|| format!("the table {name:?} has no end marker"))?;
        written += &markdown(table)?;
        written += END;
        written.push('\n');
    }
    if let Some(missing) = ALL.iter().find(|table| !seen.contains(table.name)) {
        bail!("the table {:?} is missing", missing.name);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> String {
        let block = |table: &Table| format!("# {0}\n<!-- figures: {0} -->\nold\n<!-- end -->\nby hand\n", table.name);
        ALL.iter().map(block).collect()
    }

    #[test]
    fn what_is_between_the_markers_is_replaced_and_nothing_else() {
        let once = with_tables(&document(), |table| Ok(format!("new {}\n", table.name))).expect("written");
        assert!(!once.contains("old") && once.contains("by hand"));
        let twice = with_tables(&once, |table| Ok(format!("new {}\n", table.name))).expect("written");
        assert_eq!(once, twice);
    }

    #[test]
    fn markers_that_are_wrong_are_named() {
        let wrong = |text: String| with_tables(&text, |_| Ok(String::new())).expect_err("wrong").to_string();
        assert!(wrong(String::new()).contains("is missing"));
        assert!(wrong(document() + &document()).contains("is there twice"));
        assert!(wrong(document() + "<!-- figures: figure 99 -->\n<!-- end -->\n").contains("no table \"figure 99\""));
        let last = document().rfind(END).expect("an end marker");
        assert!(wrong(document()[..last].to_owned()).contains("has no end marker"));
        assert!(wrong(document() + "<!-- end -->\n").contains("without its begin"));
    }

    #[test]
    fn without_files_the_document_says_how_to_measure() {
        let folder = tempfile::tempdir().expect("a folder");
        let written = written(&document(), folder.path()).expect("written");
        assert!(written.contains("Not measured yet: `cargo dev bench-book --only fetch-add`"));
    }
}
