//! The table of docs/region.md with the calls that C programs on several machines are refused.
//!
//! Here: whether the page has the table of `region_calls`, and writing it there. Not here: the table.
//!
//! Invariant: the rest of the page stays as it is.

use crate::command::Context;
use crate::tier::Verdict;
use anyhow::Context as _;
use std::fs;
use std::path::Path;

/// The page.
const PAGE: &str = "docs/region.md";

/// Lines around the table.
const START: &str = "<!-- calls: written by `cargo dev calls` -->\n";
const END: &str = "<!-- end of calls -->\n";

/// Writes the table into the page.
pub fn write(context: &Context) -> anyhow::Result<Verdict> {
    let file = context.root.join(PAGE);
    let page = fs::read_to_string(&file).with_context(|| format!("cannot read {PAGE}"))?;
    let Some(new) = with_table(&page) else {
        return Ok(Verdict::failed(format!("{PAGE} has no place for the table: {}", START.trim_end())));
    };
    fs::write(&file, new).with_context(|| format!("cannot write {PAGE}"))?;
    Ok(Verdict::passed())
}

/// A disagreement of the page with the table, as one line.
pub fn stale(root: &Path) -> Option<String> {
    let page = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let is_fresh = with_table(&page).is_some_and(|new| new == page);
    (!is_fresh)
        .then(|| format!("{PAGE}:1: its table of calls is not that of `region_calls`: `cargo dev calls` writes it"))
}

/// The page with the table in its place.
fn with_table(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(START)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{START}\n{}\n{END}{after}", region_calls::markdown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_replaced_and_nothing_else() {
        let page = format!("a\n{START}old\n{END}b\n");
        let new = with_table(&page).expect("a place");
        assert!(new.starts_with(&format!("a\n{START}\n| call |")) && new.ends_with(&format!("|\n\n{END}b\n")), "{new}");
        assert_eq!(with_table(&new), Some(new.clone()));
        assert!(with_table("a\nb\n").is_none() && with_table(&format!("a\n{START}b\n")).is_none());
    }

    #[test]
    fn a_page_that_differs_is_stale() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("docs")).expect("a folder");
        assert!(stale(folder.path()).is_some());
        let page = |text: &str| fs::write(folder.path().join(PAGE), text).expect("a page");
        page(&format!("{START}{END}"));
        assert!(stale(folder.path()).is_some());
        page(&with_table(&format!("{START}{END}")).expect("a place"));
        assert_eq!(stale(folder.path()), None);
    }
}
