//! Labels of invariants, as `[request-bit]`: comments and pages cite them, docs/UNSAFE.md defines them.
//!
//! Here: finding labels in a text, and the comparison. Not here: whether an `unsafe` block has a comment at all (clippy
//! checks that).
//!
//! Invariant: a label is two or three words in lower case. Brackets after a backtick, and those of links, are no
//! labels.

use super::text;

const DOCUMENT: &str = "docs/UNSAFE.md";

/// Invariants that text cites or defines.
#[derive(Default)]
pub struct Labels {
    cited: Vec<Place>,
    defined: Vec<Place>,
    /// First cells in brackets that are no labels.
    malformed: Vec<Place>,
}

#[derive(Debug, PartialEq, Eq)]
struct Place {
    file: String,
    line: usize,
    label: String,
}

impl Labels {
    /// Adds the citations in a source's comments.
    pub fn learn_source(&mut self, name: &str, source: &str) {
        self.cite(name, text::lines(source).iter().map(|line| line.comment.as_str()));
    }

    /// Adds the citations of a page, and the definitions if it has them: rows of tables that begin with a label.
    pub fn learn_page(&mut self, name: &str, page: &str) {
        if name != DOCUMENT {
            return self.cite(name, page.lines());
        }
        for (index, line) in page.lines().enumerate() {
            let mut labels = in_text(line).map(|label| Place::new(name, index, label));
            if let Some(cell) = line.strip_prefix("| [").and_then(|rest| rest.split(']').next()) {
                match labels.next().filter(|first| first.label == cell) {
                    Some(first) => self.defined.push(first),
                    None => self.malformed.push(Place::new(name, index, cell)),
                }
            }
            self.cited.extend(labels);
        }
    }

    fn cite<'a>(&mut self, name: &str, lines: impl Iterator<Item = &'a str>) {
        for (index, line) in lines.enumerate() {
            self.cited.extend(in_text(line).map(|label| Place::new(name, index, label)));
        }
    }

    /// Labels that are cited and not defined, defined and not cited by a source, defined twice, or malformed, each as
    /// one line.
    pub fn disagreements(&self) -> Vec<String> {
        let is_in = |places: &[Place], label: &str| places.iter().any(|place| place.label == label);
        let undefined = self.cited.iter().filter(|place| !is_in(&self.defined, &place.label));
        let undefined = undefined.map(|place| place.says(&format!("no row of {DOCUMENT} defines it")));
        let is_in_source =
            |label: &str| self.cited.iter().any(|place| place.label == label && !place.file.ends_with(".md"));
        let uncited = self.defined.iter().filter(|place| !is_in_source(&place.label));
        let uncited = uncited.map(|place| place.says("no source cites it"));
        let twice = self.defined.iter().enumerate();
        let twice = twice.filter(|(index, place)| is_in(&self.defined[..*index], &place.label));
        let twice = twice.map(|(_, place)| place.says("a row above defines it"));
        let malformed = self.malformed.iter().map(|place| place.says("it is not two or three words in lower case"));
        undefined.chain(uncited).chain(twice).chain(malformed).collect()
    }
}

impl Place {
    fn new(file: &str, index: usize, label: &str) -> Place {
        Place { file: file.to_owned(), line: index + 1, label: label.to_owned() }
    }

    fn says(&self, what: &str) -> String {
        format!("{}:{}: [{}]: {what}", self.file, self.line, self.label)
    }
}

/// Returns the labels in a line of text, without brackets.
pub fn in_text(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('[').filter_map(|(at, _)| {
        let (label, after) = line[at + 1..].split_once(']')?;
        let is_other = line[..at].ends_with(['`', ']']) || after.starts_with(['(', '[']);
        (!is_other && is_label(label)).then_some(label)
    })
}

/// Returns whether a text is two or three words in lower case, with hyphens between.
fn is_label(text: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    matches!(text.split('-').count(), 2 | 3) && text.split('-').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(line: &str) -> Vec<&str> {
        in_text(line).collect()
    }

    #[test]
    fn labels_are_two_or_three_words_in_brackets() {
        assert_eq!(labels("so [one-waker], [stack-after-return]: it lives"), ["one-waker", "stack-after-return"]);
        for other in
            ["[one]", "[One-waker]", "[a-b-c-d]", "[a-]", "`[one-waker]`", "[one-waker](x.md)", "[`a-b`]", "[a-b"]
        {
            assert_eq!(labels(other), [""; 0], "{other}");
        }
    }

    #[test]
    fn each_label_is_defined_once_and_cited() {
        let mut labels = Labels::default();
        labels.learn_page(DOCUMENT, "| label | x |\n| [one-waker] | so it is |\n| [flag-last] | as [one-waker] |\n");
        labels.learn_source("a.rs", "// SAFETY: [flag-last], [one-waker].\nlet text = \"[not-this]\";\n");
        assert_eq!(labels.disagreements(), [""; 0]);
        labels.learn_page("docs/heap.md", "by [flag-first]\n");
        labels.learn_page(DOCUMENT, "| [one-waker] | again |\n| [view-stays] | x |\n| [a-b-c-d] | by [flag-last] |\n");
        assert_eq!(
            labels.disagreements(),
            [
                "docs/heap.md:1: [flag-first]: no row of docs/UNSAFE.md defines it",
                "docs/UNSAFE.md:2: [view-stays]: no source cites it",
                "docs/UNSAFE.md:1: [one-waker]: a row above defines it",
                "docs/UNSAFE.md:3: [a-b-c-d]: it is not two or three words in lower case",
            ]
        );
    }
}
