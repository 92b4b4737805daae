//! From bytes to words: reads a text in pieces and finds its words.
//!
//! Every count, delegated or not, goes through [`read`]; so two counts can only differ in how they add up. No counting
//! here, and no files: a text is anything that can be read.
//!
//! A *word* is one of Unicode (UAX #29: `don't` and `2,5` are one word each), in lower case. A sequence of
//! letters longer than [`WORD_BYTES_MAX`] is not a word but data (base64, a key): it is distinguished and not counted.
//! Bytes that are not UTF-8 are skipped, and end a word.
//!
//! Invariant: the words do not depend on how many bytes each read returns.

use std::io::{self, Read};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

/// The longest word that is counted, in bytes of UTF-8.
pub const WORD_BYTES_MAX: usize = 256;

/// Bytes that are read before the words in them are handed out.
pub const PIECE_BYTES: usize = 64 * 1024;

/// Counts of one text, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// All bytes that were read.
    pub bytes: u64,
    /// Words, each as often as it occurs.
    pub words: u64,
    /// Bytes that are not UTF-8.
    pub bad_bytes: u64,
    /// Sequences too long to be a word.
    pub overlong: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.bytes += other.bytes;
        self.words += other.words;
        self.bad_bytes += other.bad_bytes;
        self.overlong += other.overlong;
    }
}

/// Output of [`read`], in the order of the text.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// The next word, in lower case.
    Word(String),
    /// A piece of the text is done.
    Piece {
        /// Their number.
        bytes: u64,
    },
}

/// Why a text was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It has zero bytes in its first piece: a picture, a program, UTF-16.
    #[error("is not a text: it has zero bytes in it")]
    Binary,
}

/// Reads a text to its end and hands each word to `part`, and after each piece how long that was.
///
/// ```
/// use gossamer_examples::wordcount::text::{Part, read};
/// let mut words = Vec::new();
/// let tally = read("It's the\nend.".as_bytes(), |part| {
///     if let Part::Word(word) = part {
///         words.push(word);
///     }
/// })?;
/// assert_eq!(words, ["it's", "the", "end"]);
/// assert_eq!((tally.words, tally.bytes), (3, 13));
/// # Ok::<(), gossamer_examples::wordcount::text::TextError>(())
/// ```
///
/// # Errors
/// [`TextError`]. Words handed out before a failed read stay handed out; of a [`TextError::Binary`] there were none.
pub fn read(mut text: impl Read, mut part: impl FnMut(Part)) -> Result<Tally, TextError> {
    let mut tally = Tally::default();
    let mut buffer = Vec::with_capacity(PIECE_BYTES);
    let mut is_first = true;
    loop {
        let missing = PIECE_BYTES - buffer.len();
        let got = text.by_ref().take(missing as u64).read_to_end(&mut buffer)?;
        let is_last = got < missing;
        if is_first && buffer.contains(&0) {
            return Err(TextError::Binary);
        }
        is_first = false;
        let end = if is_last { buffer.len() } else { last_gap(&buffer) };
        let mut seen = words(&buffer[..end], |word| part(Part::Word(word)));
        seen.bytes = end as u64;
        tally += seen;
        part(Part::Piece { bytes: seen.bytes });
        if is_last {
            return Ok(tally);
        }
        buffer.drain(..end);
    }
}

/// Returns the place to cut a full buffer so that no word is cut: after its last white space, or, if it has none,
/// before its last character. Never 0, so that reading goes on.
fn last_gap(buffer: &[u8]) -> usize {
    if let Some(space) = buffer.iter().rposition(u8::is_ascii_whitespace) {
        return space + 1;
    }
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000; // second to fourth byte of a character
    match buffer.iter().rposition(|byte| !is_inside(byte)) {
        Some(0) | None => buffer.len(),
        Some(start) => start,
    }
}

