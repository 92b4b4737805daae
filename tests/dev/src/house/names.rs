//! Names in pages against the tree: files, links, options, features, variables of the environment, and tests.
//!
//! Here: finding names in a page, and the search for each. Not here: what a page says about them.
//!
//! Invariant: a name counts as found where any source has it as a word, so what is found may be something else; what is
//! not found is nowhere.

use super::files_of;
use super::text::words;
use crate::command::Context;
use anyhow::Context as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Pages that name tests.
const WITH_TESTS: [&str; 3] = ["docs/requirements.md", "docs/mutants.md", "docs/testing.md"];

/// Endings of files that are ours wherever a page names them.
const OURS: [&str; 4] = [".rs", ".md", ".sh", ".yaml"];

/// Endings of the sources that are searched.
const SOURCES: [&str; 6] = [".rs", ".c", ".h", ".sh", ".toml", ".js"];

/// A change log names things that are gone.
const HISTORY: &str = "CHANGELOG.md";

/// The names that the tree has.
#[derive(Default)]
struct Known {
    /// Files, from the root.
    files: BTreeSet<String>,
    /// Words of the sources.
    words: BTreeSet<String>,
    /// Options: words behind two hyphens, and names of fields, which clap makes options of.
    options: BTreeSet<String>,
    /// Features of the packages.
    features: BTreeSet<String>,
}

/// A name between backticks.
#[derive(Debug, PartialEq, Eq)]
struct Span<'a> {
    line: usize,
    text: &'a str,
    /// The word before it.
    before: &'a str,
}

/// Names that the tree lacks, each as one line.
pub fn missing(context: &Context, metadata: &Value) -> anyhow::Result<Vec<String>> {
    let known = Known::of(&context.root, metadata)?;
    let mut offences = Vec::new();
    for name in known.files.iter().filter(|name| name.ends_with(".md") && name.as_str() != HISTORY) {
        let page = read(&context.root, name)?;
        offences.extend(missing_in(&known, name, &page));
        offences.extend(broken_links(name, &page, |path| {
            fs::read_to_string(context.root.join(path))
                .ok()
                .or_else(|| context.root.join(path).exists().then(String::new))
        }));
    }
    Ok(offences)
}

fn read(root: &Path, name: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))
}

impl Known {
    fn of(root: &Path, metadata: &Value) -> anyhow::Result<Known> {
        let mut known = Known::default();
        for path in files_of(root, "")? {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            // The names in this file's own tests are no names of the tree.
            if SOURCES.iter().any(|ending| name.ends_with(ending)) && !name.ends_with("house/names.rs") {
                known.learn(&fs::read_to_string(&path).unwrap_or_default());
            }
            known.files.insert(name);
        }
        for hidden in [".cargo/config.toml", ".cargo/mutants.toml", ".ci/run"] {
            known.learn(&fs::read_to_string(root.join(hidden)).unwrap_or_default());
            known.files.insert(hidden.to_owned());
        }
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let features = packages.filter_map(|package| package["features"].as_object());
        known.features = features.flat_map(|features| features.keys().cloned()).collect();
        Ok(known)
    }

    /// Adds the words of a source.
    fn learn(&mut self, source: &str) {
        for word in words(source).filter(|word| word.len() > 1) {
            if !self.words.contains(word) {
                self.words.insert(word.to_owned());
            }
        }
        self.options.extend(source.split("--").skip(1).map(option_at).map(str::to_owned));
        for line in source.lines() {
            let field = line.trim_start().trim_start_matches("pub ").split_once(": ").map(|(field, _)| field);
            self.options.extend(field.filter(|field| words(field).eq([*field])).map(|field| field.replace('_', "-")));
        }
    }

    /// Whether a file or folder has this path, from the root or from any folder.
    fn has_path(&self, path: &str) -> bool {
        let inner = format!("/{path}");
        self.files.iter().any(|file| match path.strip_suffix('/') {
            Some(_) => file.starts_with(path) || file.contains(&inner),
            None => file == path || file.ends_with(&inner),
        })
    }

    /// Whether a source has this word; an ellipsis or an asterisk at an end stands for the rest of it.
    fn has_test(&self, name: &str) -> bool {
        let core = name.trim_matches(['…', '*', '.']);
        match (name.starts_with(core), name.ends_with(core)) {
            (true, true) => self.words.contains(core),
            (true, false) => self.words.iter().any(|word| word.starts_with(core)),
            _ => self.words.iter().any(|word| word.ends_with(core)),
        }
    }
}

