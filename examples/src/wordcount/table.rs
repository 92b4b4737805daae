//! [`Table`]: words and how often each was seen; the property that wordcount entrusts, and the single-threaded count.
//!
//! Not here: the choice of the table for a word, and the sending (`delegated`).

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A word and how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The word, in lower case.
    pub word: String,
    /// Its count.
    pub count: u64,
}

/// The counts of some words. An ordinary type: that it is entrusted to somebody shows nowhere in it.
#[derive(Debug, Default)]
pub struct Table {
    counts: HashMap<String, u64>,
    ranked: Vec<Count>,
}

impl Table {
    /// Adds one occurrence of a word.
    pub fn add(&mut self, word: String) {
        *self.counts.entry(word).or_insert(0) += 1;
    }

    /// Returns the number of different words.
    pub fn distinct(&self) -> u64 {
        self.counts.len() as u64
    }

    /// Returns the number of words, each as often as it was added.
    pub fn words(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Puts the words in order for [`page`](Self::page): the most frequent first, equals by the alphabet.
    pub fn rank(&mut self) {
        let counts = self.counts.iter().map(|(word, count)| Count { word: word.clone(), count: *count });
        self.ranked = counts.collect();
        rank(&mut self.ranked);
    }

    /// `len` words from place `from` of the order that [`rank`](Self::rank) made; fewer at its end.
    pub fn page(&self, from: usize, len: usize) -> Vec<Count> {
        self.ranked.iter().skip(from).take(len).cloned().collect()
    }
}

/// Orders words: the most frequent first, equals by the alphabet.
pub fn rank(counts: &mut [Count]) {
    counts.sort_unstable_by(|a, b| (Reverse(a.count), &a.word).cmp(&(Reverse(b.count), &b.word)));
}

/// Returns the differences of two counts, one line for each word.
pub fn differences(expected: &[Count], found: &[Count]) -> Vec<String> {
    let mut both: HashMap<&str, (u64, u64)> = HashMap::new();
    for Count { word, count } in expected {
        both.entry(word).or_default().0 += count;
    }
    for Count { word, count } in found {
        both.entry(word).or_default().1 += count;
    }
    let differ = both.into_iter().filter(|(_, (expected, found))| expected != found);
    let mut lines: Vec<_> =
        differ.map(|(word, (expected, found))| format!("{word:?}: {found}, but single-threaded {expected}")).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        let mut table = Table::default();
        text.split_whitespace().for_each(|word| table.add(word.to_owned()));
        table.rank();
        table
    }

    #[test]
    fn the_most_frequent_come_first_and_equals_by_the_alphabet() {
        let table = table("b a c a d a b e");
        let words: Vec<_> = table.page(0, 9).into_iter().map(|count| (count.word, count.count)).collect();
        let expected = [("a", 3), ("b", 2), ("c", 1), ("d", 1), ("e", 1)];
        assert_eq!(words, expected.map(|(word, count)| (word.to_owned(), count)));
        assert_eq!((table.words(), table.distinct()), (8, 5));
    }

    #[test]
    fn pages_make_up_the_whole() {
        let table = table("b a c a d a b e");
        let paged: Vec<_> =
            (0..).step_by(2).map(|from| table.page(from, 2)).take_while(|page| !page.is_empty()).collect();
        assert_eq!(paged.len(), 3);
        assert_eq!(paged.concat(), table.page(0, usize::MAX));
    }

    #[test]
    fn differences_are_seen_on_both_sides() {
        let (one, other) = (table("a a b c").page(0, 9), table("a b b d").page(0, 9));
        assert!(differences(&one, &one).is_empty());
        assert_eq!(
            differences(&one, &other),
            [
                r#""a": 1, but single-threaded 2"#,
                r#""b": 2, but single-threaded 1"#,
                r#""c": 0, but single-threaded 1"#,
                r#""d": 1, but single-threaded 0"#
            ]
        );
    }
}