fn words(bytes: &[u8], mut word: impl FnMut(String)) -> Tally {
    let mut tally = Tally::default();
    for chunk in bytes.utf8_chunks() {
        tally.bad_bytes += chunk.invalid().len() as u64;
        for found in chunk.valid().unicode_words() {
            if found.len() > WORD_BYTES_MAX {
                tally.overlong += 1;
                continue;
            }
            tally.words += 1;
            word(found.to_lowercase());
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: impl Read) -> (Vec<String>, Tally) {
        let (mut words, mut bytes_done) = (Vec::new(), 0);
        let tally = read(text, |part| match part {
            Part::Word(word) => words.push(word),
            Part::Piece { bytes } => bytes_done += bytes,
        })
        .unwrap();
        assert_eq!(bytes_done, tally.bytes, "all bytes are in some piece");
        assert_eq!(words.len() as u64, tally.words);
        (words, tally)
    }

    /// Gives a few bytes at a time.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let few = 7.min(buffer.len()).min(self.0.len());
            let (now, later) = self.0.split_at(few);
            buffer[..few].copy_from_slice(now);
            self.0 = later;
            Ok(few)
        }
    }

    #[test]
    fn words_are_those_of_unicode_in_lower_case() {
        let (words, _) = words_of("Don't STOP: 3.5 Äpfel,naïve—x_1 ΣΑΣ \u{feff}bom ... 中文".as_bytes());
        assert_eq!(words, ["don't", "stop", "3.5", "äpfel", "naïve", "x_1", "σας", "bom", "中", "文"]);
    }

    #[test]
    fn nothing_has_no_words() {
        for text in ["", " \n\t", "... --- !"] {
            let (words, tally) = words_of(text.as_bytes());
            assert!(words.is_empty(), "{words:?}");
            assert_eq!(tally.bytes, text.len() as u64);
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_counted_and_skipped() {
        let (words, tally) = words_of(&b"caf\xe9 na\xffive \xf0\x9f end\xc3"[..]);
        assert_eq!(words, ["caf", "na", "ive", "end"]);
        assert_eq!(tally.bad_bytes, 5);
        assert_eq!(tally.bytes, 19);
    }

    #[test]
    fn pieces_cut_no_word_and_no_character() {
        // Lengths around the size of a piece, so that every position of the cut occurs.
        for shift in 0..24 {
            let text = format!("{}{}", "x".repeat(shift), " größe naïve 😀 don't\n".repeat(6000));
            assert!(text.len() > 2 * PIECE_BYTES);
            let (words, tally) = words_of(text.as_bytes());
            let rest = &words[usize::from(shift > 0)..];
            assert!(rest.chunks(3).all(|three| three == ["größe", "naïve", "don't"]), "shift {shift}");
            assert_eq!((rest.len(), tally.bad_bytes), (18_000, 0), "shift {shift}");
        }
    }

    #[test]
    fn text_without_spaces_is_cut_between_characters() {
        for shift in 0..4 {
            let text = format!("{}{}", "x".repeat(shift), "中".repeat(PIECE_BYTES));
            let (words, tally) = words_of(text.as_bytes());
            assert_eq!(words.len() - usize::from(shift > 0), PIECE_BYTES);
            assert_eq!(tally.bad_bytes, 0);
        }
        let (words, tally) = words_of(&vec![0x80; 3 * PIECE_BYTES][..]);
        assert!(words.is_empty());
        assert_eq!(tally.bad_bytes, 3 * PIECE_BYTES as u64);
    }

    #[test]
    fn what_is_too_long_is_no_word() {
        let text = format!("a {} b {} c", "y".repeat(WORD_BYTES_MAX + 1), "z".repeat(WORD_BYTES_MAX));
        let (words, tally) = words_of(text.as_bytes());
        assert_eq!((words.len(), tally.overlong), (4, 1));
    }

    #[test]
    fn the_size_of_each_read_does_not_matter() {
        let text = b"one t\xffwo three \xe4\xb8\xad\xe6\x96\x87 ".repeat(9000);
        assert_eq!(words_of(&text[..]), words_of(Trickle(&text)));
    }

    #[test]
    fn zero_bytes_mean_no_text() {
        let read = read(&b"PNG\0\0 words"[..], |part| panic!("{part:?}"));
        assert!(matches!(read, Err(TextError::Binary)));
    }

    #[test]
    fn a_failed_read_is_an_error() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        let mut words = 0;
        let failed = read((&b"two words "[..]).chain(Fails), |_| words += 1).unwrap_err();
        assert!(failed.to_string().contains("the disk is gone"));
    }
}
