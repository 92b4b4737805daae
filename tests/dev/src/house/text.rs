//! A source file taken apart: for each line its code and its comments, and which lines are tests.
//!
//! Here: just enough of Rust's lexical grammar (comments, strings, characters, lifetimes) to keep words in
//! strings and comments apart from code. Not here: any rule.
//!
//! Invariant: code columns keep their order, strings keep their quotes and lose their contents, so braces
//! balance for any contents of a string.

/// One line, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The code, with comments left out and strings emptied.
    pub code: String,
    /// The text of its comments.
    pub comment: String,
    /// Whether it belongs to an item under `#[cfg(test)]`.
    pub test: bool,
}

impl Line {
    /// Whether it holds code that is no test.
    pub fn is_code(&self) -> bool {
        !self.test && !self.code.trim().is_empty()
    }

    /// Whether it holds nothing but a comment.
    pub fn is_comment(&self) -> bool {
        self.code.trim().is_empty() && !self.comment.trim().is_empty()
    }

    /// The words of its code that could be names or keywords.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        words(&self.code)
    }
}

/// The words of `text` that could be names or keywords.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// State of the reader between two characters.
#[derive(Clone, Copy)]
enum At {
    Code,
    LineComment,
    BlockComment { depth: u32 },
    Text,
    RawText { hashes: usize },
}

/// Takes a file apart.
pub fn lines(source: &str) -> Vec<Line> {
    let mut lines = split(source);
    mark_tests(&mut lines);
    lines
}

fn split(source: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut at = At::Code;
    for raw in source.lines() {
        let characters: Vec<char> = raw.chars().collect();
        let mut line = Line::default();
        let mut i = 0;
        while i < characters.len() {
            i += step(&characters[i..], &mut at, &mut line);
        }
        if let At::LineComment = at {
            at = At::Code;
        }
        lines.push(line);
    }
    lines
}

/// Reads the token at the start of `rest`; returns its length in characters.
fn step(rest: &[char], at: &mut At, line: &mut Line) -> usize {
    let next = rest.get(1).copied();
    match *at {
        At::LineComment => {
            line.comment.push(rest[0]);
            1
        }
        At::BlockComment { depth } => match (rest[0], next) {
            ('*', Some('/')) => {
                *at = if depth == 1 { At::Code } else { At::BlockComment { depth: depth - 1 } };
                2
            }
            ('/', Some('*')) => {
                *at = At::BlockComment { depth: depth + 1 };
                2
            }
            (character, _) => {
                line.comment.push(character);
                1
            }
        },
        At::Text => match rest[0] {
            '\\' => 2,
            '"' => {
                line.code.push('"');
                *at = At::Code;
                1
            }
            _ => 1,
        },
        At::RawText { hashes } => {
            if rest[0] == '"' && rest[1..].iter().take_while(|&&c| c == '#').count() >= hashes {
                line.code.push('"');
                *at = At::Code;
                1 + hashes
            } else {
                1
            }
        }
        At::Code => code_step(rest, at, line),
    }
}

fn code_step(rest: &[char], at: &mut At, line: &mut Line) -> usize {
    match (rest[0], rest.get(1)) {
        ('/', Some('/')) => {
            *at = At::LineComment;
            2
        }
        ('/', Some('*')) => {
            *at = At::BlockComment { depth: 1 };
            2
        }
        ('"', _) => {
            line.code.push('"');
            *at = At::Text;
            1
        }
        ('r', Some('"' | '#')) if !ends_in_word(&line.code) => {
            let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
            line.code.push('r');
            if rest.get(1 + hashes) == Some(&'"') {
                line.code.push('"');
                *at = At::RawText { hashes };
                2 + hashes
            } else {
                1
            }
        }
        ('\'', _) => {
            let length = character_literal(rest);
            line.code.push_str(if length > 1 { "''" } else { "'" });
            length
        }
        (character, _) => {
            line.code.push(character);
            1
        }
    }
}

/// Whether the code ends in a name, so that an `r` would continue it (`for` is no raw string, `br` is).
fn ends_in_word(code: &str) -> bool {
    let word: String = code.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    !(word.is_empty() || word == "b" || word == "c")
}

/// The length of the character literal at the start of `rest`, or 1 where a lifetime stands.
fn character_literal(rest: &[char]) -> usize {
    match rest.get(1) {
        Some('\\') => rest.iter().skip(3).position(|&c| c == '\'').map_or(1, |end| end + 4),
        Some(_) if rest.get(2) == Some(&'\'') => 3,
        _ => 1,
    }
}

/// Marks the items under `#[cfg(test)]`, `#[cfg(all(test, …))]` and the like.
fn mark_tests(lines: &mut [Line]) {
    let mut i = 0;
    while i < lines.len() {
        if is_test_cfg(&lines[i].code) {
            let end = item_end(lines, i);
            for line in &mut lines[i..=end] {
                line.test = true;
            }
            i = end;
        }
        i += 1;
    }
}