/// Names of a page that the tree lacks.
fn missing_in(known: &Known, page_name: &str, page: &str) -> Vec<String> {
    let mut offences = Vec::new();
    for Span { line, text, before } in spans(page) {
        let mut offend =
            |what: &str, name: &str| offences.push(format!("{page_name}:{line}: there is no {what} `{name}`"));
        if is_path(known, text) && !known.has_path(text) {
            offend("file", text);
        }
        for option in options(text).filter(|option| !known.options.contains(*option)) {
            offend("option", &format!("--{option}"));
        }
        if matches!(before, "feature" | "features") && !known.features.contains(text) {
            offend("feature", text);
        }
        for variable in words(text).filter(|word| word.starts_with("GOSSAMER_") && !known.words.contains(*word)) {
            offend("variable", variable);
        }
        if WITH_TESTS.contains(&page_name)
            && let Some(test) = test_of(text)
            && !known.has_test(test)
        {
            offend("test", text);
        }
    }
    offences
}

/// Whether a span is the path of a file of the repository, or of a folder at its root.
fn is_path(known: &Known, text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !text.chars().all(is_plain)
        || text.starts_with(['/', '.']) && !text.starts_with(".c")
        || text.starts_with("target/")
    {
        return false;
    }
    let (folder, name) = text.rsplit_once('/').unwrap_or(("", text));
    let top = folder.split('/').next().unwrap_or_default();
    let is_at_root = !top.is_empty() && known.files.iter().any(|file| file.starts_with(&format!("{top}/")));
    name.len() > 3 && OURS.iter().any(|ending| name.ends_with(ending))
        || is_at_root && (name.is_empty() || name.contains('.'))
}

/// The options of a span, without hyphens before and value behind.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.split([' ', '[', '(', '/']).filter_map(|word| word.strip_prefix("--"));
    starts.map(option_at).filter(|option| !option.is_empty())
}

/// The name of the option that text begins with.
fn option_at(text: &str) -> &str {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    &text[..text.find(|c| !is_name(c)).unwrap_or(text.len())]
}

/// The last part of a span that could be a test's path: a word with at least two underscores.
fn test_of(text: &str) -> Option<&str> {
    let last = text.rsplit("::").next()?;
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_…*".contains(c);
    (last.matches('_').count() >= 2 && last.chars().all(is_word)).then_some(last)
}

/// The spans of a page, without those of fenced code. A span ends in its paragraph.
fn spans(page: &str) -> Vec<Span<'_>> {
    let (mut found, mut opened, mut is_code) = (Vec::new(), None, false);
    let mut at = 0;
    for (index, line) in page.split('\n').enumerate() {
        let start = at;
        at += line.len() + 1;
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_fence || is_code || line.trim().is_empty() {
            opened = None;
            continue;
        }
        for (tick, _) in line.match_indices('`') {
            match opened.take() {
                None => opened = Some((index + 1, start + tick)),
                Some((line, open)) => {
                    let before = page[..open].trim_end().rsplit(|c: char| !c.is_alphanumeric()).next();
                    found.push(Span { line, text: &page[open + 1..start + tick], before: before.unwrap_or_default() });
                }
            }
        }
        if line.starts_with('|') {
            opened = None;
        }
    }
    found
}

/// Links of a page to files or headings that are not there; `content` gives a file by its path from the root.
fn broken_links(page_name: &str, page: &str, content: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut offences = Vec::new();
    let folder = page_name.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut is_code = false;
    for (index, line) in page.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        for rest in line.split("](").filter(|_| !is_code && !line.starts_with("    ")).skip(1) {
            let link = rest.split([')', ' ']).next().unwrap_or_default();
            if link.contains("://") || link.is_empty() || link.contains('`') {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page_name.to_owned() } else { joined(folder, path) };
            match content(&target) {
                None => offences.push(format!("{page_name}:{}: the link {link} leads nowhere", index + 1)),
                Some(text)
                    if !heading.is_empty()
                        && target.ends_with(".md")
                        && !headings(&text).any(|slug| slug == heading) =>
                {
                    offences.push(format!("{page_name}:{}: no heading for the link {link}", index + 1));
                }
                Some(_) => {}
            }
        }
    }
    offences
}

