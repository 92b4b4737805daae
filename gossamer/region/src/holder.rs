//! Pages of a region that one machine holds, and their states. A state machine without I/O: faults and messages in,
//! messages and calls of [`Pages`] out.
//!
//! Invariants
//! - [protect-then-announce] The bytes of a page are announced to another machine only after this machine's threads can
//!   no longer write it, or no longer have it.
//! - [one-page-request] At most one request is under way for a page. Threads that fault on it meanwhile are woken when
//!   it arrives.
//! - Each fault leads to a request whose answer wakes its thread, or wakes it at once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::home::Out;
use crate::message::{Access, Grant, Message, State};
use crate::page::{BLOCK_PAGES, Homes, Run, zeroed};

/// Operations on the pages themselves.
pub(crate) trait Pages {
    /// Makes pages accessible in this state, with the bytes that they have here, and wakes their waiters. Pages that
    /// are accessible already stay as they are.
    fn install(&mut self, run: Run, state: State);
    /// Makes untouched pages accessible to read and write, all zeros, and wakes their waiters.
    fn install_zeros(&mut self, run: Run);
    /// Same as `install`, for pages that should be accessible already. Returns false, and wakes no thread, where pages
    /// cannot be installed read-only and the system has taken one out of the address space. `like` is the number of
    /// pages from the first on that are in this state: if the first was discarded, all of them are made again.
    fn install_again(&mut self, run: Run, state: State, like: u32) -> bool;
    /// Makes pages that are Shared here writable, and wakes the waiters for that.
    fn unprotect(&mut self, run: Run);
    /// Makes further writes of these pages fault.
    fn protect(&mut self, run: Run);
    /// Makes further reads and writes of these pages fault.
    fn unmap(&mut self, run: Run);
    /// Gets the bytes of pages from their holder `from`. Returns whether they are there at once; else call
    /// `Holder::fetched` later.
    fn fetch(&mut self, run: Run, from: u16, state: State) -> bool;
}

/// Runs under way at which [`Holder::prefetch`] pauses.
const ASKED_BEFOREHAND: usize = 16;
/// Fewest runs prefetched by a read fault that continues a stream of longest runs: they arrive while the thread
/// computes. The stream prefetches as many runs as it has had, within these bounds.
const AHEAD: u32 = 4;
const AHEAD_MAX: u32 = 16;
/// Sequential writes to untouched pages prefetch one run per `HAD_OF_NEW` runs that the stream has had, at most
/// [`NEW_MAX`]. The prefetched pages then belong to this machine, and a writer elsewhere takes them one by one, so
/// useless prefetches must stay few beside the pages written.
const HAD_OF_NEW: u32 = 4;
const NEW_MAX: u32 = 4;
/// Streams of sequential faults tracked at the same time.
const STREAMS: usize = 8;

/// Stream of sequential faults; the fault at `next` continues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Stream {
    first: u32,
    next: u32,
    /// Pages of its last run.
    count: u32,
    /// Runs last prefetched.
    ahead: u32,
    /// Whether its last run was untouched before.
    is_new: bool,
}

impl Stream {
    /// Returns the number of runs to prefetch when the stream continues at `page`.
    fn ahead(&self, page: u32, write: bool) -> u32 {
        let had = page.saturating_sub(self.first) / BLOCK_PAGES;
        match write {
            _ if self.count < BLOCK_PAGES => 0,
            false => had.clamp(AHEAD, AHEAD_MAX),
            true if self.is_new => (had / HAD_OF_NEW).min(NEW_MAX),
            true => 0,
        }
    }

    /// Whether this stream requested the run, as its last or one of the prefetched ones before.
    fn has_asked(&self, run: Run) -> bool {
        let end = run.first + run.count;
        self.count > 0 && end <= self.next && self.next <= end + self.ahead * BLOCK_PAGES
    }
}

/// Pages of one region that one machine holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    homes: Homes,
    machines: u16,
    states: Vec<State>,
    /// Runs under way, by first page.
    asked: BTreeMap<u32, Run>,
    /// Pages to prefetch when fewer runs are under way.
    prefetched: VecDeque<Range<u32>>,
    streams: [Stream; STREAMS],
    /// The stream that the next new one replaces.
    oldest: usize,
    /// Longest run requested.
    longest: u32,
    /// Whether pages can be mapped read-only. If not, each page that comes here leaves all other machines.
    can_share: bool,
}

