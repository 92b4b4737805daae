//! The rules of the house, each a function from the lines of one file to its offences.
//!
//! Here: what is demanded. Not here: finding files (`mod.rs`) and taking them apart (`text`).
//!
//! Invariant: a rule looks only at code and comments, never into strings.

use super::text::{Line, words};

/// Lines of code a file may hold: 400, and a tenth of grace before one has to ask for its second role.
pub const FILE_LINES: usize = 440;

/// How far above a statement its SAFETY comment may begin, in lines.
const SAFETY_REACH: usize = 40;

/// How far above and below a Release store its partner may be named, in lines.
const PARTNER_REACH: usize = 12;

/// How far from it a label of the pair may stand, in lines.
const LABEL_REACH: usize = 3;

/// A line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Offence {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl Offence {
    fn at(index: usize, what: impl Into<String>) -> Offence {
        Offence { line: index + 1, what: what.into() }
    }
}

/// Every file opens with `//!`: what lives here, what does not, which invariants hold.
pub fn opening(source: &str) -> Vec<Offence> {
    if source.starts_with("//!") {
        Vec::new()
    } else {
        vec![Offence::at(0, "the file does not open with `//!`: say what lives here")]
    }
}

/// A file holds one role, and about 400 lines of code at most.
pub fn size(lines: &[Line]) -> Vec<Offence> {
    let code = lines.iter().filter(|line| line.is_code()).count();
    if code > FILE_LINES {
        vec![Offence::at(0, format!("{code} lines of code (about 400 at most): which second role is in it?"))]
    } else {
        Vec::new()
    }
}

/// What the keyword `unsafe` introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsafe {
    /// A block, an impl, an extern block or an attribute: the author promises something.
    Promise,
    /// A function or a trait: the caller has to promise something.
    Demand,
    /// A function pointer's type.
    Type,
}

/// Each unsafe block, impl and attribute has a `SAFETY:` comment; each unsafe function and trait says in
/// its documentation (`# Safety`) what the caller has to hold.
pub fn safety(lines: &[Line]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        for kind in unsafe_words(lines, i) {
            let (found, what) = match kind {
                Unsafe::Type => continue,
                Unsafe::Promise => {
                    (has_safety(lines, i, false), "unsafe without a `// SAFETY:` comment that gives the reason")
                }
                Unsafe::Demand => (
                    has_safety(lines, i, true) || is_trait_method(&line.code, lines, i),
                    "unsafe fn or trait without `# Safety` in its documentation (or a SAFETY comment)",
                ),
            };
            if !found {
                offences.push(Offence::at(i, what));
            }
        }
    }
    offences
}

/// What each `unsafe` of line `i` introduces, in order.
fn unsafe_words(lines: &[Line], i: usize) -> Vec<Unsafe> {
    let mut rest = lines[i].code.clone();
    for line in lines.iter().skip(i + 1).take(2) {
        rest.push('\n');
        rest.push_str(&line.code);
    }
    let here = lines[i].code.len();
    let mut kinds = Vec::new();
    for (position, _) in rest.match_indices("unsafe").take_while(|&(position, _)| position < here) {
        let before = rest[..position].chars().next_back();
        let after = &rest[position + "unsafe".len()..];
        let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
        if before.is_some_and(part_of_word) || after.starts_with(part_of_word) {
            continue;
        }
        if let Some(kind) = introduced(after.trim_start()) {
            kinds.push(kind);
        }
    }
    kinds
}

/// What the code behind the keyword says that it introduces; `None` for a macro's pattern and the like.
fn introduced(after: &str) -> Option<Unsafe> {
    let after = match after.strip_prefix("extern") {
        Some(behind) => {
            let behind = behind.trim_start();
            behind.strip_prefix("\"\"").unwrap_or(behind).trim_start()
        }
        None => after,
    };
    if after.starts_with(['{', '(']) {
        return Some(Unsafe::Promise);
    }
    match words(after).next()? {
        "impl" => Some(Unsafe::Promise),
        "trait" | "auto" => Some(Unsafe::Demand),
        "fn" if after["fn".len()..].trim_start().starts_with('(') => Some(Unsafe::Type),
        "fn" => Some(Unsafe::Demand),
        _ => None,
    }
}

