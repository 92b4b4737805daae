//! Writes that have come by machine ways and that nobody has taken: two dense tables, so that a look at the ways to a
//! thousand machines takes less than a microsecond.
//!
//! Each machine counts its writes in a word of its own in this machine's region, behind the write itself
//! (`FrameStream::send_counted`); whoever takes writes out of a ring counts them here. No bits, as in
//! `gossamer_ways::news`: machines could not set bits of one word without hearing from one another.
//!
//! Invariant: the count of a peer is trusted for no more than a look at its ring, which has to have the write.

use std::sync::atomic::{AtomicU64, Ordering};

use comm::Region;

use super::super::layout::{Layout, NEWS_BYTES};

/// See the file's documentation. All by machine.
pub(super) struct News {
    /// Offset of the counts in the region.
    told: usize,
    taken: Box<[AtomicU64]>,
}

impl News {
    /// Makes that of the ways of machine `own`.
    pub(super) fn new(layout: &Layout, own: u16) -> News {
        let taken = (0..layout.machines()).map(|_| AtomicU64::new(0)).collect();
        News { told: layout.way_news(own), taken }
    }

    /// Number of the last write that a machine says it has made.
    pub(super) fn told(&self, region: &Region, machine: u16) -> u64 {
        let word = region.word(self.told + NEWS_BYTES * usize::from(machine));
        // Acquire of [flag-last] (`comm::fabric`): the write itself came before. The Release is the peer's
        // `Connection::write`.
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// All writes of a machine up to this number have been taken out of the ring.
    pub(super) fn note_taken(&self, machine: u16, number: u64) {
        // Release, pairs with the Acquire in `find`: a slot that is said to be taken has been read.
        self.taken[usize::from(machine)].store(number, Ordering::Release);
    }

    /// The machines with news, of so many from this one on.
    #[inline]
    pub(super) fn find(&self, region: &Region, from: usize, count: usize) -> impl Iterator<Item = u16> {
        let told = region.words(self.told, NEWS_BYTES * self.taken.len()).unwrap_or_default();
        // Acquire: as in `told`, and with the Release in `note_taken`.
        let is_new =
            |(told, taken): (&AtomicU64, &AtomicU64)| told.load(Ordering::Acquire) > taken.load(Ordering::Acquire);
        let machines = (0u16..).zip(told.iter().zip(&self.taken)).skip(from).take(count);
        machines.filter(move |(_, counts)| is_new(*counts)).map(|(machine, _)| machine)
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::super::super::layout::Slots;
    use super::*;

    fn machines(count: usize) -> (Layout, Region, News) {
        let layout = Layout::choose(vec![1; count], 1, Slots::NETWORK, Some(true));
        let region = Region::anonymous(layout.region_bytes(0)).unwrap();
        let news = News::new(&layout, 0);
        (layout, region, news)
    }

    #[test]
    fn machines_with_writes_that_nobody_took_are_found() {
        let (layout, region, news) = machines(1000);
        let found = |from, count| news.find(&region, from, count).collect::<Vec<_>>();
        assert!(found(0, usize::MAX).is_empty());
        for (machine, told, taken) in [(1, 1, 0), (64, 7, 7), (999, 9, 8)] {
            region.word(layout.way_news_of(0, machine)).unwrap().store(told, Ordering::Relaxed);
            news.note_taken(machine, taken);
        }
        // Taken out of the ring before its count was there.
        news.note_taken(3, 1);
        assert_eq!((found(0, usize::MAX), news.told(&region, 999)), (vec![1, 999], 9));
        assert_eq!((found(2, 997), found(2, 998), found(1, 1)), (vec![], vec![999], vec![1]));
    }

    /// `cargo test --release -p gossamer-rack looking_costs -- --ignored --nocapture`: one look at all machine ways
    /// that finds nothing.
    #[test]
    #[ignore = "measures"]
    fn looking_costs() {
        const LOOKS: u32 = 100_000;
        for count in [12, 64, 1000] {
            let (_, region, news) = machines(count);
            let start = Instant::now();
            for _ in 0..LOOKS {
                assert_eq!(black_box(&news).find(&region, 0, usize::MAX).next(), None);
            }
            println!("{count} machine ways: {} ns a look", start.elapsed().as_nanos() / u128::from(LOOKS));
        }
    }
}
