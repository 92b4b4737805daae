//! Runs of free units: taken from the first that is long enough, joined with their neighbours when they come back.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of units, of which no two touch.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    by_start: BTreeMap<usize, usize>,
}

impl Runs {
    /// Takes so many units that lie together.
    pub(crate) fn take(&mut self, count: usize) -> Option<usize> {
        let (start, len) = self.by_start.iter().map(|(start, len)| (*start, *len)).find(|(_, len)| *len >= count)?;
        self.by_start.remove(&start);
        if len > count {
            self.by_start.insert(start + count, len - count);
        }
        Some(start)
    }

    /// Puts units there, which are not.
    pub(crate) fn put(&mut self, units: Range<usize>) {
        let (mut start, mut end) = (units.start, units.end);
        if let Some((before, len)) = self.by_start.range(..start).next_back().map(|(start, len)| (*start, *len))
            && before + len == start
        {
            self.by_start.remove(&before);
            start = before;
        }
        if let Some(len) = self.by_start.remove(&end) {
            end += len;
        }
        self.by_start.insert(start, end - start);
    }

    /// All of them, which are then no more.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Range<usize>> + use<> {
        std::mem::take(&mut self.by_start).into_iter().map(|(start, len)| start..start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_taken_was_there_and_is_no_more(
            steps in proptest::collection::vec((any::<bool>(), 1usize..20), 1..200),
        ) {
            let mut runs = Runs::default();
            runs.put(0..100);
            let mut free = [true; 100];
            let mut taken: Vec<Range<usize>> = Vec::new();
            for (takes, count) in steps {
                if takes {
                    let longest = free.split(|free| !free).map(<[bool]>::len).max().unwrap_or(0);
                    match runs.take(count) {
                        Some(start) => {
                            prop_assert!(free[start..start + count].iter().all(|free| *free));
                            free[start..start + count].fill(false);
                            taken.push(start..start + count);
                        }
                        None => prop_assert!(longest < count, "{longest} lie together"),
                    }
                } else if !taken.is_empty() {
                    let back = taken.swap_remove(count % taken.len());
                    free[back.clone()].fill(true);
                    runs.put(back);
                }
            }
            let all: usize = runs.take_all().map(|run| run.len()).sum();
            prop_assert_eq!(all, free.iter().filter(|free| **free).count());
        }
    }
}