/// A relative path from a folder, from the root.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors of a page's headings, as GitHub makes them.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let slug = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    page.lines().filter(|line| line.starts_with('#')).map(move |line| slug(line.trim_start_matches('#').trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let files = ["trust/src/slot/mod.rs", "docs/heap.md", "rack.yaml", ".cargo/mutants.toml"];
        let features = ["view".to_owned()].into();
        let mut known = Known { files: files.map(str::to_owned).into(), features, ..Known::default() };
        known.learn("time_limit: u32, fn apply_keeps_its_order() { var(\"GOSSAMER_SEED\") } // --max-size");
        known
    }

    fn found(page_name: &str, page: &str) -> Vec<String> {
        missing_in(&known(), page_name, page)
    }

    #[test]
    fn spans_are_those_outside_of_fences_with_the_word_before() {
        let page = "a `b` (feature `c\nd`)\n```sh\n`e`\n```\n| `f | g` |\n\n`h\n\ni`\n";
        let span = |line, text, before| Span { line, text, before };
        assert_eq!(spans(page), [span(1, "b", "a"), span(1, "c\nd", "feature"), span(6, "f | g", "")]);
    }

    #[test]
    fn files_are_found_from_the_root_and_from_any_folder() {
        let there =
            "`trust/src/slot/mod.rs` `slot/mod.rs` `mod.rs` `trust/src/` `slot/` `.cargo/mutants.toml` `rack.yaml`";
        let others = "`/etc/rack.yml` `~/a/b.rs` `a/b` `x.json` `.rs` `target/x.rs` `f(x).rs`";
        assert_eq!(found("p.md", &format!("{there} {others}")), [""; 0]);
        for path in ["trust/src/gone.rs", "slot/gone.rs", "gone.md", "trust/gone/", "docs/gone.json", "lot/mod.rs"] {
            assert_eq!(found("p.md", &format!("x\n`{path}`")), [format!("p.md:2: there is no file `{path}`")]);
        }
    }

    #[test]
    fn options_are_words_of_the_sources() {
        assert_eq!(found("p.md", "`run --time-limit 10m`, `--max-size=3`, `[--time-limit]`, `cargo x --`"), [""; 0]);
        assert_eq!(found("p.md", "`run --time-limits 10m`"), ["p.md:1: there is no option `--time-limits`"]);
    }

    #[test]
    fn features_and_variables_are_those_of_the_tree() {
        assert_eq!(found("p.md", "the feature `view`, a `verb`, `GOSSAMER_SEED=1 x`"), [""; 0]);
        assert_eq!(found("p.md", "features `views`"), ["p.md:1: there is no feature `views`"]);
        assert_eq!(found("p.md", "`GOSSAMER_SEEDS`"), ["p.md:1: there is no variable `GOSSAMER_SEEDS`"]);
    }

    #[test]
    fn tests_are_looked_for_in_pages_that_name_them() {
        let gone = "`apply_keeps_no_order`";
        assert_eq!(found("docs/heap.md", gone), [""; 0]);
        assert_eq!(
            found("docs/testing.md", "`apply_keeps_its_order` `a::apply_keeps_…` `…_keeps_its_order` `one_two`"),
            [""; 0]
        );
        assert_eq!(found("docs/testing.md", gone), ["docs/testing.md:1: there is no test `apply_keeps_no_order`"]);
        assert_eq!(found("docs/testing.md", "`order_keeps_its_*`").len(), 1);
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let content = |path: &str| (path == "docs/heap.md").then(|| "# The heap\n## What's `new`, here\n".to_owned());
        let links = |page: &str| broken_links("docs/heap.md", page, content);
        let good = "[a](heap.md) [b](../docs/heap.md#the-heap) [c](#whats-new-here) [d](https://x.y/z#q)";
        assert_eq!(links(good), [""; 0]);
        assert_eq!(links("```c\n[a](gone.md)\n```\n    [](int a)\n"), [""; 0]);
        assert_eq!(links("[a](gone.md)"), ["docs/heap.md:1: the link gone.md leads nowhere"]);
        assert_eq!(links("[a](#gone)"), ["docs/heap.md:1: no heading for the link #gone"]);
    }
}
