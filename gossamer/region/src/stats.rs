//! Counters of regions. Only a machine's page server writes them.

use trust::link::Counter;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of this machine.
        #[derive(Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        pub(crate) static COUNTERS: Counters = Counters { $($name: Counter::new(),)* };

        /// Counters of all regions of a program since its start, over all machines.
        ///
        /// ```
        /// gossamer_region::main(
        ///     || {
        ///         let region = gossamer_region::Region::new(1 << 20).unwrap();
        ///         region.span::<u8>(1 << 20).fill(1);
        ///         let stats = region.stats();
        ///         assert_eq!(stats.reads + stats.writes, 0, "one process has no faults that a page server sees");
        ///         println!("{stats}");
        ///     },
        ///     1,
        /// );
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Returns the counters of this machine.
            pub(crate) fn here() -> Stats {
                Stats { $($name: COUNTERS.$name.get(),)* }
            }
        }

        impl std::ops::Add for Stats {
            type Output = Stats;

            fn add(self, other: Stats) -> Stats {
                Stats { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counters! {
    /// Faults of threads that read.
    reads,
    /// Faults of threads that write.
    writes,
    /// Faults, among these, on pages that were already there, or under way, when the page server looked.
    late,
    /// Runs of pages that were requested and came; a fault or a prefetch leads to one or none.
    runs,
    /// Pages fetched from another machine.
    fetched,
    /// Pages that were untouched before.
    zeros,
    /// Read-only pages that became writable.
    upgrades,
    /// Pages given up because another machine wrote them.
    dropped,
    /// Pages that another machine fetched from here.
    yielded,
    /// Runs kept for a while because they had just arrived ([`HOLD`](crate::HOLD)).
    held,
    /// Nanoseconds from the page servers' first sight of each fault until its page was there, summed.
    waited_ns,
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stats { reads, writes, runs, fetched, zeros, upgrades, waited_ns, .. } = self;
        let wait_us = waited_ns.checked_div(*runs).unwrap_or(0) / 1000;
        write!(
            f,
            "{reads} faults to read, {writes} to write, {runs} runs of pages: {fetched} fetched, {zeros} new, \
             {upgrades} made writable; {wait_us} us each"
        )
    }
}
