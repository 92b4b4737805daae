//! Pages of a `PMap`: a large map read piece by piece, in several calls, while others change it.
//!
//! Entries are read in the order of their *rank*: the bits of the hash, the lowest first. An entry's rank never
//! changes. A table of 2ⁿ places puts the entries whose ranks share their first n bits at one home, so each home is a
//! range of ranks, and doubling the table cuts each range in two.
//!
//! Invariant: a cursor is a rank. The entries that the pages before it have read are those below it.

use serde::{Deserialize, Serialize};

use super::PMap;
use crate::persist::Persist;

/// Homes that a page looks at for each entry it may take. In a table that has lost most of its entries the page ends
/// there, so that its time is bounded.
const HOMES_A_ENTRY: usize = 16;

/// A place in the traversal of a [`PMap`], from [`PMap::page`]: plain data, which may be kept, serialised, and sent.
/// The default is the beginning.
///
/// It stays valid through all changes of the map, and across a restart of the program. A cursor of another pool's map
/// is no error; the traversal goes on somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PMapCursor(u64);

/// Returns the rank of an entry with this hash. It is even: the lowest bit of a hash, which is always set, is left out.
fn rank(hash: u64) -> u64 {
    (hash >> 1).reverse_bits()
}

impl<K: Persist, V: Persist> PMap<'_, K, V> {
    /// Returns a page of the map, about `n` entries from `cursor` on, and the cursor of the page after it; `None` after
    /// the last page.
    ///
    /// So a map is read in several transactions, each of which is short, and others may change it in between:
    ///
    /// - An entry that is in the map throughout the traversal is read exactly once, also if the map grows.
    /// - An entry that is inserted or removed meanwhile is read once or not at all.
    /// - A value is read as it is at the time of its page: the pages together are no snapshot.
    ///
    /// A page may have fewer than `n` entries, even none, where the table is mostly empty, as after many removals: only
    /// the cursor tells the end. It has more than `n` where keys have equal hashes, which are never separated. The
    /// order is that of the hashes, and the same in each traversal. A page takes time in proportion to `n`, and 8 bytes
    /// of the heap for each entry; `n` of 0 counts as 1.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("durable-page-{}", std::process::id()));
    /// # let workers = trust::Threadpool::new(1);
    /// use trust_durable::{Durable, PMap, PMapCursor};
    ///
    /// let map = Durable::<PMap<u64, u64>>::open(workers.trustees()[0], &folder, |tx| {
    ///     let mut map = PMap::new();
    ///     (0..1000).for_each(|key| _ = map.insert(key, key * key, tx));
    ///     map
    /// })?;
    /// let (mut next, mut sum) = (Some(PMapCursor::default()), 0);
    /// while let Some(cursor) = next {
    ///     let page = map.apply(move |map, _| {
    ///         let (entries, next) = map.page(cursor, 100);
    ///         (entries.map(|(_, value)| value).sum::<u64>(), next)
    ///     });
    ///     (sum, next) = (sum + page.0, page.1);
    /// }
    /// assert_eq!(sum, (0..1000).map(|key| key * key).sum::<u64>());
    /// # map.close()?;
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), trust_durable::Error>(())
    /// ```
    pub fn page(&self, cursor: PMapCursor, n: usize) -> (impl Iterator<Item = (&K, &V)>, Option<PMapCursor>) {
        let (indices, next) = self.page_indices(cursor.0, n.max(1));
        (indices.into_iter().map(|index| self.entry(index)), next.map(PMapCursor))
    }

    /// Returns the places of the entries of a page, and the rank that the next page begins with.
    fn page_indices(&self, start: u64, n: usize) -> (Vec<usize>, Option<u64>) {
        let mut indices = Vec::new();
        if self.len == 0 {
            return (indices, None);
        }
        // Ranks of one home begin with the same bits, all but so many.
        let rest = u64::BITS - self.places.trailing_zeros();
        let mut found = Vec::new();
        let mut from = start;
        for _ in 0..n.saturating_mul(HOMES_A_ENTRY) {
            self.find_home(from, rest, &mut found);
            found.sort_unstable();
            for (position, &(rank, index)) in found.iter().enumerate() {
                indices.push(index);
                let is_last_of_rank = found.get(position + 1).is_none_or(|after| after.0 != rank);
                if indices.len() >= n && is_last_of_rank {
                    // Ranks are even, so this is no rank, and does not overflow.
                    return (indices, Some(rank + 1));
                }
            }
            match (from >> rest).checked_add(1).filter(|&home| home < self.places) {
                Some(home) => from = home << rest,
                None => return (indices, None),
            }
        }
        (indices, Some(from))
    }

    /// Replaces `found` by the ranks and places of the entries with the home of the rank `from` that are not below it.
    fn find_home(&self, from: u64, rest: u32, found: &mut Vec<(u64, usize)>) {
        found.clear();
        let home = (from >> rest << rest).reverse_bits() as usize & self.mask();
        // Entries are at their home, or behind it without a gap.
        for step in 0..self.places as usize {
            let index = (home + step) & self.mask();
            let hash = self.hash_at(index);
            if hash == 0 {
                return;
            }
            if self.home(hash) == home && rank(hash) >= from {
                found.push((rank(hash), index));
            }
        }
    }
}
