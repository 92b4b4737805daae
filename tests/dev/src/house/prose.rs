//! The rules for prose: lines that fit a screen, sentences that begin with a noun, no codes in place of words.
//!
//! Here: each rule as a function from a file to its offences. Not here: finding files (`mod.rs`).
//!
//! Invariant: the text of string literals and of code samples is not looked at, but for its width.

use super::rules::Offence;
use super::text::Line;

/// Columns of a line of code or of a page.
pub const COLUMNS: usize = 120;

/// Words that begin a clause in place of a noun, where they do not ask.
const CLAUSES: [&str; 6] = ["What", "Who", "Whom", "Whose", "Whatever", "Whoever"];

/// Letters of codes that stand for requirements of pages that are not in the tree, as a single letter does.
const CODES: [&str; 3] = ["DA", "DR", "ST"];

/// Names that are no codes: an edition of the C language.
const NAMES: [&str; 1] = ["C11"];

/// Types of numbers, which names of functions may begin with.
const TYPES: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];

/// Lines of a source that are too long.
pub fn columns(source: &str) -> Vec<Offence> {
    let long = source.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS);
    long.map(|(index, _)| too_long(index)).collect()
}

fn too_long(index: usize) -> Offence {
    Offence::at(index, format!("the line has more than {COLUMNS} columns"))
}

/// Lines of a page that are too long, but for rows of tables and for figures, which are generated.
pub fn page_columns(page: &str) -> Vec<Offence> {
    let mut is_generated = false;
    let mut is_long = |line: &str| {
        is_generated = line.starts_with("<!-- figures") || is_generated && !line.starts_with("<!-- end");
        !is_generated && line.chars().count() > COLUMNS && !line.trim_start().starts_with('|')
    };
    let long = page.lines().enumerate().filter(|(_, line)| is_long(line));
    long.map(|(index, _)| too_long(index)).collect()
}

/// Sentences of comments that begin with a clause in place of a noun.
pub fn clauses(lines: &[Line]) -> Vec<Offence> {
    sentences(lines.iter().map(|line| line.comment.trim_start_matches(['/', '!']).trim()))
}

/// The same of a page.
pub fn page_clauses(page: &str) -> Vec<Offence> {
    sentences(page.lines().map(str::trim))
}

/// Goes through text line by line; an empty line ends a paragraph, and fences enclose code.
fn sentences<'a>(text: impl Iterator<Item = &'a str>) -> Vec<Offence> {
    let mut offences = Vec::new();
    let (mut is_code, mut is_start) = (false, true);
    let mut begun: Option<(usize, &str)> = None;
    let mut end = |begun: &mut Option<(usize, &'a str)>, asks: bool| {
        if let Some((index, word)) = begun.take().filter(|_| !asks) {
            offences.push(Offence::at(index, format!("a sentence begins with `{word}`: begin with a noun")));
        }
    };
    for (index, line) in text.enumerate() {
        let is_fence = line.starts_with("```");
        if is_fence || line.is_empty() {
            end(&mut begun, false);
            is_start = true;
        }
        is_code ^= is_fence;
        if is_code || is_fence {
            continue;
        }
        for word in line.split_whitespace() {
            let letters = word.trim_matches(|c: char| !c.is_alphanumeric());
            if is_start && let Some(clause) = CLAUSES.iter().find(|clause| **clause == letters) {
                begun = Some((index, clause));
            }
            let word = word.trim_end_matches(['"', ')', '*', '_', '`']);
            let ends = word.ends_with(['.', '!', '?']);
            if ends {
                end(&mut begun, word.ends_with('?'));
            }
            // A bullet, a cell of a table, a heading, or the word before a colon.
            let begins = matches!(word, "-" | "*" | "|") || word.starts_with('#');
            is_start = ends || word.ends_with(':') || (letters.is_empty() && begins);
        }
    }
    end(&mut begun, false);
    offences
}