/// Whether an attribute line keeps its item for tests.
fn is_test_cfg(code: &str) -> bool {
    let code = code.trim_start();
    let Some(predicate) = code.strip_prefix("#[cfg(").or_else(|| code.strip_prefix("#![cfg(")) else { return false };
    members(predicate).first().is_some_and(|predicate| needs_test(predicate))
}

/// Whether a predicate of `cfg` holds in tests only.
fn needs_test(predicate: &str) -> bool {
    if let Some(inside) = predicate.strip_prefix("all(") {
        members(inside).iter().any(|member| needs_test(member))
    } else if let Some(inside) = predicate.strip_prefix("any(") {
        members(inside).iter().all(|member| needs_test(member))
    } else {
        predicate == "test"
    }
}

/// The text between commas, up to the parenthesis that closes the list.
fn members(list: &str) -> Vec<&str> {
    let (mut members, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in list.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ',' | ')' if depth == 0 => {
                members.push(list[start..at].trim());
                start = at + 1;
                if character == ')' {
                    break;
                }
            }
            _ => {}
        }
    }
    members
}

/// The last line of the item that begins at `start`: where its braces close, or its semicolon.
fn item_end(lines: &[Line], start: usize) -> usize {
    if lines[start].code.trim_start().starts_with("#!") {
        return lines.len() - 1;
    }
    let mut depth = 0i32;
    for (i, line) in lines.iter().enumerate().skip(start) {
        let mut attribute = 0i32;
        for character in line.code.chars() {
            match character {
                '[' | '(' => attribute += 1,
                ']' | ')' => attribute -= 1,
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth <= 0 {
                        return i;
                    }
                }
                ';' if depth == 0 && attribute == 0 => return i,
                _ => {}
            }
        }
    }
    lines.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        lines(source).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn comments_and_strings_leave_the_code() {
        let source = r##"let a = "unsafe { // }"; // unsafe
let b = r#"a " } unsafe"#; /* x /* y */ z */ let c = '"';
let d = b"\"}"; let e: &'static str = "\\";"##;
        let taken = lines(source);
        assert_eq!(taken[0].code, r#"let a = ""; "#);
        assert_eq!(taken[0].comment.trim(), "unsafe");
        assert_eq!(taken[1].code, r#"let b = r"";  let c = '';"#);
        assert_eq!(taken[1].comment, " x  y  z ");
        assert_eq!(taken[2].code, r#"let d = b""; let e: &'static str = "";"#);
    }

    #[test]
    fn strings_and_block_comments_span_lines() {
        let taken = code("let a = \"one {\n two }\"; f();\n/* three {\n */ g();");
        assert_eq!(taken, ["let a = \"", "\"; f();", "", " g();"]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(code(r"fn f<'a>(x: &'a u8) -> char { '\'' }"), ["fn f<'a>(x: &'a u8) -> char { '' }"]);
        assert_eq!(code(r"let c = '\u{7d}'; let d = '}';"), ["let c = ''; let d = '';"]);
    }

    #[test]
    fn raw_identifiers_and_words_ending_in_r_are_code() {
        assert_eq!(code(r#"let r#type = for_r("x");"#), [r#"let r#type = for_r("");"#]);
    }

    #[test]
    fn test_items_are_marked_and_no_others() {
        let source = "\
fn f() {}
#[cfg(test)]
use x::Y;
#[cfg(all(test, not_miri))]
mod tests {
    fn g() { let a = \"}\"; }
}
fn h() {}
#[cfg(not(test))]
fn i() {}";
        let marked: Vec<bool> = lines(source).into_iter().map(|line| line.test).collect();
        assert_eq!(marked, [false, true, true, true, true, true, true, false, false, false]);
    }

    #[test]
    fn a_predicate_that_only_holds_in_tests_is_told_from_others() {
        for yes in ["test", "all(test, not(loom))", "all(not(loom), any(all(test, miri), test))", "all(loom, test)"] {
            assert!(is_test_cfg(&format!("    #[cfg({yes})]")) && is_test_cfg(&format!("#![cfg({yes})]")), "{yes}");
        }
        for no in
            ["not(test)", "any(test, loom)", "all(loom, not(test))", "all(not(all(test)), unix)", "feature = \"\""]
        {
            assert!(!is_test_cfg(&format!("#[cfg({no})]")), "{no}");
        }
        assert!(is_test_cfg("#[cfg(test)] mod tests;"));
    }

    #[test]
    fn an_item_that_never_closes_ends_with_the_file() {
        let taken = lines("#[cfg(test)]\nmod tests {\n fn f() {");
        assert!(taken.iter().all(|line| line.test));
        assert!(lines("").is_empty());
    }
}