impl Holder {
    /// Creates the holder of a region of `pages` pages.
    pub(crate) fn new(homes: Homes, machines: u16, pages: u32, can_share: bool) -> Holder {
        let states = zeroed(pages as usize); // Invalid
        let (streams, asked) = ([Stream::default(); STREAMS], BTreeMap::new());
        let prefetched = VecDeque::new();
        Holder { homes, machines, states, asked, prefetched, streams, oldest: 0, longest: BLOCK_PAGES, can_share }
    }

    /// Limits requests to this many pages.
    pub(crate) fn with_runs_of(self, longest: u32) -> Holder {
        Holder { longest, ..self }
    }

    pub(crate) fn state(&self, page: u32) -> State {
        self.states[page as usize]
    }

    /// Whether a request for the page is under way.
    pub(crate) fn is_asked(&self, page: u32) -> bool {
        self.asked.contains_key(&page)
    }

    /// Returns the home of a page: the machine that knows its holders.
    pub(crate) fn home(&self, page: u32) -> u16 {
        self.homes.of(page, self.machines)
    }

    /// Handles a fault of a thread of this machine. The report may be old: the page may have arrived by now, or the
    /// system may have taken it out of the address space.
    pub(crate) fn fault(&mut self, page: u32, write: bool, pages: &mut impl Pages, out: &mut Out) {
        let state = self.state(page);
        let is_here = state == State::Modified || (state == State::Shared && !write);
        if is_here {
            let like = self.states[page as usize..].iter().take((Run::block_end(page) - page) as usize);
            let like = like.take_while(|other| **other == state).count() as u32;
            if pages.install_again(Run::one(page), state, like) {
                return;
            }
        }
        if self.is_asked(page) {
            return; // [one-page-request]
        }
        let stream = self.stream(page, write);
        let count = self.streams[stream].count;
        let access = if write { Access::Write } else { self.to_read() };
        let run = self.ask(Run { first: page, count }, access, out);
        let mut next = run.first + run.count;
        let ahead = self.streams[stream].ahead(page, write);
        for _ in 0..ahead {
            match self.ask_beforehand(next, write, out) {
                Some(run) => next = run.first + run.count,
                None => break,
            }
        }
        (self.streams[stream].next, self.streams[stream].ahead) = (next, ahead);
    }

    /// Requests a run before any thread waits for it: to read it, or to write it if it is untouched. Returns None if
    /// its first page is here or under way.
    pub(crate) fn ask_beforehand(&mut self, first: u32, write: bool, out: &mut Out) -> Option<Run> {
        let is_wanted = (first as usize) < self.states.len() && self.state(first) == State::Invalid;
        if !is_wanted || self.is_asked(first) {
            return None;
        }
        let access = if write { Access::New } else { self.to_read() };
        Some(self.ask(Run { first, count: self.longest }, access, out))
    }

    fn to_read(&self) -> Access {
        if self.can_share { Access::Read } else { Access::Alone }
    }

    /// Requests the longest prefix of this run whose pages are in the same state as its first. Returns that prefix.
    fn ask(&mut self, run: Run, access: Access, out: &mut Out) -> Run {
        let state = self.state(run.first);
        let end = Run::block_end(run.first).min(run.first + run.count).min(self.states.len() as u32);
        let is_like = |page: &u32| self.state(*page) == state && !self.is_asked(*page);
        let count = (run.first..end).take_while(is_like).count() as u32;
        let run = Run { first: run.first, count: count.max(1) };
        self.asked.insert(run.first, run);
        out.push((self.home(run.first), Message::Ask { run, access }));
        run
    }

    /// Requests, to read, those of these pages that are neither here nor under way, a few runs at a time.
    pub(crate) fn prefetch(&mut self, pages: Range<u32>, out: &mut Out) {
        self.prefetched.push_back(pages.start..pages.end.min(self.states.len() as u32));
        self.go_on_prefetching(out);
    }

    /// Requests, to write, those of these pages that cannot be written here yet and begin no run under way. One by one:
    /// of a run that another machine writes, no more than the first would come.
    pub(crate) fn prefetch_to_write(&mut self, pages: Range<u32>, out: &mut Out) {
        for page in pages.start..pages.end.min(self.states.len() as u32) {
            if self.state(page) != State::Modified && !self.is_asked(page) {
                self.ask(Run::one(page), Access::Write, out);
            }
        }
    }