/// Names of functions that begin with a code, and comments that have one.
pub fn codes(lines: &[Line]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let mut words = line.words();
        if let Some(name) = words.find(|word| *word == "fn").and(words.next())
            && let Some((first, _)) = name.split_once('_')
            && !TYPES.contains(&first)
            && is_code(&first.to_uppercase())
        {
            offences.push(Offence::at(index, format!("`{name}` begins with a code: a name says what it is of")));
        }
        let parts = line.comment.split(|c: char| !c.is_ascii_alphanumeric());
        if let Some(code) = parts.into_iter().find(|word| is_code(word)) {
            let cure = "say it in words, or by the label of an invariant, as `[request-bit]`";
            offences.push(Offence::at(index, format!("`{code}` is a code: {cure}")));
        }
    }
    offences
}

/// A letter, or the letters of a code, and a number of one or two digits.
fn is_code(word: &str) -> bool {
    let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_letter = letters.len() == 1 && letters.starts_with(|c: char| c.is_ascii_uppercase());
    matches!(word.len() - letters.len(), 1 | 2) && (is_letter || CODES.contains(&letters)) && !NAMES.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    /// The lines of clauses, as text.
    fn of_clauses(source: &str) -> String {
        let offences = clauses(&text::lines(source));
        offences.iter().map(|offence| offence.line.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn long_lines_are_found_but_for_rows_of_tables() {
        let long = "x".repeat(COLUMNS + 1);
        let fits = "ä".repeat(COLUMNS);
        let figures = format!("<!-- figures: one -->\n{long}\n<!-- end -->\n");
        assert_eq!(page_columns(&format!("{long}\n| {long}\n{fits}\n{figures}{long}\n")).len(), 2);
        assert_eq!(columns(&format!("{fits}\n// {fits}\n{long}\n| {long}\n")).len(), 3);
    }

    #[test]
    fn clauses_are_found_where_a_sentence_begins() {
        assert_eq!(of_clauses("/// What came of it.\nfn f() {}\n"), "1");
        assert_eq!(of_clauses("// It is so. Who asks\n// is told.\n"), "1");
        assert_eq!(of_clauses("//! - Whose turn it is\n"), "1");
        assert_eq!(of_clauses("//! Here: this. Not here: What that is.\n"), "1");
        assert_eq!(of_clauses("/// (Whatever it is.)\n"), "1");
    }

    #[test]
    fn questions_names_and_code_samples_are_left_alone() {
        assert_eq!(of_clauses("/// What is that? It is this.\n"), "");
        assert_eq!(of_clauses("/// Who takes cores,\n/// and when?\n"), "");
        assert_eq!(of_clauses("/// An enum `What`, and what it is for.\n"), "");
        assert_eq!(of_clauses("/// ```text\n/// What a line.\n/// ```\n"), "");
        assert_eq!(of_clauses("let text = \"What came of it.\";\n"), "");
    }

    #[test]
    fn pages_are_read_like_comments() {
        let page = "## What it costs\n\nWhat it is.\n\n| Who | x |\n\n```sh\nWhat it runs.\n```\n\nWhat for?\n";
        assert_eq!(page_clauses(page).iter().map(|offence| offence.line).collect::<Vec<_>>(), [1, 3, 5]);
    }

    #[test]
    fn codes_are_found_in_names_and_comments() {
        let found = |source: &str| codes(&text::lines(source)).len();
        for source in
            ["fn t9_sleepers() {}", "fn st1_11_orders() {}", "// DR12: so\n", "// as in ST3.2\n", "// SAFETY: V4.\n"]
        {
            assert_eq!(found(source), 1, "{source}");
        }
        for source in ["fn u64_is_small() {}", "fn o_is_round() {}", "// C11, x86-64, H100, T\n", "// STAGE 1\n"] {
            assert_eq!(found(source), 0, "{source}");
        }
    }
}