/// Whether the statement or item of line `i` is explained: on the line, first in its block, or above it.
fn has_safety(lines: &[Line], i: usize, documentation: bool) -> bool {
    let explains = |line: &Line| {
        let says = line.comment.split_once("SAFETY:").is_some_and(|(_, reason)| words(reason).count() > 0);
        says || (documentation && line.comment.contains("# Safety"))
    };
    if explains(&lines[i]) || lines.get(i + 1).is_some_and(|next| next.is_comment() && explains(next)) {
        return true;
    }
    for line in lines[..i].iter().rev().take(SAFETY_REACH) {
        if explains(line) {
            return true;
        }
        let code = line.code.trim();
        let nothing = code.is_empty() && !line.is_comment();
        let attribute = code.starts_with("#[") || code.starts_with("#![");
        if nothing || (!attribute && code.ends_with([';', '{', '}'])) {
            return false;
        }
    }
    false
}

/// Whether the unsafe fn of line `i` stands in an `unsafe impl`, whose trait documents it.
fn is_trait_method(code: &str, lines: &[Line], i: usize) -> bool {
    let indent = |code: &str| code.len() - code.trim_start().len();
    let mine = indent(code);
    let outer = lines[..i].iter().rev().find(|line| !line.code.trim().is_empty() && indent(&line.code) < mine);
    outer.is_some_and(|line| {
        let mut words = line.words();
        let first = words.next();
        (first == Some("impl") || (first == Some("unsafe") && words.next() == Some("impl")))
            && line.words().any(|word| word == "for")
    })
}

/// Each Release names its Acquire nearby, and back.
pub fn orderings(lines: &[Line]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        if line.test || line.words().next() == Some("use") {
            continue;
        }
        for (ordering, partner) in [("Release", "acquire"), ("Acquire", "release")] {
            if line.words().any(|word| word == ordering) && !names_partner(lines, i, partner) {
                offences.push(Offence::at(
                    i,
                    format!("this {ordering} names no {partner}: say in a comment which access it pairs with"),
                ));
            }
        }
    }
    offences
}

/// Whether a comment near line `i` names the partner, or one beside it a label of the pair such as `R1`.
fn names_partner(lines: &[Line], i: usize, partner: &str) -> bool {
    let near = |reach: usize| &lines[i.saturating_sub(reach)..(i + reach + 1).min(lines.len())];
    near(PARTNER_REACH).iter().any(|line| line.comment.to_lowercase().contains(partner))
        || near(LABEL_REACH).iter().any(|line| words(&line.comment).any(is_label))
}