    fn go_on_prefetching(&mut self, out: &mut Out) {
        while self.asked.len() < ASKED_BEFOREHAND
            && let Some(pages) = self.prefetched.front_mut()
        {
            let Some(page) = pages.next() else {
                self.prefetched.pop_front();
                continue;
            };
            let end = Run::block_end(page).min(pages.end);
            if self.state(page) == State::Invalid && !self.is_asked(page) {
                let run = self.ask(Run { first: page, count: (end - page).min(self.longest) }, self.to_read(), out);
                if let Some(pages) = self.prefetched.front_mut() {
                    pages.start = run.first + run.count;
                }
            }
        }
    }

    /// Returns the stream that a fault on this page continues or begins. A read may skip as many pages as arrived last,
    /// as in columns of a matrix whose rows are longer than a page. A write may not: other machines would lose pages
    /// that this one never writes.
    fn stream(&mut self, page: u32, write: bool) -> usize {
        let goes_on = |stream: &Stream| stream.count > 0 && stream.next == page;
        let goes_on_behind =
            |stream: &Stream| !write && stream.count > 0 && stream.next < page && page - stream.next <= stream.count;
        let found = self.streams.iter().position(goes_on).or_else(|| self.streams.iter().position(goes_on_behind));
        if let Some(stream) = found {
            self.streams[stream].count = (self.streams[stream].count * 2).min(self.longest);
            return stream;
        }
        self.oldest = (self.oldest + 1) % STREAMS;
        self.streams[self.oldest] = Stream { first: page, count: 1, ..Stream::default() };
        self.oldest
    }

    /// Handles a message to this holder.
    pub(crate) fn receive(&mut self, from: u16, message: Message, pages: &mut impl Pages, out: &mut Out) {
        match message {
            Message::Drop { run } => {
                pages.unmap(run);
                self.set(run, State::Invalid);
                out.push((from, Message::Dropped { run }));
            }
            Message::Yield { run, to, keep: true } => {
                if run.pages().any(|page| self.state(page) == State::Modified) {
                    pages.protect(run);
                }
                self.set(run, State::Shared);
                out.push((to, Message::Arrive { run, state: State::Shared }));
            }
            Message::Yield { run, to, keep: false } => {
                pages.unmap(run);
                self.set(run, State::Invalid);
                out.push((to, Message::Arrive { run, state: State::Modified }));
            }
            Message::Arrive { run, state } => {
                if pages.fetch(run, from, state) {
                    self.fetched(run, state, pages, out);
                }
            }
            Message::Granted { run, grant } => {
                match grant {
                    Grant::Nothing => {
                        let state = self.state(run.first);
                        if state == State::Invalid || !pages.install_again(run, state, run.count) {
                            pages.install(run, State::Invalid); // the waiters fault again
                        }
                    }
                    Grant::Zeros => {
                        self.set(run, State::Modified);
                        pages.install_zeros(run);
                    }
                    Grant::Upgrade => {
                        self.set(run, State::Modified);
                        pages.unprotect(run);
                    }
                }
                self.done(run, grant == Grant::Zeros, out);
            }
            _ => unreachable!("{message:?} is not for a holder"),
        }
    }

    /// Records that the bytes of these pages are here.
    pub(crate) fn fetched(&mut self, run: Run, state: State, pages: &mut impl Pages, out: &mut Out) {
        self.set(run, state);
        pages.install(run, state);
        self.done(run, false, out);
    }

    fn done(&mut self, run: Run, is_new: bool, out: &mut Out) {
        // A request for new pages only was refused: nothing has come.
        let end = if self.state(run.first) == State::Invalid { run.first } else { run.first + run.count };
        if let Some(asked) = self.asked.remove(&run.first)
            && let Some(stream) = self.streams.iter_mut().find(|stream| stream.has_asked(asked))
        {
            stream.is_new = is_new;
            if asked.first + asked.count > end {
                stream.next = end; // fewer pages came than requested: the stream continues there
            }
        }
        out.push((self.home(run.first), Message::Done { run }));
        self.go_on_prefetching(out);
    }

