//! The work on a chunk of rows, and on groups. Columns are in any [`Memory`].

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::generated::NO_LABEL;
use crate::heaps::own::{Own, Slice};

/// Number of parts, by key, that the groups of a chunk are dealt to.
pub const PARTS: usize = 32;

/// The owner of columns and groups: `Global` or `Box`.
pub trait Memory: Sized + 'static {
    /// A column of codes.
    type Codes: Slice<u32>;
    /// A column of numbers.
    type Numbers: Slice<f64>;
    /// Groups, in the order of their keys.
    type Groups: Slice<Group>;
    /// Groups by part.
    type Parts: Slice<Self::Groups>;
}

/// Some rows.
pub struct Chunk<M: Memory> {
    /// Key of each row.
    pub keys: M::Codes,
    /// Value of each row.
    pub values: M::Numbers,
}

/// All rows with the same key, or label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// The key.
    pub key: u32,
    /// Number of rows.
    pub rows: u64,
    /// Sum of their values.
    pub sum: f64,
    /// The least of them.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

/// Result of a query on a chunk.
pub struct Partial<M: Memory> {
    /// Rows that passed the filter.
    pub kept: u64,
    /// Rows of those with a label for their key.
    pub joined: u64,
    /// Groups by key.
    pub by_key: M::Parts,
    /// Groups by label.
    pub by_label: M::Groups,
}

impl Group {
    fn of(key: u32, value: f64) -> Group {
        Group { key, rows: 1, sum: value, least: value, greatest: value }
    }

    fn and(&mut self, other: Group) {
        self.rows += other.rows;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }
}

/// The whole query on one chunk: rows with a value of at least so much, by key; and joined with `labels`, which has one
/// for each key, by label.
pub fn query<M: Memory>(chunk: &Chunk<M>, at_least: f64, labels: &[u32]) -> Partial<M> {
    let kept = filter(chunk, at_least);
    let joined = join(&kept, labels);
    let groups = group(&kept.keys.read(), &kept.values.read());
    let mut parts: Vec<Vec<Group>> = (0..PARTS).map(|_| Vec::new()).collect();
    groups.into_iter().for_each(|group| parts[group.key as usize % PARTS].push(group));
    let by_label = group(&joined.keys.read(), &joined.values.read());
    let (kept, joined) = (kept.values.read().len() as u64, joined.values.read().len() as u64);
    Partial { kept, joined, by_key: M::Parts::make(PARTS, |i| list::<M>(&parts[i])), by_label: list::<M>(&by_label) }
}

fn list<M: Memory>(groups: &[Group]) -> M::Groups {
    M::Groups::make(groups.len(), |i| groups[i])
}

/// The rows with a value of at least so much.
fn filter<M: Memory>(chunk: &Chunk<M>, at_least: f64) -> Chunk<M> {
    let (keys, values) = (chunk.keys.read(), chunk.values.read());
    let kept: Vec<u32> =
        (0..).zip(values.iter()).filter(|(_, value)| **value >= at_least).map(|(row, _)| row).collect();
    Chunk {
        keys: M::Codes::make(kept.len(), |i| keys[kept[i] as usize]),
        values: M::Numbers::make(kept.len(), |i| values[kept[i] as usize]),
    }
}

/// The rows with a label for their key, with the label in the key's place.
fn join<M: Memory>(chunk: &Chunk<M>, labels: &[u32]) -> Chunk<M> {
    let (keys, values) = (chunk.keys.read(), chunk.values.read());
    let label = |key: u32| labels.get(key as usize).copied().unwrap_or(NO_LABEL);
    let found: Vec<(u32, u32)> =
        (0..).zip(keys.iter()).map(|(row, key)| (row, label(*key))).filter(|(_, label)| *label != NO_LABEL).collect();
    Chunk {
        keys: M::Codes::make(found.len(), |i| found[i].1),
        values: M::Numbers::make(found.len(), |i| values[found[i].0 as usize]),
    }
}

/// Groups in the order of their keys.
fn group(keys: &[u32], values: &[f64]) -> Vec<Group> {
    collect(keys.iter().zip(values).map(|(key, value)| Group::of(*key, *value)))
}

/// Merges groups, those of the same key in their order.
pub fn merge<'a, M: Memory>(lists: impl Iterator<Item = &'a M::Groups>) -> Vec<Group> {
    let mut all = Vec::new();
    lists.for_each(|list| all.extend_from_slice(&list.read()));
    collect(all.into_iter())
}

fn collect(groups: impl Iterator<Item = Group>) -> Vec<Group> {
    let mut by_key: HashMap<u32, Group, FixedState> = HashMap::default();
    for group in groups {
        by_key.entry(group.key).and_modify(|known| known.and(group)).or_insert(group);
    }
    let mut groups: Vec<Group> = by_key.into_values().collect();
    groups.sort_unstable_by_key(|group| group.key);
    groups
}

/// Result of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Rows that passed the filter.
    pub kept: u64,
    /// Rows of those with a label for their key.
    pub joined: u64,
    /// Part by part, each in the order of its keys.
    pub by_key: Vec<Group>,
    /// Groups in the order of the labels.
    pub by_label: Vec<Group>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataframe::twin::Boxed;

    #[test]
    fn a_chunk_is_filtered_joined_and_grouped() {
        let rows = [(3, 1.0), (5, 9.0), (3, 4.0), (37, 6.0), (5, 5.0), (9, 7.0), (5, 3.9)];
        let chunk =
            Chunk::<Boxed> { keys: rows.map(|(key, _)| key).into(), values: rows.map(|(_, value)| value).into() };
        let mut labels = vec![NO_LABEL; 10]; // 37 has none, nor has 9
        (labels[3], labels[5]) = (1, 1);
        let found = query(&chunk, 4.0, &labels);
        assert_eq!((found.kept, found.joined), (5, 3));
        assert_eq!(*found.by_label, [Group { key: 1, rows: 3, sum: 18.0, least: 4.0, greatest: 9.0 }]);
        assert_eq!(
            *found.by_key[5],
            [Group { key: 5, rows: 2, sum: 14.0, least: 5.0, greatest: 9.0 }, Group::of(37, 6.0)]
        );
        assert_eq!((&*found.by_key[3], found.by_key[4].len()), (&[Group::of(3, 4.0)][..], 0));
        let twice = merge::<Boxed>([&found.by_key[5], &found.by_key[3], &found.by_key[5]].into_iter());
        assert_eq!(
            twice.iter().map(|group| (group.key, group.rows, group.sum)).collect::<Vec<_>>(),
            [(3, 1, 4.0), (5, 4, 28.0), (37, 2, 12.0)]
        );
    }
}