/// Whether a word is a letter and a number: `R1`, `A12`.
fn is_label(word: &str) -> bool {
    word.strip_prefix(|c: char| c.is_ascii_uppercase())
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Words that mark unfinished work, and macros that stand for it.
pub fn marks(lines: &[Line]) -> Vec<Offence> {
    const COMMENTS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
    const MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
    let mut offences = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        if let Some(mark) = words(&line.comment).find(|word| COMMENTS.contains(word)) {
            offences.push(Offence::at(i, format!("`{mark}`: do it, or open an issue")));
        }
        if let Some(mark) = MACROS.iter().find(|mark| line.code.contains(**mark)) {
            offences.push(Offence::at(i, format!("`{mark}` has no place in finished code")));
        }
        if line.code.trim() == "#[ignore]" {
            offences.push(Offence::at(i, "an ignored test without its reason: `#[ignore = \"why\"]`"));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::text::lines;
    use super::*;

    fn at(offences: &[Offence]) -> Vec<usize> {
        offences.iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn an_explained_block_passes_wherever_the_comment_stands() {
        for source in [
            "fn f() {\n    // SAFETY: p is live\n    unsafe { *p }\n}",
            "fn f() {\n    // SAFETY: p is live,\n    // and stays so.\n    let a = g(\n        unsafe { *p },\n    );\n}",
            "fn f() {\n    unsafe {\n        // SAFETY: p is live\n        *p\n    }\n}",
            "let a = unsafe { *p }; // SAFETY: p is live",
            "// SAFETY: no threads\n#[allow(unsafe_code)]\nunsafe impl Send for A {}",
            "// SAFETY: the name is ours alone\n#[unsafe(no_mangle)]\nextern fn f() {}",
        ] {
            assert_eq!(safety(&lines(source)), [], "{source}");
        }
    }

    #[test]
    fn an_unexplained_one_is_found() {
        for (source, line) in [
            ("fn f() {\n    unsafe { *p }\n}", 2),
            ("// SAFETY: p is live\nlet a = unsafe { *p };\nlet b = unsafe { *q };", 3),
            ("// SAFETY:\nunsafe impl Send for A {}", 2),
            ("// SAFETY: far away\n\nunsafe impl Send for A {}", 3),
            ("let a = \"SAFETY: in a string\"; unsafe { g() }", 1),
            ("unsafe\n{\n g()\n}", 1),
            ("#[unsafe(no_mangle)]\nfn f() {}", 1),
            ("unsafe extern \"C\" {\n fn f();\n}", 1),
            ("/// Text.\npub unsafe fn f() {}", 2),
            ("/// Text.\npub unsafe extern \"C\" fn f() {}", 2),
        ] {
            assert_eq!(at(&safety(&lines(source))), [line], "{source}");
        }
    }

    #[test]
    fn demands_are_documented_and_types_need_nothing() {
        for source in [
            "/// Text.\n///\n/// # Safety\n/// p is live.\n#[inline]\npub unsafe fn f() {}",
            "type F = unsafe fn(u8); struct S { g: unsafe extern \"C\" fn(u8) }",
            "#![deny(unsafe_code)]\n// an unsafe thing\nlet unsafe_count = 1;",
            "// SAFETY: A is a plain allocator\nunsafe impl Alloc for A {\n    unsafe fn alloc(&self) {}\n}",
        ] {
            assert_eq!(safety(&lines(source)), [], "{source}");
        }
    }

    #[test]
    fn a_release_names_its_acquire_and_back() {
        let named = "// pairs with the Acquire in poll\nx.store(1, Release);";
        let labelled = "// R1, seen by A1\nx.store(1, Ordering::Release);\n// A1 of R1\nx.load(Ordering::Acquire);";
        assert_eq!(orderings(&lines(named)), []);
        assert_eq!(orderings(&lines(labelled)), []);
        assert_eq!(at(&orderings(&lines("\nx.store(1, Ordering::Release);"))), [2]);
        assert_eq!(at(&orderings(&lines("x.load(Acquire);"))), [1]);
        assert_eq!(at(&orderings(&lines("// R1\n\n\n\nx.load(Acquire); // 12 and Rx"))), [5]);
        assert_eq!(orderings(&lines("use std::sync::atomic::Ordering::{Acquire, Release};")), []);
        assert_eq!(orderings(&lines("#[cfg(test)]\nmod tests {\n fn f() { x.load(Acquire); }\n}")), []);
    }

    #[test]
    fn marks_are_found_in_comments_and_code_only() {
        assert_eq!(at(&marks(&lines("// TODO later\nfn f() { todo!() }\n#[ignore]\nlet s = \"TODO\";"))), [1, 2, 3]);
        assert_eq!(marks(&lines("// TODOs have names elsewhere\n#[ignore = \"slow\"]")), []);
    }

    #[test]
    fn size_counts_code_alone() {
        let full = "x();\n".repeat(FILE_LINES);
        assert_eq!(size(&lines(&format!("//! A.\n{full}\n// c\n#[cfg(test)]\nmod t {{\n{full}}}"))), []);
        assert_eq!(at(&size(&lines(&format!("{full}y();")))), [1]);
    }

    #[test]
    fn a_file_says_what_it_is() {
        assert_eq!(opening("//! A.\n"), []);
        assert_eq!(at(&opening("use x;\n")), [1]);
    }
}