    fn set(&mut self, run: Run, state: State) {
        self.states[run.first as usize..(run.first + run.count) as usize].fill(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that are there at once.
    struct AtOnce;
    impl Pages for AtOnce {
        fn install(&mut self, _: Run, _: State) {}
        fn install_zeros(&mut self, _: Run) {}
        fn install_again(&mut self, _: Run, state: State, _: u32) -> bool {
            state == State::Modified
        }
        fn unprotect(&mut self, _: Run) {}
        fn protect(&mut self, _: Run) {}
        fn unmap(&mut self, _: Run) {}
        fn fetch(&mut self, _: Run, _: u16, _: State) -> bool {
            true
        }
    }

    /// Requests sent at a fault on `page`; each is granted up to `grant` pages.
    fn all_asked(holder: &mut Holder, page: u32, grant: u32) -> Vec<u32> {
        let mut out = Out::new();
        holder.fault(page, false, &mut AtOnce, &mut out);
        let ask = |(_, message): &(u16, Message)| match message {
            Message::Ask { run, access: Access::Read } => *run,
            other => panic!("{other:?}"),
        };
        let runs: Vec<Run> = out.iter().map(ask).collect();
        for run in &runs {
            let got = Run { count: run.count.min(grant), ..*run };
            holder.receive(1, Message::Arrive { run: got, state: State::Shared }, &mut AtOnce, &mut out);
        }
        runs.iter().map(|run| run.count).collect()
    }

    /// Same as `all_asked`, where exactly one run is requested.
    fn asked(holder: &mut Holder, page: u32, grant: u32) -> u32 {
        let all = all_asked(holder, page, grant);
        let [one] = all[..] else { panic!("{all:?}") };
        one
    }

    #[test]
    fn runs_double_to_a_block() {
        let mut holder = Holder::new(Homes::Spread, 2, 3000, true);
        let mut page = 0;
        let mut runs = vec![];
        while page < 63 {
            let run = asked(&mut holder, page, 64);
            assert!(page / 64 == (page + run - 1) / 64, "a run lies in one block");
            runs.push(run);
            page += run;
        }
        assert_eq!(runs, [1, 2, 4, 8, 16, 32]);
        assert_eq!(all_asked(&mut holder, 63, 64), [1, 64, 64, 64, 64], "four blocks beforehand");
        assert_eq!(all_asked(&mut holder, 320, 64), [64; 6], "then as many as there were");
        assert_eq!(all_asked(&mut holder, 704, 64), [64; 12]);
        assert_eq!(all_asked(&mut holder, 1472, 64), [64; 17], "sixteen at most");
        assert_eq!(all_asked(&mut holder, 2560, 64), [64, 64, 64, 64, 64, 64, 56], "to the end of the region");
    }

    /// Requests sent at a write fault on `page`, where pages below `taken` are new.
    fn asked_to_write(holder: &mut Holder, page: u32, taken: u32) -> Vec<(Access, u32)> {
        let mut out = Out::new();
        holder.fault(page, true, &mut AtOnce, &mut out);
        let mut asked = vec![];
        for (_, message) in std::mem::take(&mut out) {
            let Message::Ask { run, access } = message else { panic!("{message:?}") };
            asked.push((access, run.count));
            let message = match run.first >= taken {
                false => Message::Granted { run, grant: Grant::Zeros },
                true if access == Access::New => Message::Granted { run: Run::one(run.first), grant: Grant::Nothing },
                true => Message::Arrive { run, state: State::Modified },
            };
            holder.receive(1, message, &mut AtOnce, &mut out);
        }
        asked
    }

    #[test]
    fn new_pages_are_asked_for_beforehand_as_long_as_they_are() {
        let mut holder = Holder::new(Homes::Spread, 2, 3000, true);
        let (write, new) = ((Access::Write, 64), (Access::New, 64));
        let mut page = 0;
        while page < 256 {
            let asked = asked_to_write(&mut holder, page, 1000);
            assert!(matches!(asked[..], [(Access::Write, _)]), "{asked:?} at {page}");
            page += asked[0].1;
        }
        assert_eq!(asked_to_write(&mut holder, 256, 1000), [write, new], "a fourth of what there was");
        assert_eq!(asked_to_write(&mut holder, 384, 1000), [write, new]);
        assert_eq!(asked_to_write(&mut holder, 512, 600), [write, new, new], "the others are not new");
        assert_eq!(holder.state(575), State::Modified);
        assert_eq!(holder.state(640), State::Invalid);
        assert_eq!(asked_to_write(&mut holder, 640, 600), [write], "nor will be what follows");
        assert_eq!(asked_to_write(&mut holder, 704, 600), [write]);
    }

    #[test]
    fn a_stream_goes_on_where_less_came_of_what_was_asked_for_beforehand() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        for page in [0, 1, 3, 7, 15, 31] {
            asked(&mut holder, page, 64);
        }
        let mut out = Out::new();
        holder.fault(63, false, &mut AtOnce, &mut out);
        let runs = [(63, 1), (64, 64), (128, 64), (192, 2), (256, 64)];
        for (first, count) in runs {
            let run = Run { first, count };
            holder.receive(1, Message::Arrive { run, state: State::Shared }, &mut AtOnce, &mut out);
        }
        assert_eq!(all_asked(&mut holder, 194, 64), [62], "what is behind it is here");
    }

    #[test]
    fn a_stream_goes_on_behind_what_came() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        assert_eq!((asked(&mut holder, 0, 64), asked(&mut holder, 1, 64), asked(&mut holder, 3, 2)), (1, 2, 4));
        assert_eq!(asked(&mut holder, 5, 64), 8, "two of four pages came");
        assert_eq!(asked(&mut holder, 500, 64), 1, "another place is another stream");
        assert_eq!((asked(&mut holder, 13, 64), asked(&mut holder, 501, 64)), (16, 2), "both go on");
    }

    #[test]
    fn a_stream_of_reads_may_leave_pages_out_and_one_of_writes_may_not() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        let runs = [(0, 1), (2, 2), (6, 4), (14, 8)];
        for (page, count) in runs {
            assert_eq!(asked(&mut holder, page, 64), count, "as many are left out as came last");
        }
        assert_eq!(asked(&mut holder, 31, 64), 1, "these are too many");
        assert_eq!(asked(&mut holder, 32, 64), 2, "where a stream goes on as it is, no other one does");
        for page in [200, 202, 204] {
            assert_eq!(asked_to_write(&mut holder, page, 1000), [(Access::Write, 1)]);
        }
    }

    #[test]
    fn where_pages_cannot_be_shared_they_are_asked_for_alone() {
        let (mut holder, mut out) = (Holder::new(Homes::Spread, 2, 1000, false), Out::new());
        let asks = |out: &mut Out| matches!(std::mem::take(out)[..], [(_, Message::Ask { access: Access::Alone, .. })]);
        holder.fault(0, false, &mut AtOnce, &mut out);
        assert!(asks(&mut out));
        let run = Run::one(0);
        holder.receive(1, Message::Arrive { run, state: State::Modified }, &mut AtOnce, &mut Out::new());
        holder.fault(0, false, &mut AtOnce, &mut out);
        assert!(out.is_empty(), "it is here");
        // Another machine can share it: from here on it is Shared. When the system then takes it out of the address
        // space, it comes back exclusive.
        holder.receive(0, Message::Yield { run, to: 1, keep: true }, &mut AtOnce, &mut Out::new());
        holder.fault(0, false, &mut AtOnce, &mut out);
        assert!(asks(&mut out));
    }

    #[test]
    fn prefetch_asks_for_what_is_missing_only() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        asked(&mut holder, 10, 1);
        let mut out = Out::new();
        holder.prefetch(0..130, &mut out);
        let runs: Vec<Run> = out
            .iter()
            .map(|(_, message)| match message {
                Message::Ask { run, access: Access::Read } => *run,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [(0, 10), (11, 53), (64, 64), (128, 2)].map(|(first, count)| Run { first, count });
        assert_eq!(runs, expected);
        out.clear();
        holder.prefetch(130..1000, &mut out);
        let under_way: Vec<Run> = holder.asked.values().copied().collect();
        assert_eq!((under_way.len(), out.len()), (ASKED_BEFOREHAND, ASKED_BEFOREHAND - 4), "what is left waits");
        for run in under_way {
            holder.receive(1, Message::Arrive { run, state: State::Shared }, &mut AtOnce, &mut out);
        }
        let left: Vec<Run> = holder.asked.values().copied().collect();
        assert_eq!(left, [(896, 64), (960, 40)].map(|(first, count)| Run { first, count }));
    }

    #[test]
    fn prefetch_to_write_asks_for_what_cannot_be_written_only() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        holder.fault(10, false, &mut AtOnce, &mut Out::new());
        for (first, state) in [(20, State::Modified), (21, State::Shared)] {
            let (mut out, run) = (Out::new(), Run::one(first));
            holder.fault(first, state == State::Modified, &mut AtOnce, &mut out);
            holder.receive(1, Message::Arrive { run, state }, &mut AtOnce, &mut out);
        }
        let mut out = Out::new();
        holder.prefetch_to_write(10..13, &mut out);
        holder.prefetch_to_write(20..23, &mut out);
        let runs: Vec<Run> = out
            .iter()
            .map(|(_, message)| match message {
                Message::Ask { run, access: Access::Write } => *run,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(runs, [11, 12, 21, 22].map(Run::one));
    }
}
